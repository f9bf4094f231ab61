// Connections that die at awkward moments.

package transport_test

import (
	"bytes"
	"context"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	ts "github.com/aplomb-go/aplomb/internal/testserver"
	"github.com/aplomb-go/aplomb/policy"
	"github.com/aplomb-go/aplomb/transport"
)

// A connection dies while a body comes. The rest is fetched, or the body is fetched again, over another pool.
func TestDeathInABody(t *testing.T) {
	content := text(100_000)
	rule := policy.Rule{StallTimeout: attemptTime}.Or(hasty)
	for name, step := range map[string]ts.Step{
		"a validator": ts.Content([]byte(content), `"v1"`), "a length": jsonStep(content, true, false), "neither": jsonStep(content, false, false),
	} {
		inMemory(t, anyHTTP, func(t *testing.T, cfg ts.Config) {
			w := wire(t, cfg, rule, func(*ts.Received) ts.Step { return step.Drip(10_000, 10*time.Millisecond) })
			w.ok(w.get(), time.Minute, name)
			for range 3 {
				time.AfterFunc(55*time.Millisecond, w.die)
				start := time.Now()
				got := w.get()
				w.ok(got, time.Minute, name)
				assert.True(t, got.body == content, name)
				assert.LessOrEqual(t, time.Since(start), time.Second, name)
				time.Sleep(10 * time.Second) // a host gets one new pool in 10 s
			}
			w.tr.CloseIdleConnections()
		})
	}
}

// A connection takes the requests, and no response comes back. No POST arrives twice, and
// after four of them the later requests take another connection.
func TestHalfDeadConnection(t *testing.T) {
	for name, rule := range map[string]policy.Rule{"timeouts": hasty, "ConnectTimeout": policy.Rule{ConnectTimeout: 100 * time.Millisecond}.Or(hasty)} {
		inMemory(t, anyHTTP, func(t *testing.T, cfg ts.Config) {
			s := ts.Start(t, cfg, ts.OK("well"))
			base := s.Transport()
			dial := base.DialContext
			var mu sync.Mutex
			var conns []*deafConn
			base.DialContext = func(ctx context.Context, network, addr string) (net.Conn, error) {
				conn, err := dial(ctx, network, addr)
				if err != nil {
					return nil, err
				}
				mu.Lock()
				defer mu.Unlock()
				c := &deafConn{Conn: conn, gone: make(chan struct{}), closed: make(chan struct{})}
				conns = append(conns, c)
				return c, nil
			}
			w := &wired{Server: s, t: t, net: cfg.Net, tr: mustNew(t, transport.Config{Base: base, Rule: rule})}
			deafen := func() {
				mu.Lock()
				defer mu.Unlock()
				for _, c := range conns {
					close(c.gone)
				}
				conns = nil
			}
			for range 3 {
				w.ok(w.get(), 0, name)
				deafen()
				for i := range 4 {
					before := w.Arrivals()
					assert.True(t, w.post().err != nil || i > 0 && !cfg.HTTP2, name)
					assert.Equal(t, 1, w.Arrivals()-before, "requests that arrived, %v", name)
				}
				w.ok(w.post(), 0, name)
				deafen()
				w.ok(w.get(), attemptTime+20*time.Millisecond, name)
				w.ok(w.get(), attemptTime+20*time.Millisecond, name)
				time.Sleep(20 * time.Second) // a host gets one new pool in 10 s
			}
			time.Sleep(2 * time.Minute)
			w.tr.CloseIdleConnections()
			assert.Zero(t, w.net.Open("fault.test"))
		})
	}
}

// A deafConn is a connection that hears nothing after gone is closed.
type deafConn struct {
	net.Conn
	gone, closed chan struct{}
	once         sync.Once
}

func (c *deafConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	select {
	case <-c.gone:
		<-c.closed
		return 0, net.ErrClosed
	default:
		return n, err
	}
}

func (c *deafConn) Close() error {
	c.once.Do(func() { close(c.closed) })
	return c.Conn.Close()
}

