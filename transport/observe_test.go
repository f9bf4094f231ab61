// Who is told what of each request, attempt and body, and what must nobody be told?

package transport_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/url"
	"runtime"
	"slices"
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
	"github.com/aplomb-go/aplomb/internal/testkit"
	"github.com/aplomb-go/aplomb/policy"
	"github.com/aplomb-go/aplomb/transport"
)

// A witness records the calls of all hooks, and fails the test if they come twice, in a
// wrong order, or with a context that they did not get.
type witness struct {
	t      *testing.T
	mu     sync.Mutex
	steps  []string
	starts []transport.AttemptStart
	ends   []transport.AttemptEnd
	sums   []transport.RequestEnd
	bodies []transport.BodyEnd

	open     map[int]*http.Request // of the attempts that have begun and not ended
	requests int                   // that have begun and not ended
	due      int                   // bodies whose end is to come
}

type (
	requestKey struct{}
	attemptKey struct{}
)

func (w *witness) note(format string, args ...any) {
	w.steps = append(w.steps, fmt.Sprintf(format, args...))
}

func (w *witness) trace() *transport.Trace {
	w.open = map[int]*http.Request{}
	return &transport.Trace{
		RequestStart: func(ctx context.Context, req *http.Request) context.Context {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.requests++
			w.note("request")
			return context.WithValue(ctx, requestKey{}, req)
		},
		AttemptStart: func(ctx context.Context, a transport.AttemptStart) context.Context {
			w.mu.Lock()
			defer w.mu.Unlock()
			assert.NotNil(w.t, ctx.Value(requestKey{}), "the attempt belongs to the request")
			assert.Nil(w.t, ctx.Value(attemptKey{}), "attempts do not get each other's contexts")
			n := len(w.starts)
			w.starts = append(w.starts, a)
			w.open[n] = a.Request
			a.Header.Set("X-Attempt", fmt.Sprint(n))
			w.note("%v", a.Kind)
			return context.WithValue(ctx, attemptKey{}, n)
		},
		AttemptEnd: func(ctx context.Context, a transport.AttemptEnd) {
			w.mu.Lock()
			defer w.mu.Unlock()
			n, ok := ctx.Value(attemptKey{}).(int)
			assert.True(w.t, ok && w.open[n] != nil, "one end for each start")
			delete(w.open, n)
			w.ends = append(w.ends, a)
			switch {
			case a.Response != nil:
				w.note("%d: %d", n, a.Response.StatusCode)
			case a.Reason == transport.ReasonOutrun:
				w.note("%d: outrun", n)
			case a.Err != nil:
				w.note("%d: %v", n, a.Err)
			default:
				w.note("%d: panic", n)
			}
		},
		RequestEnd: func(ctx context.Context, r transport.RequestEnd) {
			w.mu.Lock()
			defer w.mu.Unlock()
			assert.Same(w.t, r.Request, ctx.Value(requestKey{}))
			assert.NotContains(w.t, slices.Collect(maps.Values(w.open)), r.Request, "an attempt that has not ended")
			w.requests--
			if r.BodyFollows {
				w.due++
			}
			w.sums = append(w.sums, r)
			w.note("end: %v", r.Reason)
		},
		BodyEnd: func(ctx context.Context, b transport.BodyEnd) {
			w.mu.Lock()
			defer w.mu.Unlock()
			assert.Same(w.t, b.Request, ctx.Value(requestKey{}))
			w.due--
			w.bodies = append(w.bodies, b)
			w.note("body")
		},
	}
}

// closed checks that every beginning had its end.
func (w *witness) closed() {
	w.mu.Lock()
	defer w.mu.Unlock()
	assert.Empty(w.t, w.open)
	assert.Zero(w.t, w.requests)
	assert.Zero(w.t, w.due)
}

