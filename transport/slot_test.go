package transport_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/aplomb-go/aplomb/classify"
	"github.com/aplomb-go/aplomb/faults"
	"github.com/aplomb-go/aplomb/policy"
	"github.com/aplomb-go/aplomb/policy/backoff"
	"github.com/aplomb-go/aplomb/transport"
)

// free fails unless the host of http://h.test takes n requests at once. Each request
// has to go within a second and to get a response.
func free(t *testing.T, tr *transport.Transport, n int) {
	t.Helper()
	together(n, func(_ int) {
		ctx := expires(t, time.Second)
		resp, err := tr.RoundTrip(newRequest(t, http.MethodGet, "http://h.test/free", nil).WithContext(ctx))
		if assert.NoError(t, err) {
			assert.Equal(t, 200, resp.StatusCode)
			_ = resp.Body.Close()
		}
	})
}

// TestPanicsGiveEverythingBack: whenever a function panics or ends its goroutine, the
// slot, the turn and the retry of the request are released.
func TestPanicsGiveEverythingBack(t *testing.T) {
	boom := func() { panic("callback") }
	mine := func(req *http.Request) bool { return req.URL.Path == "/mine" }
	rows := map[string]struct {
		rule     func(*policy.Rule, func())
		response answer // to the request whose callbacks panic
		waits    bool   // for the slot of another request, while a hold begins
		ctx      func(context.Context, func()) context.Context
	}{
		"Idempotent, with hedging": {rule: func(r *policy.Rule, f func()) {
			r.Hedge = policy.Hedge{Delay: time.Second}
			r.Idempotent = func(req *http.Request) bool { when(mine(req), f); return true }
		}},
		"Idempotent, after a failure": {response: status(503), rule: func(r *policy.Rule, f func()) {
			r.Idempotent = func(req *http.Request) bool { when(mine(req), f); return true }
		}},
		"Scope, after a wait at the limiter": {waits: true, rule: func(r *policy.Rule, f func()) {
			r.RateLimit = policy.RateLimit{PerSecond: 0.5, Burst: 1} // so that the hold is known for sure when the wait is over
			r.ShareRetryAfter = policy.On
			r.ThrottleKey = func(req *http.Request) string { when(mine(req), f); return req.URL.Path }
		}},
		"Scope, after a 429": {response: status(429, "Retry-After: 1"), rule: func(r *policy.Rule, f func()) {
			r.ShareRetryAfter = policy.On
			r.ThrottleKey = func(req *http.Request) string { when(mine(req), f); return req.URL.Path }
		}},
		"Classify": {rule: func(r *policy.Rule, f func()) {
			r.Classify = func(o classify.Outcome) classify.Class { when(mine(o.Request), f); return classify.Unknown }
		}},
		"Classify, hedged": {response: deaf(2 * time.Second), rule: func(r *policy.Rule, f func()) {
			r.Hedge = policy.Hedge{Delay: time.Second}
			r.Classify = func(o classify.Outcome) classify.Class { when(mine(o.Request), f); return classify.Unknown }
		}},
		"Hint": {response: status(503), rule: func(r *policy.Rule, f func()) {
			r.RetryAfter = func(o classify.Outcome) (time.Duration, bool) { when(mine(o.Request), f); return 0, false }
		}},
		"Backoff": {response: status(503), rule: func(r *policy.Rule, f func()) {
			r.Backoff = backoffFunc(func(int, time.Duration) time.Duration { f(); return 0 })
		}},
		"a trace of the response": {rule: func(*policy.Rule, func()) {}, ctx: func(ctx context.Context, f func()) context.Context {
			return transport.WithTrace(ctx, &transport.Trace{AttemptEnd: func(context.Context, transport.AttemptEnd) { f() }})
		}},
		"a trace of a hedge": {response: faults.Hang(), rule: func(r *policy.Rule, _ func()) {
			r.Hedge, r.Concurrency = policy.Hedge{Delay: time.Second}, policy.Concurrency{Max: 2}
		},
			ctx: func(ctx context.Context, f func()) context.Context {
				return transport.WithTrace(ctx, &transport.Trace{AttemptStart: func(ctx context.Context, a transport.AttemptStart) context.Context {
					when(a.Kind == transport.AttemptHedge, f)
					return ctx
				}})
			}},
		"a trace of a refusal": {waits: true, rule: func(r *policy.Rule, _ func()) { r.RateLimit.PerSecond, r.RateLimit.Burst = 0.1, 1 },
			ctx: func(ctx context.Context, f func()) context.Context {
				ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
				context.AfterFunc(ctx, cancel)
				return transport.WithTrace(ctx, &transport.Trace{RequestEnd: func(context.Context, transport.RequestEnd) { f() }})
			}},
		"the base":                 {response: func(*http.Request) (*http.Response, error) { panic("base") }, rule: func(*policy.Rule, func()) {}},
		"the base, under a hedge":  {response: func(*http.Request) (*http.Response, error) { panic("base") }, rule: func(r *policy.Rule, _ func()) { r.Hedge = policy.Hedge{Delay: time.Second} }},
		"the base, and it ends":    {response: func(*http.Request) (*http.Response, error) { runtime.Goexit(); return nil, nil }, rule: func(*policy.Rule, func()) {}},
		"the base, timed, it ends": {response: func(*http.Request) (*http.Response, error) { runtime.Goexit(); return nil, nil }, rule: func(r *policy.Rule, _ func()) { r.AttemptTimeout = time.Minute }},
		"an error's method":        {response: faults.Fail(badError{}), rule: func(*policy.Rule, func()) {}},
		"a context's deadline": {rule: func(*policy.Rule, func()) {}, waits: true,
			ctx: func(ctx context.Context, f func()) context.Context { return &badContext{Context: ctx, f: f} }},
	}
	for name, row := range rows {
		for how, f := range map[string]func(){"panics": boom, "ends its goroutine": runtime.Goexit} {
			inBubble(t, name+", "+how, func(t *testing.T) {
				rule := policy.Rule{Concurrency: policy.Concurrency{Max: 1}, Backoff: backoff.Constant(time.Second)}
				row.rule(&rule, f)
				tr := mustNew(t, transport.Config{Base: rt(func(req *http.Request) (*http.Response, error) {
					switch {
					case req.URL.Path == "/before":
						return play(req, deafly(time.Second, status(503, "Retry-After: 2")))
					case row.response != nil && mine(req):
						return play(req, row.response)
					}
					return play(req, status(200))
				}), Rule: rule})
				if row.waits {
					go func() { _, _ = send(t, tr, http.MethodPost, "http://h.test/before") }()
					synctest.Wait()
				}
				go func() {
					defer func() { _ = recover() }()
					ctx := t.Context()
					if row.ctx != nil {
						ctx = row.ctx(ctx, f)
					}
					resp, err := tr.RoundTrip(newRequest(t, http.MethodGet, "http://h.test/mine", nil).WithContext(ctx))
					t.Errorf("nothing happened: %v, %v", resp, err)
				}()
				time.Sleep(time.Minute)
				idle(t, tr)
				for range 3 {
					free(t, tr, 1)
					time.Sleep(10 * time.Second)
				}
			})
		}
	}
}

