// Connections that die, and servers that are bad on some of them.

package transport_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/aplomb-go/aplomb/internal/soak"
	"github.com/aplomb-go/aplomb/internal/testkit"
	ts "github.com/aplomb-go/aplomb/internal/testserver"
	"github.com/aplomb-go/aplomb/policy"
	"github.com/aplomb-go/aplomb/policy/backoff"
	"github.com/aplomb-go/aplomb/transport"
)

// attemptTime is the AttemptTimeout of these tests, and a slow request takes longer.
const attemptTime = 300 * time.Millisecond

var (
	// quick has four attempts with a short timeout, almost without waits between.
	hasty = policy.Rule{MaxAttempts: 4, AttemptTimeout: attemptTime, Backoff: backoff.Constant(10 * time.Millisecond), RetryBudget: policy.RetryBudget{Enabled: policy.Off}}

	anyHTTP = []protocol{http1[0], http2[0], http2[1]}
)

// A wired is a server in memory whose connections can die, and a Transport over it that
// nobody observes, so that the fast path is taken.
type wired struct {
	*ts.Server
	t   *testing.T
	net *ts.Net
	tr  *transport.Transport
}

func wire(t *testing.T, cfg ts.Config, rule policy.Rule, handler func(*ts.Received) ts.Step) *wired {
	cfg.Handler = handler
	return wireTo(t, ts.Start(t, cfg), cfg.Net, rule, func(*http.Transport) {})
}

// wireTo returns a Transport to a server. change changes its base.
func wireTo(t *testing.T, s *ts.Server, net *ts.Net, rule policy.Rule, change func(*http.Transport)) *wired {
	base := s.Transport()
	change(base)
	return &wired{Server: s, t: t, net: net, tr: mustNew(t, transport.Config{Base: base, Rule: rule})}
}

// onePool gives a base one pool, because a copy could pass its limit of connections.
func onePool(base *http.Transport) { base.MaxConnsPerHost = 100 }

func well(*ts.Received) ts.Step { return ts.OK("well") }

// die makes all open connections silent.
func (w *wired) die() { w.net.Silence("fault.test") }

func (w *wired) get() result { return w.send(http.MethodGet) }

func (w *wired) send(method string) result {
	return do(w.tr, newRequest(w.t, method, w.URL+"/", nil))
}

// ok asserts that a request is answered within most.
func (w *wired) ok(got result, most time.Duration, msg ...any) {
	w.t.Helper()
	assert.NoError(w.t, got.err, msg...)
	assert.Equal(w.t, 200, got.status, msg...)
	assert.LessOrEqual(w.t, got.elapsed, most, msg...)
}

// The connection of many workers becomes a black hole. Each request comes through, with
// one slow attempt at most, and over one new connection of HTTP/2, or two: net/http offers a
// new connection to other requests a little after its first, and one that asks in between
// dials. A body that has not come stalls, and is fetched again.
func TestDeathUnderLoad(t *testing.T) {
	inMemory(t, anyHTTP, func(t *testing.T, cfg ts.Config) {
		for name, rule := range map[string]policy.Rule{"with a wait": hasty, "without": policy.Rule{Backoff: backoff.Constant(0)}.Or(hasty)} {
			cfg.Net = ts.NewNet()
			rule.StallTimeout = attemptTime
			w := wire(t, cfg, rule, func(r *ts.Received) ts.Step {
				return ts.OK("well").Delay(time.Duration(1+r.N%7) * time.Millisecond)
			})
			var wg sync.WaitGroup
			before := 0
			for range 64 {
				wg.Go(func() {
					for range 20 {
						w.ok(w.get(), attemptTime+50*time.Millisecond, name)
					}
				})
			}
			time.Sleep(30*time.Millisecond + time.Microsecond) // no response is on its way; no timeout bounds a body
			before = w.Conns()
			w.die()
			wg.Wait()
			for range 10 {
				w.ok(w.get(), 50*time.Millisecond, name)
			}
			if cfg.HTTP2 {
				assert.LessOrEqual(t, w.Conns()-before, 2, "connections, %v", name)
			}
		}
	})
}