// TestHooks: given all kinds of stories, each attempt, each request and each body begins
// and ends once, in order, and the base sees each attempt that is told.
func TestHooks(t *testing.T) {
	const s = time.Second
	text := strings.Repeat("x", 1000)
	hedged := policy.Rule{Hedge: policy.Hedge{Delay: s}}.Or(exact)
	byNumber := func(answers ...answer) rt {
		return numbered(func(req *http.Request, n int) (*http.Response, error) {
			return play(req, answers[min(n, len(answers))-1])
		})
	}
	panics := func(*http.Request) (*http.Response, error) { panic("base") }
	exits := func(*http.Request) (*http.Response, error) { runtime.Goexit(); return nil, nil }
	for _, row := range []struct {
		name  string
		rule  policy.Rule
		base  http.RoundTripper
		until time.Duration // the caller cancels; 0: never
		body  io.Reader
		leave bool // the caller closes the body at once
		steps string
	}{
		{name: "a success", rule: exact, base: script(status(200)), steps: "request, first, 0: 200, end: final, body"},
		{name: "no body", rule: exact, base: script(faults.Status(204)), steps: "request, first, 0: 204, end: final"},
		{name: "retries", rule: exact, base: script(status(503), faults.Fail(io.ErrUnexpectedEOF), status(200)),
			steps: "request, first, 0: 503, retry, 1: unexpected EOF, retry, 2: 200, end: final, body"},
		{name: "giving up", rule: policy.Rule{MaxAttempts: 2}.Or(exact), base: script(status(503)),
			steps: "request, first, 0: 503, retry, 1: 503, end: max_attempts, body"},
		{name: "an error", rule: exact, base: script(faults.Fail(errors.New("no idea"))), steps: "request, first, 0: no idea, end: final"},
		{name: "canceled in an attempt", rule: exact, base: script(faults.Hang()), until: s, steps: "request, first, 0: context canceled, end: canceled"},
		{name: "canceled in a wait", rule: exact, base: script(status(503, "Retry-After: 9")), until: s, steps: "request, first, 0: 503, end: canceled"},
		{name: "a panic", rule: exact, base: rt(panics), steps: "request, first, 0: panic, end: "},
		{name: "a panic at a retry", rule: exact, base: script(status(503), panics), steps: "request, first, 0: 503, retry, 1: panic, end: retry"},
		{name: "a panic after an error", rule: exact, base: script(faults.Fail(io.ErrUnexpectedEOF), panics),
			steps: "request, first, 0: unexpected EOF, retry, 1: panic, end: retry"},
		{name: "Goexit", rule: exact, base: rt(exits), steps: "request, first, 0: panic, end: "},
		{name: "a hedge that wins", rule: hedged, base: byNumber(status(200).Delay(9*s), status(200)),
			steps: "request, first, hedge, 0: outrun, 1: 200, end: final, body"},
		{name: "a hedge that loses", rule: hedged, base: byNumber(status(200).Delay(2*s), status(200).Delay(9*s)),
			steps: "request, first, hedge, 1: outrun, 0: 200, end: final, body"},
		{name: "a hedge whose loser is deaf", rule: hedged, base: byNumber(deaf(9*s), status(200)),
			steps: "request, first, hedge, 0: outrun, 1: 200, end: final, body"},
		{name: "a hedge that fails first", rule: hedged, base: byNumber(status(200).Delay(3*s), status(503)),
			steps: "request, first, hedge, 1: 503, 0: 200, end: final, body"},
		{name: "a hedge and a retry", rule: hedged, base: byNumber(status(503).Delay(3*s), status(503).Delay(1*s), status(200)),
			steps: "request, first, hedge, 1: 503, 0: 503, retry, 2: 200, end: final, body"},
		{name: "a hedge that panics", rule: hedged, base: byNumber(status(200).Delay(9*s), panics),
			steps: "request, first, hedge, 1: panic, 0: outrun, end: "},
		{name: "a panic beside a hedge", rule: hedged, base: byNumber(deafly(9*s, panics), faults.Hang()),
			steps: "request, first, hedge, 1: outrun, 0: panic, end: "},
		{name: "canceled during a race", rule: hedged, base: byNumber(faults.Hang(), deaf(9*s)), until: 2 * s,
			steps: "request, first, hedge, 1: outrun, 0: context canceled, end: canceled"},
		{name: "a resume", rule: exact, base: cutter(text, 400),
			steps: "request, first, 0: 200, end: final, resume, 1: 206, body"},
		{name: "a reconnect that is retried", rule: exact, base: cutter(text, 400, -503),
			steps: "request, first, 0: 200, end: final, resume, 1: 503, resume, 2: 206, body"},
		{name: "a resume that fails", rule: exact, base: cutter(text, 400, -404),
			steps: "request, first, 0: 200, end: final, resume, 1: 404, body"},
		{name: "a body that is left", rule: exact, base: cutter(text, 400), leave: true,
			steps: "request, first, 0: 200, end: final, body"},
		{name: "a GetBody that fails", rule: exact, base: script(status(503)), body: oneShot("text"),
			steps: "request, first, 0: 503, end: not_replayable, body"},
	} {
		inBubble(t, row.name, func(t *testing.T) {
			w := &witness{t: t}
			sent := 0
			var mu sync.Mutex
			base := rt(func(req *http.Request) (*http.Response, error) {
				mu.Lock()
				sent++
				mu.Unlock()
				assert.Equal(t, fmt.Sprint(req.Context().Value(attemptKey{})), req.Header.Get("X-Attempt"), "context and header of the same attempt")
				return row.base.RoundTrip(req)
			})
			tr := mustNew(t, transport.Config{Base: base, Rule: row.rule, Traces: []*transport.Trace{w.trace()}})
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			if row.until > 0 {
				time.AfterFunc(row.until, cancel)
			}
			req := newRequest(t, http.MethodGet, "http://h.test/", row.body).WithContext(ctx)
			if row.body != nil {
				req.GetBody = func() (io.ReadCloser, error) { return nil, errors.New("no body") }
			}
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				defer func() { _ = recover() }()
				resp, err := tr.RoundTrip(req)
				if err != nil {
					return
				}
				if !row.leave {
					_, _ = io.Copy(io.Discard, struct{ io.Reader }{resp.Body})
					_, _ = resp.Body.Read(make([]byte, 1)) // once more
				}
				_ = resp.Body.Close()
				_ = resp.Body.Close()
			}()
			<-ended
			time.Sleep(time.Minute)
			synctest.Wait()
			w.closed()
			assert.Equal(t, row.steps, strings.Join(w.steps, ", "))
			assert.Len(t, w.starts, sent)
			assert.Empty(t, req.Header.Get("X-Attempt"), "the caller's header is not changed")
		})
	}
}

