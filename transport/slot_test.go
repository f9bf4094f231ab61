package transport_test

import (
	"context"
	"io"
	"net/http"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/aplomb-go/aplomb/classify"
	"github.com/aplomb-go/aplomb/faults"
	"github.com/aplomb-go/aplomb/internal/host/concurrency"
	"github.com/aplomb-go/aplomb/internal/host/queue"
	"github.com/aplomb-go/aplomb/policy"
	"github.com/aplomb-go/aplomb/policy/backoff"
	"github.com/aplomb-go/aplomb/transport"
)

// free fails unless the host of http://h.test takes n requests at once. Each request
// has to go within a second and to get a response.
func free(t *testing.T, tr *transport.Transport, n int) {
	t.Helper()
	together(n, func(_ int) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		resp, err := tr.RoundTrip(newRequest(t, http.MethodGet, "http://h.test/free", nil).WithContext(ctx))
		if assert.NoError(t, err) {
			assert.Equal(t, 200, resp.StatusCode)
			_ = resp.Body.Close()
		}
	})
}

// TestForgottenBodies: a body that nobody closes does not keep its slot forever. A
// failure has no slot after its headers. The end of the context releases the slot, and
// so does time.
func TestForgottenBodies(t *testing.T) {
	rows := map[string]struct {
		response answer
		ends     bool // the context of each request
		read     int  // bytes
		after    time.Duration
	}{
		"429":                                {response: status(429)},
		"408":                                {response: status(408)},
		"500":                                {response: status(500)},
		"501":                                {response: status(501)},
		"503":                                {response: status(503, "Retry-After: 100000")},
		"200, its context has ended":         {response: status(200), ends: true},
		"200, read a little, context ended":  {response: status(200), ends: true, read: 1},
		"404, its context has ended":         {response: status(404), ends: true},
		"200, nobody ever reads it":          {response: status(200), after: 10 * time.Second},
		"200, nobody reads it to its end":    {response: status(200), read: 1, after: 10 * time.Second},
		"404, nobody ever reads it":          {response: status(404), after: 10 * time.Second},
		"200, its Read panics":               {response: broken(func() { panic("body") }), read: 1},
		"200, its Read ends its goroutine":   {response: broken(runtime.Goexit), read: 1},
		"200, its Close hangs":               {response: stuckResponse, read: -1, after: 10 * time.Second},
		"200, its Close panics in goroutine": {response: broken(func() { panic("body") }), read: -1},
	}
	for name, row := range rows {
		inBubble(t, name, func(t *testing.T) {
			const slots = 10
			tr := mustNew(t, transport.Config{Base: rt(func(req *http.Request) (*http.Response, error) {
				if req.URL.Path == "/free" {
					return play(req, status(200))
				}
				return play(req, row.response)
			}), Rule: policy.Rule{Concurrency: policy.Concurrency{Max: slots}, MaxAttempts: 1}})
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			var kept []*http.Response // nobody closes them, and they are not garbage
			for range slots {
				resp := mustGetWith(t, tr, ctx)
				kept = append(kept, resp)
				use(resp, row.read)
			}
			synctest.Wait()
			if row.ends {
				cancel()
				synctest.Wait()
			}
			if row.after > 0 {
				at, short := context.WithTimeout(t.Context(), row.after-time.Second)
				defer short()
				_, err := get(t, tr, at)
				assert.ErrorIs(t, err, context.DeadlineExceeded, "a slot that may be in use is kept for a while")
			} else {
				assert.Zero(t, stateOf(t, tr).ConcurrencyInUse, "slots in use")
			}
			time.Sleep(2 * time.Second)
			free(t, tr, slots)
			runtime.KeepAlive(kept)
			time.Sleep(2 * time.Hour) // hanging requests end
		})
	}
}

// use reads n bytes of a body. If n is negative, it closes the body. It runs in a
// goroutine of its own, because a panic or Goexit in the body would end the test.
func use(resp *http.Response, n int) {
	go func() {
		defer func() { _ = recover() }()
		if n < 0 {
			_ = resp.Body.Close()
		} else if n > 0 {
			_, _ = resp.Body.Read(make([]byte, n))
		}
	}()
}