// Connections die beside one that is well. Streams go on over that one meanwhile, so the
// host is not silent, and the requests may be slow by themselves. Each retry takes another pool.
func TestDeathBesideStreams(t *testing.T) {
	hedged := policy.Rule{Hedge: policy.Hedge{Delay: time.Hour}} // so that what comes is noted from the beginning
	for name, rule := range map[string]policy.Rule{"timeouts": hasty, "deadlines": hedged} {
		inMemory(t, anyHTTP, func(t *testing.T, cfg ts.Config) {
			cfg.Streams = 100
			cfg.Routes = map[string]ts.Script{"/stream": {ts.OK(strings.Repeat("-", 200)).Drip(1, 50*time.Millisecond)}}
			cfg.Handler = func(*ts.Received) ts.Step { return ts.OK("well").Delay(5 * time.Millisecond) }
			var mu sync.Mutex
			var conns []*ts.Conn
			w := wireTo(t, ts.Start(t, cfg), cfg.Net, rule, func(base *http.Transport) {
				base.DialContext = func(ctx context.Context, network, addr string) (net.Conn, error) {
					conn, err := cfg.Net.DialContext(ctx, network, addr)
					mu.Lock()
					defer mu.Unlock()
					if err == nil {
						conns = append(conns, conn.(*ts.Conn))
					}
					return conn, err
				}
			})
			var streams sync.WaitGroup
			for i := range cfg.Streams {
				streams.Go(func() { w.ok(do(w.tr, newRequest(t, http.MethodGet, w.URL+"/stream", nil)), time.Minute, name) })
				if i == 0 {
					synctest.Wait() // the other streams share the connection, if that is possible
				}
			}
			time.Sleep(time.Millisecond)
			mu.Lock()
			well := len(conns)
			mu.Unlock()
			together(16, func(int) { w.ok(w.get(), 10*time.Millisecond, name) })
			for _, conn := range conns[well:] {
				conn.Silence()
			}
			slow := 0
			for range 20 {
				start := time.Now()
				if err := within(t, w.tr, http.MethodGet, w.URL, attemptTime+20*time.Millisecond); rule.AttemptTimeout > 0 {
					assert.NoError(t, err, name)
				}
				if time.Since(start) >= attemptTime {
					slow++
				}
			}
			assert.LessOrEqual(t, slow, 5, name)
			streams.Wait()
			w.tr.CloseIdleConnections()
		})
	}
}

// Only hedges find another way. A connection that died before is not taken again.
func TestDeathWithHedges(t *testing.T) {
	inMemory(t, anyHTTP, func(t *testing.T, cfg ts.Config) {
		w := wire(t, cfg, policy.Rule{Hedge: policy.Hedge{Delay: 50 * time.Millisecond}}.Or(quick), well)
		for i := range 4 {
			for range 3 {
				w.ok(w.get(), 55*time.Millisecond, i)
			}
			w.die()
			time.Sleep(10 * time.Second)
		}
		w.tr.CloseIdleConnections()
	})
}

// Many connections die that are idle in the pool, and only the caller has a deadline. The request that meets the
// death fails, which may be its own fault, and three more. Two new pools come at once, and then one in 10 s.
// net/http returns the cause of a deadline in place of the deadline's error.
func TestDeathOfAPool(t *testing.T) {
	for _, cause := range []error{nil, errors.New("the caller is in a hurry")} {
		inMemory(t, anyHTTP, func(t *testing.T, cfg ts.Config) {
			w := wire(t, cfg, policy.Rule{}, func(*ts.Received) ts.Step { return ts.OK("well").Delay(5 * time.Millisecond) })
			for range 5 {
				together(32, func(_ int) { w.ok(w.get(), time.Second, cause) })
				w.die()
				failed := 0
				for range 20 {
					ctx, cancel := context.WithTimeoutCause(t.Context(), attemptTime, cause)
					if _, err := fetch(t, w.tr, ctx, w.URL); err != nil {
						failed++
						assert.True(t, cause != nil || errors.Is(err, context.DeadlineExceeded), err)
					}
					cancel()
				}
				assert.LessOrEqual(t, failed, 4, "failed requests, %v", cause)
				time.Sleep(10 * time.Second)
			}
		})
	}
}

