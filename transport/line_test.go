package transport_test

import (
	"cmp"
	"context"
	"errors"
	"io"
	"net/http"
	"slices"
	"strconv"
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
	ts "github.com/aplomb-go/aplomb/internal/testserver"
	"github.com/aplomb-go/aplomb/policy"
	"github.com/aplomb-go/aplomb/policy/backoff"
	"github.com/aplomb-go/aplomb/transport"
)

// poor is a rule whose one retry does not come back. Its retries are due 1 s, 3 s and 7 s after the first attempt.
var poor = policy.Rule{MaxAttempts: 4, RetryBudget: one}.Or(exact)

// spend uses up the one retry of a host, with a request that is over at once.
func spend(t *testing.T, tr *transport.Transport) {
	t.Helper()
	ctx := transport.WithRule(t.Context(), policy.Rule{MaxAttempts: 2, Backoff: backoff.Constant(0)})
	require.NoError(t, closing(get(t, tr, ctx)))
	require.Less(t, stateOf(t, tr).RetryBudget, 0.5)
}

// A downtime is a server that answers with 503 until a time, and counts what it is sent.
type downtime struct {
	*origin
	until time.Duration
}

func downUntil(until time.Duration) *downtime {
	d := &downtime{until: until}
	d.origin = script(func(req *http.Request) (*http.Response, error) {
		if time.Since(d.start) < d.until {
			return play(req, status(503))
		}
		return play(req, status(200))
	})
	return d
}

// A retry waits in line for as long as its schedule would have gone on. Then the caller gets the last response whole, or an
// error that has its status and header. The line ends a little before the caller's time.
func TestRetryWaitsForItsSchedule(t *testing.T) {
	long := strings.Repeat("x", 65<<10)
	for name, row := range map[string]struct {
		rule     policy.Rule
		deadline time.Duration
		body     string
		takes    time.Duration
		ends     time.Duration
	}{
		"schedule":               {ends: 7 * time.Second},
		"one retry":              {rule: policy.Rule{MaxAttempts: 2}, ends: 2 * time.Second}, // the last waits once more its own back-off
		"attempts take time":     {takes: 2 * time.Second, ends: 13 * time.Second},
		"attempts may take time": {rule: policy.Rule{AttemptTimeout: 5 * time.Second}, ends: 17 * time.Second},
		"MaxElapsedTime":         {rule: policy.Rule{MaxElapsedTime: 4 * time.Second}, ends: 4 * time.Second},
		"deadline":               {deadline: 3 * time.Second, ends: 2500 * time.Millisecond},
		"long deadline":          {deadline: 7 * time.Second, ends: 6 * time.Second},
		"deadline after it":      {deadline: time.Minute, ends: 7 * time.Second},
		"the back-off stops":     {rule: policy.Rule{Backoff: backoff.Geometric{Max: 3 * time.Second}}, ends: 3 * time.Second},
		"decorrelated":           {rule: policy.Rule{Backoff: backoff.Exponential{Jitter: backoff.JitterDecorrelated, Base: time.Second, Max: time.Second}}, ends: 3 * time.Second},
		"a body of 64 KiB":       {body: long[:64<<10], ends: 7 * time.Second},
		"a longer body":          {body: long, ends: 7 * time.Second},
	} {
		inBubble(t, name, func(t *testing.T) {
			answer := faults.Status(503).Body(cmp.Or(row.body, "later")).Header("X-Id", "7").Delay(row.takes)
			base, seen := script(status(503), status(200), answer), &recorder{}
			tr := mustNew(t, transport.Config{Base: base, Rule: row.rule.Or(poor)})
			spend(t, tr)
			ctx, begin := seen.on(t.Context()), time.Now()
			if row.deadline > 0 {
				until, cancel := context.WithTimeout(ctx, row.deadline)
				defer cancel()
				ctx = until
			}
			resp, err := get(t, tr, ctx)
			assert.Equal(t, row.ends, time.Since(begin).Round(10*time.Millisecond))
			base.sent(t, 3)
			h := transport.HistoryOf(resp, err)
			assert.Equal(t, transport.ReasonRetryBudget, h.Reason)
			require.Len(t, h.Attempts, 1)
			assert.Equal(t, 503, h.Attempts[0].Status)
			if row.body == long {
				require.Error(t, err)
				assert.Equal(t, "7", errorAs[*transport.Error](t, err).Header.Get("X-Id"))
			} else {
				require.NoError(t, err)
				assert.Equal(t, "7", resp.Header.Get("X-Id"))
				assert.Equal(t, cmp.Or(row.body, "later"), mustRead(t, resp))
				assert.NoError(t, resp.Body.Close())
			}
			assert.Zero(t, stateOf(t, tr).RetriesWaiting)
			ends := 0
			for _, e := range seen.events() {
				if e.Kind != "" {
					ends++
				}
			}
			assert.Equal(t, 1, ends, "the hooks hear of the end of an attempt once")
		})
	}
}

