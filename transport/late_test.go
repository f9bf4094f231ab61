// Late hedges: second attempts beside attempts that hang.

package transport_test

import (
	"context"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net/http"
	"net/http/httptrace"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/aplomb-go/aplomb/classify"
	"github.com/aplomb-go/aplomb/faults"
	"github.com/aplomb-go/aplomb/internal/soak"
	ts "github.com/aplomb-go/aplomb/internal/testserver"
	"github.com/aplomb-go/aplomb/policy"
	"github.com/aplomb-go/aplomb/transport"
)

// presets are the rules that have a late hedge.
var presets = map[string]policy.Rule{"API": policy.API(), "Service": policy.Service()}

// A GET over a connection that has died is answered after three times the longest of the host's
// times, a handshake and a round trip. Without the late hedge it waits for its AttemptTimeout.
func TestGETOverASilentConnection(t *testing.T) {
	const takes, trip = 100 * time.Millisecond, 30 * time.Millisecond
	for name, rule := range presets {
		for _, on := range []policy.Switch{policy.On, policy.Off} {
			rule.Hedge.Late = on
			t.Run(name+" "+on.String(), func(t *testing.T) {
				inMemory(t, anyHTTP, func(t *testing.T, cfg ts.Config) {
					cfg.Handler = func(*ts.Received) ts.Step { return ts.OK("well").Delay(takes) }
					w := wireTo(t, ts.Start(t, cfg), cfg.Net, rule, lateDial(trip))
					for range 100 {
						w.ok(w.get(), takes+trip)
					}
					w.die()
					got := w.get()
					if on == policy.Off {
						assert.GreaterOrEqual(t, got.elapsed, rule.AttemptTimeout)
						return
					}
					w.ok(got, 3*(takes+trip)+trip+takes)
					w.ok(w.get(), takes, "the host has left the lane")
				})
			})
		}
	}
}

// A request that hangs while others are answered over its lane is slow by itself, so the host stays
// when the late hedge is answered. If nothing comes over the lane meanwhile, the host leaves it.
func TestLateHedgeAndTheLane(t *testing.T) {
	for name, others := range map[string]bool{"others are answered": true, "alone": false} {
		t.Run(name, func(t *testing.T) {
			inMemory(t, anyHTTP, func(t *testing.T, cfg ts.Config) {
				var slow atomic.Int32
				w := wire(t, cfg, policy.API(), func(r *ts.Received) ts.Step {
					if r.Path == "/slow" && slow.Add(1) == 1 {
						return ts.OK("well").Delay(20 * time.Second)
					}
					return ts.OK("well").Delay(10 * time.Millisecond)
				})
				for range 100 {
					w.ok(w.get(), 10*time.Millisecond)
				}
				if others {
					go func() {
						for range 100 {
							w.ok(w.get(), 10*time.Millisecond)
						}
					}()
				}
				w.ok(do(w.tr, newRequest(t, http.MethodGet, w.URL+"/slow", nil)), 260*time.Millisecond)
				time.Sleep(5 * time.Second)
				w.ok(w.get(), 10*time.Millisecond)
				assert.EqualValues(t, 2, slow.Load())
				assert.Equal(t, others, w.tr.Snapshot()[0].Lane == 0)
			})
		})
	}
}

// lognormal returns times with a median.
func lognormal(seed uint64, median time.Duration, sigma float64) func() time.Duration {
	rng := rand.New(rand.NewPCG(seed, 1))
	return func() time.Duration { return time.Duration(float64(median) * math.Exp(sigma*rng.NormFloat64())) }
}

// load sends n GETs, each every so often, to a server whose responses take so long. It returns how
// many requests failed and how many attempts there were.
func load(t *testing.T, tr *transport.Transport, n int, every time.Duration) (failed int64) {
	var bad atomic.Int64
	var wg sync.WaitGroup
	for range n {
		time.Sleep(every)
		wg.Go(func() {
			if code, err := send(t, tr, http.MethodGet, "http://h.test/"); err != nil || code != 200 {
				bad.Add(1)
			}
		})
	}
	wg.Wait()
	return bad.Load()
}

// A paced is a server whose responses take as long as a function says.
type paced struct {
	mu       sync.Mutex
	takes    func() time.Duration
	attempts int
}