// Connections die one after the other. A single request that times out proves nothing, so the second
// is slow as well. A base that has one pool closes its idle connections before the retry.
func TestDeathAfterDeath(t *testing.T) {
	for name, row := range map[string]struct {
		protocols []protocol
		change    func(*testing.T, *ts.Net, *http.Transport)
		dies      string // the host whose connections die
		slow      int    // requests after a death
	}{
		"pools":            {anyHTTP, func(*testing.T, *ts.Net, *http.Transport) {}, "fault.test", 2},
		"the default base": {anyHTTP, func(t *testing.T, _ *ts.Net, b *http.Transport) { setDefaultTransport(t, b) }, "fault.test", 2},
		"a tunnel through a proxy": {[]protocol{http1[1], http2[1]}, func(t *testing.T, n *ts.Net, b *http.Transport) {
			tunnels(t, n)
			b.Proxy = http.ProxyURL(&url.URL{Scheme: "http", Host: "proxy.test:3128"})
		}, "proxy.test", 2},
		"one connection": {anyProtocol, func(_ *testing.T, _ *ts.Net, b *http.Transport) { b.MaxConnsPerHost = 1 }, "fault.test", 1},
		"an HTTP/2 of its own": {anyProtocol, func(_ *testing.T, _ *ts.Net, b *http.Transport) {
			b.TLSNextProto = map[string]func(string, *tls.Conn) http.RoundTripper{"other": nil}
		}, "fault.test", 1},
	} {
		inMemory(t, row.protocols, func(t *testing.T, cfg ts.Config) {
			w := wireTo(t, ts.Start(t, cfg, ts.OK("well")), cfg.Net, hasty, func(b *http.Transport) { row.change(t, cfg.Net, b) })
			if name == "the default base" {
				w.tr = mustNew(t, transport.Config{Rule: hasty})
			}
			for range 4 {
				for range row.slow {
					w.ok(w.get(), attemptTime+20*time.Millisecond, name)
				}
				w.ok(w.get(), 0, name)
				cfg.Net.Silence(row.dies)
				time.Sleep(10 * time.Second)
			}
			assert.NotZero(t, w.Arrivals())
			if cfg.HTTP2 {
				assert.Equal(t, row.slow > 1, w.tr.Snapshot().Hosts[0].Pool > 0, "%s: the host has moved", name)
			}
			w.tr.CloseIdleConnections()
		})
	}
}

// A connection is slow by 2 s.
func TestSlowConnection(t *testing.T) {
	slow := func(r *ts.Received) ts.Step {
		if r.Conn == 1 {
			return ts.OK("late").Delay(2 * time.Second)
		}
		return ts.OK("well")
	}
	inMemory(t, anyHTTP, func(t *testing.T, cfg ts.Config) {
		w := wire(t, cfg, hasty, slow)
		w.ok(w.get(), attemptTime+20*time.Millisecond, "the retry takes another connection")
		w.ok(w.get(), attemptTime+20*time.Millisecond, "the host may leave the first after two")
		for range 20 {
			w.ok(w.get(), 0)
		}
	})
	inMemory(t, anyHTTP, func(t *testing.T, cfg ts.Config) {
		w := wire(t, cfg, policy.Rule{Hedge: policy.Hedge{Delay: 50 * time.Millisecond}}.Or(quick), slow)
		w.ok(w.get(), 50*time.Millisecond, "the hedge takes another connection")
		for range 20 {
			w.ok(w.get(), 50*time.Millisecond)
		}
	})
}

// A server behind a balancer is bad, and other connections lead to a healthy one.
func TestBadServerOnOneConnection(t *testing.T) {
	for _, code := range []int{421, 502, 503, 504} {
		inMemory(t, anyHTTP, func(t *testing.T, cfg ts.Config) {
			var mu sync.Mutex
			bad := 0
			w := wire(t, cfg, quick, func(r *ts.Received) ts.Step {
				mu.Lock()
				defer mu.Unlock()
				if r.Conn == 1 {
					bad++
					return ts.Status(code)
				}
				return ts.OK("well")
			})
			for i := range 21 {
				w.ok(w.get(), 0, code, i)
			}
			most := 5 // in a row, before the host moves
			if code == 421 {
				most = 1
			}
			assert.Equal(t, most, bad, code)
			assert.LessOrEqual(t, w.Conns(), twoConns(cfg), "connections, %v", code)
		})
	}
}

// A POST is not repeated after a 503. After five in a row the next one takes another connection,
// and the host stays there because it does better.
func TestBadServerOnOneConnectionOfPOSTs(t *testing.T) {
	inMemory(t, anyHTTP, func(t *testing.T, cfg ts.Config) {
		w := wire(t, cfg, quick, func(r *ts.Received) ts.Step {
			if r.Conn == 1 {
				return ts.Status(503)
			}
			return ts.OK("well")
		})
		for range 5 {
			assert.Equal(t, 503, w.post().status)
		}
		for range 20 {
			w.ok(w.post(), 0)
		}
		assert.Equal(t, 25, w.Arrivals(), "requests that arrived")
		assert.LessOrEqual(t, w.Conns(), twoConns(cfg), "connections")
	})
}