// Who waits in line holds no connection, and goes as soon as there is a retry.
func TestLineHoldsNoConnection(t *testing.T) {
	inMemory(t, anyProtocol, func(t *testing.T, cfg ts.Config) {
		s := set(t, cfg, poor, ts.Status(503), ts.OK("well"), ts.Status(503), ts.OK("meanwhile"), ts.OK("again"))
		s.base.MaxConnsPerHost = 1
		ctx := transport.WithRule(t.Context(), policy.Rule{MaxAttempts: 2, Backoff: backoff.Constant(0)})
		require.Equal(t, 200, s.do(s.request(http.MethodGet, nil).WithContext(ctx)).status)
		waits := make(chan result, 1)
		go func() { waits <- s.send(http.MethodGet, nil) }()
		time.Sleep(2 * time.Second)
		assert.Equal(t, 1, hostState(t, s.tr, s.URL).RetriesWaiting)
		r := s.send(http.MethodGet, nil)
		assert.Equal(t, "meanwhile", r.body)
		assert.Zero(t, r.elapsed)
		assert.NoError(t, s.tr.Update(policy.Rule{RetryBudget: quick.RetryBudget}.Or(poor), nil))
		assert.Equal(t, "again", s.send(http.MethodGet, nil).body)
		got := <-waits
		assert.Equal(t, 200, got.status)
		assert.Equal(t, 2*time.Second, got.elapsed.Round(10*time.Millisecond))
	})
}

// A context that ends in line gives its own error, and so does Request.Cancel.
func TestContextEndsInLine(t *testing.T) {
	cause := errors.New("cause")
	for name, row := range map[string]struct {
		end    func(*http.Request) (*http.Request, func())
		is     error
		reason transport.Reason
	}{
		"canceled": {is: context.Canceled, reason: transport.ReasonCanceled, end: func(req *http.Request) (*http.Request, func()) {
			ctx, cancel := context.WithCancel(req.Context())
			return req.WithContext(ctx), cancel
		}},
		"deadline that the context does not tell": {is: context.DeadlineExceeded, reason: transport.ReasonDeadline, end: func(req *http.Request) (*http.Request, func()) {
			ctx, cancel := context.WithTimeout(req.Context(), 2*time.Second)
			return req.WithContext(untold{ctx}), func() { time.AfterFunc(time.Second, cancel) }
		}},
		"cause": {is: context.Canceled, reason: transport.ReasonCanceled, end: func(req *http.Request) (*http.Request, func()) {
			ctx, cancel := context.WithCancelCause(req.Context())
			return req.WithContext(ctx), func() { cancel(cause) }
		}},
		"Request.Cancel": {is: nil, reason: transport.ReasonCanceled, end: func(req *http.Request) (*http.Request, func()) {
			ch := make(chan struct{})
			//lint:ignore SA1019 old callers still set Request.Cancel
			req.Cancel = ch
			return req, func() { close(ch) }
		}},
	} {
		inBubble(t, name, func(t *testing.T) {
			base := script(status(503), status(200), status(503))
			tr := mustNew(t, transport.Config{Base: base, Rule: poor})
			spend(t, tr)
			req, end := row.end(newRequest(t, http.MethodGet, "http://h.test/", nil))
			stop := time.AfterFunc(2*time.Second, end)
			defer stop.Stop()
			begin := time.Now()
			resp, err := tr.RoundTrip(req)
			require.Error(t, err)
			assert.Nil(t, resp)
			assert.Equal(t, 2*time.Second, time.Since(begin).Round(10*time.Millisecond))
			if row.is != nil {
				assert.ErrorIs(t, err, row.is)
			}
			assert.Equal(t, row.reason, transport.ReasonOf(nil, err))
			assert.Zero(t, stateOf(t, tr).RetriesWaiting)
			base.sent(t, 3)
		})
	}
}

