// Connections that become old.

package transport_test

import (
	"context"
	"crypto/tls"
	"errors"

	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/aplomb-go/aplomb/internal/testkit"
	ts "github.com/aplomb-go/aplomb/internal/testserver"
	"github.com/aplomb-go/aplomb/policy"
	"github.com/aplomb-go/aplomb/transport"
)

// aged lets connections live for a minute. Any retry would show.
var aged = policy.Rule{ConnectionAge: time.Minute, Attempts: 1}

// oldest is the longest that a connection of aged lives while requests come.
const oldest = 75 * time.Second

// A host takes a new connection after the age, and closes the old one. Nobody waits longer than
// for the handshake, and the log says nothing. While nothing is sent, nothing is connected.
func TestConnectionAge(t *testing.T) {
	inMemory(t, anyHTTP, func(t *testing.T, cfg ts.Config) {
		s := ts.Start(t, cfg, ts.OK("well"))
		var log testkit.Text
		tr := mustNew(t, transport.Config{Base: s.Transport(), Rule: aged, Logger: slog.New(slog.NewTextHandler(&log, nil))})
		w := &wired{Server: s, t: t, net: cfg.Net, tr: tr}
		start := time.Now()
		for conns := 1; conns <= 4; conns++ {
			for w.Conns() < conns {
				w.ok(w.get(), 0)
				time.Sleep(time.Second)
			}
			took := time.Since(start)
			assert.GreaterOrEqual(t, took, time.Duration(conns-1)*time.Minute)
			assert.LessOrEqual(t, took, time.Duration(conns-1)*oldest+10*time.Second)
			time.Sleep(3 * time.Second)
			synctest.Wait()
			assert.Equal(t, 1, w.net.Open("fault.test"), "the old connection is closed")
		}
		assert.Equal(t, 3, tr.Snapshot()[0].Lane)
		before := w.Conns()
		time.Sleep(time.Hour)
		assert.Equal(t, before, w.Conns())
		for range 50 {
			w.ok(w.get(), 0)
			time.Sleep(time.Second)
		}
		assert.Equal(t, before+1, w.Conns(), "the connections were closed while they were idle")
		assert.Empty(t, log.String())
	})
}

// Requests that come at once when the age is over go on over the old connections, but for the
// one that seeks a new one.
func TestOneRequestSeeksAYoungConnection(t *testing.T) {
	inMemory(t, anyHTTP, func(t *testing.T, cfg ts.Config) {
		cfg.Handler = func(*ts.Received) ts.Step { return ts.OK("well").Delay(time.Millisecond) }
		w := wireTo(t, ts.Start(t, cfg), cfg.Net, aged, func(base *http.Transport) {
			base.MaxIdleConnsPerHost = 64
			lateDial(100 * time.Millisecond)(base)
		})
		together(64, func(int) { w.ok(w.get(), time.Second) })
		for range 4 { // the connections are in use
			time.Sleep(14 * time.Second)
			together(64, func(int) { w.ok(w.get(), time.Millisecond) })
		}
		time.Sleep(20 * time.Second)
		before, waited := w.Conns(), 0
		var mu sync.Mutex
		together(64, func(int) {
			got := w.send(http.MethodPost)
			w.ok(got, 101*time.Millisecond)
			mu.Lock()
			defer mu.Unlock()
			if got.elapsed > time.Millisecond {
				waited++
			}
		})
		assert.Equal(t, 1, waited)
		assert.Equal(t, before+1, w.Conns())
	})
}

// A server that takes no new connections costs no request, no retry, and 1 s of one request at
// most in a quarter of the age. The order is sent once, over the old connection.
func TestAgeWithoutANewConnection(t *testing.T) {
	for name, fault := range map[string]error{"hangs": ts.ErrBlackhole, "refuses": errors.New("refused")} {
		t.Run(name, func(t *testing.T) {
			inMemory(t, anyHTTP, func(t *testing.T, cfg ts.Config) {
				cfg.Handler = well
				w := wireTo(t, ts.Start(t, cfg), cfg.Net, aged, impatientDial)
				w.ok(w.get(), 0)
				w.net.Fail("fault.test", fault)
				slow, sent := 0, 300
				var closed atomic.Int32
				for range sent {
					time.Sleep(time.Second)
					got := do(w.tr, newRequest(t, http.MethodPost, w.URL, &countedBody{Reader: strings.NewReader("an order"), closed: &closed}))
					w.ok(got, time.Second)
					if got.elapsed > 0 {
						slow++
					}
					log := w.Log()
					assert.EqualValues(t, len("an order"), log[len(log)-1].BodyLength)
				}
				synctest.Wait() // net/http closes a body aside
				assert.EqualValues(t, sent, closed.Load())
				assert.Equal(t, sent+1, w.Arrivals())
				assert.Equal(t, 1, w.Conns())
				assert.LessOrEqual(t, slow, 17)
				assert.Greater(t, w.net.Dials(), 5)
				assert.EqualValues(t, 30, w.tr.Snapshot()[0].BudgetLeft)
				w.net.Fail("fault.test", nil)
				for range 80 {
					w.ok(w.get(), 0)
					time.Sleep(time.Second)
				}
				assert.Greater(t, w.Conns(), 1)
			})
		})
	}
}