// twoConns is the most connections of two pools. net/http may dial one more for HTTP/2, because
// it offers a new connection to other requests a little later than to the first.
func twoConns(cfg ts.Config) int {
	if cfg.HTTP2 {
		return 3
	}
	return 2
}

// Every connection says 421. It is not repeated over a connection that said so. A Transport around another
// does not start again when the inner one has no other connection.
func TestMisdirectedEverywhere(t *testing.T) {
	misdirected := func(*ts.Received) ts.Step { return ts.Status(421) }
	for _, nested := range []bool{false, true} {
		inMemory(t, anyHTTP, func(t *testing.T, cfg ts.Config) {
			w := wire(t, cfg, quick, misdirected)
			if nested {
				w.tr = mustNew(t, transport.Config{Base: w.tr, Rule: quick})
			}
			for _, method := range []string{http.MethodPost, http.MethodGet, http.MethodPost} {
				before := len(w.Log())
				got := w.send(method)
				require.NoError(t, got.err)
				assert.Equal(t, 421, got.status)
				conns := map[int]int{}
				for _, a := range w.Log()[before:] {
					conns[a.Conn]++
				}
				for conn, n := range conns {
					count(t, 1, n, "request sent", "%s, connection %d, nested %v", method, conn, nested)
				}
				assert.LessOrEqual(t, len(conns), 2, "%s, nested %v", method, nested)
			}
			w.tr.CloseIdleConnections()
		})
	}
	inMemory(t, anyHTTP, func(t *testing.T, cfg ts.Config) {
		cfg.Handler = misdirected
		w := wireTo(t, ts.Start(t, cfg), cfg.Net, quick, onePool)
		assert.Equal(t, 421, w.get().status)
		assert.Equal(t, map[bool]int{false: 2, true: 1}[cfg.HTTP2], w.Arrivals(), "requests that arrived")
	})
}

// A named wait, and a total overload, cost few connections.
func TestOverloadCostsFewConnections(t *testing.T) {
	for name, step := range map[string]ts.Step{
		"503":             ts.Status(503),
		"503 with a wait": ts.Status(503).Header("Retry-After", "1"),
		"silence":         ts.Hang(),
	} {
		inMemory(t, http2, func(t *testing.T, cfg ts.Config) {
			w := wire(t, cfg, hasty, func(r *ts.Received) ts.Step {
				if r.N == 1 {
					return ts.OK("well")
				}
				return step
			})
			w.ok(w.get(), 0)
			until := time.Now().Add(4 * time.Second)
			together(8, func(_ int) {
				for time.Now().Before(until) {
					_ = w.get()
				}
			})
			if name == "503 with a wait" {
				assert.Equal(t, 1, w.Conns(), "connections, %v", name)
			}
			assert.LessOrEqual(t, w.Conns(), 1+2, "connections, %v", name)
		})
	}
}

// Slow handlers cost few connections. A long poll on the same connection lives on.
func TestSlowHandlers(t *testing.T) {
	for _, beside := range []string{"/poll", "/drip"} { // a request that is under way meanwhile
		inMemory(t, http2, func(t *testing.T, cfg ts.Config) {
			cfg.Routes = map[string]ts.Script{
				"/":     {ts.OK("well")},
				"/poll": {ts.OK("news").Delay(time.Minute)},
				"/drip": {ts.OK("a stream of a second").Drip(1, 100*time.Millisecond)},
				"/slow": {ts.OK("slow").Delay(time.Hour)},
			}
			s := ts.Start(t, cfg)
			base := s.Transport()
			tr, untimed := mustNew(t, transport.Config{Base: base, Rule: hasty}), mustNew(t, transport.Config{Base: base})
			require.NoError(t, do(tr, newRequest(t, http.MethodGet, s.URL+"/", nil)).err)
			var wg sync.WaitGroup
			wg.Go(func() {
				to := untimed
				if beside == "/drip" {
					to = tr // which then hears the pieces
				}
				got := do(to, newRequest(t, http.MethodGet, s.URL+beside, nil))
				assert.NoError(t, got.err)
				assert.NotEmpty(t, got.body)
			})
			time.Sleep(10 * time.Millisecond)
			for range 4 {
				wg.Go(func() {
					got := do(tr, newRequest(t, http.MethodGet, s.URL+"/slow", nil))
					assert.ErrorIs(t, got.err, context.DeadlineExceeded)
				})
			}
			wg.Wait()
			assert.LessOrEqual(t, s.Conns(), 1+2, "connections, %v", beside)
			tr.CloseIdleConnections()
		})
	}
}

