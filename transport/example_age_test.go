package transport_test

import (
	"context"
	"fmt"
	"io"
	"log"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/aplomb-go/aplomb/internal/testserver"
	"github.com/aplomb-go/aplomb/transport"
)

// aging returns a Config whose connections take requests for at most so long. newBase is
// transport.NewBase, or makes a transport with settings of your own.
func aging(age time.Duration, newBase func() *http.Transport) transport.Config {
	pool := func(string) http.RoundTripper { return &agingBase{age: age, newBase: newBase} }
	return transport.Config{Base: pool(""), NewPool: pool}
}

// An agingBase makes a new base at intervals. So its requests look the name up again, and reach
// servers that are new behind it.
type agingBase struct {
	age     time.Duration
	newBase func() *http.Transport

	mu    sync.Mutex // guards the following
	base  *http.Transport
	until time.Time
}

func (a *agingBase) RoundTrip(req *http.Request) (*http.Response, error) {
	return a.current().RoundTrip(req)
}

func (a *agingBase) current() *http.Transport {
	a.mu.Lock()
	defer a.mu.Unlock()
	if now := time.Now(); !now.Before(a.until) {
		if a.base != nil { // what is under way goes on; HTTP/2 then ends after IdleConnTimeout
			defer a.base.CloseIdleConnections()
		}
		a.base, a.until = a.newBase(), now.Add(a.age-rand.N(a.age/5+1)) // processes do not connect at once
	}
	return a.base
}

// CloseIdleConnections lets that of http.Client work.
func (a *agingBase) CloseIdleConnections() { a.current().CloseIdleConnections() }

// A name moves to another server, as in a blue/green deployment. The old server still answers, so
// kept connections would stay with it for ever.
func ExampleConfig_age() {
	serve := func(name string) *httptest.Server {
		return httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, name) }))
	}
	blue, green := serve("blue"), serve("green")
	defer blue.Close()
	defer green.Close()
	address := blue.Listener.Addr().String() // of the name
	const age = 10 * time.Millisecond        // 5 * time.Minute in your program
	client := &http.Client{Transport: transport.MustNew(aging(age, func() *http.Transport {
		base := transport.NewBase()
		base.DialContext = func(ctx context.Context, network, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, network, address)
		}
		return base
	}))}
	defer client.CloseIdleConnections()
	for _, next := range []*httptest.Server{green, blue} {
		resp, err := client.Get("http://orders.example.com/")
		if err != nil {
			log.Fatal(err)
		}
		body, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		fmt.Print(string(body))
		address = next.Listener.Addr().String()
		time.Sleep(age)
	}
	// Output:
	// blue
	// green
}

// While a request is sent every second, a name moves. With the base of the example all requests
// reach the new server within the age, none fails, and what is under way ends well. The old
// server then has no connection any more. With the default base the requests stay where they are.
func TestConnectionsAge(t *testing.T) {
	const age = time.Minute
	for _, http2 := range []bool{false, true} {
		for _, ages := range []bool{true, false} {
			t.Run(fmt.Sprintf("http2=%v/ages=%v", http2, ages), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					network := testserver.NewNet()
					config := testserver.Config{Net: network, Host: "blue.test", HTTP2: http2, Handler: func(r *testserver.Received) testserver.Step {
						if r.Path == "/slow" {
							return testserver.OK("slow").Delay(3 * age)
						}
						return testserver.OK("blue")
					}}
					blue := testserver.Start(t, config)
					config.Host = "green.test"
					green := testserver.Start(t, config)
					var address atomic.Value // of the name
					address.Store("blue.test:80")
					newBase := func() *http.Transport {
						base := blue.Transport().Clone()
						base.IdleConnTimeout = 90 * time.Second // as in http.DefaultTransport
						base.DialContext = func(ctx context.Context, kind, _ string) (net.Conn, error) {
							return network.DialContext(ctx, kind, address.Load().(string))
						}
						return base
					}
					over := aging(age, newBase)
					if !ages {
						over = transport.Config{Base: newBase()}
					}
					tr := transport.MustNew(over)
					defer tr.CloseIdleConnections()
					get := func(path string) {
						resp, err := tr.RoundTrip(getRequest(t, "http://orders.test"+path))
						require.NoError(t, err)
						_, err = io.Copy(io.Discard, resp.Body)
						require.NoError(t, err)
						require.NoError(t, resp.Body.Close())
					}
					var slow sync.WaitGroup
					slow.Go(func() { get("/slow") })
					moved := 0
					for second := range 5 * 60 {
						if second == 30 {
							address.Store("green.test:80")
							moved = blue.Arrivals()
						}
						get("/")
						time.Sleep(time.Second)
					}
					slow.Wait()
					late := blue.Arrivals() - moved
					if !ages {
						assert.Equal(t, 270, late, "the default base stays")
						return
					}
					assert.LessOrEqual(t, late, int(age/time.Second))
					assert.Equal(t, 270-late, green.Arrivals())
					time.Sleep(90 * time.Second)
					synctest.Wait()
					assert.Zero(t, blue.Open())
				})
			})
		}
	}
}