// A request that may be hedged goes over the old connection as well if there is no new one, and the
// host stays there.
func TestAgeWithHedges(t *testing.T) {
	inMemory(t, anyHTTP, func(t *testing.T, cfg ts.Config) {
		w := wire(t, cfg, policy.Rule{Hedge: policy.Hedge{After: time.Second}, Attempts: 2}.Or(aged), well)
		w.ok(w.get(), 0)
		w.net.Fail("fault.test", errors.New("refused"))
		for range 300 {
			time.Sleep(time.Second)
			w.ok(w.get(), 0)
		}
		assert.Greater(t, w.net.Dials(), 5)
		assert.Zero(t, w.tr.Snapshot()[0].Lane)
		w.net.Fail("fault.test", nil)
		for range 80 {
			time.Sleep(time.Second)
			w.ok(w.get(), 0)
		}
		assert.Greater(t, w.tr.Snapshot()[0].Lane, 0)
	})
}

// The new connection leads to a server that fails or is silent. One request in a quarter of the
// age meets it, and its retry goes over the old connection. The host stays there.
func TestAgeLeadsToABadServer(t *testing.T) {
	for name, step := range map[string]ts.Step{"503": ts.Status(503), "silent": ts.Hang(), "resets": ts.ResetBeforeHeaders()} {
		t.Run(name, func(t *testing.T) {
			inMemory(t, anyHTTP, func(t *testing.T, cfg ts.Config) {
				cfg.Handler = func(r *ts.Received) ts.Step {
					if r.Conn > 1 {
						return step
					}
					return ts.OK("well")
				}
				w := wire(t, cfg, policy.Rule{ConnectionAge: time.Minute}.Or(hasty), nil)
				slow := 0
				for range 150 {
					got := w.get()
					w.ok(got, attemptTime+50*time.Millisecond)
					if got.elapsed > 0 {
						slow++
					}
					time.Sleep(time.Second)
				}
				assert.GreaterOrEqual(t, w.Conns(), 2)
				assert.LessOrEqual(t, slow, 6)
			})
		})
	}
}

// A response that is under way when the host takes a new connection comes whole.
func TestAgeEndsNothing(t *testing.T) {
	inMemory(t, anyHTTP, func(t *testing.T, cfg ts.Config) {
		cfg.Streams = 100
		cfg.Routes = map[string]ts.Script{"/stream": {ts.OK(strings.Repeat("-", 300)).Drip(1, time.Second)}}
		cfg.Handler = well
		w := wireTo(t, ts.Start(t, cfg), cfg.Net, aged, func(base *http.Transport) { base.IdleConnTimeout = 90 * time.Second })
		w.ok(w.get(), 0)
		var wg sync.WaitGroup
		wg.Go(func() {
			got := do(w.tr, newRequest(t, http.MethodGet, w.URL+"/stream", nil))
			assert.NoError(t, got.err)
			assert.Len(t, got.body, 300)
		})
		for range 300 {
			w.ok(w.get(), 0)
			time.Sleep(time.Second)
		}
		wg.Wait()
		assert.Greater(t, w.tr.Snapshot()[0].Lane, 2)
		time.Sleep(100 * time.Second)
		synctest.Wait()
		assert.Zero(t, w.net.Open("fault.test"))
	})
}

// A base that can have no second pool is refused, unless Config.Lane makes one. If that is found
// out later, the log says it once.
func TestAgeNeedsASecondPool(t *testing.T) {
	const reason = "needs a second pool of connections, and Base is no *http.Transport or has MaxConnsPerHost; set Config.Lane"
	bounded := &http.Transport{MaxConnsPerHost: 2}
	for _, base := range []http.RoundTripper{rt(http.DefaultTransport.RoundTrip), bounded} {
		_, err := transport.New(transport.Config{Base: base, Rule: aged})
		assert.EqualError(t, err, "Rule.ConnectionAge: 1m0s "+reason)
		_, err = transport.New(transport.Config{Base: base, Hosts: map[string]policy.Rule{"a.example": aged}})
		assert.ErrorContains(t, err, `Hosts["a.example"].ConnectionAge: 1m0s `+reason)
		tr := mustNew(t, transport.Config{Base: base})
		assert.ErrorContains(t, tr.Update(aged, nil), reason)
		mustNew(t, transport.Config{Base: base, Rule: aged, Lane: func(string) http.RoundTripper { return nil }})
	}
	inMemory(t, http2[:1], func(t *testing.T, cfg ts.Config) {
		s := ts.Start(t, cfg, ts.OK("well"))
		base := s.Transport()
		base.TLSNextProto = map[string]func(string, *tls.Conn) http.RoundTripper{"other": nil}
		var log testkit.Text
		w := &wired{Server: s, t: t, tr: mustNew(t, transport.Config{Base: base, Rule: aged, Logger: slog.New(slog.NewTextHandler(&log, nil))})}
		for range 300 {
			w.ok(w.get(), 0)
			time.Sleep(time.Second)
		}
		assert.Equal(t, 1, w.Conns())
		assert.Equal(t, 1, strings.Count(log.String(), `msg="http://fault.test keeps its old connections, and the base has one lane only: set Config.Lane"`), log.String())
	})
}

