// Hosts whose base transport alone would do well. Further pools must not be worse, also for servers with few workers.

package transport_test

import (
	"bufio"
	"cmp"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
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
	"github.com/aplomb-go/aplomb/policy/profile"
	"github.com/aplomb-go/aplomb/transport"
)

// within sends a request that has so much time, and reads the response.
func within(t *testing.T, tr http.RoundTripper, method, url string, d time.Duration) error {
	ctx := expires(t, d)
	req, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader("order"))
	require.NoError(t, err)
	resp, err := tr.RoundTrip(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	_, err = io.Copy(io.Discard, resp.Body)
	return err
}

// failures returns how many of 20 requests fail.
func failures(t *testing.T, tr http.RoundTripper, method, url string, each time.Duration) (n int) {
	for range 20 {
		if err := within(t, tr, method, url, each); err != nil {
			t.Log(method, err)
			n++
		}
	}
	return n
}

// slowly answers /slow never, /sick with a 503, and the rest at once.
func slowly(w http.ResponseWriter, r *http.Request) {
	switch r.URL.Path {
	case "/slow":
		_, _ = io.Copy(io.Discard, r.Body)
		<-r.Context().Done()
	case "/sick":
		w.WriteHeader(http.StatusServiceUnavailable)
	}
}

// trusting returns a base with the certificate of a server, and otherwise without settings.
func trusting(s *httptest.Server) *http.Transport {
	base := new(http.Transport)
	base.Clone() // net/http decides about HTTP/2 before the certificate is here
	base.TLSClientConfig.RootCAs = x509.NewCertPool()
	base.TLSClientConfig.RootCAs.AddCert(s.Certificate())
	return base
}

// A server serves one connection at a time, and every second response is a 503. The retry takes
// another connection, which the server does not look at as long as the old one is open.
func TestServerOfOneConnection(t *testing.T) {
	for name, rule := range map[string]policy.Rule{"default": {}, "API": profile.API(), "Service": profile.Service()} {
		for _, deadline := range []time.Duration{5 * time.Second, time.Hour} {
			inBubble(t, fmt.Sprint(name, "/", deadline), func(t *testing.T) {
				n, served := ts.NewNet(), 0
				prefork(t, n, "one.test:80", 1, func() string { served++; return [...]string{"200", "503"}[served%2] })
				tr := mustNew(t, transport.Config{Base: &http.Transport{DialContext: n.DialContext}, Rule: rule})
				for range 20 {
					ctx, cancel := context.WithTimeout(t.Context(), deadline)
					start := time.Now()
					resp, err := fetch(t, tr, ctx, "http://one.test/")
					cancel()
					if assert.NoError(t, err) {
						assert.Equal(t, http.StatusOK, resp.StatusCode)
						assert.Less(t, time.Since(start), cmp.Or(min(rule.AttemptTimeout, 13*time.Second), 13*time.Second))
					}
				}
				tr.CloseIdleConnections()
			})
		}
	}
}

// The connections stay open if a retry gets none of its own because the server drains, if it takes
// long over HTTP/2 or over the pool that the host has, and if its caller leaves.
func TestConnectionsBesideARetry(t *testing.T) {
	inMemory(t, anyHTTP, func(t *testing.T, cfg ts.Config) {
		slow, well := ts.OK("report").Delay(time.Minute), ts.OK("well")
		for name, script := range map[string]ts.Script{
			"drains": {ts.Status(503), ts.Status(503), slow, well}, "slow": {ts.Status(503), ts.Status(503), slow, well},
			"canceled": {ts.Status(503), ts.Status(503), ts.Hang(), well},
		} {
			if name != "drains" && !cfg.HTTP2 {
				continue // closes them
			}
			cfg.Net, cfg.Routes = ts.NewNet(), map[string]ts.Script{"/": script}
			s := ts.Start(t, cfg)
			base := s.Transport()
			dial, dials := base.DialContext, 0
			base.DialContext = func(ctx context.Context, network, addr string) (net.Conn, error) {
				if dials++; dials > 1 && name == "drains" {
					return nil, errors.New("refused")
				}
				return dial(ctx, network, addr)
			}
			tr := mustNew(t, transport.Config{Base: base})
			for range 3 {
				ctx, cancel := context.WithCancel(t.Context())
				if name == "canceled" {
					time.AfterFunc(20*time.Second, cancel)
				}
				if resp, err := tr.RoundTrip(newRequest(t, http.MethodGet, s.URL, nil).WithContext(ctx)); err == nil {
					_, _ = io.Copy(io.Discard, resp.Body)
				} else {
					assert.Equal(t, "canceled", name)
				}
				cancel()
				time.Sleep(10 * time.Second)
			}
			count(t, 2, dials, "connection made", name)
		}
	})
}