func when(yes bool, f func()) {
	if yes {
		f()
	}
}

// A badError is an error of a base transport whose methods panic.
type badError struct{}

func (badError) Error() string { return "bad" }
func (badError) Timeout() bool { panic("base") }
func (badError) Is(error) bool { panic("base") }

// A badContext breaks when its deadline is read while a request waits.
type badContext struct {
	context.Context
	asked atomic.Int32
	f     func()
}

func (c *badContext) Deadline() (time.Time, bool) {
	if c.asked.Add(1) > 1 {
		c.f()
	}
	return time.Time{}, false
}

func TestFailFast(t *testing.T) {
	bubble(t, func(t *testing.T) {
		ev := &recorder{}
		tr := mustNew(t, transport.Config{Base: script(status(200)), Rule: policy.Rule{Concurrency: policy.Concurrency{FailFast: policy.On, Max: 1}}})
		first := mustGet(t, tr)
		start := time.Now()
		b := oneShot("text")
		_, err := tr.RoundTrip(newRequest(t, http.MethodPut, "http://h.test/", b).WithContext(ev.on(t.Context())))
		assert.Equal(t, start, time.Now())
		assert.ErrorIs(t, err, transport.ErrNotSent)
		e := errorAs[*transport.Error](t, err)
		assert.Equal(t, transport.ReasonConcurrency, e.Reason)
		assert.True(t, e.GaveUp())
		assert.False(t, e.Timeout())
		count(t, 1, b.closed(), "body closed")
		assert.Equal(t, []transport.Reason{transport.ReasonConcurrency}, ev.reasons())
		_ = first.Body.Close()
		assert.Equal(t, 200, responds(t, tr, http.MethodGet, "http://h.test/"))
	})
}