// untold is a context that does not tell its deadline.
type untold struct{ context.Context }

func (untold) Deadline() (time.Time, bool) { return time.Time{}, false }

// Invariant 11: in any window, the retries to a host are at most the budget's share of the requests, plus its floor
// times the window, plus three for each retry that succeeds, plus 10 s of the floor.
func TestBudgetInEveryWindow(t *testing.T) {
	for name, row := range map[string]struct {
		rate, fails int // requests per second, and attempts of ten that fail
	}{"all fail at 50/s": {50, 10}, "half fail at 50/s": {50, 5}, "a tenth fails at 100/s": {100, 1}, "most fail at 2/s": {2, 9}} {
		inBubble(t, name, func(t *testing.T) {
			type event struct {
				at          time.Duration
				retry, good bool
			}
			var mu sync.Mutex
			var all []event
			n, begin := 0, time.Now()
			tr := mustNew(t, transport.Config{
				Base: rt(func(req *http.Request) (*http.Response, error) {
					mu.Lock()
					n++
					bad := n*7%10 < row.fails
					mu.Unlock()
					if bad {
						return play(req, status(503))
					}
					return play(req, status(200))
				}),
				Traces: []*transport.Trace{{AttemptEnd: func(_ context.Context, e transport.AttemptEnd) {
					mu.Lock()
					defer mu.Unlock()
					all = append(all, event{time.Since(begin), e.Number > 1, e.Number > 1 && e.Status == 200})
				}}},
			})
			together(60*row.rate, func(i int) {
				time.Sleep(time.Duration(i) * time.Second / time.Duration(row.rate))
				_, _ = send(t, tr, http.MethodGet, "http://h.test/")
			})
			slices.SortFunc(all, func(a, b event) int { return int(a.at - b.at) })
			for i, from := range all {
				retries, budget := 0.0, 30.0
				for _, e := range all[i:] {
					switch {
					case e.good:
						retries, budget = retries+1, budget+3
					case e.retry:
						retries++
					default:
						budget += 0.2
					}
					most := budget + 3*(e.at-from.at).Seconds()
					if row.fails == 10 { // while the host is down, a probe goes each second at most, which is not of the budget
						most += (e.at - from.at).Seconds() + 1
					}
					if retries > most+1e-6 {
						t.Fatalf("from %v to %v: %v retries, budget %v", from.at, e.at, retries, most)
					}
				}
			}
		})
	}
}

// If no new requests come, one of those who wait goes now and then. When the host is back, all come back within 10 s, gradually.
func TestWaitersFindOut(t *testing.T) {
	bubble(t, func(t *testing.T) {
		const back = 15 * time.Second
		base := downUntil(back)
		tr := mustNew(t, transport.Config{Base: base})
		together(100, func(int) {
			assert.Equal(t, 200, responds(t, tr, http.MethodGet, "http://h.test/"))
			assert.LessOrEqual(t, time.Since(base.start), back+5*time.Second+10*time.Second)
		})
		assert.LessOrEqual(t, base.between(0, time.Second), 100)
		assert.LessOrEqual(t, base.between(4*time.Second, back), 4, "probes")
		for from := back; from < back+20*time.Second; from += 100 * time.Millisecond {
			assert.LessOrEqual(t, base.between(from, from+time.Second), 50, "from %v", from)
		}
	})
}

