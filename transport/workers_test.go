package transport_test

import (
	"bufio"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	ts "github.com/aplomb-go/aplomb/internal/testserver"
	"github.com/aplomb-go/aplomb/policy"
	"github.com/aplomb-go/aplomb/policy/profile"
	"github.com/aplomb-go/aplomb/transport"
)

// prefork serves connections with so many workers. A worker has one connection until that is closed.
func prefork(t *testing.T, n *ts.Net, addr string, workers int, status func() string) {
	l, err := n.Listen(addr)
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close() })
	for range workers {
		go func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				for r := bufio.NewReader(c); ; {
					req, err := http.ReadRequest(r)
					if err != nil {
						break
					}
					_, _ = io.Copy(io.Discard, req.Body)
					time.Sleep(20 * time.Millisecond)
					_, _ = io.WriteString(c, "HTTP/1.1 "+status()+" -\r\nContent-Length: 2\r\n\r\nok")
				}
				_ = c.Close()
			}
		}()
	}
}

// Each worker of a server keeps one connection, and there are as many callers as workers. The application
// answers 500 every other second. The way to another pool costs no good answer, and little time.
func TestPoolsOfAServerWithFewWorkers(t *testing.T) {
	for name, rule := range map[string]policy.Rule{"default": {}, "API": profile.API(), "Service": profile.Service(), "one": {MaxAttempts: 1}} {
		for _, method := range []string{http.MethodPost, http.MethodGet} {
			for _, workers := range []int{1, 2, 3, 5, -3} { // negative: another host is asked as well, whose connections are left alone
				beside := workers < 0
				workers = max(workers, -workers)
				inBubble(t, name+method, func(t *testing.T) {
					n, start := ts.NewNet(), time.Now()
					prefork(t, n, "h.test:80", workers, func() string {
						if time.Since(start)/time.Second%2 == 1 {
							return "500"
						}
						return "200"
					})
					tr := mustNew(t, transport.Config{Base: &http.Transport{DialContext: n.DialContext, MaxIdleConnsPerHost: 4}, Rule: rule})
					prefork(t, n, "other.test:80", 1, func() string { return "200" })
					if beside {
						assert.Equal(t, 200, do(tr, newRequest(t, method, "http://other.test/", strings.NewReader("text"))).status)
					}
					var failed, late atomic.Int32
					var all sync.WaitGroup
					for range workers {
						all.Go(func() {
							for range 200 {
								begun := time.Now()
								got := do(tr, newRequest(t, method, "http://h.test/", strings.NewReader("text")))
								if got.err != nil {
									t.Log(got.err)
									failed.Add(1)
								}
								if time.Since(begun) > 500*time.Millisecond && method == http.MethodPost {
									late.Add(1)
								}
								time.Sleep(30 * time.Millisecond)
							}
						})
					}
					all.Wait()
					if beside && method == http.MethodPost { // the GETs take minutes
						assert.Equal(t, 1, n.Open("other.test"), "connections of the other host")
					}
					assert.Zero(t, failed.Load(), "%s of %d workers: failed", method, workers)
					assert.Zero(t, late.Load(), "%s of %d workers: late", method, workers)
					tr.CloseIdleConnections()
				})
			}
		}
	}
}