// TestFailFastAndRate: the limiter refuses requests, and the rate makes them wait.
func TestFailFastAndRate(t *testing.T) {
	bubble(t, func(t *testing.T) {
		tr := mustNew(t, transport.Config{Base: script(status(200)), Rule: policy.Rule{
			RateLimit: policy.RateLimit{PerSecond: 1, Burst: 1}, Concurrency: policy.Concurrency{FailFast: policy.On, Max: 10},
		}})
		for range 2 {
			responds(t, tr, http.MethodGet, "http://h.test/")
		}
		together(3, func(int) { // there are free slots
			responds(t, tr, http.MethodGet, "http://h.test/")
		})
	})
}

// TestSlotOfABody: an attempt has its slot until the end of the response's body.
func TestSlotOfABody(t *testing.T) {
	const flying, landed = 1, 0
	upgrade := func(req *http.Request) (*http.Response, error) {
		return newResponse(req, 101, new(rwc), "Upgrade: x"), nil
	}
	type step struct {
		do   func(*http.Response)
		want int
	}
	readAll := func(r *http.Response) { _, _ = io.ReadAll(r.Body) }
	readOne := func(r *http.Response) { _, _ = r.Body.Read(make([]byte, 1)) }
	closeIt := func(r *http.Response) { _ = r.Body.Close() }
	nothing := func(*http.Response) {}
	rows := map[string]struct {
		responses []answer
		rule      policy.Rule
		method    string
		header    string
		steps     []step
		panics    bool
	}{
		"read to the end, then closed":   {responses: []answer{status(200)}, steps: []step{{nothing, flying}, {readOne, flying}, {readAll, landed}, {closeIt, landed}}},
		"closed, then read":              {responses: []answer{status(200)}, steps: []step{{closeIt, landed}, {readAll, landed}, {closeIt, landed}}},
		"not closed":                     {responses: []answer{status(200)}, steps: []step{{func(*http.Response) { time.Sleep(time.Hour) }, flying}, {closeIt, landed}}},
		"no body":                        {responses: []answer{faults.Status(204)}, steps: []step{{nothing, landed}}},
		"101":                            {responses: []answer{upgrade}, header: "Upgrade: x", steps: []step{{nothing, landed}}},
		"a tunnel":                       {responses: []answer{status(200)}, method: http.MethodConnect, steps: []step{{nothing, landed}}},
		"a refused tunnel":               {responses: []answer{status(407)}, method: http.MethodConnect, steps: []step{{nothing, flying}, {closeIt, landed}}},
		"an error":                       {responses: []answer{faults.Fail(errors.New("odd"))}, steps: []step{{nothing, landed}}},
		"errors, then a response":        {responses: []answer{faults.Fail(syscall.ECONNRESET), faults.Fail(syscall.ECONNREFUSED), status(200)}, steps: []step{{nothing, flying}, {closeIt, landed}}},
		"bad responses, then a good one": {responses: []answer{status(503), status(500), faults.Status(503), status(200)}, steps: []step{{nothing, flying}, {closeIt, landed}}},
		"given up":                       {responses: []answer{status(503)}, steps: []step{{nothing, landed}, {closeIt, landed}}},
		"too many requests":              {responses: []answer{status(429)}, steps: []step{{nothing, landed}}},
		"not implemented":                {responses: []answer{status(501)}, steps: []step{{nothing, landed}}},
		"a loser that never responds":    {responses: []answer{faults.Hang(), status(200)}, rule: policy.Rule{Hedge: policy.Hedge{Delay: time.Second}}, steps: []step{{nothing, flying}, {closeIt, landed}}},
		"a loser that responds late":     {responses: []answer{deaf(5 * time.Second), status(200)}, rule: policy.Rule{Hedge: policy.Hedge{Delay: time.Second}}, steps: []step{{func(*http.Response) { time.Sleep(time.Minute) }, flying}, {closeIt, landed}}},
		"a hedge that loses":             {responses: []answer{deaf(2 * time.Second), deaf(time.Minute)}, rule: policy.Rule{Hedge: policy.Hedge{Delay: time.Second}}, steps: []step{{func(*http.Response) { time.Sleep(time.Hour) }, flying}, {closeIt, landed}}},
		"a hedge and its attempt fail":   {responses: []answer{deafly(2*time.Second, status(503)), deafly(3*time.Second, status(503)), status(200)}, rule: policy.Rule{Hedge: policy.Hedge{Delay: time.Second}}, steps: []step{{nothing, flying}, {closeIt, landed}}},
		"an attempt timeout":             {responses: []answer{faults.Hang(), status(200)}, rule: policy.Rule{AttemptTimeout: time.Second}, steps: []step{{nothing, flying}, {closeIt, landed}}},
		"a base that panics":             {responses: []answer{func(*http.Request) (*http.Response, error) { panic("base") }}, panics: true, steps: []step{{nothing, landed}}},
		"a base that panics at a retry":  {responses: []answer{status(503), func(*http.Request) (*http.Response, error) { panic("base") }}, panics: true, steps: []step{{nothing, landed}}},
		"neither response nor error":     {responses: []answer{func(*http.Request) (*http.Response, error) { return nil, nil }}, steps: []step{{nothing, landed}}},
		"response and error": {responses: []answer{func(r *http.Request) (*http.Response, error) {
			return newResponse(r, 200, http.NoBody), errors.New("both")
		}}, steps: []step{{nothing, landed}}},
	}
	for name, row := range rows {
		inBubble(t, name, func(t *testing.T) {
			rule := row.rule
			rule.Concurrency, rule.MaxAttempts = policy.Concurrency{Max: 2}, 5
			tr := mustNew(t, transport.Config{Base: script(row.responses...), Rule: rule})
			method := row.method
			if method == "" {
				method = http.MethodGet
			}
			req := headed(t, method, "http://h.test/", row.header)
			resp, err := func() (resp *http.Response, err error) {
				defer func() { assert.Equal(t, row.panics, recover() != nil) }()
				return tr.RoundTrip(req)
			}()
			if err != nil {
				assert.Nil(t, resp)
			}
			for i, s := range row.steps {
				s.do(resp)
				synctest.Wait()
				got := stateOf(t, tr)
				assert.Equal(t, s.want, got.ConcurrencyInUse, "step %d", i)
				assert.Zero(t, got.InFlight, "requests in flight")
			}
			time.Sleep(2 * time.Minute)
		})
	}
}