// lateDial makes each connection come late.
func lateDial(by time.Duration) func(*http.Transport) {
	return func(base *http.Transport) {
		dial := base.DialContext
		base.DialContext = func(ctx context.Context, network, addr string) (net.Conn, error) {
			time.Sleep(by)
			return dial(ctx, network, addr)
		}
	}
}

// impatientDial gives up after 5 s.
func impatientDial(base *http.Transport) {
	dial := base.DialContext
	base.DialContext = func(ctx context.Context, network, addr string) (net.Conn, error) {
		ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
		defer cancel()
		return dial(ctx, network, addr)
	}
}

// New connections under the first trouble are made once, and shared.
func TestRequestsWaitForOneHandshake(t *testing.T) {
	inMemory(t, http2, func(t *testing.T, cfg ts.Config) {
		w := wireTo(t, ts.Start(t, cfg, ts.OK("well")), cfg.Net, hasty, lateDial(100*time.Millisecond))
		w.ok(w.get(), 100*time.Millisecond)
		before := w.Conns()
		w.die()
		together(64, func(_ int) { w.ok(w.get(), attemptTime+120*time.Millisecond) })
		assert.Equal(t, 1, w.Conns()-before, "connections")
	})
}

// A caller who leaves does not wait for a connection that another request makes.
func TestCancelEndsTheWaitForAHandshake(t *testing.T) {
	inMemory(t, http2, func(t *testing.T, cfg ts.Config) {
		s := ts.Start(t, cfg, ts.OK("well"))
		base := s.Transport()
		lateDial(500 * time.Millisecond)(base)
		tr := mustNew(t, transport.Config{Base: base, Rule: hasty})
		require.NoError(t, do(mustNew(t, transport.Config{Base: base}), newRequest(t, http.MethodGet, s.URL, nil)).err)
		cfg.Net.Silence("fault.test")
		var wg sync.WaitGroup
		wg.Go(func() { do(tr, newRequest(t, http.MethodGet, s.URL, nil)) })
		time.Sleep(attemptTime + 50*time.Millisecond)
		req := newRequest(t, http.MethodGet, s.URL, nil)
		cancels(req, 50*time.Millisecond)
		got := do(tr, req)
		assert.Error(t, got.err)
		assert.Equal(t, 50*time.Millisecond, got.elapsed)
		wg.Wait()
		time.Sleep(time.Second) // the dials end
		tr.CloseIdleConnections()
	})
}

// kill makes the connections die. Over HTTP/2 the host then moves to a new pool.
func (w *wired) kill() {
	w.t.Helper()
	w.die()
	for range 3 {
		w.ok(w.get(), attemptTime+20*time.Millisecond)
	}
}

// watchOpen counts the connections as the clients see them, at all times. most ends that, and
// returns how many there were. net/http dials a moment before it closes, so one look says nothing.
func watchOpen(net *ts.Net) (most func() int) {
	worst, over := 0, make(chan struct{})
	go func() {
		for last := 0; ; {
			select {
			case <-over:
				return
			case <-time.After(time.Millisecond / 2):
				now := net.Open("fault.test")
				worst, last = max(worst, min(now, last)), now
			}
		}
	}()
	return func() int {
		close(over)
		synctest.Wait()
		return worst
	}
}