// A server drains: it refuses new connections, and serves those that it has. A slow response
// costs nobody else a request.
func TestSlowResponseOfAServerThatDrains(t *testing.T) {
	for name, deadline := range map[string]time.Duration{"deadlines": 2 * time.Second, "none": time.Hour} {
		t.Run(name, func(t *testing.T) {
			s := httptest.NewUnstartedServer(http.HandlerFunc(slowly))
			s.EnableHTTP2 = true
			s.StartTLS()
			tr := mustNew(t, transport.Config{Base: trusting(s), Rule: policy.Rule{MaxAttempts: 1}})
			require.NoError(t, within(t, tr, http.MethodGet, s.URL, deadline))
			require.NoError(t, s.Listener.Close())
			for range 3 {
				assert.Error(t, within(t, tr, http.MethodGet, s.URL+"/slow", 100*time.Millisecond))
				assert.Zero(t, failures(t, tr, http.MethodGet, s.URL, deadline))
				assert.Zero(t, failures(t, tr, http.MethodPost, s.URL, deadline))
			}
			assert.Zero(t, tr.Snapshot().Hosts[0].Pool)
			tr.CloseIdleConnections()
			s.Close()
		})
	}
}

// The name server is silent, and there are connections that work. A slow response costs nobody
// else a request. When the name server is back, a connection that is dead is left.
func TestSlowResponseWhileNothingConnects(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(slowly))
	t.Cleanup(s.Close)
	var silent atomic.Bool
	base := &http.Transport{MaxIdleConnsPerHost: 5, DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
		if silent.Load() {
			<-ctx.Done()
			return nil, ctx.Err()
		}
		return new(net.Dialer).DialContext(ctx, network, addr)
	}}
	tr := mustNew(t, transport.Config{Base: base, Rule: policy.Rule{MaxAttempts: 1}})
	hold := make(chan struct{})
	var wg sync.WaitGroup
	s.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/hold" {
			<-hold
		}
		slowly(w, r)
	})
	for range 5 {
		wg.Go(func() { assert.NoError(t, within(t, tr, http.MethodGet, s.URL+"/hold", time.Minute)) })
	}
	time.AfterFunc(100*time.Millisecond, func() { close(hold) })
	wg.Wait()
	silent.Store(true)
	assert.Error(t, within(t, tr, http.MethodPost, s.URL+"/slow", 300*time.Millisecond))
	start := time.Now()
	for range 10 {
		assert.NoError(t, within(t, tr, http.MethodPost, s.URL, 400*time.Millisecond))
	}
	t.Log(time.Since(start))
	tr.CloseIdleConnections()
}

// An order is sent once, over the pool that the host has, if its body cannot be made again and
// the new pool gets no connection.
func TestBodyOfAnAttemptThatFoundNoConnection(t *testing.T) {
	inMemory(t, anyHTTP, func(t *testing.T, cfg ts.Config) {
		cfg.Routes = map[string]ts.Script{"/slow": {ts.Hang()}}
		cfg.Handler = func(*ts.Received) ts.Step { return ts.OK("well").Delay(time.Millisecond) } // so that each has a connection
		s := ts.Start(t, cfg)
		base := s.Transport()
		dial, refuses := base.DialContext, false
		base.DialContext = func(ctx context.Context, network, addr string) (net.Conn, error) {
			if refuses {
				return nil, errors.New("refused")
			}
			return dial(ctx, network, addr)
		}
		base.MaxIdleConnsPerHost = 4
		tr := mustNew(t, transport.Config{Base: base, Rule: policy.Rule{MaxAttempts: 1}})
		together(4, func(int) { assert.NoError(t, within(t, tr, http.MethodGet, s.URL, time.Second)) })
		refuses = true
		assert.Error(t, within(t, tr, http.MethodGet, s.URL+"/slow", time.Second))
		for range 3 {
			order := oneShot("an order")
			require.NoError(t, do(tr, newRequest(t, http.MethodPost, s.URL, order)).err)
			log := s.Log()
			assert.EqualValues(t, len("an order"), log[len(log)-1].BodyLength)
			synctest.Wait() // net/http closes a body aside
			count(t, 1, order.closed(), "body closed")
		}
		tr.CloseIdleConnections()
	})
}