// A connection dies during an upload that is larger than all windows.
func TestDeathDuringAnUpload(t *testing.T) {
	inMemory(t, anyHTTP, func(t *testing.T, cfg ts.Config) {
		content := ts.Pattern(4 << 20)
		w := wire(t, cfg, policy.Rule{StallTimeout: attemptTime}.Or(hasty), well)
		for range 3 {
			w.ok(w.get(), attemptTime+20*time.Millisecond)
			w.die()
			time.Sleep(10 * time.Second)
			got := do(w.tr, newRequest(t, http.MethodPut, w.URL+"/", bytes.NewReader(content)))
			w.ok(got, 3*attemptTime)
			log := w.Log()
			assert.EqualValues(t, len(content), log[len(log)-1].BodyLength)
		}
		w.tr.CloseIdleConnections()
	})
}

// Everything dies again and again, while rules change and idle connections are closed. No
// request fails.
func TestDeathAndUpdates(t *testing.T) {
	inMemory(t, anyHTTP, func(t *testing.T, cfg ts.Config) {
		w := wire(t, cfg, hasty, func(r *ts.Received) ts.Step { return ts.OK("well").Delay(time.Duration(r.N%5) * time.Millisecond) })
		var workers, others sync.WaitGroup
		ctx, stop := context.WithCancel(t.Context())
		every := func(d time.Duration, f func()) {
			others.Go(func() {
				for ctx.Err() == nil {
					time.Sleep(d)
					f()
				}
			})
		}
		every(17*time.Millisecond, func() { w.tr.CloseIdleConnections() })
		every(23*time.Millisecond, func() { assert.NoError(t, w.tr.Update(hasty, nil)) })
		every(11*time.Second, w.die)
		for range 8 {
			workers.Go(func() {
				for range 400 {
					w.ok(w.get(), attemptTime+50*time.Millisecond)
					time.Sleep(200 * time.Millisecond)
				}
			})
		}
		workers.Wait()
		stop()
		others.Wait()
	})
}

// The connection of a host over HTTP/2 dies, for the first time. Each caller loses one POST, and no further.
func TestFirstSilenceOfAHost(t *testing.T) {
	for callers := 2; callers < 10; callers++ {
		inMemory(t, http2[:1], func(t *testing.T, cfg ts.Config) {
			cfg.Handler = func(*ts.Received) ts.Step { return ts.OK("well").Delay(10 * time.Millisecond) }
			w := wireTo(t, ts.Start(t, cfg), cfg.Net, policy.Rule{AttemptTimeout: attemptTime, MaxAttempts: 1}, lateDial(20*time.Millisecond))
			time.AfterFunc(time.Second, w.die)
			var failed atomic.Int32
			together(callers, func(int) {
				for range 100 {
					if w.send(http.MethodPost).err != nil {
						failed.Add(1)
					}
					time.Sleep(20 * time.Millisecond)
				}
			})
			assert.LessOrEqual(t, failed.Load(), int32(callers), "failed requests of %d callers", callers)
			w.tr.CloseIdleConnections()
		})
	}
}

// The connection of a busy host dies. The requests after the first timeout wait until another pool has a
// connection, instead of being lost as well.
func TestSilenceOfABusyHost(t *testing.T) {
	const every = 5 * time.Millisecond
	for _, dial := range []time.Duration{0, 20 * time.Millisecond, 80 * time.Millisecond} {
		inMemory(t, http2[:1], func(t *testing.T, cfg ts.Config) {
			cfg.Handler = func(*ts.Received) ts.Step { return ts.OK("well").Delay(10 * time.Millisecond) }
			w := wireTo(t, ts.Start(t, cfg), cfg.Net, policy.Rule{AttemptTimeout: attemptTime, MaxAttempts: 1}, lateDial(dial))
			var failed atomic.Int32
			var all sync.WaitGroup
			for i := range 256 {
				all.Go(func() {
					time.Sleep(time.Duration(i) * every)
					if i == 100 {
						w.die()
					}
					if w.send(http.MethodPost).err != nil {
						failed.Add(1)
					}
				})
			}
			all.Wait()
			assert.LessOrEqual(t, failed.Load(), int32((attemptTime+10*time.Millisecond)/every+4), "failed requests")
			w.tr.CloseIdleConnections()
		})
	}
}