// A host keeps to the MaxConnsPerHost of the base, so it has one pool. net/http leaves a connection of
// HTTP/1.1 that has died, and aplomb one of HTTP/2 only when no stream is under way.
func TestOnePoolKeepsToMaxConnsPerHost(t *testing.T) {
	each := soak.Size(60, 200)
	for _, most := range []int{1, 2, 4} {
		inMemory(t, anyHTTP, func(t *testing.T, cfg ts.Config) {
			cfg.Handler = func(r *ts.Received) ts.Step {
				if r.N%50 == 49 {
					return ts.Status(503)
				}
				return ts.OK("well").Delay(time.Millisecond)
			}
			s := ts.Start(t, cfg)
			base := s.Transport()
			base.MaxConnsPerHost = most
			tr := mustNew(t, transport.Config{Base: base, Rule: hasty})
			var wg sync.WaitGroup
			ok := 0
			var mu sync.Mutex
			mostOpen := watchOpen(cfg.Net)
			for range 8 {
				wg.Go(func() {
					for range each {
						if got := do(tr, newRequest(t, http.MethodGet, s.URL, nil)); got.err == nil && got.status == 200 {
							mu.Lock()
							ok++
							mu.Unlock()
						}
					}
				})
			}
			time.Sleep(20*time.Millisecond + time.Microsecond)
			cfg.Net.Silence("fault.test")
			wg.Wait()
			worst := mostOpen()
			if most > 1 || !cfg.HTTP2 {
				assert.LessOrEqual(t, worst, most) // net/http alone has 2 of HTTP/2 if 1 is allowed
			}
			if !cfg.HTTP2 {
				assert.Equal(t, 8*each, ok, "at most %d", most)
			}
		})
	}
}

// Callers of a base that has one pool leave at their deadlines. There is no retry that would find
// out whether the connections are dead, so none is closed, as over the base alone.
func TestDeadlinesOverTheOnlyPool(t *testing.T) {
	inMemory(t, anyHTTP, func(t *testing.T, cfg ts.Config) {
		cfg.Routes = map[string]ts.Script{"/slow": {ts.Hang()}}
		cfg.Handler = well
		s := ts.Start(t, cfg)
		w := wireTo(t, s, cfg.Net, policy.Rule{}, func(base *http.Transport) { base.MaxConnsPerHost = 5 })
		w.ok(w.get(), 0)
		for range 5 {
			together(2, func(_ int) {
				assert.Error(t, within(t, w.tr, http.MethodPost, s.URL+"/slow", 200*time.Millisecond))
			})
			time.Sleep(10 * time.Millisecond)
			before := s.Conns()
			w.ok(w.get(), 0)
			if cfg.HTTP2 {
				assert.Equal(t, before, s.Conns())
			}
		}
		w.tr.CloseIdleConnections()
	})
}

// A limit of a Transport below refuses a request that has little time, or lets it wait for too long.
// That says nothing about a connection, so no idle connections are closed.
func TestLimitsBelowCloseNoConnections(t *testing.T) {
	for name, rule := range map[string]policy.Rule{"refuses": {ShareRetryAfter: policy.On}, "lets it wait": {Concurrency: policy.Concurrency{Enabled: policy.On, Max: 1}}} {
		inBubble(t, name, func(t *testing.T) {
			base := &countsCloses{}
			below := mustNew(t, transport.Config{Base: base, Rule: rule})
			tr := mustNew(t, transport.Config{Base: below})
			go func() { _ = within(t, below, http.MethodGet, "http://a.test/"+strings.Fields(name)[0], time.Minute) }() // holds the host, or keeps the slot
			time.Sleep(time.Second)
			ctx := expires(t, time.Second)
			_, err := fetch(t, tr, ctx, "http://a.test/")
			require.Error(t, err)
			time.Sleep(30 * time.Second)
			count(t, 0, base.closes.Load(), "connections closed")
			time.Sleep(time.Minute) // the first ends
		})
	}
}

// If nothing comes over a base that is the only pool, it closes its idle connections of HTTP/2. A host
// that has brought no response yet may have none, and net/http would give up those that it is making.
func TestSilenceOverTheOnlyPool(t *testing.T) {
	for major, closes := range []int32{0, 0, 1} {
		bubble(t, func(t *testing.T) {
			base := &countsCloses{}
			tr := mustNew(t, transport.Config{Base: base, Rule: hasty})
			if major > 0 {
				base.major = major
				assert.Equal(t, 200, responds(t, tr, http.MethodGet, "http://a.test/well"))
			}
			_, err := fetch(t, tr, t.Context(), "http://a.test/")
			require.Error(t, err)
			assert.Equal(t, closes, base.closes.Load(), major)
		})
	}
}

type countsCloses struct {
	major  int // of HTTP
	closes atomic.Int32
}