// TestFullMax: one more than Max is refused, or waits for a place.
func TestFullMax(t *testing.T) {
	for _, fails := range []policy.Switch{policy.Off, policy.On} {
		inBubble(t, fmt.Sprint(fails), func(t *testing.T) {
			l := &load{tr: mustNew(t, transport.Config{Base: script(takes(time.Second)), Rule: policy.Rule{Concurrency: policy.Concurrency{Max: 20, FailFast: fails}}})}
			l.send(t, 25, 0)
			start := time.Now()
			l.all.Wait()
			if fails == policy.On {
				assert.Equal(t, []int64{20, 5}, []int64{l.good.Load(), l.lost.Load()})
				return
			}
			assert.Equal(t, []int64{25, 0}, []int64{l.good.Load(), l.lost.Load()})
			assert.Equal(t, 2*time.Second, time.Since(start))
		})
	}
}

// TestMaxAtOnce: Max requests go at once, from the first on, whatever a response takes. Nothing waits and
// nothing is refused below Max, whatever came before.
func TestMaxAtOnce(t *testing.T) {
	for name, row := range map[string]struct {
		max          int
		took         time.Duration
		quiet        time.Duration // with a request per second
		bursts, size int
		gap, pause   time.Duration // between two requests, and two bursts
	}{
		"all at the start":            {100, 10 * time.Second, 0, 1, 100, 0, 0},
		"10 s for each":               {100, 10 * time.Second, 0, 1, 600, 101 * time.Millisecond, 0},
		"2 s for each":                {500, 2 * time.Second, 0, 1, 6000, 5 * time.Millisecond, 0},
		"100 ms for each":             {200, 100 * time.Millisecond, 0, 1, 9000, time.Second / 300, 0},
		"100 ms for each, after 12 s": {200, 100 * time.Millisecond, 12 * time.Second, 1, 9000, time.Second / 300, 0},
		"bursts":                      {50, 100 * time.Millisecond, 0, 60, 40, 0, time.Second},
		"rare bursts":                 {50, 100 * time.Millisecond, time.Minute, 10, 50, 0, 15 * time.Second},
	} {
		for _, fails := range []policy.Switch{policy.Off, policy.On} {
			inBubble(t, fmt.Sprint(name, ", refusing ", fails), func(t *testing.T) {
				server := script(takes(row.took))
				l := &load{tr: mustNew(t, transport.Config{Base: server, Rule: policy.Rule{MaxAttempts: 1, Concurrency: policy.Concurrency{Max: row.max, FailFast: fails}}})}
				l.send(t, int(row.quiet/time.Second), time.Second)
				for range row.bursts {
					l.send(t, row.size, row.gap)
					assert.Zero(t, stateOf(t, l.tr).ConcurrencyWaiting)
					time.Sleep(row.pause)
				}
				assert.Equal(t, row.max, stateOf(t, l.tr).ConcurrencyLimit)
				l.all.Wait()
				assert.Zero(t, l.lost.Load())
			})
		}
	}
}