// TestTimesOfAttempts: start, duration and queues of each attempt, and their sums.
func TestTimesOfAttempts(t *testing.T) {
	bubble(t, func(t *testing.T) {
		const ms = time.Millisecond
		w, start := &witness{t: t}, time.Now()
		base := script(
			func(req *http.Request) (*http.Response, error) { time.Sleep(300 * ms); return play(req, status(503)) },
			func(req *http.Request) (*http.Response, error) { time.Sleep(50 * ms); return play(req, status(200)) },
		)
		tr := mustNew(t, transport.Config{Base: base, Rule: policy.Rule{RateLimit: policy.RateLimit{PerSecond: 0.2}}.Or(exact), Traces: []*transport.Trace{w.trace()}})
		resp := mustGet(t, tr)
		time.Sleep(time.Second)
		_ = resp.Body.Close()

		require.Len(t, w.ends, 2)
		first, second := w.ends[0], w.ends[1]
		assert.Equal(t, start, first.Start)
		assert.Equal(t, 300*ms, first.Duration)
		assert.Zero(t, first.Waited)
		assert.Empty(t, first.WaitedFor)
		assert.Equal(t, 5*time.Second, second.Start.Sub(start), "the next token of the rate")
		assert.Equal(t, 50*ms, second.Duration)
		assert.Equal(t, 5*time.Second-300*ms-first.Delay, second.Waited)
		assert.Equal(t, transport.ReasonRateLimit, second.WaitedFor)
		sum := w.sums[0]
		assert.Equal(t, 5050*ms, sum.Duration)
		assert.Equal(t, second.Waited, sum.Waited)
		assert.Equal(t, 2, sum.Attempts, "attempts")
		assert.Equal(t, resp, sum.Response)
		assert.Equal(t, time.Second, w.bodies[0].Duration)
	})
}