func (s *paced) RoundTrip(req *http.Request) (*http.Response, error) {
	s.mu.Lock()
	s.attempts++
	d := s.takes()
	s.mu.Unlock()
	return play(req, status(200).Delay(d))
}

// A server whose times do not change gets few late hedges.
func TestLateHedgesOfAStableServerAreRare(t *testing.T) {
	n := soak.Size(10_000, 1_000_000)
	for name, sigma := range map[string]float64{"narrow": 0.3, "wide": 1} {
		for _, every := range []time.Duration{time.Second / 10, time.Second / 1000} {
			inBubble(t, name+" "+every.String(), func(t *testing.T) {
				server := &paced{takes: lognormal(1, 200*time.Millisecond, sigma)}
				tr := mustNew(t, transport.Config{Base: server, Rule: policy.API()})
				assert.Zero(t, load(t, tr, n, every))
				more := float64(server.attempts-n) / float64(n)
				t.Logf("%.4f %% more attempts", 100*more)
				assert.LessOrEqual(t, more, 0.002)
			})
		}
	}
}

// A server that takes a second, and much longer now and then, gets no hedge that does harm.
func TestLateHedgesOfSlowSuccesses(t *testing.T) {
	n := soak.Size(10_000, 200_000)
	bubble(t, func(t *testing.T) {
		rng, normal := rand.New(rand.NewPCG(7, 7)), lognormal(2, time.Second, 0.1)
		server := &paced{takes: func() time.Duration {
			if rng.IntN(200) == 0 {
				return 16500 * time.Millisecond
			}
			return normal()
		}}
		tr := mustNew(t, transport.Config{Base: server, Rule: policy.API()})
		assert.Zero(t, load(t, tr, n, 20*time.Millisecond))
		more := float64(server.attempts-n) / float64(n)
		t.Logf("%.4f %% more attempts", 100*more)
		assert.LessOrEqual(t, more, 0.006)
	})
}

// A server becomes five times slower at once. Its client learns that.
func TestLateHedgesOfAServerThatBecomesSlower(t *testing.T) {
	for name, sigma := range map[string]float64{"fixed": 0, "lognormal": 0.5} {
		for _, perSecond := range soak.Size([]int{2, 20}, []int{2, 20, 200}) {
			inBubble(t, name+" "+time.Duration(perSecond).String(), func(t *testing.T) {
				server := &paced{takes: lognormal(3, 200*time.Millisecond, sigma)}
				tr := mustNew(t, transport.Config{Base: server, Rule: policy.API()})
				minute := func() float64 {
					before := server.attempts
					assert.Zero(t, load(t, tr, 60*perSecond, time.Second/time.Duration(perSecond)))
					return float64(server.attempts-before) / float64(60*perSecond)
				}
				for range 5 {
					minute()
				}
				server.takes = lognormal(4, time.Second, sigma)
				first, later := minute(), 0.0
				for range 5 {
					later = max(later, minute())
				}
				t.Logf("load %.3f in the first minute, %.3f at most later", first, later)
				assert.LessOrEqual(t, first, 1.2)
				assert.LessOrEqual(t, later, 1.01)
			})
		}
	}
}

// A server freezes for a minute, and answers then. A minute later an attempt hangs after the same
// time as before.
func TestLateHedgesAfterAFreeze(t *testing.T) {
	for name, rule := range presets {
		for _, perSecond := range soak.Size([]int{10, 100}, []int{10, 100, 1000}) {
			inBubble(t, name+" "+time.Duration(perSecond).String(), func(t *testing.T) {
				normal := lognormal(5, 100*time.Millisecond, 0.3)
				thaws := time.Time{}
				server := &paced{takes: func() time.Duration { return max(time.Until(thaws), 0) + normal() }}
				tr := mustNew(t, transport.Config{Base: server, Rule: rule})
				hangs := func(seconds int) float64 {
					load(t, tr, seconds*perSecond, time.Second/time.Duration(perSecond))
					return stateOf(t, tr).HangsAfter
				}
				before := hangs(300)
				thaws = time.Now().Add(time.Minute)
				during := hangs(60)
				after := hangs(60)
				t.Logf("%.2f s before, %.2f s at the end of the freeze, %.2f s a minute later", before, during, after)
				assert.InEpsilon(t, before, after, 0.5)
			})
		}
	}
}