// A healthy server answers every tenth request with a 503, at random. The host stays on its
// connections, with one other at most.
func TestRandom503sMoveNoHost(t *testing.T) {
	for seed := range uint64(2) {
		inMemory(t, []protocol{http1[0], http2[0]}, func(t *testing.T, cfg ts.Config) {
			dice := rand.New(rand.NewPCG(seed, 1))
			var mu sync.Mutex
			w := wire(t, cfg, policy.Rule{MaxAttempts: 6}.Or(quick), func(*ts.Received) ts.Step {
				mu.Lock()
				defer mu.Unlock()
				if dice.IntN(10) == 0 {
					return ts.Status(503)
				}
				return ts.OK("well")
			})
			var log testkit.Text
			w.tr = mustNew(t, transport.Config{Base: w.tr.Base(), Rule: policy.Rule{MaxAttempts: 6}.Or(quick), Logger: slog.New(slog.NewTextHandler(&log, nil))})
			worst := 0
			for range soak.Size(2500, 10_000) {
				w.ok(w.get(), time.Second)
				worst = max(worst, w.net.Open("fault.test"))
			}
			assert.LessOrEqual(t, worst, 2)
			assert.Zero(t, w.tr.Snapshot().Hosts[0].Pool)
			assert.NotContains(t, log.String(), "pool")
			w.tr.CloseIdleConnections()
		})
	}
}

// All connections of two pools answer 503 from some time on, and new ones are well.
func TestHostWithTwoSickPools(t *testing.T) {
	inMemory(t, anyHTTP, func(t *testing.T, cfg ts.Config) {
		w := wire(t, cfg, quick, func(r *ts.Received) ts.Step {
			if r.N == 1 || r.N > 2 && r.Conn <= 2 {
				return ts.Status(http.StatusServiceUnavailable)
			}
			return ts.OK("well")
		})
		w.ok(w.get(), time.Second)
		failed := 0
		for range 30 {
			if w.get().status != http.StatusOK {
				failed++
			}
			time.Sleep(100 * time.Millisecond)
		}
		assert.LessOrEqual(t, failed, 3, "failed requests")
		assert.Equal(t, 2, w.tr.Snapshot().Hosts[0].Pool, "number of the pool")
		w.tr.CloseIdleConnections()
	})
}

// Another pool that no attempt takes closes its connection after 2 s, each time that it got one.
func TestIdleConnectionsOfAnotherPool(t *testing.T) {
	inMemory(t, anyHTTP, func(t *testing.T, cfg ts.Config) {
		w := wire(t, cfg, quick, func(r *ts.Received) ts.Step {
			if r.N%3 != 0 {
				return ts.Status(http.StatusServiceUnavailable)
			}
			return ts.OK("well")
		})
		for range 2 {
			w.ok(w.get(), time.Second)
			assert.Equal(t, 2, w.net.Open("fault.test"))
			time.Sleep(3 * time.Second)
			synctest.Wait()
			assert.Equal(t, 1, w.net.Open("fault.test"))
			time.Sleep(5 * time.Second)
		}
		w.tr.CloseIdleConnections()
	})
}