// The requests with a key that is told 429 have a line of their own, whoever computes the key. So have those to a path.
func TestOwnLines(t *testing.T) {
	for name, row := range map[string]struct {
		code        int
		bad         func(*http.Request) bool
		header, url string
		rule        policy.Rule
	}{
		"credentials": {code: 429, header: "Authorization: Bearer bad", url: "http://h.test/", bad: func(r *http.Request) bool { return r.Header.Get("Authorization") == "Bearer bad" }},
		"ThrottleKey": {code: 429, header: "X-Tenant: bad", url: "http://h.test/", bad: func(r *http.Request) bool { return r.Header.Get("X-Tenant") == "bad" },
			rule: policy.Rule{ThrottleKey: func(r *http.Request) string { return r.Header.Get("X-Tenant") }}},
		"path": {code: 503, header: "X-A: b", url: "http://h.test/bad", bad: func(r *http.Request) bool { return r.URL.Path == "/bad" }},
	} {
		inBubble(t, name, func(t *testing.T) {
			var failed sync.Map
			var bad atomic.Int64
			tr := mustNew(t, transport.Config{Rule: row.rule, Base: rt(func(req *http.Request) (*http.Response, error) {
				if row.bad(req) {
					bad.Add(1)
					return play(req, status(row.code))
				}
				if fails := req.Header.Get("X-Fails"); fails != "" {
					if _, again := failed.LoadOrStore(fails, true); !again {
						return play(req, status(503))
					}
				}
				return play(req, status(200))
			})})
			var all sync.WaitGroup
			all.Go(func() {
				together(1200, func(i int) {
					time.Sleep(time.Duration(i) * 50 * time.Millisecond)
					_, _ = send(t, tr, http.MethodGet, row.url, row.header)
				})
			})
			together(1200, func(i int) {
				time.Sleep(time.Duration(i) * 50 * time.Millisecond)
				begin := time.Now()
				header := "X-A: b"
				if i%20 == 0 { // its first attempt fails
					header = "X-Fails: " + strconv.Itoa(i)
				}
				assert.Equal(t, 200, responds(t, tr, http.MethodGet, "http://h.test/good", header))
				assert.LessOrEqual(t, time.Since(begin), 3*time.Second) // a back-off takes 2 s
			})
			all.Wait()
			t.Logf("%d bad attempts of 1200 requests", bad.Load())
			assert.LessOrEqual(t, bad.Load(), int64(1200*1.2+60*3+30))
			assert.Zero(t, stateOf(t, tr).RetriesWaiting)
		})
	}
}

// A request's first retry comes after the wait that the server named.
func TestServersWordReplacesTheBackoff(t *testing.T) {
	for range 20 {
		bubble(t, func(t *testing.T) {
			base := script(status(429, "Retry-After-Ms: 400"), status(200))
			tr := mustNew(t, transport.Config{Base: base})
			assert.Equal(t, 200, responds(t, tr, http.MethodGet, "http://h.test/"))
			took := time.Since(base.start)
			assert.True(t, 400*time.Millisecond <= took && took <= 800*time.Millisecond, took)
		})
	}
}

// A hedge never waits, and overtakes nobody who does.
func TestHedgesOvertakeNobody(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var slow atomic.Int64
		base := script(func(req *http.Request) (*http.Response, error) {
			if req.URL.Path == "/slow" {
				if slow.Add(1); slow.Load() == 1 {
					return play(req, faults.Status(200).Delay(time.Second))
				}
				return play(req, status(200))
			}
			return play(req, status(503))
		})
		budget := policy.RetryBudget{Ratio: -1, MinPerSecond: 0.1}
		tr := mustNew(t, transport.Config{Base: base, Rule: policy.Rule{
			MaxAttempts: 3, Backoff: backoff.Constant(20 * time.Second), RetryBudget: budget, Hedge: policy.Hedge{Delay: 100 * time.Millisecond},
		}})
		var all sync.WaitGroup
		for range 3 {
			all.Go(func() { _, _ = send(t, tr, http.MethodGet, "http://h.test/") })
		}
		time.Sleep(30 * time.Second) // one has gone after 20 s, and one would after 30 s
		time.Sleep(5 * time.Second)
		require.Positive(t, stateOf(t, tr).RetriesWaiting)
		assert.Equal(t, 200, responds(t, tr, http.MethodGet, "http://h.test/slow"))
		assert.EqualValues(t, 1, slow.Load(), "attempts beside a line")
		all.Wait()
		time.Sleep(time.Minute)
		slow.Store(0)
		assert.Equal(t, 200, responds(t, tr, http.MethodGet, "http://h.test/slow"))
		assert.EqualValues(t, 2, slow.Load(), "attempts without a line")
		slow.Store(0)
		assert.Equal(t, 200, responds(t, tr, http.MethodGet, "http://h.test/slow"))
		assert.EqualValues(t, 1, slow.Load(), "attempts without a retry in the budget")
	})
}