// TestWaited: the time in all queues is told with the limit that took longest, also of a request
// that is refused after it.
func TestWaited(t *testing.T) {
	const s = time.Second
	quota := []string{"RateLimit-Remaining: 0", "RateLimit-Limit: 10", "RateLimit-Reset: 4"}
	for name, row := range map[string]struct {
		rule  policy.Rule
		first answer
		want  transport.Reason
	}{
		"throttle": {policy.Rule{MaxAttempts: 1, ShareRetryAfter: policy.On}, status(429, "Retry-After: 4"), transport.ReasonThrottled},
		"pacing":   {policy.Rule{QuotaPacing: policy.On}, status(200, quota...), transport.ReasonQuota},
		"rate":     {policy.Rule{RateLimit: policy.RateLimit{PerSecond: 0.25}}, status(200), transport.ReasonRateLimit},
	} {
		inBubble(t, name, func(t *testing.T) {
			w := &witness{t: t}
			tr := mustNew(t, transport.Config{Base: script(row.first, status(200)), Rule: row.rule.Or(exact), Traces: []*transport.Trace{w.trace()}})
			for range 2 {
				mustFetch(t, tr, t.Context(), "http://h.test/")
				if name == "throttle" {
					time.Sleep(s) // a request that arrives just now
				}
			}
			assert.Greater(t, w.ends[1].Waited, s)
			assert.Equal(t, row.want, w.ends[1].WaitedFor)
			assert.Equal(t, w.ends[1].Waited, w.sums[1].Waited)
		})
	}
	limiter := policy.Rule{Concurrency: policy.Concurrency{Max: 1}}
	for name, rule := range map[string]policy.Rule{"limiter": limiter, "rate before the limiter": policy.Rule{RateLimit: policy.RateLimit{PerSecond: 1, Burst: 1}}.Or(limiter)} {
		inBubble(t, name, func(t *testing.T) {
			w := &witness{t: t}
			tr := mustNew(t, transport.Config{Base: script(status(200).Delay(4 * s)), Rule: rule.Or(exact), Traces: []*transport.Trace{w.trace()}})
			together(2, func(int) { responds(t, tr, http.MethodGet, "http://h.test/") })
			assert.Equal(t, 4*s, w.ends[1].Waited)
			assert.Equal(t, transport.ReasonConcurrency, w.ends[1].WaitedFor)
		})
	}
	inBubble(t, "refused by the limiter", func(t *testing.T) {
		w := &witness{t: t}
		tr := mustNew(t, transport.Config{Base: script(status(200).Delay(4 * s)), Rule: limiter.Or(exact), Traces: []*transport.Trace{w.trace()}})
		go responds(t, tr, http.MethodGet, "http://h.test/")
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(3*s, cancel)
		synctest.Wait()
		_, err := get(t, tr, ctx)
		assert.ErrorIs(t, err, context.Canceled)
		last := w.sums[len(w.sums)-1]
		assert.Equal(t, 3*s, last.Waited, "it was refused")
		assert.Zero(t, last.Attempts, "attempts")
		assert.Equal(t, transport.ReasonCanceled, last.Reason)
		time.Sleep(time.Minute)
	})
}

// TestBodyEnd: the end of a body comes after its resumes, and none if the caller got a connection.
func TestBodyEnd(t *testing.T) {
	inBubble(t, "resumes", func(t *testing.T) {
		w := &witness{t: t}
		tr := mustNew(t, transport.Config{Traces: []*transport.Trace{w.trace()}, Rule: exact, Base: cutter(strings.Repeat("x", 1000), 400, 0, -503, 100)})
		resp := mustGet(t, tr)
		_, err := io.Copy(io.Discard, resp.Body)
		require.NoError(t, err)
		assert.Equal(t, 3, w.bodies[0].Resumes, "resumes")
		assert.EqualValues(t, 1000, w.bodies[0].Bytes)
		assert.EqualValues(t, 400, w.starts[1].Offset)
		w.closed()
	})
	t.Run("a connection that is handed over", func(t *testing.T) {
		w := &witness{t: t}
		tr := mustNew(t, transport.Config{Traces: []*transport.Trace{w.trace()}, Base: script(status(101))})
		mustGet(t, tr)
		assert.False(t, w.sums[0].BodyFollows)
		w.closed()
	})
}