// TestCallersWhoLeave: a tenant whose deadlines are shorter than a response takes its places for as long as its
// requests last, and no longer. The requests of others are neither refused nor late.
func TestCallersWhoLeave(t *testing.T) {
	bubble(t, func(t *testing.T) {
		tr := mustNew(t, transport.Config{Base: script(takes(100 * time.Millisecond)), Rule: policy.Rule{MaxAttempts: 1, Concurrency: policy.Concurrency{Max: 20, FailFast: policy.On}}})
		hasty, others := &load{tr: tr, deadline: 50 * time.Millisecond}, &load{tr: tr}
		for range 3000 { // they need 5 and 10 places
			hasty.send(t, 1, 0)
			others.send(t, 1, 10*time.Millisecond)
		}
		hasty.all.Wait()
		others.all.Wait()
		assert.Equal(t, []int64{0, 3000, 3000, 0}, []int64{hasty.good.Load(), hasty.lost.Load(), others.good.Load(), others.lost.Load()})
		assert.Zero(t, stateOf(t, tr).ConcurrencyInUse)
	})
}

// TestDeadlineInTheLine: a deadline that ends while its request waits is no failure of the host. The request
// waits as long as it can, however long a response takes.
func TestDeadlineInTheLine(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var told []transport.Reason
		trace := &transport.Trace{HostChange: func(_ context.Context, c transport.HostChange) { told = append(told, c.Reason) }}
		server := script(takes(30 * time.Second))
		tr := mustNew(t, transport.Config{Base: server, Traces: []*transport.Trace{trace}, Rule: policy.Rule{Concurrency: policy.Concurrency{Max: 1}}})
		first, hasty, last := &load{tr: tr}, &load{tr: tr, deadline: 25 * time.Second}, &load{tr: tr, deadline: 35 * time.Second}
		first.send(t, 1, 0)
		hasty.send(t, 50, 100*time.Millisecond)
		last.send(t, 1, 0)
		start := time.Now()
		last.all.Wait()
		assert.Equal(t, 35*time.Second, time.Since(start), "it got the place when the first had ended")
		assert.EqualValues(t, 50, hasty.lost.Load())
		assert.Equal(t, 2, server.between(0, time.Hour))
		s := stateOf(t, tr)
		assert.Equal(t, []int{0, 0}, []int{s.ConcurrencyInUse, s.ConcurrencyWaiting})
		assert.False(t, s.CircuitOpen)
		assert.NotContains(t, told, transport.ReasonCircuitOpen)
		assert.Equal(t, 200, responds(t, tr, http.MethodGet, "http://h.test/"))
	})
}