// A success on the first try costs no allocation with an age.
func TestAllocationsWithAnAge(t *testing.T) {
	base := &failing{}
	req := getRequest(t, "https://api.example.com/v1/things")
	of := func(base http.RoundTripper) float64 {
		return testing.AllocsPerRun(200, func() { finish(base.RoundTrip(req)) })
	}
	tr := mustNew(t, transport.Config{Base: base, Rule: aged, Lane: func(string) http.RoundTripper { return base }})
	assert.Zero(t, of(tr)-of(base))
}

// A deck is a balancer. It picks a server at random, as from a pack of cards, so that the result
// of a test is no matter of luck.
type deck struct {
	mu      sync.Mutex
	servers []string
	cards   []string
	random  *rand.Rand
}

// add adds a server.
func (d *deck) add(server string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.servers, d.cards = append(d.servers, server), nil
}

// pick returns the server of the next connection.
func (d *deck) pick() (server string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.cards) == 0 {
		for range 10 {
			d.cards = append(d.cards, d.servers...)
		}
		d.random.Shuffle(len(d.cards), func(i, j int) { d.cards[i], d.cards[j] = d.cards[j], d.cards[i] })
	}
	server, d.cards = d.cards[0], d.cards[1:]
	return server
}

// A third server comes behind a balancer. After one and a half times the age it has its share of
// the connections. Without an age it has none.
func TestShareOfANewServer(t *testing.T) {
	for name, row := range map[string]struct {
		age      time.Duration
		min, max float64
	}{
		"with an age": {time.Minute, 0.28, 0.39},
		"without":     {0, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			inMemory(t, []protocol{http1[0], http2[0]}, func(t *testing.T, cfg ts.Config) {
				share := shareOfAThird(t, cfg, policy.Rule{ConnectionAge: row.age, Attempts: 1})
				t.Logf("%.1f %%", 100*share)
				assert.GreaterOrEqual(t, share, row.min)
				assert.LessOrEqual(t, share, row.max)
			})
		})
	}
}

// shareOfAThird returns the share that the third server has of the connections of 300 clients.
func shareOfAThird(t *testing.T, cfg ts.Config, rule policy.Rule) float64 {
	const clients, each = 300, 6 * time.Second
	network := cfg.Net
	d := &deck{random: rand.New(rand.NewPCG(1, 2))}
	names := []string{"a", "b", "c"}
	start := func(name string) *ts.Server {
		cfg.Host = name
		s := ts.Start(t, cfg, ts.OK("well"))
		d.add(name)
		return s
	}
	first := start("a")
	start("b")
	var wg sync.WaitGroup
	begin := time.Now()
	comes := begin.Add(90 * time.Second)
	for range clients {
		base := first.Transport()
		base.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
			return network.DialContext(ctx, "tcp", d.pick()+":80")
		}
		tr := mustNew(t, transport.Config{Base: base, Rule: rule})
		wg.Go(func() {
			time.Sleep(rand.N(each))
			for time.Since(comes) < 90*time.Second {
				got := do(tr, newRequest(t, http.MethodGet, first.URL, nil))
				assert.NoError(t, got.err)
				assert.Equal(t, 200, got.status)
				time.Sleep(each)
			}
		})
	}
	time.Sleep(time.Until(comes))
	start("c")
	wg.Wait()
	time.Sleep(3 * time.Second) // the last connections that were left are closed
	synctest.Wait()
	all := 0
	for _, name := range names {
		all += cfg.Net.Open(name)
	}
	assert.Equal(t, clients, all)
	return float64(cfg.Net.Open("c")) / float64(all)
}

// An attempt finds no new connection, goes over the old one, and that is dead. A late hedge beside it
// goes elsewhere.
func TestLateHedgeBesideAnAttemptThatFoundNoNewConnection(t *testing.T) {
	inMemory(t, anyHTTP, func(t *testing.T, cfg ts.Config) {
		w := wireTo(t, ts.Start(t, cfg, ts.OK("well")), cfg.Net, policy.Rule{ConnectionAge: time.Minute}.Or(policy.API()), func(*http.Transport) {})
		for range 120 {
			w.ok(w.get(), 0)
		}
		for range 3 { // one takes a new connection
			time.Sleep(oldest / 2)
			w.ok(w.get(), 0)
		}
		assert.Equal(t, 0.25, w.tr.Snapshot()[0].HangsAfter)
		time.Sleep(oldest / 2)
		w.die()
		w.net.Fail("fault.test", errors.New("refused"))
		time.AfterFunc(100*time.Millisecond, func() { w.net.Fail("fault.test", nil) })
		w.ok(w.get(), 1300*time.Millisecond) // over HTTP/2 another connection is sought after 1 s
	})
}
