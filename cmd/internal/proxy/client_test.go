package proxy

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/aplomb-go/aplomb/debug"
	"github.com/aplomb-go/aplomb/internal/testserver"
	"github.com/aplomb-go/aplomb/policy"
	"github.com/aplomb-go/aplomb/transport"
)

// A virtual proxy and its upstream are on a network in memory, in virtual time.
type virtual struct {
	*proxy
	t   *testing.T
	net *testserver.Net
}

// inVirtualTime calls test with a proxy.
func inVirtualTime(t *testing.T, rule policy.Rule, upstream http.HandlerFunc, test func(v *virtual)) {
	synctest.Test(t, func(t *testing.T) {
		n := testserver.NewNet()
		base := &http.Transport{DialContext: n.DialContext, MaxIdleConnsPerHost: 64}
		s := newStats()
		tr, err := transport.New(transport.Config{Base: base, Rule: rule, Trace: s.trace()})
		require.NoError(t, err)
		o := options{client: time.Minute}
		require.NoError(t, o.routes.add("http://upstream.test"))
		v := &virtual{newProxy(o, tr, s, debug.New(), slog.New(slog.DiscardHandler)), t, n}
		servers := map[string]*http.Server{"upstream.test:80": {Handler: upstream}, "proxy.test:80": newServer(v, v.proxy)}
		for addr, server := range servers {
			l, err := n.Listen(addr)
			require.NoError(t, err)
			go func() { _ = server.Serve(l) }()
		}
		defer func() { // also if the test gives up
			for _, server := range servers {
				_ = server.Close()
			}
			base.CloseIdleConnections()
			v.handlers.Wait()
			time.Sleep(time.Hour) // the handlers of the upstream end
		}()
		test(v)
	})
}

// dial connects to the proxy.
func (v *virtual) dial() (net.Conn, *bufio.Reader) {
	v.t.Helper()
	conn, err := v.net.DialContext(context.Background(), "tcp", "proxy.test:80")
	require.NoError(v.t, err)
	return conn, bufio.NewReader(conn)
}

// response reads a response and its body.
func (v *virtual) response(r *bufio.Reader) (status int, body string) {
	v.t.Helper()
	resp, err := http.ReadResponse(r, nil)
	require.NoError(v.t, err)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	require.NoError(v.t, err)
	return resp.StatusCode, string(text)
}

// ends returns how long the proxy keeps a connection from now on.
func (v *virtual) ends(r *bufio.Reader) time.Duration {
	start := time.Now()
	_, _ = io.Copy(io.Discard, r)
	return time.Since(start)
}

func TestClientThatStopsSending(t *testing.T) {
	inVirtualTime(t, policy.Rule{}, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
	}, func(v *virtual) {
		for _, head := range []string{"Content-Length: 10\r\n\r\nx", "Transfer-Encoding: chunked\r\n\r\n1\r\nx\r\n", "Content-Length: 10\r\n\r\n"} {
			conn, r := v.dial()
			start := time.Now()
			fmt.Fprint(conn, "PUT / HTTP/1.1\r\nHost: proxy.test\r\n"+head)
			status, body := v.response(r)
			assert.Equal(t, http.StatusRequestTimeout, status, body)
			assert.Equal(t, time.Minute, time.Since(start))
			v.ends(r)
			conn.Close()
		}
		synctest.Wait()
		assert.Zero(t, v.active.Load())
	})
}

// Each piece may take its time, and so may the upstream when it has the whole body.
func TestSlowUpload(t *testing.T) {
	inVirtualTime(t, policy.Rule{}, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		time.Sleep(5 * time.Minute)
		_, _ = w.Write(body)
	}, func(v *virtual) {
		conn, r := v.dial()
		defer conn.Close()
		for range 2 { // the same connection
			fmt.Fprint(conn, "PUT / HTTP/1.1\r\nHost: proxy.test\r\nContent-Length: 5\r\n\r\n")
			for _, c := range "hello" {
				time.Sleep(50 * time.Second)
				fmt.Fprint(conn, string(c))
			}
			status, body := v.response(r)
			assert.Equal(t, http.StatusOK, status)
			assert.Equal(t, "hello", body)
			time.Sleep(90 * time.Second)
		}
	})
}

// Whoever reads a body may read once more after its end, as http.Transport does. No deadline
// is left then, although the server reads on to see whether the client goes away.
func TestReadAfterTheEnd(t *testing.T) {
	inVirtualTime(t, policy.Rule{}, hello, func(v *virtual) {
		server := newServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			c, r := newDownstream(w, r, time.Minute)
			defer c.end()
			text, err := io.ReadAll(r.Body)
			assert.NoError(t, err)
			_, err = r.Body.Read(make([]byte, 1))
			assert.Equal(t, io.EOF, err)
			time.Sleep(5 * time.Minute)
			assert.NoError(t, r.Context().Err())
			_, _ = c.Write(text)
		}), v.proxy)
		l, err := v.net.Listen("direct.test:80")
		require.NoError(t, err)
		go func() { _ = server.Serve(l) }()
		defer func() { _ = server.Close() }()
		conn, err := v.net.DialContext(context.Background(), "tcp", "direct.test:80")
		require.NoError(t, err)
		defer conn.Close()
		r := bufio.NewReader(conn)
		for _, body := range []string{"Content-Length: 5\r\n\r\nhello", "Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n"} {
			fmt.Fprint(conn, "PUT / HTTP/1.1\r\nHost: direct.test\r\n"+body)
			status, got := v.response(r)
			assert.Equal(t, http.StatusOK, status)
			assert.Equal(t, "hello", got)
		}
	})
}