// A load is requests that come whether or not others have ended. It counts how they end.
type load struct {
	tr         *transport.Transport
	deadline   time.Duration // of each; 0: none
	all        sync.WaitGroup
	good, lost atomic.Int64
}

// send sends n requests, a gap apart, and does not wait for them.
func (l *load) send(t *testing.T, n int, gap time.Duration) {
	for range n {
		l.all.Go(func() {
			ctx := t.Context()
			if l.deadline > 0 {
				with, cancel := context.WithTimeout(ctx, l.deadline)
				defer cancel()
				ctx = with
			}
			if closing(get(t, l.tr, ctx)) != nil {
				l.lost.Add(1)
			} else {
				l.good.Add(1)
			}
		})
		synctest.Wait() // each finds those before it
		time.Sleep(gap)
	}
}

// takes is a host whose responses take a time.
func takes(d time.Duration) answer { return status(200).Delay(d) }

// takesAll is a server that reads the request's body, and responds after 20 ms.
func takesAll(req *http.Request) (*http.Response, error) {
	if req.Body != nil {
		read := make(chan struct{})
		go func() { _, _ = io.Copy(io.Discard, req.Body); close(read) }()
		select {
		case <-read:
		case <-req.Context().Done():
			return nil, context.Cause(req.Context())
		}
		_ = req.Body.Close()
	}
	return play(req, faults.Status(200).Delay(20*time.Millisecond))
}

// TestSlowCallersHoldUpNobody: uploads that wait for their callers take no slots from other
// requests, whether a caller sends nothing at all or a byte now and then.
func TestSlowCallersHoldUpNobody(t *testing.T) {
	rules := map[string]policy.Rule{
		"timeouts": {AttemptTimeout: time.Second, StallTimeout: time.Second, Concurrency: policy.Concurrency{Max: 50}},
		"limiter":  {Concurrency: policy.Concurrency{Max: 50}},
	}
	for name, rule := range rules {
		for kind, uploads := range map[string]struct {
			n     int
			every time.Duration
		}{"idle": {10, 0}, "a trickle": {20, 30 * time.Millisecond}, "a slow trickle": {20, time.Second}} {
			for _, method := range []string{http.MethodPut, http.MethodPost} {
				inBubble(t, name+" "+kind+" "+method, func(t *testing.T) {
					tr := mustNew(t, transport.Config{Base: rt(takesAll), Rule: rule})
					ctx, stop := context.WithTimeout(t.Context(), 15*time.Second)
					defer stop()
					var all sync.WaitGroup
					for range uploads.n {
						all.Go(func() {
							r, w := io.Pipe()
							if uploads.every > 0 {
								go func() {
									for {
										time.Sleep(uploads.every)
										if _, err := w.Write([]byte("x")); err != nil {
											return
										}
									}
								}()
							}
							defer context.AfterFunc(ctx, func() { _ = w.Close() })()
							resp, err := tr.RoundTrip(newRequest(t, method, "http://h.test/", r))
							if assert.NoError(t, err) {
								_ = resp.Body.Close()
							}
						})
					}
					var done atomic.Int32
					for ctx.Err() == nil {
						time.Sleep(10 * time.Millisecond)
						all.Go(func() {
							if _, err := send(t, tr, http.MethodGet, "http://h.test/"); err == nil && ctx.Err() == nil {
								done.Add(1)
							}
						})
					}
					t.Logf("%d of 1500 GETs", done.Load())
					assert.GreaterOrEqual(t, done.Load(), int32(1200))
					all.Wait()
					assert.Zero(t, stateOf(t, tr).ConcurrencyInUse, "slots in use")
					time.Sleep(time.Minute)
				})
			}
		}
	}
}