func (b *countsCloses) RoundTrip(req *http.Request) (*http.Response, error) {
	switch req.URL.Path {
	case "/refuses":
	case "/well":
		return &http.Response{StatusCode: 200, ProtoMajor: b.major, Body: http.NoBody, Header: http.Header{}, Request: req}, nil
	default:
		<-req.Context().Done()
		return nil, req.Context().Err()
	}
	return &http.Response{StatusCode: 429, Body: http.NoBody, Header: http.Header{"Retry-After": {"30"}}, Request: req}, nil
}
func (b *countsCloses) CloseIdleConnections() { b.closes.Add(1) }

// A base whose HTTP/2 is not that of net/http has one pool, and the log says so once. If it can
// close its idle connections, it leaves a dead connection.
func TestOnePoolOnly(t *testing.T) {
	inMemory(t, http2[:1], func(t *testing.T, cfg ts.Config) {
		for name, change := range map[string]func(*http.Transport) http.RoundTripper{
			"TLSNextProto": func(b *http.Transport) http.RoundTripper {
				b.TLSNextProto = map[string]func(string, *tls.Conn) http.RoundTripper{"other": nil}
				return b
			},
			"wrapped":                            func(b *http.Transport) http.RoundTripper { return rt(b.RoundTrip) },
			"wrapped, with its idle connections": func(b *http.Transport) http.RoundTripper { return struct{ *http.Transport }{b} },
		} {
			cfg.Net = ts.NewNet()
			s := ts.Start(t, cfg, ts.OK("well"))
			var log testkit.Text
			tr := mustNew(t, transport.Config{Base: change(s.Transport()), Rule: hasty, Logger: slog.New(slog.NewTextHandler(&log, nil))})
			require.Equal(t, 200, do(tr, newRequest(t, http.MethodGet, s.URL, nil)).status)
			cfg.Net.Silence("fault.test")
			for range 2 {
				assert.Equal(t, name == "wrapped", do(tr, newRequest(t, http.MethodGet, s.URL, nil)).err != nil, name)
			}
			assert.Equal(t, 1, strings.Count(log.String(), `msg="the base has one pool only: set Config.NewPool" host=http://fault.test`), name)
		}
	})
}

// A brittle base cannot close its idle connections although it has the method.
type brittle struct {
	rt
	*http.Transport // nil
}

func (b brittle) RoundTrip(req *http.Request) (*http.Response, error) { return b.rt(req) }

func TestCloseIdleConnectionsThatPanics(t *testing.T) {
	bubble(t, func(t *testing.T) {
		server := script(status(200).Delay(time.Hour), status(200))
		tr := mustNew(t, transport.Config{Base: brittle{rt: server.RoundTrip}})
		ctx := expires(t, time.Second)
		_, err := get(t, tr, ctx)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		assert.Equal(t, 200, responds(t, tr, http.MethodGet, "http://h.test/"))
		time.Sleep(time.Minute)
	})
}

// Config.NewPool makes the pools of a base that is not an *http.Transport. If it makes none, it is asked
// again later.
func TestPoolsOfAnotherBase(t *testing.T) {
	inMemory(t, anyHTTP, func(t *testing.T, cfg ts.Config) {
		s := ts.Start(t, cfg, ts.OK("well"))
		made := 0
		tr := mustNew(t, transport.Config{
			Base: rt(s.Transport().RoundTrip),
			Rule: hasty,
			NewPool: func(host string) http.RoundTripper {
				assert.Equal(t, "fault.test", host)
				if made++; made == 1 {
					return nil
				}
				return s.Transport()
			},
		})
		w := &wired{Server: s, t: t, net: cfg.Net, tr: tr}
		w.ok(w.get(), 0)
		w.die()
		if cfg.HTTP2 {
			assert.Error(t, w.get().err)
			count(t, 1, made, "pool made")
			time.Sleep(10 * time.Second)
		} else {
			w.ok(w.get(), attemptTime+20*time.Millisecond)
		}
		w.ok(w.get(), attemptTime+25*time.Millisecond)
		w.ok(w.get(), 0)
		tr.CloseIdleConnections()
	})
}