// learned returns a Transport that knows the times of its host, 100 ms, so that an attempt hangs
// after 300 ms. Its base gives the answers after that. A light Transport takes the fast path.
func learned(t *testing.T, light bool, cfg transport.Config, answers ...answer) (*transport.Transport, *origin) {
	known := make([]answer, 100)
	for i := range known {
		known[i] = status(200).Delay(100 * time.Millisecond)
	}
	server := script(append(known, answers...)...)
	cfg.Base, cfg.Rule.Hedge.Late = server, policy.On
	if !light {
		cfg.Rule.Rate.PerSecond = 10_000
	}
	tr := mustNew(t, cfg)
	for range known {
		require.Equal(t, 200, responds(t, tr, http.MethodGet, "http://h.test/"))
	}
	return tr, server
}

// bothPaths runs a test for the fast path and for the loop.
func bothPaths(t *testing.T, test func(t *testing.T, light bool)) {
	inBubble(t, "light", func(t *testing.T) { test(t, true) })
	inBubble(t, "loop", func(t *testing.T) { test(t, false) })
}

// A hold that begins while light requests are under way does not hide how long they take.
func TestLateHedgesKnowTheTimesDuringAHold(t *testing.T) {
	bubble(t, func(t *testing.T) {
		tr := over(t, transport.Config{Rule: policy.API()}, rt(func(req *http.Request) (*http.Response, error) {
			if req.URL.Path == "/busy" {
				return play(req, status(429, "Retry-After: 3600"))
			}
			return play(req, status(200).Delay(time.Second))
		}))
		together(101, func(i int) {
			if i == 100 {
				time.Sleep(time.Second / 2)
				assert.Equal(t, 429, responds(t, tr, http.MethodGet, "http://h.test/busy"))
				return
			}
			assert.Equal(t, 200, responds(t, tr, http.MethodGet, "http://h.test/"))
		})
		assert.InDelta(t, 3, stateOf(t, tr).HangsAfter, 0.1)
	})
}

func TestLateHedge(t *testing.T) {
	const ms = time.Millisecond
	for name, row := range map[string]struct {
		answers  []answer
		status   int
		after    time.Duration
		attempts int
	}{
		"not before its time":           {[]answer{status(200).Delay(299 * ms)}, 200, 299 * ms, 1},
		"the first hangs":               {[]answer{faults.Hang(), status(201).Delay(50 * ms)}, 201, 350 * ms, 2},
		"the first is first":            {[]answer{status(202).Delay(320 * ms), status(201).Delay(50 * ms)}, 202, 320 * ms, 2},
		"the second fails":              {[]answer{status(202).Delay(time.Second), status(503)}, 202, time.Second, 2},
		"the first fails":               {[]answer{status(503).Delay(320 * ms), status(201).Delay(50 * ms)}, 201, 350 * ms, 2},
		"the first resets":              {[]answer{faults.Fail(syscall.ECONNRESET).Delay(320 * ms), status(201).Delay(50 * ms)}, 201, 350 * ms, 2},
		"the second resets":             {[]answer{status(202).Delay(time.Second), faults.Fail(syscall.ECONNRESET)}, 202, time.Second, 2},
		"the second gets no retry":      {[]answer{status(202).Delay(time.Second), faults.Fail(io.ErrNoProgress)}, 202, time.Second, 2},
		"both fail":                     {[]answer{status(503).Delay(time.Second), status(503), status(203)}, 203, time.Second, 3},
		"no third":                      {[]answer{faults.Hang(), status(201).Delay(time.Minute)}, 201, 300*ms + time.Minute, 2},
		"the first is cut":              {[]answer{faults.Hang(), status(201).Delay(11 * time.Second)}, 201, 11*time.Second + 300*ms, 2},
		"none beside a retry":           {[]answer{status(503), status(201).Delay(time.Second)}, 201, time.Second, 2},
		"the first ignores the context": {[]answer{deafly(time.Second, status(202)), status(201).Delay(50 * ms)}, 201, time.Second, 2},
	} {
		t.Run(name, func(t *testing.T) {
			bothPaths(t, func(t *testing.T, light bool) {
				rule := quick
				if name == "the first is cut" {
					rule.AttemptTimeout = 20 * time.Second
				}
				tr, server := learned(t, light, transport.Config{Rule: rule}, row.answers...)
				start := time.Now()
				assert.Equal(t, row.status, responds(t, tr, http.MethodGet, "http://h.test/"))
				assert.Equal(t, row.after, time.Since(start))
				assert.Equal(t, row.attempts, server.attempts()-100)
				time.Sleep(time.Hour)
				synctest.Wait()
				assert.Zero(t, stateOf(t, tr).InFlight)
			})
		})
	}
}

