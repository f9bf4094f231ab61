// Who is told what of each attempt, and what must nobody be told? The texts of errors in events, and the history.

package transport_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/aplomb-go/aplomb/classify"
	"github.com/aplomb-go/aplomb/faults"
	"github.com/aplomb-go/aplomb/internal/testkit"
	"github.com/aplomb-go/aplomb/policy"
	"github.com/aplomb-go/aplomb/transport"
)

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

// closer is a body that tells of its Close.
type closer struct {
	io.Reader
	onClose func()
}

func (c closer) Close() error { c.onClose(); return nil }

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