// Hedges over HTTP/2 leave no connections behind, and CloseIdleConnections reaches all pools. That a
// hedge wins moves no host.
func TestConnectionsOfHedges(t *testing.T) {
	inMemory(t, http2, func(t *testing.T, cfg ts.Config) {
		w := wire(t, cfg, policy.Rule{Hedge: policy.Hedge{Delay: 50 * time.Millisecond}}.Or(quick), func(r *ts.Received) ts.Step {
			return ts.OK("well").Delay(time.Duration(r.N%2) * 200 * time.Millisecond)
		})
		worst := 0
		for range 60 {
			w.ok(w.get(), time.Second)
			time.Sleep(2 * time.Second)
			synctest.Wait()
			worst = max(worst, w.net.Open("fault.test"))
		}
		assert.LessOrEqual(t, worst, 2)
		assert.Zero(t, w.tr.Snapshot().Hosts[0].Pool)
		w.ok(w.get(), time.Second)
		time.Sleep(time.Millisecond) // the stream of the other attempt ends
		w.tr.CloseIdleConnections()
		time.Sleep(time.Millisecond)
		assert.Zero(t, w.net.Open("fault.test"))
	})
}

// CloseIdleConnections closes the connections of a pool that was left, when a stream over it has
// ended.
func TestCloseIdleConnectionsOfPoolsThatWereLeft(t *testing.T) {
	inMemory(t, http2, func(t *testing.T, cfg ts.Config) {
		cfg.Routes = map[string]ts.Script{"/stream": {ts.OK(strings.Repeat("-", 200)).Drip(10, time.Second)}, "/slow": {ts.Hang()}}
		cfg.Handler = well
		s := ts.Start(t, cfg)
		w := &wired{Server: s, t: t, net: cfg.Net, tr: mustNew(t, transport.Config{Base: s.Transport(), Rule: hasty})}
		w.ok(w.get(), 0)
		w.kill()
		for range 3 {
			w.ok(w.get(), time.Second)
		}
		var wg sync.WaitGroup
		wg.Go(func() { w.ok(do(w.tr, newRequest(t, http.MethodGet, s.URL+"/stream", nil)), time.Second) })
		time.Sleep(5*time.Second + time.Millisecond)
		require.Equal(t, 1, w.tr.Snapshot().Hosts[0].Pool, "number of the pool")
		for range 4 {
			assert.Error(t, within(t, w.tr, http.MethodPost, s.URL+"/slow", 200*time.Millisecond))
		}
		for range 2 {
			w.ok(w.get(), time.Second)
		}
		require.Equal(t, 2, w.tr.Snapshot().Hosts[0].Pool, "number of the pool")
		wg.Wait()
		synctest.Wait()
		w.tr.CloseIdleConnections()
		time.Sleep(time.Millisecond)
		assert.Zero(t, w.net.Open("fault.test"))
	})
}

// Many hosts have one 503 each, or one silence. Together their idle connections are as many as the
// base allows.
func TestIdleConnectionsOfManyHosts(t *testing.T) {
	const hosts, most = 200, 50
	for name, fault := range map[string]ts.Step{"503": ts.Status(503), "silence": ts.Hang()} {
		inMemory(t, http1[:1], func(t *testing.T, cfg ts.Config) {
			var mu sync.Mutex
			seen := map[string]int{}
			cfg.Handler = func(r *ts.Received) ts.Step {
				mu.Lock()
				defer mu.Unlock()
				if seen[r.Host]++; seen[r.Host] == 1 {
					return fault
				}
				return ts.OK("well")
			}
			s := ts.Start(t, cfg)
			base := s.Transport()
			base.MaxIdleConns = most
			base.DialContext = func(ctx context.Context, network, _ string) (net.Conn, error) {
				return cfg.Net.DialContext(ctx, network, "fault.test:80")
			}
			tr := mustNew(t, transport.Config{Base: base, Rule: hasty})
			for i := range hosts {
				got := do(tr, newRequest(t, http.MethodGet, fmt.Sprintf("http://h%d.test/", i), nil))
				require.NoError(t, got.err, name)
				assert.Equal(t, 200, got.status, name)
			}
			time.Sleep(5 * time.Second)
			synctest.Wait()
			assert.LessOrEqual(t, cfg.Net.Open("fault.test"), most, name)
			tr.CloseIdleConnections()
		})
	}
}