// A 429 to a late hedge holds the others at once, although the first attempt is still under way, and
// the hedge gives its slot back.
func TestLateHedgeThatIsToldToWaitHoldsTheScope(t *testing.T) {
	bothPaths(t, func(t *testing.T, light bool) {
		var rule policy.Rule
		if !light {
			rule.Gate.Start = 5
		}
		tr, _ := learned(t, light, transport.Config{Rule: rule}, status(200).Delay(3*time.Second), status(429, "Retry-After: 30"))
		done := make(chan struct{})
		go func() {
			defer close(done)
			assert.Equal(t, 200, responds(t, tr, http.MethodGet, "http://h.test/"))
		}()
		time.Sleep(time.Second)
		now := stateOf(t, tr)
		assert.Equal(t, 1, now.HeldScopes)
		if !light {
			assert.Equal(t, 1, now.GateSlots)
		}
		<-done
	})
}

// The others are held as soon as the headers of a 429 to a late hedge have come, also if the classifier
// waits for its body.
func TestLateHedgeHoldsTheScopeByItsHeaders(t *testing.T) {
	bothPaths(t, func(t *testing.T, light bool) {
		rule := policy.Rule{Classify: classify.OnBodyText(classify.Ambiguous, "later")}
		told := faults.Status(429).RetryAfter(30 * time.Second).Body("not yet, but later").StallAt(3)
		tr, _ := learned(t, light, transport.Config{Rule: rule}, status(200).Delay(3*time.Second), told)
		done := make(chan struct{})
		go func() {
			defer close(done)
			assert.Equal(t, 200, responds(t, tr, http.MethodGet, "http://h.test/"))
		}()
		time.Sleep(time.Second)
		assert.Equal(t, 1, stateOf(t, tr).HeldScopes)
		<-done
	})
}

// A hook is told the end of a late hedge that does not count while the first attempt is under way. A
// slow hook only delays the request, and what the hedge got is nothing that the first attempt got.
func TestLateHedgeIsToldWhileTheFirstIsUnderWay(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var told []string
		trace := &transport.Trace{AttemptEnd: func(_ context.Context, e transport.AttemptEnd) {
			if time.Sleep(time.Second); e.Response != nil {
				told = append(told, fmt.Sprintf("%d: %d", e.Number, e.Response.StatusCode))
			} else {
				told = append(told, fmt.Sprintf("%d: %v", e.Number, e.Err))
			}
		}}
		tr, _ := learned(t, false, transport.Config{Trace: trace}, status(200).Delay(500*time.Millisecond), status(503),
			deafly(5*time.Second, func(*http.Request) (*http.Response, error) { panic("base") }), status(503))
		told = nil
		assert.Equal(t, 200, responds(t, tr, http.MethodGet, "http://h.test/"))
		assert.Equal(t, []string{"2: 503", "1: 200"}, told)
		told = nil
		assert.PanicsWithValue(t, "base", func() { _, _ = get(t, tr, t.Context()) })
		assert.Equal(t, []string{"2: 503", "1: <nil>"}, told)
	})
}