// An upload that trickles in keeps nobody from the upstream, although there is a gate.
func TestTricklingUploads(t *testing.T) {
	rule := policy.Rule{Gate: policy.Gate{Mode: policy.GateWait, Start: 10, Max: 10}}
	inVirtualTime(t, rule, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		time.Sleep(20 * time.Millisecond)
		hello(w, r)
	}, func(v *virtual) {
		// measure returns how many requests ten clients get through in a while.
		measure := func() int64 {
			var n atomic.Int64
			var all sync.WaitGroup
			end := time.Now().Add(5 * time.Second)
			for range 10 {
				all.Go(func() {
					conn, r := v.dial()
					defer conn.Close()
					for time.Now().Before(end) {
						fmt.Fprint(conn, "GET / HTTP/1.1\r\nHost: proxy.test\r\n\r\n")
						if status, _ := v.response(r); status == http.StatusOK {
							n.Add(1)
						}
					}
				})
			}
			all.Wait()
			return n.Load()
		}
		alone := measure()
		var uploads sync.WaitGroup
		stop := make(chan struct{})
		for range 20 {
			conn, _ := v.dial()
			uploads.Go(func() {
				defer conn.Close()
				fmt.Fprint(conn, "PUT / HTTP/1.1\r\nHost: proxy.test\r\nContent-Length: 1000000\r\n\r\n")
				for {
					fmt.Fprint(conn, "x")
					select {
					case <-time.After(200 * time.Millisecond):
					case <-stop:
						return
					}
				}
			})
		}
		time.Sleep(time.Second)
		with := measure()
		close(stop)
		uploads.Wait()
		assert.Positive(t, alone)
		assert.GreaterOrEqual(t, 10*with, 8*alone, "%d requests alone, %d beside the uploads", alone, with)
	})
}

// The upstream has responded, but the rest of the body does not come. The server waits for
// it under a lock, so this test is not in virtual time.
func TestUploadBeyondTheResponse(t *testing.T) {
	to := upstream(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusForbidden) })
	p := start(t, "-to", to.URL, "-client", "50ms")
	conn, err := net.Dial("tcp", strings.TrimPrefix(p.url, "http://"))
	require.NoError(t, err)
	defer conn.Close()
	fmt.Fprint(conn, "PUT / HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\nx")
	r := bufio.NewReader(conn)
	resp, err := http.ReadResponse(r, nil)
	require.NoError(t, err)
	resp.Body.Close()
	assert.Equal(t, http.StatusForbidden, resp.StatusCode)
	_, _ = io.Copy(io.Discard, r) // until the proxy gives the connection up
	assert.Equal(t, exitFine, p.stop())
}

// ReverseProxy writes under a lock, so this test is not in virtual time either.
func TestClientThatStopsReading(t *testing.T) {
	gone := make(chan struct{})
	to := upstream(t, func(w http.ResponseWriter, _ *http.Request) {
		defer close(gone)
		for {
			if _, err := w.Write(make([]byte, 64<<10)); err != nil {
				return
			}
		}
	})
	p := start(t, "-to", to.URL, "-client", "50ms")
	conn, err := net.Dial("tcp", strings.TrimPrefix(p.url, "http://"))
	require.NoError(t, err)
	defer conn.Close()
	fmt.Fprint(conn, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
	<-gone // the upstream works no more for this client
	assert.Equal(t, exitFine, p.stop())
}

// A stream may be silent for any time.
func TestSilentStream(t *testing.T) {
	inVirtualTime(t, policy.Rule{}, func(w http.ResponseWriter, _ *http.Request) {
		for range 3 {
			_, _ = io.WriteString(w, "event\n")
			_ = http.NewResponseController(w).Flush()
			time.Sleep(10 * time.Minute)
		}
	}, func(v *virtual) {
		conn, r := v.dial()
		defer conn.Close()
		for range 2 {
			fmt.Fprint(conn, "GET / HTTP/1.1\r\nHost: proxy.test\r\n\r\n")
			_, body := v.response(r)
			assert.Equal(t, strings.Repeat("event\n", 3), body)
		}
	})
}

// Neither a connection without a request nor one with half a header stays.
func TestIdleConnections(t *testing.T) {
	inVirtualTime(t, policy.Rule{}, hello, func(v *virtual) {
		conn, r := v.dial()
		defer conn.Close()
		fmt.Fprint(conn, "GET / HTTP/1.1\r\nHost: proxy.test\r\n")
		assert.Equal(t, headerTimeout, v.ends(r))

		conn, r = v.dial()
		defer conn.Close()
		fmt.Fprint(conn, "GET / HTTP/1.1\r\nHost: proxy.test\r\n\r\n")
		v.response(r)
		assert.Equal(t, idleTimeout, v.ends(r))
	})
}