// A hedge that is sent after an outage has not failed in it, so it takes a retry of the budget.
func TestHedgeAfterAnOutage(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var up atomic.Bool
		base := script(func(req *http.Request) (*http.Response, error) {
			if up.Load() {
				return play(req, faults.Status(200).Delay(time.Second))
			}
			return play(req, status(503))
		})
		tr := mustNew(t, transport.Config{Base: base, Rule: policy.Rule{RetryBudget: one, Hedge: policy.Hedge{Delay: 100 * time.Millisecond}}})
		bring(t, tr)
		up.Store(true)
		for _, attempts := range []int{1, 2, 1, 1} { // the first ends the outage
			before := base.attempts()
			assert.Equal(t, 200, responds(t, tr, http.MethodGet, "http://h.test/"))
			base.sent(t, before+attempts)
		}
	})
}

// The continuation of a body waits in line within the time of a Read.
func TestContinuationsWaitInLine(t *testing.T) {
	bubble(t, func(t *testing.T) {
		text := strings.Repeat("x", 1000)
		base := cutter(text, 10, 10, 10)
		tr := over(t, transport.Config{Rule: policy.Rule{RetryBudget: one, Backoff: backoff.Constant(30 * time.Second), MaxAttempts: 100}}, base)
		resp := mustGetWith(t, tr, t.Context())
		begin := time.Now()
		_, err := io.ReadAll(resp.Body)
		require.Error(t, err)
		assert.LessOrEqual(t, time.Since(begin), 2*10*time.Second)
		assert.Zero(t, stateOf(t, tr).RetriesWaiting)
		require.NoError(t, resp.Body.Close())
	})
}

// Whatever panics in line or after it, nobody else waits for longer.
func TestPanicsOfThoseWhoWait(t *testing.T) {
	for name, change := range map[string]func(*policy.Rule, *http.Request, func()){
		"classifier": func(r *policy.Rule, _ *http.Request, blow func()) {
			r.Classify = func(o classify.Outcome) classify.Class { blow(); return classify.Default(o) }
		},
		"RetryAfter": func(r *policy.Rule, _ *http.Request, blow func()) {
			r.RetryAfter = func(o classify.Outcome) (time.Duration, bool) { blow(); return 0, false }
		},
		"back-off": func(r *policy.Rule, _ *http.Request, blow func()) {
			r.Backoff = backoffFunc(func(n int, prev time.Duration) time.Duration { blow(); return backoff.Exponential{}.Delay(n, prev) })
		},
		"GetBody": func(r *policy.Rule, req *http.Request, blow func()) {
			req.Method, req.Body = http.MethodPut, io.NopCloser(strings.NewReader("text"))
			req.GetBody = func() (io.ReadCloser, error) { blow(); return io.NopCloser(strings.NewReader("text")), nil }
		},
		"base": func(_ *policy.Rule, req *http.Request, blow func()) {
			*req = *req.WithContext(context.WithValue(req.Context(), blowKey{}, blow))
		},
	} {
		for at := range 8 {
			inBubble(t, name+strconv.Itoa(at), func(t *testing.T) {
				const back = 3 * time.Second
				base := downUntil(back)
				serve := base.serve
				base.serve = rt(func(req *http.Request) (*http.Response, error) {
					if blow, ok := req.Context().Value(blowKey{}).(func()); ok {
						blow()
					}
					return play(req, serve)
				})
				tr := mustNew(t, transport.Config{Base: base})
				var all sync.WaitGroup
				for range 3 { // each may take the turn of a probe that brings nothing
					all.Go(func() {
						req, n := newRequest(t, http.MethodGet, "http://h.test/", nil), 0
						rule := policy.Rule{}
						change(&rule, req, func() {
							if n++; n > at {
								panic("hook")
							}
						})
						defer func() { _ = recover() }()
						_ = closing(tr.RoundTrip(req.WithContext(transport.WithRule(req.Context(), rule))))
					})
				}
				for range 20 {
					all.Go(func() { assert.Equal(t, 200, responds(t, tr, http.MethodGet, "http://h.test/")) })
				}
				all.Wait()
				assert.LessOrEqual(t, time.Since(base.start), back+30*time.Second)
				s := stateOf(t, tr)
				assert.Zero(t, s.RetriesWaiting)
				assert.Zero(t, s.InFlight)
				assert.False(t, s.Down)
			})
		}
	}
}