// TestFunctionsThatPanic: a panic of a hook or of a function of the rule reaches the caller, although the Close of the response
// blocks. It leaves neither a body open nor a slot in use.
func TestFunctionsThatPanic(t *testing.T) {
	traced := func(trace transport.Trace) transport.Config {
		return transport.Config{Traces: []*transport.Trace{&trace}}
	}
	classifies := policy.Rule{Classify: func(classify.Outcome) classify.Class { panic("own") }}
	for name, row := range map[string]struct {
		config transport.Config
		code   int // of the response; 0: nothing is sent
	}{
		"RequestStart":      {traced(transport.Trace{RequestStart: func(context.Context, *http.Request) context.Context { panic("own") }}), 0},
		"AttemptStart":      {traced(transport.Trace{AttemptStart: func(context.Context, transport.AttemptStart) context.Context { panic("own") }}), 0},
		"AttemptEnd":        {traced(transport.Trace{AttemptEnd: func(context.Context, transport.AttemptEnd) { panic("own") }}), 503},
		"AttemptEnd, a 200": {traced(transport.Trace{AttemptEnd: func(context.Context, transport.AttemptEnd) { panic("own") }}), 200},
		"RequestEnd":        {traced(transport.Trace{RequestEnd: func(context.Context, transport.RequestEnd) { panic("own") }}), 200},
		"Classify":          {transport.Config{Rule: classifies}, 503},
		"Classify, timed":   {transport.Config{Rule: policy.Rule{AttemptTimeout: time.Hour}.Or(classifies)}, 503},
		"RetryAfter":        {transport.Config{Rule: policy.Rule{RetryAfter: func(classify.Outcome) (time.Duration, bool) { panic("own") }}}, 503},
		"Idempotent":        {transport.Config{Rule: policy.Rule{Idempotent: func(*http.Request) bool { panic("own") }}}, 503},
	} {
		for limits, rule := range map[string]policy.Rule{"plain": {}, "behind a limiter": {Concurrency: policy.Concurrency{Max: 1}}} {
			inBubble(t, name+", "+limits, func(t *testing.T) {
				config, body := row.config, oneShot("text")
				var closes atomic.Int32
				config.Rule = rule.Or(config.Rule)
				tr := over(t, config, rt(func(req *http.Request) (*http.Response, error) {
					_ = req.Body.Close()
					slow := func() { closes.Add(1); time.Sleep(time.Minute) }
					return newResponse(req, row.code, badBody{strings.NewReader("no").Read, slow}), nil
				}))
				start := time.Now()
				assert.PanicsWithValue(t, "own", func() { _, _ = tr.RoundTrip(newRequest(t, http.MethodPut, "http://h.test/", body)) })
				assert.LessOrEqual(t, time.Since(start), transport.CloseTime)
				time.Sleep(time.Minute) // the Close ends
				count(t, min(row.code, 1), closes.Load(), "response closed")
				assert.GreaterOrEqual(t, body.closed(), 1)
				idle(t, tr)
			})
		}
	}
}

// TestTraceWithoutHooksCostsNothing: an empty Trace, wherever it stands, leaves the
// first attempt as it is.
func TestTraceWithoutHooksCostsNothing(t *testing.T) {
	tr := mustNew(t, transport.Config{Base: newNoop(), Traces: []*transport.Trace{&transport.Trace{}}})
	req := getRequest(t, "http://h.test/")
	req = req.WithContext(transport.WithTrace(req.Context(), &transport.Trace{}))
	assert.Zero(t, testing.AllocsPerRun(1000, func() { _, _ = tr.RoundTrip(req) }))
}