// broken responds with a body whose methods do something bad.
func broken(what func()) answer {
	return func(req *http.Request) (*http.Response, error) {
		return newResponse(req, 200, rudeBody(what)), nil
	}
}

func stuckResponse(req *http.Request) (*http.Response, error) {
	return newResponse(req, 200, rudeBody(func() { time.Sleep(time.Hour) })), nil
}

type rudeBody func()

func (b rudeBody) Read([]byte) (int, error) { b(); return 0, io.EOF }
func (b rudeBody) Close() error             { b(); return nil }

// TestSlowDownloadKeepsItsSlot: a body with a length keeps its slot while somebody reads it,
// however long the server takes for the next bytes.
func TestSlowDownloadKeepsItsSlot(t *testing.T) {
	bubble(t, func(t *testing.T) {
		tr := mustNew(t, transport.Config{Base: rt(func(req *http.Request) (*http.Response, error) {
			r, w := io.Pipe()
			go func() {
				for range 3 {
					time.Sleep(10 * time.Minute)
					_, _ = w.Write([]byte("x"))
				}
				_ = w.Close()
			}()
			resp := newResponse(req, 200, r)
			resp.ContentLength = 3
			return resp, nil
		}), Rule: policy.Rule{Concurrency: policy.Concurrency{Max: 1}}})
		resp := mustGet(t, tr)
		go func() { _, _ = io.Copy(io.Discard, resp.Body) }()
		time.Sleep(29 * time.Minute)
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		_, err := get(t, tr, ctx)
		assert.ErrorIs(t, err, context.DeadlineExceeded)
		next, err := get(t, tr, t.Context()) // waits for the body's end
		require.NoError(t, err)
		assert.Zero(t, stateOf(t, tr).ConcurrencyWaiting)
		_ = next.Body.Close()
		time.Sleep(time.Hour)
	})
}