// After a 429 a success is told to the scope of its credentials. If the ThrottleKey panics then, the body is closed.
func TestPanicOfTheKeyAfterASuccess(t *testing.T) {
	closed, broken := false, false
	code := 429
	base := rt(func(*http.Request) (*http.Response, error) {
		resp := &http.Response{StatusCode: code, Header: http.Header{}, Body: badBody{strings.NewReader("text").Read, func() { closed = true }}}
		code = 200
		return resp, nil
	})
	tr := mustNew(t, transport.Config{Base: base, Rule: policy.Rule{MaxAttempts: 1, ThrottleKey: func(*http.Request) string {
		if broken {
			panic("hook")
		}
		return "key"
	}}})
	require.Equal(t, 429, responds(t, tr, http.MethodGet, "http://h.test/"))
	closed, broken = false, true
	assert.PanicsWithValue(t, "hook", func() { _, _ = get(t, tr, t.Context()) })
	assert.True(t, closed, "the body is closed")
	assert.Zero(t, stateOf(t, tr).InFlight)
}

type blowKey struct{}

// An Update that turns the budget off, or makes it larger, lets those go who wait.
func TestUpdateLetsWaitersGo(t *testing.T) {
	for name, budget := range map[string]policy.RetryBudget{"off": {Enabled: policy.Off}, "larger": {MinPerSecond: 1000}} {
		inBubble(t, name, func(t *testing.T) {
			base := script(status(503), status(200), status(503), status(503), status(503), status(200))
			tr := mustNew(t, transport.Config{Base: base, Rule: poor})
			spend(t, tr)
			var all sync.WaitGroup
			for range 3 {
				all.Go(func() {
					assert.Equal(t, 200, responds(t, tr, http.MethodGet, "http://h.test/"))
					assert.Equal(t, 2*time.Second, time.Since(base.start).Round(100*time.Millisecond))
				})
			}
			time.Sleep(2 * time.Second)
			assert.Equal(t, 3, stateOf(t, tr).RetriesWaiting)
			require.NoError(t, tr.Update(policy.Rule{RetryBudget: budget}.Or(poor), nil))
			assert.Equal(t, 200, responds(t, tr, http.MethodGet, "http://h.test/"), "the first request after it")
			all.Wait()
			base.sent(t, 2+3+1+3)
		})
	}
}

// So many who wait cost little, and leave nothing behind.
func TestManyWaiters(t *testing.T) {
	const many = 7_000 // the race detector takes 8128 goroutines
	bubble(t, func(t *testing.T) {
		base := downUntil(time.Minute)
		tr := mustNew(t, transport.Config{Base: base})
		ctx, cancel := context.WithCancel(t.Context())
		var all sync.WaitGroup
		for range many {
			all.Go(func() { _ = closing(get(t, tr, ctx)) })
		}
		time.Sleep(20 * time.Second)
		assert.Greater(t, stateOf(t, tr).RetriesWaiting, many-100)
		assert.Less(t, base.attempts(), many+50, "each found out, and then probes went")
		cancel()
		all.Wait()
		synctest.Wait()
		idle(t, tr)
	})
}

// Waiters may leave at any time. The others come back nevertheless.
func TestWaitersLeaveAtAnyTime(t *testing.T) {
	for seed := range 20 {
		inBubble(t, strconv.Itoa(seed), func(t *testing.T) {
			const back = 10 * time.Second
			base := downUntil(back)
			tr := mustNew(t, transport.Config{Base: base})
			together(60, func(i int) {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				leaves := i%2 == 0
				if leaves {
					time.AfterFunc(time.Duration((seed+1)*(i*37+1)%170)*100*time.Millisecond, cancel)
				}
				resp, err := get(t, tr, ctx)
				if _ = closing(resp, err); !leaves && assert.NoError(t, err) {
					assert.Equal(t, 200, resp.StatusCode)
				}
			})
			assert.LessOrEqual(t, time.Since(base.start), back+16*time.Second)
			idle(t, tr)
		})
	}
}