// A Config.NewPool that is slow is called once. The other requests wait for 1 s, and then go on.
func TestSlowConfigLane(t *testing.T) {
	inMemory(t, http2[:1], func(t *testing.T, cfg ts.Config) {
		cfg.Handler = func(r *ts.Received) ts.Step {
			if r.Conn == 1 && r.N%2 == 0 {
				return ts.Status(503)
			}
			return ts.OK("well")
		}
		s := ts.Start(t, cfg)
		patient := policy.Rule{MaxAttempts: 20}.Or(quick) // the others retry over the bad connection
		var calls atomic.Int32
		tr := mustNew(t, transport.Config{Base: rt(s.Transport().RoundTrip), Rule: patient, NewPool: func(string) http.RoundTripper {
			calls.Add(1)
			time.Sleep(3 * time.Second)
			return s.Transport()
		}})
		w := &wired{Server: s, t: t, net: cfg.Net, tr: tr}
		w.ok(w.get(), 0)
		together(8, func(int) { w.ok(w.get(), 4*time.Second) })
		count(t, 1, calls.Load(), "NewPool called")
		tr.CloseIdleConnections()
	})
}

// Each GET gets a 503 first. A single failure is no reason to dial.
func TestOneConnectionDespiteFailures(t *testing.T) {
	inMemory(t, anyHTTP, func(t *testing.T, cfg ts.Config) {
		w := wire(t, cfg, quick, func(r *ts.Received) ts.Step {
			if r.N%2 == 1 {
				return ts.Status(http.StatusServiceUnavailable)
			}
			return ts.OK("well")
		})
		for range 20 {
			w.ok(w.get(), time.Second)
		}
		assert.Equal(t, 1, w.Conns(), "connections")
	})
}

// A host is busy and well. One of its callers has a deadline that is too short for its request.
func TestDeadlineOnABusyHost(t *testing.T) {
	for _, rule := range []policy.Rule{{}, profile.API()} {
		inMemory(t, anyHTTP, func(t *testing.T, cfg ts.Config) {
			cfg.Routes = map[string]ts.Script{"/slow": {ts.Hang()}}
			w := wire(t, cfg, rule, func(*ts.Received) ts.Step { return ts.OK("well").Delay(10 * time.Millisecond) })
			base := w.tr.Base().(*http.Transport)
			base.MaxIdleConnsPerHost = 100
			var others sync.WaitGroup
			for i := range 10 {
				others.Go(func() {
					time.Sleep(time.Duration(i) * time.Millisecond)
					for range 500 {
						w.ok(w.get(), 10*time.Millisecond)
						time.Sleep(30 * time.Millisecond)
					}
				})
			}
			for range 10 {
				time.Sleep(time.Second)
				before := w.Conns()
				assert.Error(t, within(t, w.tr, http.MethodGet, w.URL+"/slow", 800*time.Millisecond))
				time.Sleep(100 * time.Millisecond)
				assert.LessOrEqual(t, w.Conns()-before, 1, "net/http closes one of HTTP/1.1")
			}
			others.Wait()
			assert.Zero(t, w.tr.Snapshot().Hosts[0].Pool)
			w.tr.CloseIdleConnections()
		})
	}
}

// Two slow requests look like a death to a host that is well. Of the next requests as many wait for the
// connection that the first of them makes, and the others do not.
func TestSuspicionHoldsUpAsManyRequests(t *testing.T) {
	inMemory(t, http2, func(t *testing.T, cfg ts.Config) {
		cfg.Routes = map[string]ts.Script{"/slow": {ts.Hang()}}
		w := wireTo(t, ts.Start(t, ts.Config{Net: cfg.Net, HTTP2: true, TLS: cfg.TLS, Routes: cfg.Routes, Handler: well}), cfg.Net, policy.Rule{}, lateDial(500*time.Millisecond))
		w.ok(w.get(), time.Second)
		for range 2 {
			together(2, func(int) { _ = within(t, w.tr, http.MethodPost, w.URL+"/slow", time.Second) })
		}
		var late atomic.Int32
		together(10, func(int) {
			got := w.get()
			w.ok(got, 500*time.Millisecond)
			if got.elapsed > 0 {
				late.Add(1)
			}
		})
		count(t, 2, late.Load(), "GET late")
		assert.Zero(t, w.tr.Snapshot().Hosts[0].Pool)
		w.tr.CloseIdleConnections()
	})
}