// The caller may use its request again when it has the response, also if a late hedge is judged after
// that (seen with -race).
func TestLateHedgeLeavesTheRequestAloneAfterTheResponse(t *testing.T) {
	bothPaths(t, func(t *testing.T, light bool) {
		var judged atomic.Value
		rule := policy.Rule{Classify: func(o classify.Outcome) classify.Verdict {
			judged.Store(o.Request.Method + o.Request.Header.Get("X-Reused"))
			return classify.Unknown
		}}
		tr, _ := learned(t, light, transport.Config{Rule: rule}, status(200).Delay(310*time.Millisecond), deaf(20*time.Millisecond))
		req := newRequest(t, http.MethodGet, "http://h.test/", nil)
		resp := mustRoundTrip(t, tr, req)
		_ = resp.Body.Close()
		req.Method = http.MethodHead
		req.Header.Set("X-Reused", "1")
		time.Sleep(time.Second)
		assert.Equal(t, "GET", judged.Load())
	})
}

// An attempt that had its connection after its hedge was due has no more time than others.
func TestLateHedgeAfterALateConnection(t *testing.T) {
	bothPaths(t, func(t *testing.T, light bool) {
		rule := policy.Rule{Attempts: 2, AttemptTimeout: 5 * time.Second, ConnectTimeout: 3 * time.Second}.Or(quick)
		connects := rt(func(req *http.Request) (*http.Response, error) {
			trace := httptrace.ContextClientTrace(req.Context())
			trace.GetConn("h.test:80")
			time.Sleep(2 * time.Second)
			trace.GotConn(httptrace.GotConnInfo{})
			return play(req, faults.Hang())
		})
		tr, _ := learned(t, light, transport.Config{Rule: rule}, connects, faults.Hang())
		start := time.Now()
		_, err := get(t, tr, t.Context())
		failed, ok := err.(*transport.Error)
		require.True(t, ok, err)
		var times []string
		for _, a := range failed.Attempts {
			times = append(times, fmt.Sprint(a.Kind, a.Start.Sub(start), a.Duration))
		}
		assert.Equal(t, []string{"first 0s 5s", "hedge 2s 5s"}, times)
	})
}

// The first attempt fails in the moment in which it gets another beside it (seen with -race).
func TestLateHedgeInTheMomentOfAFailure(t *testing.T) {
	bothPaths(t, func(t *testing.T, light bool) {
		tr, _ := learned(t, light, transport.Config{}, faults.Fail(io.ErrNoProgress).Delay(300*time.Millisecond))
		for range 50 {
			var all sync.WaitGroup
			for range 20 {
				all.Go(func() {
					_, err := get(t, tr, t.Context())
					assert.ErrorIs(t, err, io.ErrNoProgress)
				})
			}
			all.Wait()
		}
	})
}

// A panic of the base, of a hook or of the classifier reaches the caller, and nothing stays behind.
func TestLateHedgeAndPanics(t *testing.T) {
	panics := func(*http.Request) (*http.Response, error) { panic("base") }
	for name, row := range map[string]struct {
		answers []answer
		cfg     transport.Config
	}{
		"the first, alone":           {[]answer{panics}, transport.Config{}},
		"the first, beside a second": {[]answer{deafly(2*time.Second, panics), faults.Hang()}, transport.Config{}},
		"an error's method":          {[]answer{deafly(2*time.Second, faults.Fail(badError{})), faults.Hang()}, transport.Config{}},
		"the second":                 {[]answer{faults.Hang(), panics}, transport.Config{}},
		"the second, later":          {[]answer{faults.Hang(), deafly(2*time.Second, panics)}, transport.Config{}},
		"the hook": {[]answer{faults.Hang(), faults.Hang()}, transport.Config{Trace: &transport.Trace{Event: func(e transport.Event) {
			if e.Reason == transport.ReasonHedged {
				panic("base")
			}
		}}}},
		"the classifier": {[]answer{faults.Hang(), status(499)}, transport.Config{Rule: policy.Rule{Classify: func(o classify.Outcome) classify.Verdict {
			if o.Response != nil && o.Response.StatusCode == 499 {
				panic("base")
			}
			return classify.Unknown
		}}}},
	} {
		t.Run(name, func(t *testing.T) {
			bothPaths(t, func(t *testing.T, light bool) {
				row.cfg.Rule.Gate.Start = 0
				if !light {
					row.cfg.Rule.Gate.Start = 5
				}
				tr, _ := learned(t, light, row.cfg, row.answers...)
				assert.PanicsWithValue(t, "base", func() { _, _ = get(t, tr, t.Context()) })
				time.Sleep(time.Minute)
				synctest.Wait()
				assert.Zero(t, stateOf(t, tr).GateSlots)
				assert.Zero(t, stateOf(t, tr).InFlight)
			})
		})
	}
}