// The end of a body is told once, with the bytes that were read.
func TestObservedBody(t *testing.T) {
	failed, news := errors.New("failed"), func() io.ReadCloser { return io.NopCloser(strings.NewReader("news")) }
	nothing := func() {}
	for name, row := range map[string]struct {
		src  io.ReadCloser
		do   func(b io.ReadCloser)
		want []transport.BodyEnd
	}{
		"it is read":            {news(), func(b io.ReadCloser) { _, _ = io.ReadAll(b) }, []transport.BodyEnd{{Bytes: 4, Complete: true}}},
		"it is read and closed": {news(), func(b io.ReadCloser) { _, _ = io.ReadAll(b); _ = b.Close() }, []transport.BodyEnd{{Bytes: 4, Complete: true}}},
		"it is closed":          {news(), func(b io.ReadCloser) { _, _ = b.Read(make([]byte, 3)); _ = b.Close(); _ = b.Close() }, []transport.BodyEnd{{Bytes: 3}}},
		"it fails": {badBody{func([]byte) (int, error) { return 0, failed }, nothing}, func(b io.ReadCloser) { _, _ = io.ReadAll(b); _, _ = b.Read(nil) },
			[]transport.BodyEnd{{Err: failed}}},
		"nothing is done":  {news(), func(io.ReadCloser) {}, nil},
		"its Close panics": {badBody{nil, func() { panic("close") }}, func(b io.ReadCloser) { defer func() { _ = recover() }(); _ = b.Close() }, []transport.BodyEnd{{}}},
		"a bad count":      {badBody{func([]byte) (int, error) { return -1, io.EOF }, nothing}, func(b io.ReadCloser) { _, _ = b.Read(nil) }, []transport.BodyEnd{{Complete: true}}},
	} {
		var told []transport.BodyEnd
		row.do(transport.Observed(row.src, transport.Trace{BodyEnd: func(_ context.Context, e transport.BodyEnd) {
			e.Duration = 0
			told = append(told, e)
		}}))
		assert.Equal(t, row.want, told, name)
	}
	// A Read that Close ends is no error of the body. One that was at the end is whole.
	for read, complete := range map[error]bool{http.ErrBodyReadAfterClose: false, io.EOF: true} {
		var told []transport.BodyEnd
		var b io.ReadCloser
		b = transport.Observed(badBody{func([]byte) (int, error) { return 0, read }, func() { _, _ = b.Read(nil) }},
			transport.Trace{BodyEnd: func(_ context.Context, e transport.BodyEnd) { told = append(told, e) }})
		_ = b.Close()
		if assert.Len(t, told, 1) {
			assert.Equal(t, complete, told[0].Complete, read)
			assert.NoError(t, told[0].Err)
		}
	}
}

// TestAttemptEnds: one for each attempt, with all that is known of it.
func TestAttemptEnds(t *testing.T) {
	bubble(t, func(t *testing.T) {
		start := time.Now()
		var seen recorder
		const slow = 100 * time.Millisecond
		responses := script(faults.Status(503).Header("X-Try", "1").Delay(slow), faults.Fail(syscall.ECONNRESET).Delay(slow),
			faults.Status(429).Header("Retry-After", "10").Delay(slow), faults.Status(200).Delay(slow))
		tr := mustNew(t, transport.Config{Base: responses, Rule: exact, Traces: []*transport.Trace{seen.trace()}})
		req := newRequest(t, http.MethodGet, "https://API.example.com:443/things", nil)
		mustRoundTrip(t, tr, req)

		type row struct {
			number  int
			status  int
			err     error
			verdict classify.Class
			reason  transport.Reason
			hint    time.Duration
			wait    time.Duration // at least
			at      time.Duration // at least, after the start
		}
		const s, ms = time.Second, time.Millisecond
		rows := []row{
			{1, 503, nil, classify.Ambiguous, transport.ReasonRetry, 0, s, 100 * ms},
			{2, 0, syscall.ECONNRESET, classify.Ambiguous, transport.ReasonRetry, 0, 2 * s, 1200 * ms},
			{3, 429, nil, classify.Ambiguous, transport.ReasonRetry, 10 * s, 10 * s, 3300 * ms},
			{4, 200, nil, classify.Final, transport.ReasonFinal, 0, 0, 13400 * ms},
		}
		events := seen.events()
		require.Len(t, events, len(rows))
		for i, want := range rows {
			e := events[i]
			assert.Equal(t, want.number, e.Number)
			assert.Equal(t, want.status, e.Status)
			assert.Equal(t, want.err, e.Err, "the base's own error, as it was")
			assert.Equal(t, want.verdict, e.Class)
			assert.Equal(t, want.reason, e.Reason)
			assert.Equal(t, want.hint, e.RetryAfter)
			assert.GreaterOrEqual(t, e.Delay, want.wait)
			assert.LessOrEqual(t, e.Delay, want.wait+s)
			assert.GreaterOrEqual(t, e.Start.Add(e.Duration).Sub(start), want.at)
			assert.LessOrEqual(t, e.Start.Add(e.Duration).Sub(start), want.at+s)
			assert.Same(t, req, e.Request, "the caller's")
			assert.Equal(t, "https://api.example.com", e.Host)
			assert.Equal(t, want.status != 0, e.Response != nil)
		}
		assert.Equal(t, "1", events[0].Response.Header.Get("X-Try"))
	})
}