// While a host is down, new requests find out whether it is back, and so nobody who waits has to.
func TestNewRequestsFindOut(t *testing.T) {
	bubble(t, func(t *testing.T) {
		base := downUntil(10 * time.Second)
		tr := mustNew(t, transport.Config{Base: base})
		var last atomic.Int64
		together(60, func(i int) { // 2/s
			time.Sleep(time.Duration(i) * 500 * time.Millisecond)
			assert.Equal(t, 200, responds(t, tr, http.MethodGet, "http://h.test/"))
			last.Store(max(last.Load(), int64(time.Since(base.start))))
		})
		down := base.between(0, 10*time.Second)
		t.Logf("%d attempts in 10 s, all are done after %v", down, time.Duration(last.Load()))
		assert.LessOrEqual(t, down, 30)
		assert.LessOrEqual(t, time.Duration(last.Load()), 30*time.Second)
		assert.Zero(t, stateOf(t, tr).RetriesWaiting)
	})
}

// TestOtherPathsKeepTheirRetries: a path that always fails takes no retries from the others.
func TestOtherPathsKeepTheirRetries(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var single atomic.Int64
		base := faults.New(nil, func(req *http.Request) faults.Step {
			if req.URL.Path == "/broken" {
				return faults.Status(503)
			}
			if single.Add(1)%5 == 0 {
				return faults.ConnReset()
			}
			return faults.Pass()
		})
		tr := mustNew(t, transport.Config{Base: base})
		var all sync.WaitGroup
		for i := range 300 {
			if i%5 == 0 {
				all.Go(func() { _, _ = send(t, tr, http.MethodGet, "http://api.test/broken") })
			}
			all.Go(func() { responds(t, tr, http.MethodGet, "http://api.test/works") })
			time.Sleep(time.Second)
		}
		all.Wait()
	})
}

// one is a budget with one retry in it, which does not come back.
var one = policy.RetryBudget{Ratio: -1, MinPerSecond: 1e-6}

// TestBudgetStopIsReal: what the caller gets is the response or the error itself,
// marked, and a Transport around this one leaves it alone.
func TestBudgetStopIsReal(t *testing.T) {
	const requests = 3
	for name, response := range map[string]answer{"response": status(503), "error": faults.Fail(syscall.ECONNRESET)} {
		inBubble(t, name, func(t *testing.T) {
			base := script(response)
			ev := &recorder{}
			inner := mustNew(t, transport.Config{Base: base, Rule: policy.Rule{Backoff: backoff.Constant(time.Millisecond), RetryBudget: one}})
			tr := mustNew(t, transport.Config{Base: inner, Rule: policy.Rule{Backoff: backoff.Constant(time.Millisecond)}})
			for i := range requests {
				resp, err := get(t, tr, ev.on(t.Context()))
				want := 1
				if i == 0 {
					want = 2 // the one retry
				}
				if name == "response" {
					require.NoError(t, err)
					assert.Equal(t, "body of Service Unavailable", mustRead(t, resp))
					_ = resp.Body.Close()
					reason, attempts, ok := unretried(resp)
					assert.True(t, ok)
					assert.Equal(t, transport.ReasonRetryBudget, reason)
					assert.Len(t, attempts, want, "attempts")
					continue
				}
				assert.Nil(t, resp)
				assert.ErrorIs(t, err, syscall.ECONNRESET)
				e := errorAs[*transport.Error](t, err)
				assert.Equal(t, transport.ReasonRetryBudget, e.Reason)
				assert.True(t, e.GaveUp())
				assert.Len(t, e.Attempts, want, "attempts")
			}
			base.sent(t, requests+1, "the outer one sent nothing again")
			assert.Contains(t, ev.reasons(), transport.ReasonRetryBudget)
			assert.Contains(t, ev.reasons(), transport.ReasonNested)
		})
	}
}