// TestMixedLatencies: slow responses are no reason to refuse a request that may be
// fast.
func TestMixedLatencies(t *testing.T) {
	for name, busy := range map[string]bool{"a slot is free": false, "all have to wait": true} {
		inBubble(t, name, func(t *testing.T) {
			tr := mustNew(t, transport.Config{Base: rt(func(req *http.Request) (*http.Response, error) {
				d := 10 * time.Millisecond
				if req.URL.Path == "/slow" {
					d = 30 * time.Second
				}
				return play(req, status(200).Delay(d))
			}), Rule: policy.Rule{Concurrency: policy.Concurrency{Max: 2}}})
			for range 3 {
				responds(t, tr, http.MethodGet, "http://h.test/slow")
			}
			if busy {
				for range 2 {
					go func() { _, _ = send(t, tr, http.MethodGet, "http://h.test/slow") }()
				}
				time.Sleep(29 * time.Second)
			}
			together(6, func(int) {
				ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
				defer cancel()
				resp, err := get(t, tr, ctx)
				if assert.NoError(t, err) {
					_ = resp.Body.Close()
				}
			})
			time.Sleep(time.Minute)
		})
	}
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
		"Backoff": {response: status(503), rule: func(r *policy.Rule, f func()) { r.Backoff = panickyBackoff(f) }},
		"a trace of the response": {rule: func(*policy.Rule, func()) {}, ctx: func(ctx context.Context, f func()) context.Context {
			return transport.WithTrace(ctx, &transport.Trace{AttemptEnd: func(context.Context, transport.AttemptEnd) { f() }})
		}},
		"a trace of a hedge": {response: deaf(5 * time.Second), rule: func(r *policy.Rule, _ func()) {
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
				s := stateOf(t, tr)
				assert.Zero(t, s.ConcurrencyInUse, "slots")
				assert.Zero(t, s.ConcurrencyWaiting, "waiters")
				assert.Zero(t, s.InFlight, "requests")
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

type panickyBackoff func()

func (b panickyBackoff) Delay(int, time.Duration) time.Duration { b(); return 0 }

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

// When a function of the caller panics, the response at hand is closed and its slot is free.
func TestPanicOfTheCallersFunctionClosesTheResponse(t *testing.T) {
	limiter := policy.Concurrency{FailFast: policy.On, Max: 1}
	rows := map[string]transport.Config{
		"classifier": {Rule: policy.Rule{Classify: func(classify.Outcome) classify.Class { panic("own") }}},
		"hint":       {Rule: policy.Rule{RetryAfter: func(classify.Outcome) (time.Duration, bool) { panic("own") }}},
		"idempotent": {Rule: policy.Rule{Idempotent: func(*http.Request) bool { panic("own") }}},
		"trace":      {Traces: []*transport.Trace{{AttemptEnd: func(context.Context, transport.AttemptEnd) { panic("own") }}}},
	}
	for name, c := range rows {
		for limits, rule := range map[string]policy.Rule{"plain": {}, "behind a limiter": {Concurrency: limiter}} {
			inBubble(t, name+", "+limits, func(t *testing.T) {
				own, b := c, oneShot("response")
				own.Rule = rule.Or(c.Rule)
				tr := over(t, own, rt(func(req *http.Request) (*http.Response, error) {
					return newResponse(req, 503, b), nil
				}))
				assert.PanicsWithValue(t, "own", func() { _, _ = get(t, tr, t.Context()) })
				count(t, 1, b.closed(), "body closed")
				s := stateOf(t, tr)
				assert.Zero(t, s.ConcurrencyInUse, "slots in use")
				assert.Zero(t, s.InFlight, "requests in flight")
			})
		}
	}
}

// slowlyClosed is a body whose Close takes a minute.
type slowlyClosed struct{ io.Reader }

func (slowlyClosed) Close() error { time.Sleep(time.Minute); return nil }

// TestPanicDoesNotWaitForClose: a panic of the caller's function reaches the caller
// although the Close of the base blocks.
func TestPanicDoesNotWaitForClose(t *testing.T) {
	own := func(classify.Outcome) classify.Class { panic("own") }
	hook := &transport.Trace{AttemptEnd: func(context.Context, transport.AttemptEnd) { panic("own") }}
	for name, c := range map[string]transport.Config{
		"a light first try": {Rule: policy.Rule{Classify: own}},
		"the loop":          {Rule: policy.Rule{AttemptTimeout: time.Second, Classify: own}},
		"a hook":            {Traces: []*transport.Trace{hook}},
	} {
		inBubble(t, name, func(t *testing.T) {
			tr := over(t, c, rt(func(req *http.Request) (*http.Response, error) {
				return newResponse(req, 503, slowlyClosed{strings.NewReader("no")}), nil
			}))
			start := time.Now()
			assert.PanicsWithValue(t, "own", func() { _, _ = get(t, tr, t.Context()) })
			assert.LessOrEqual(t, time.Since(start), transport.CloseTime)
			time.Sleep(time.Minute) // the Close ends
		})
	}
}

// endlessContext panics when somebody wants to know when it ends.
type endlessContext struct{ context.Context }

func (endlessContext) Done() <-chan struct{} { panic("no end") }

// TestSlotOfAContextThatPanics: if the context panics while the body takes over the slot, the
// slot ends once.
func TestSlotOfAContextThatPanics(t *testing.T) {
	bubble(t, func(t *testing.T) {
		tr := mustNew(t, transport.Config{Base: newNoop()})
		var g concurrency.Limiter
		for range 3 {
			assert.Panics(t, func() {
				resp := &http.Response{StatusCode: 200, Body: io.NopCloser(http.NoBody)}
				tr.Landed(&g, endlessContext{context.Background()}, getRequest(t, "http://h"), resp)
			})
			assert.Zero(t, g.State().InFlight, "requests in flight")
		}
		time.Sleep(time.Hour) // no body is read any more
		require.Equal(t, queue.Go, g.Enter(tr.Now(), new(concurrency.Slot), nil, concurrency.Config{Max: 1}).Verb)
		assert.Equal(t, 1, g.State().InFlight, "requests in flight")
	})
}