// TestTraceOrder: Config.Traces first, then the contexts' from the newest to the oldest, each as it was when it was given. Each hook
// gets the context of the previous.
func TestTraceOrder(t *testing.T) {
	type key string
	var calls []string
	want := ""
	named := func(name string) *transport.Trace {
		return &transport.Trace{
			RequestStart: func(ctx context.Context, _ *http.Request) context.Context {
				calls = append(calls, name)
				return context.WithValue(ctx, key(name), true)
			},
			AttemptStart: func(context.Context, transport.AttemptStart) context.Context { return nil },
			AttemptEnd: func(ctx context.Context, _ transport.AttemptEnd) {
				calls = append(calls, name)
				for other := range strings.FieldsSeq(want) {
					assert.Equal(t, true, ctx.Value(key(other)), "the context of %s", other)
				}
			},
		}
	}
	own := named("config")
	tr := mustNew(t, transport.Config{Base: script(faults.Status(200)), Traces: []*transport.Trace{own}})
	own.AttemptEnd = nil // copied: no effect

	older := named("older")
	ctx := transport.WithTrace(t.Context(), older)
	ctx = transport.WithTrace(ctx, &transport.Trace{AttemptEnd: func(context.Context, transport.AttemptEnd) {}})
	ctx = transport.WithTrace(ctx, &transport.Trace{})
	ctx = transport.WithTrace(ctx, nil)
	ctx = transport.WithTrace(ctx, (*transport.Trace)(nil))
	middle := transport.WithTrace(ctx, named("middle"))
	newest := transport.WithTrace(transport.WithIdempotent(middle), named("newest"))
	older.AttemptEnd = nil

	for _, row := range []struct {
		ctx  context.Context
		want string
	}{
		{t.Context(), "config"},
		{ctx, "config older"},
		{middle, "config middle older"},
		{newest, "config newest middle older"},
		{transport.WithoutRetries(newest), "config newest middle older"},
	} {
		calls, want = nil, row.want
		mustFetch(t, tr, row.ctx, "http://h.test/")
		assert.Equal(t, want+" "+want, strings.Join(calls, " "))
	}
}

// TestRefusalHasNoSecrets: the error and the lines of a request that is not sent are without passwords and without the values of
// queries.
func TestRefusalHasNoSecrets(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var log testkit.Text
		logger := slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))
		tr := mustNew(t, transport.Config{Base: script(faults.Status(200)), Rule: policy.Rule{RateLimit: policy.RateLimit{PerSecond: 0.1}}, Logger: logger})
		const secret = "http://someone:SECRET@h.test/?token=SECRET"
		mustFetch(t, tr, t.Context(), secret)
		ctx := expires(t, time.Second)
		_, err := fetch(t, tr, ctx, secret)
		require.Error(t, err)
		assert.NotContains(t, err.Error(), "SECRET")
		assert.Equal(t, 3, strings.Count(log.String(), "\n"), "the attempt, the rate, and the refusal")
		assert.NotContains(t, log.String(), "SECRET")
		assert.Contains(t, log.String(), "h.test")
	})
}