// The caller leaves while both attempts are under way.
func TestLateHedgeAndACallerWhoLeaves(t *testing.T) {
	bothPaths(t, func(t *testing.T, light bool) {
		tr, server := learned(t, light, transport.Config{}, faults.Hang())
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		start := time.Now()
		_, err := get(t, tr, ctx)
		assert.ErrorIs(t, err, context.DeadlineExceeded)
		assert.Equal(t, time.Second, time.Since(start))
		assert.Equal(t, 102, server.attempts())
	})
}

// The bodies of all responses are closed, however close the two come to each other.
func TestBodiesOfLateHedgesAreClosed(t *testing.T) {
	bothPaths(t, func(t *testing.T, light bool) {
		var open atomic.Int32
		body := func(d time.Duration) rt {
			return func(req *http.Request) (*http.Response, error) {
				resp, err := play(req, status(200).Delay(d))
				if err == nil {
					open.Add(1)
					resp.Body = &lateBody{resp.Body, &open}
				}
				return resp, err
			}
		}
		for i := range 40 {
			near := time.Duration(i%4-1) * time.Nanosecond
			for _, of := range [][2]time.Duration{{300*time.Millisecond + near, time.Second}, {400*time.Millisecond + near, 100 * time.Millisecond}} {
				tr, _ := learned(t, light, transport.Config{}, body(of[0]), body(of[1]))
				assert.Equal(t, 200, responds(t, tr, http.MethodGet, "http://h.test/"))
				time.Sleep(time.Minute)
				synctest.Wait()
				assert.Zero(t, open.Load())
			}
		}
	})
}

// A lateBody is a body that counts itself until it is closed.
type lateBody struct {
	io.ReadCloser
	open *atomic.Int32
}

func (c *lateBody) Close() error {
	c.open.Add(-1)
	return c.ReadCloser.Close()
}

// Requests that would not be hedged get no late hedge either, nor do those for which the budget has
// nothing left.
func TestWhatGetsNoLateHedge(t *testing.T) {
	for name, row := range map[string]struct {
		method string
		rule   policy.Rule
		ctx    func(context.Context) context.Context
		body   io.Reader
		hedges int
	}{
		"a GET":                  {http.MethodGet, policy.Rule{}, nil, nil, 1},
		"a GET with a body":      {http.MethodGet, policy.Rule{}, nil, strings.NewReader("x"), 1},
		"a PUT":                  {http.MethodPut, policy.Rule{}, nil, strings.NewReader("x"), 0},
		"a PUT that may":         {http.MethodPut, policy.Rule{}, transport.Repeatable, strings.NewReader("x"), 1},
		"a body that is no copy": {http.MethodPut, policy.Rule{}, transport.Repeatable, io.MultiReader(strings.NewReader("x")), 0},
		"once":                   {http.MethodGet, policy.Rule{}, transport.Once, nil, 0},
		"a spent budget":         {http.MethodGet, policy.Rule{Budget: policy.Budget{Ratio: 1e-9, PerSecond: policy.Off, Burst: 1}}, nil, nil, 0},
		"no retries":             {http.MethodGet, policy.Rule{Attempts: policy.Off}, nil, nil, 0},
	} {
		t.Run(name, func(t *testing.T) {
			bothPaths(t, func(t *testing.T, light bool) {
				tr, server := learned(t, light, transport.Config{Rule: row.rule}, status(200).Delay(time.Second))
				if name == "a spent budget" {
					do(tr, newRequest(t, http.MethodGet, "http://h.test/", nil))
				}
				before := server.attempts()
				req := newRequest(t, row.method, "http://h.test/", row.body)
				if row.ctx != nil {
					req = req.WithContext(row.ctx(req.Context()))
				}
				got := do(tr, req)
				assert.NoError(t, got.err)
				assert.Equal(t, time.Second, got.elapsed)
				assert.Equal(t, row.hedges, server.attempts()-before-1)
			})
		})
	}
}