// TestBudgetIsRefunded: a retry that is not sent does not count.
func TestBudgetIsRefunded(t *testing.T) {
	rows := map[string]struct {
		rule policy.Rule
		run  func(t *testing.T, tr *transport.Transport)
		ends transport.Reason
	}{
		"the sleep is cancelled": {ends: transport.ReasonCanceled, run: func(t *testing.T, tr *transport.Transport) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			time.AfterFunc(time.Second, cancel)
			_, err := get(t, tr, ctx)
			assert.ErrorIs(t, err, context.Canceled)
		}},
		"its turn is past the deadline": {ends: transport.ReasonThrottled, rule: sharing, run: func(t *testing.T, tr *transport.Transport) {
			time.AfterFunc(5*time.Second, func() { _, _ = send(t, tr, http.MethodPost, "http://h.test/minute") })
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
			defer cancel()
			_, err := get(t, tr, ctx)
			assert.ErrorIs(t, err, context.DeadlineExceeded)
		}},
		"the limiter is full": {
			ends: transport.ReasonConcurrency,
			rule: policy.Rule{Concurrency: policy.Concurrency{FailFast: policy.On, Max: 1}},
			run: func(t *testing.T, tr *transport.Transport) {
				time.AfterFunc(5*time.Second, func() {
					resp, err := tr.RoundTrip(newRequest(t, http.MethodGet, "http://h.test/stream", nil))
					if assert.NoError(t, err) {
						time.AfterFunc(time.Minute, func() { _ = resp.Body.Close() })
					}
				})
				_, err := get(t, tr, t.Context())
				assert.Equal(t, transport.ReasonConcurrency, errorAs[*transport.Error](t, err).Reason)
				time.Sleep(time.Minute)
			},
		},
		"the body cannot be made again": {ends: transport.ReasonNotReplayable, run: func(t *testing.T, tr *transport.Transport) {
			req := newRequest(t, http.MethodPut, "http://h.test/", oneShot("text"))
			req.GetBody = func() (io.ReadCloser, error) { return nil, errors.New("gone") }
			resp := mustRoundTrip(t, tr, req)
			assert.Equal(t, 503, resp.StatusCode)
			_ = resp.Body.Close()
		}},
	}
	for name, row := range rows {
		inBubble(t, name, func(t *testing.T) {
			base := script(func(req *http.Request) (*http.Response, error) {
				switch req.URL.Path {
				case "/minute":
					return play(req, status(429, "Retry-After: 60"))
				case "/stream":
					return play(req, status(200))
				}
				return play(req, status(503))
			})
			ev := &recorder{}
			rule := row.rule
			rule.Backoff, rule.RetryBudget = backoff.Constant(10*time.Second), one
			tr := mustNew(t, transport.Config{Base: base, Rule: rule, Traces: []*transport.Trace{ev.trace()}})
			row.run(t, tr)
			assert.Contains(t, ev.reasons(), row.ends)
			assert.InDelta(t, 1, stateOf(t, tr).RetryBudget, 1e-3)
		})
	}
}

// TestRefusedCallsEarnNoRetries: a share of what is sent is a share of what the
// host sees; callers that try again and again behind a full limiter add nothing.
func TestRefusedCallsEarnNoRetries(t *testing.T) {
	bubble(t, func(t *testing.T) {
		tr := mustNew(t, transport.Config{Base: script(status(503), status(200)), Rule: policy.Rule{
			Backoff:     backoff.Constant(0),
			RetryBudget: policy.RetryBudget{Ratio: 0.01, MinPerSecond: -1},
			Concurrency: policy.Concurrency{FailFast: policy.On, Max: 1},
		}})
		stream, err := get(t, tr, t.Context()) // spends the one retry, and keeps its slot
		require.NoError(t, err)
		left := stateOf(t, tr).RetryBudget
		require.Less(t, left, 0.1)
		for range 1000 {
			_, err := send(t, tr, http.MethodGet, "http://h.test/")
			require.ErrorIs(t, err, transport.ErrNotSent)
		}
		assert.InDelta(t, left, stateOf(t, tr).RetryBudget, 1e-9)
		assert.EqualValues(t, 1, stateOf(t, tr).Requests, "requests counted")
		_ = stream.Body.Close()
	})
}