// TestErrorsOfHooksHaveNoSecrets: the Err of an AttemptEnd and of a HostChange prints without the
// secrets of URLs, and errors.Is and errors.As see what is inside. So it is with the error of the caller.
func TestErrorsOfHooksHaveNoSecrets(t *testing.T) {
	bubble(t, func(t *testing.T) {
		own := &url.Error{Op: "Get", URL: "http://u:" + marker + "@h.test/p?key=" + marker + "#" + marker, Err: io.ErrUnexpectedEOF}
		var seen recorder
		var changed changes
		tr := mustNew(t, transport.Config{
			Base: script(faults.Fail(own)), Rule: policy.Rule{MaxAttempts: 1, Concurrency: policy.Concurrency{Max: 10}},
			Traces: []*transport.Trace{seen.trace(), changed.trace()},
		})
		_, err := tr.RoundTrip(getRequest(t, "http://h.test/p?key="+marker))
		assert.EqualError(t, err, `transport: not retried (retries off): Get "http://xxxxx@h.test/p?key=xxxxx": unexpected EOF`)
		assert.Same(t, own, errorAs[*url.Error](t, err))
		events := seen.events()
		require.Len(t, events, 1)
		assert.Equal(t, `Get "http://xxxxx@h.test/p?key=xxxxx": unexpected EOF`, events[0].Err.Error())
		assert.ErrorIs(t, events[0].Err, io.ErrUnexpectedEOF)
		assert.Same(t, own, errorAs[*url.Error](t, events[0].Err))
		for _, text := range []string{fmt.Sprint(events[0]), fmt.Sprintf("%+v", events[0].Attempt), fmt.Sprintf("%#v", events[0].Err)} {
			assert.NotContains(t, text, marker)
		}
		for range 100 {
			time.Sleep(20 * time.Millisecond)
			_, _ = tr.RoundTrip(getRequest(t, "http://h.test/p?key="+marker))
		}
		require.NotEmpty(t, changed.all)
		assert.ErrorIs(t, changed.all[0].Err, io.ErrUnexpectedEOF)
		assert.NotContains(t, changed.all[0].Err.Error(), marker)
	})
}

// An error without secrets is the base's own.
func TestErrorsOfHooksAreTheirOwn(t *testing.T) {
	var seen recorder
	own := errors.New("reset by the base")
	_, err := mustNew(t, transport.Config{Base: script(faults.Fail(own)), Traces: []*transport.Trace{seen.trace()}}).RoundTrip(getRequest(t, "http://h.test/?q="+marker))
	require.Error(t, err)
	assert.True(t, seen.events()[0].Err == own)
}

// Explain names a failure inside a good response.
func TestExplainOfAnErrorInside(t *testing.T) {
	bubble(t, func(t *testing.T) {
		inside := func(classify.Outcome) classify.Class { return classify.Refused }
		resp, err := get(t, mustNew(t, transport.Config{Rule: policy.Rule{MaxAttempts: 2, Classify: inside}.Or(exact), Base: script(faults.Status(200))}), t.Context())
		assert.Contains(t, transport.Explain(resp, err), "200 with an error inside, retry after 1s")
	})
}

// A response that came after several attempts has their history, whatever it is.
func TestHistoryOfALateSuccess(t *testing.T) {
	for _, code := range []int{200, 404, 501} {
		bubble(t, func(t *testing.T) {
			base := script(status(503), faults.Fail(syscall.ECONNRESET), status(code))
			resp := mustGet(t, over(t, transport.Config{Rule: quick}, base))
			defer resp.Body.Close()
			h := transport.HistoryOf(resp, nil)
			assert.Equal(t, transport.ReasonFinal, h.Reason)
			require.Len(t, h.Attempts, 3, "attempts")
			for i, want := range []int{503, 0, code} {
				assert.Equal(t, i+1, h.Attempts[i].Number)
				assert.Equal(t, want, h.Attempts[i].Status)
			}
			assert.ErrorIs(t, h.Attempts[1].Err, syscall.ECONNRESET)
		})
	}
}

// An attempt that is timed knows when it began and how long it took, although nobody observes it.
func TestHistoryKnowsTheTimeOfATimedAttempt(t *testing.T) {
	bubble(t, func(t *testing.T) {
		start := time.Now()
		_, err := get(t, over(t, transport.Config{Rule: policy.Rule{MaxAttempts: 2, AttemptTimeout: 10 * time.Second}}, script(faults.Hang())), t.Context())
		first := errorAs[*transport.Error](t, err).Attempts[0]
		assert.Equal(t, start, first.Start)
		assert.Equal(t, 10*time.Second, first.Duration)
	})
}

// A late success is resumed like any other.
func TestLateSuccessIsResumed(t *testing.T) {
	bubble(t, func(t *testing.T) {
		text := strings.Repeat("0123456789", 10)
		served := cutter(text, 50)
		base := script(status(503), served.RoundTrip, served.RoundTrip)
		resp := mustGet(t, over(t, transport.Config{Rule: quick}, base))
		defer resp.Body.Close()
		assert.Len(t, transport.HistoryOf(resp, nil).Attempts, 2, "attempts")
		assert.Equal(t, text, mustRead(t, resp))
	})
}