// The connections of further pools do not stay idle for ever, although the base keeps its own, and over HTTP/2 its
// dead one. A client closes all, and those of further pools are closed if the host is forgotten.
func TestConnectionsOfPoolsGoAway(t *testing.T) {
	for name, row := range map[string]struct {
		end  func(*wired)
		left int
	}{
		"idle":                 {func(*wired) { time.Sleep(5 * time.Minute) }, 1},
		"CloseIdleConnections": {func(w *wired) { w.tr.CloseIdleConnections() }, 0},
		"the host is evicted":  {func(w *wired) { w.tr.Evict(w.URL) }, 1},
	} {
		inMemory(t, anyHTTP, func(t *testing.T, cfg ts.Config) {
			w := wire(t, cfg, hasty, well)
			w.ok(w.get(), 0)
			w.kill()
			synctest.Wait() // the streams have ended
			require.Equal(t, 2, w.net.Open("fault.test"), name)
			row.end(w)
			time.Sleep(2 * time.Second)
			synctest.Wait()
			assert.Equal(t, row.left, w.net.Open("fault.test"), name)
			w.tr.CloseIdleConnections()
		})
	}
}

// tunnels starts a proxy at proxy.test:3128 that knows only CONNECT.
func tunnels(t *testing.T, n *ts.Net) {
	l, err := n.Listen("proxy.test:3128")
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close() })
	tunnel := func(client net.Conn) {
		defer client.Close()
		req, err := http.ReadRequest(bufio.NewReader(client))
		if err != nil {
			return
		}
		server, err := n.DialContext(t.Context(), "tcp", req.Host)
		if err != nil {
			return
		}
		defer server.Close()
		_, _ = io.WriteString(client, "HTTP/1.1 200 Connected\r\n\r\n")
		go func() {
			_, _ = io.Copy(server, client)
			_ = server.Close()
		}()
		_, _ = io.Copy(client, server)
	}
	go func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			go tunnel(client)
		}
	}()
}

// A server restarts again and again under load. No GET fails, and no POST arrives twice.
func TestRollingRestart(t *testing.T) {
	inMemory(t, anyHTTP, func(t *testing.T, cfg ts.Config) {
		w := wire(t, cfg, policy.Rule{MaxAttempts: 20}.Or(hasty), func(r *ts.Received) ts.Step { return ts.OK("well").Delay(3 * time.Millisecond) })
		var wg sync.WaitGroup
		for i := range 16 {
			wg.Go(func() {
				for j := range 50 {
					if i%2 == 0 {
						w.ok(w.get(), time.Second)
						continue
					}
					_ = do(w.tr, newRequest(t, http.MethodPost, fmt.Sprintf("%s/%d/%d", w.URL, i, j), nil))
				}
			})
		}
		for range 4 {
			time.Sleep(20 * time.Millisecond)
			w.ResetAll()
			w.Refuse()
			time.Sleep(20 * time.Millisecond)
			require.NoError(t, w.Listen())
		}
		wg.Wait()
		posts := map[string]int{}
		for _, a := range w.Log() {
			if a.Method == http.MethodPost {
				posts[a.Target]++
			}
		}
		for path, n := range posts {
			count(t, 1, n, "POST sent", path)
		}
	})
}

// Servers that end connections and refuse streams in the ways of HTTP/2 cost nobody a
// request, and no POST arrives twice. They are no reason for a new pool.
func TestServersThatEndConnections(t *testing.T) {
	inMemory(t, http2, func(t *testing.T, cfg ts.Config) {
		var mu sync.Mutex
		acted := map[string]int{}
		w := wire(t, cfg, policy.Rule{MaxAttempts: 10, AttemptTimeout: time.Minute}.Or(hasty), func(r *ts.Received) ts.Step {
			switch {
			case r.N%50 == 0:
				return ts.GoAway(ts.NoError)
			case r.N%17 == 0:
				return ts.RefuseStream()
			case r.N%111 == 0:
				return ts.GoAway(ts.EnhanceYourCalm)
			}
			mu.Lock()
			defer mu.Unlock()
			acted[r.Method+" "+r.Path]++
			return ts.OK("well").Delay(time.Duration(1+r.N%3) * time.Millisecond)
		})
		together(8, func(_ int) {
			for range 100 {
				w.ok(w.get(), time.Minute)
			}
		})
		for i := range 300 { // alone, because this server acts on all streams that are open at its GOAWAY
			got := do(w.tr, newRequest(t, http.MethodPost, fmt.Sprint(w.URL, "/", i), nil))
			w.ok(got, time.Minute, "nothing of it was processed")
		}
		time.Sleep(time.Second)
		w.ResetAll() // idle connections
		w.ok(w.get(), time.Minute)
		for path, n := range acted {
			assert.True(t, n == 1 || path == "GET /", path)
		}
		assert.Zero(t, w.tr.Snapshot().Hosts[0].Pool)
	})
}

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