// A new pool gets no connection, and the old one takes nearly all of the time that an attempt has. So
// an attempt that goes back has its whole time.
func TestAttemptThatGoesBackHasItsTime(t *testing.T) {
	inMemory(t, http2, func(t *testing.T, cfg ts.Config) {
		var busy atomic.Bool
		cfg.Handler = func(r *ts.Received) ts.Step {
			if busy.Load() {
				return ts.OK("well").Delay(attemptTime - 20*time.Millisecond)
			}
			return ts.Status(http.StatusInternalServerError)
		}
		w := wireTo(t, ts.Start(t, cfg), cfg.Net, policy.Rule{MaxAttempts: 1, AttemptTimeout: attemptTime}, impatientDial)
		for range 5 {
			assert.Equal(t, 500, w.get().status)
		}
		busy.Store(true)
		w.net.Fail("fault.test", ts.ErrBlackhole) // drops SYNs
		got := w.get()
		w.ok(got, 3*attemptTime/2)
		assert.Greater(t, got.elapsed, attemptTime)
		time.Sleep(time.Minute) // the dial ends
		w.tr.CloseIdleConnections()
	})
}

// A connection of HTTP/2 is poisoned: each stream on it is reset.
func TestPoisonedConnection(t *testing.T) {
	for _, code := range []ts.H2Code{ts.InternalError, ts.Cancel} {
		inMemory(t, http2, func(t *testing.T, cfg ts.Config) {
			w := wire(t, cfg, quick, func(r *ts.Received) ts.Step {
				if r.Conn == 1 && r.N > 1 {
					return ts.RSTStream(code)
				}
				return ts.OK("well")
			})
			for range 10 {
				w.ok(w.get(), time.Second)
			}
			assert.Equal(t, 12, w.Arrivals(), "the host has moved after two")
			assert.Equal(t, 1, w.tr.Snapshot().Hosts[0].Pool, "number of the pool")
			w.tr.CloseIdleConnections()
		})
	}
}

// A server of HTTP/2 wants HTTP/1.1. An idempotent request is sent again that way, and later requests
// go that way at once. Without another pool the error is final.
func TestServerWantsHTTP1(t *testing.T) {
	inMemory(t, http2[1:], func(t *testing.T, cfg ts.Config) {
		cfg.Handler = func(r *ts.Received) ts.Step {
			if r.Proto == "HTTP/2.0" {
				return ts.RSTStream(ts.HTTP11Required)
			}
			return ts.OK("well")
		}
		w := wire(t, cfg, quick, cfg.Handler)
		w.ok(w.get(), time.Second)
		assert.Equal(t, 2, w.Arrivals(), "requests that arrived")
		w.ok(w.post(), time.Second)
		assert.Equal(t, 3, w.Arrivals(), "requests that arrived")
		w.tr.CloseIdleConnections()

		w = wire(t, ts.Config{Net: ts.NewNet(), HTTP2: true, TLS: cfg.TLS}, quick, cfg.Handler)
		assert.Error(t, w.post().err, "the server may have acted")
		assert.Equal(t, 1, w.Arrivals(), "requests that arrived")
		w.ok(w.post(), time.Second)
		w.tr.CloseIdleConnections()

		w = wireTo(t, ts.Start(t, ts.Config{Net: ts.NewNet(), HTTP2: true, TLS: cfg.TLS, Handler: cfg.Handler}), cfg.Net, quick, onePool)
		assert.Error(t, w.get().err)
		assert.Equal(t, 1, w.Arrivals(), "requests that arrived")
		w.tr.CloseIdleConnections()
	})
}

// A host has one caller, and its request is slow by chance. That proves nothing of the connections, so
// its retry takes others, and the host stays.
func TestOneSlowRequestMovesNoHost(t *testing.T) {
	inMemory(t, http2, func(t *testing.T, cfg ts.Config) {
		w := wire(t, cfg, hasty, func(r *ts.Received) ts.Step {
			if r.N%10 == 5 {
				return ts.Hang()
			}
			return ts.OK("well")
		})
		for range 40 {
			w.ok(w.get(), attemptTime+20*time.Millisecond)
			time.Sleep(time.Second)
		}
		assert.Zero(t, w.tr.Snapshot().Hosts[0].Pool)
		for _, a := range w.Log() {
			assert.True(t, a.Conn == 1 || a.N%10 == 6, "request %d takes connection %d", a.N, a.Conn)
		}
		w.tr.CloseIdleConnections()
	})
}

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
