package retry

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/aplomb-go/aplomb/classify"
	"github.com/aplomb-go/aplomb/internal/formula"
	"github.com/aplomb-go/aplomb/internal/testkit"
	"github.com/aplomb-go/aplomb/policy"
	"github.com/aplomb-go/aplomb/policy/backoff"
)

var errBusy = errors.New("busy")

// A diary remembers when, after its making, a function was called.
type diary struct {
	start time.Time
	at    []time.Duration
}

func newDiary() *diary { return &diary{start: time.Now()} }

// inBubble runs a test with a diary in virtual time.
func inBubble(t *testing.T, test func(*testing.T, *diary)) {
	synctest.Test(t, func(t *testing.T) { test(t, newDiary()) })
}

func (d *diary) note() { d.at = append(d.at, time.Since(d.start)) }

// busy returns a function that always fails at once.
func (d *diary) busy(context.Context) error {
	d.note()
	return errBusy
}

// waits are the times between calls.
func (d *diary) waits() []time.Duration {
	var waits []time.Duration
	for i := 1; i < len(d.at); i++ {
		waits = append(waits, d.at[i]-d.at[i-1])
	}
	return waits
}

// "Implementing Exponential Back-Off": waits of 1 to 16 s, each with its own
// random milliseconds, then "stop and log the error". The zero rule does it.
func TestDoOlderGoogleStory(t *testing.T) {
	for _, rule := range []policy.Rule{{Backoff: backoff.Google{}}, {}} {
		inBubble(t, func(t *testing.T, d *diary) {
			err := Do(t.Context(), rule, nil, d.busy)
			assert.ErrorIs(t, err, errBusy)
			assert.EqualError(t, err, "retry: gave up after attempt 6: no attempts left: busy")
			require.Len(t, d.waits(), 5)
			for n, wait := range d.waits() {
				assert.True(t, (1<<n)*sec <= wait && wait <= (1<<n)*sec+sec, "wait %d is %v", n, wait)
				if rule.Backoff != nil {
					assert.Zero(t, wait%ms)
				}
			}
			assert.Equal(t, d.at[5], time.Since(d.start), "no wait after the last attempt")
		})
	}
}

// Google Cloud's "Exponential backoff": retries go on at maximum_backoff up to
// some maximum number.
func TestDoNewerGoogleStory(t *testing.T) {
	inBubble(t, func(t *testing.T, d *diary) {
		err := Do(t.Context(), policy.Rule{MaxAttempts: 40, Backoff: backoff.Google{}}, nil, d.busy)
		assert.Error(t, err)
		require.Len(t, d.waits(), 39)
		for _, wait := range d.waits()[5:] {
			assert.Equal(t, 32*sec, wait)
		}
	})
}

// LispCast's "Exponential Backoff": the predicate sees what the server said, and
// the call at 15 s is the last.
func TestDoMacroStory(t *testing.T) {
	inBubble(t, func(t *testing.T, d *diary) {
		failure := errors.New(`{"error": "queue capacity"}`)
		full := func(err error) bool { return strings.Contains(err.Error(), "queue capacity") }
		rule := policy.Rule{MaxAttempts: 100, Backoff: backoff.Geometric{}}
		call := func(context.Context) error { d.note(); return failure }

		err := Do(t.Context(), rule, full, call)
		assert.EqualError(t, err, `retry: gave up after attempt 5: the back-off stopped: {"error": "queue capacity"}`)
		assert.Equal(t, []time.Duration{0, sec, 3 * sec, 7 * sec, 15 * sec}, d.at)

		failure = io.ErrUnexpectedEOF
		assert.Equal(t, io.ErrUnexpectedEOF, Do(t.Context(), rule, full, call))
		assert.Len(t, d.at, 6)
	})
}

func TestDoSucceeds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for tries := 1; tries <= 4; tries++ {
			d := newDiary()
			got, err := DoValue(t.Context(), policy.Rule{MaxAttempts: 4, Backoff: backoff.Constant(3 * sec)}, nil, func(context.Context) (int, error) {
				if d.note(); len(d.at) < tries {
					return 0, errBusy
				}
				return len(d.at), nil
			})
			assert.NoError(t, err)
			assert.Equal(t, tries, got)
			assert.Equal(t, time.Duration(tries-1)*3*sec, time.Since(d.start))
		}
	})
}

func TestDoReturnsTheLastValueBesideAnError(t *testing.T) {
	calls := 0
	got, err := DoValue(t.Context(), policy.Rule{MaxAttempts: 3, Backoff: backoff.Constant(0)}, nil, func(context.Context) (string, error) {
		calls++
		return fmt.Sprint("response ", calls), errBusy
	})
	assert.ErrorIs(t, err, errBusy)
	assert.Equal(t, "response 3", got)
}

// recorder returns n+1 s and remembers what it was asked.
type recorder struct{ asked *[][2]time.Duration }

func (r recorder) Delay(n int, prev time.Duration) time.Duration {
	*r.asked = append(*r.asked, [2]time.Duration{time.Duration(n), prev})
	return time.Duration(n+1) * sec
}

func TestDoPassesTheBackoffItsOwnLastWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asked [][2]time.Duration
		_ = Do(t.Context(), policy.Rule{MaxAttempts: 4, Backoff: recorder{&asked}}, nil, newDiary().busy)
		assert.Equal(t, [][2]time.Duration{{0, 0}, {1, sec}, {2, 2 * sec}}, asked)
	})
}

// Every error that is not to be retried comes back as it is.
func TestDoReturnsErrorsUntouched(t *testing.T) {
	wrapped := fmt.Errorf("reading: %w", Permanent(errBusy))
	nested := &LimitError{Attempts: 3, Err: errBusy}
	yes, no := func(error) bool { return true }, func(error) bool { return false }
	for name, test := range map[string]struct {
		rule         policy.Rule
		retryable    func(error) bool
		failed, want error
	}{
		"predicate says no":              {policy.Rule{}, no, errBusy, errBusy},
		"permanent":                      {policy.Rule{}, nil, Permanent(errBusy), errBusy},
		"permanent, predicate says yes":  {policy.Rule{}, yes, Permanent(errBusy), errBusy},
		"permanent inside another error": {policy.Rule{}, yes, wrapped, wrapped},
		"permanent twice":                {policy.Rule{}, nil, Permanent(Permanent(errBusy)), Permanent(errBusy)},
		"retries off":                    {policy.Rule{MaxAttempts: 1}, yes, errBusy, errBusy},
		"retried by a layer below":       {policy.Rule{}, nil, nested, nested},
	} {
		calls := 0
		err := Do(t.Context(), test.rule, test.retryable, func(context.Context) error { calls++; return test.failed })
		assert.Equal(t, test.want, err, name)
		testkit.Count(t, 1, calls, "function called", name)
	}
}

func TestDoLayersMultiplyOnlyWhenTold(t *testing.T) {
	calls := 0
	inner := func(ctx context.Context) error {
		return Do(ctx, policy.Rule{MaxAttempts: 3, Backoff: backoff.Constant(0)}, nil, func(context.Context) error { calls++; return errBusy })
	}
	outer := policy.Rule{MaxAttempts: 2, Backoff: backoff.Constant(0)}
	assert.ErrorIs(t, Do(t.Context(), outer, nil, inner), errBusy)
	testkit.Count(t, 3, calls, "function called")
	assert.ErrorIs(t, Do(t.Context(), outer, func(error) bool { return true }, inner), errBusy)
	testkit.Count(t, 9, calls, "function called")
}

func TestPermanent(t *testing.T) {
	assert.NoError(t, Permanent(nil))
	err := Permanent(&net.OpError{Op: "dial", Err: errBusy})
	assert.ErrorIs(t, err, errBusy)
	var op *net.OpError
	assert.ErrorAs(t, err, &op)
	assert.EqualError(t, err, "dial: busy")
}

func TestDoDoesNotWaitPastElapsed(t *testing.T) {
	for name, test := range map[string]struct {
		wait, response, elapsed time.Duration
		calls                   int
		end                     time.Duration
	}{
		"one ns too long":             {sec, 0, 3*sec - 1, 3, 2 * sec},
		"just in time":                {sec, 0, 3 * sec, 4, 3 * sec},
		"the responses count":         {sec, 500 * ms, 3 * sec, 3, 3500 * ms},
		"the first response outlasts": {sec, time.Minute, 3 * sec, 1, time.Minute},
		"a wait without end":          {math.MaxInt64, 0, sec, 1, 0},
		"a wait without end, later":   {math.MaxInt64, sec, time.Minute, 1, sec},
		"no wait":                     {0, sec, 3 * sec, 4, 4 * sec},
	} {
		inBubble(t, func(t *testing.T, d *diary) {
			err := Do(t.Context(), policy.Rule{MaxAttempts: 50, Backoff: backoff.Constant(test.wait), MaxElapsedTime: test.elapsed}, nil, func(context.Context) error {
				d.note()
				time.Sleep(test.response)
				return errBusy
			})
			assert.ErrorIs(t, err, errBusy, name)
			assert.ErrorContains(t, err, "past MaxElapsedTime ("+test.elapsed.String()+"): busy", name)
			assert.Len(t, d.at, test.calls, name)
			assert.Equal(t, test.end, time.Since(d.start), name)
			assert.False(t, os.IsTimeout(err), name)
		})
	}
}

func TestDoDoesNotWaitPastTheDeadline(t *testing.T) {
	for _, test := range []struct {
		limit time.Duration
		calls int
	}{{3 * sec, 3}, {3*sec + 1, 4}, {1, 1}} {
		inBubble(t, func(t *testing.T, d *diary) {
			ctx, cancel := context.WithTimeout(t.Context(), test.limit)
			defer cancel()
			err := Do(ctx, policy.Rule{Backoff: backoff.Constant(sec), MaxElapsedTime: -1}, nil, d.busy)
			assert.Len(t, d.at, test.calls)
			assert.Equal(t, d.at[len(d.at)-1], time.Since(d.start), "no wait in vain")
			assert.NoError(t, ctx.Err())
			assert.ErrorIs(t, err, errBusy)
			assert.ErrorIs(t, err, context.DeadlineExceeded)
			assert.True(t, os.IsTimeout(err))
			assert.ErrorContains(t, err, "before the context's deadline: busy")
		})
	}
}

func TestDoWaitEndsWithTheContext(t *testing.T) {
	inBubble(t, func(t *testing.T, d *diary) {
		reason := errors.New("shutting down")
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(1500*ms, func() { cancel(reason) })
		err := Do(ctx, policy.Rule{Backoff: backoff.Constant(sec)}, nil, d.busy)
		assert.Equal(t, 1500*ms, time.Since(d.start))
		assert.Len(t, d.at, 2)
		for _, want := range []error{errBusy, context.Canceled, reason} {
			assert.ErrorIs(t, err, want)
		}
		assert.EqualError(t, err, "retry: gave up after attempt 2: the context ended: shutting down: busy")
		assert.False(t, os.IsTimeout(err))
	})
}

// What the rule says about hosts has no effect, even if it is wrong.
func TestDoIgnoresWhatIsForHosts(t *testing.T) {
	inBubble(t, func(t *testing.T, d *diary) {
		rule := policy.Rule{MaxAttempts: 3, ReplayBuffer: 1 << 40, RetryBudget: policy.RetryBudget{Ratio: 7}, Classify: classify.Refusals}
		assert.ErrorIs(t, Do(t.Context(), rule, nil, d.busy), errBusy)
		assert.Len(t, d.at, 3)
	})
}

func TestDoAfterTheContext(t *testing.T) {
	reason := errors.New("shutting down")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(reason)
	d := newDiary()
	err := Do(ctx, policy.Rule{}, nil, d.busy)
	assert.Empty(t, d.at)
	assert.ErrorIs(t, err, context.Canceled)
	assert.ErrorIs(t, err, reason)
	assert.EqualError(t, err, "retry: gave up before the first attempt: the context ended: shutting down")

	late, cancelLate := context.WithTimeout(t.Context(), -1)
	defer cancelLate()
	assert.True(t, os.IsTimeout(Do(late, policy.Rule{}, nil, d.busy)))
	assert.Empty(t, d.at)
}

func TestDoContextEndsDuringAnAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), sec)
		defer cancel()
		query := func(failed error) error {
			return Do(ctx, policy.Rule{}, func(error) bool { return true }, func(ctx context.Context) error {
				<-ctx.Done()
				return failed
			})
		}
		own := fmt.Errorf("query: %w", context.DeadlineExceeded)
		assert.Equal(t, own, query(own), "the caller's own deadline, and f says so")

		ctx, cancel = context.WithTimeout(t.Context(), sec)
		defer cancel()
		err := query(net.ErrClosed)
		assert.ErrorIs(t, err, net.ErrClosed)
		assert.ErrorIs(t, err, context.DeadlineExceeded, "f has not said so")
		assert.True(t, os.IsTimeout(err))
	})
}

// A cancellation inside f that is not the caller's is an error like any other.
func TestDoRetriesACancellationThatIsNotTheCallers(t *testing.T) {
	calls := 0
	err := Do(t.Context(), policy.Rule{MaxAttempts: 3, Backoff: backoff.Constant(0)}, nil, func(context.Context) error {
		calls++
		return context.Canceled
	})
	testkit.Count(t, 3, calls, "function called")
	assert.ErrorIs(t, err, context.Canceled)
}

func TestDoAttemptTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rule := policy.Rule{MaxAttempts: 3, Backoff: backoff.Constant(sec), AttemptTimeout: 100 * ms}
		d := newDiary()
		var last context.Context
		var predicate []error
		err := Do(t.Context(), rule, func(err error) bool { predicate = append(predicate, err); return true },
			func(ctx context.Context) error {
				d.note()
				last = ctx
				<-ctx.Done()
				assert.Equal(t, policy.ErrAttemptTimeout, context.Cause(ctx))
				return ctx.Err()
			})
		assert.Equal(t, []time.Duration{0, 1100 * ms, 2200 * ms}, d.at)
		assert.Equal(t, 2300*ms, time.Since(d.start))
		assert.ErrorIs(t, err, policy.ErrAttemptTimeout)
		assert.ErrorIs(t, err, context.DeadlineExceeded)
		assert.True(t, os.IsTimeout(err))
		assert.Equal(t, []error{context.DeadlineExceeded, context.DeadlineExceeded, context.DeadlineExceeded}, predicate)
		assert.NoError(t, t.Context().Err())
		assert.Error(t, last.Err())
	})
}

func TestDoAttemptThatEndsInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rule := policy.Rule{MaxAttempts: 2, Backoff: backoff.Constant(0), AttemptTimeout: sec}
		var last context.Context
		err := Do(t.Context(), rule, nil, func(ctx context.Context) error { last = ctx; return errBusy })
		assert.ErrorIs(t, err, errBusy)
		assert.NotErrorIs(t, err, policy.ErrAttemptTimeout)
		assert.Equal(t, context.Canceled, last.Err(), "its context ends with it")

		rule.AttemptTimeout = -1
		err = Do(t.Context(), rule, nil, func(ctx context.Context) error { last = ctx; return nil })
		assert.NoError(t, err)
		assert.Equal(t, t.Context(), last, "off: the caller's own context")
	})
}

// Inside a longer attempt timeout, the caller's deadline is the caller's.
func TestDoDeadlineWithinAnAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), sec)
		defer cancel()
		calls := 0
		err := Do(ctx, policy.Rule{AttemptTimeout: time.Minute}, nil, func(ctx context.Context) error {
			calls++
			<-ctx.Done()
			return ctx.Err()
		})
		testkit.Count(t, 1, calls, "function called")
		assert.Equal(t, context.DeadlineExceeded, err)
	})
}

func TestDoRefuses(t *testing.T) {
	f := func(context.Context) error { t.Error("called"); return nil }
	assert.EqualError(t, Do(t.Context(), policy.Rule{}, nil, nil), "retry: the function is nil")
	var none context.Context
	assert.EqualError(t, Do(none, policy.Rule{}, nil, f), "retry: the context is nil")

	err := Do(t.Context(), policy.Rule{Backoff: backoff.Exponential{Base: -1}}, nil, f)
	assert.EqualError(t, err, "retry: "+
		"Backoff.Base: -1ns is negative")
	fault, ok := errors.AsType[*policy.FieldError](err)
	assert.True(t, ok && fault.Field == "Backoff.Base")
}

func TestDoLetsPanicsPass(t *testing.T) {
	var attempt context.Context
	assert.PanicsWithValue(t, "broken", func() {
		_ = Do(t.Context(), policy.Rule{AttemptTimeout: time.Hour}, nil, func(ctx context.Context) error {
			attempt = ctx
			panic("broken")
		})
	})
	assert.Error(t, attempt.Err(), "its timer is released")
}

// article returns a rule with the settings of "Exponential Backoff In Go". Its
// MaxElapsedTime is Elapsed, which bounds the start of the last retry.
func article(attempts int, interval time.Duration, multiplier float64, longest, elapsed time.Duration) policy.Rule {
	return policy.Rule{
		MaxAttempts: attempts,
		Backoff: backoff.Randomized{
			InitialInterval: interval, RandomizationFactor: 0.5, Multiplier: multiplier, MaxInterval: longest,
		},
		MaxElapsedTime: elapsed,
	}
}

// The figures that "Exponential Backoff In Go" gives with each setting.
func TestArticlePresets(t *testing.T) {
	for name, test := range map[string]struct {
		rule      policy.Rule
		response  time.Duration
		retries   int           // at most
		longest   time.Duration // in all
		intervals []time.Duration
	}{
		"30 ms": {article(5, 50*ms, 2, 150*ms, 250*ms), 30 * ms, 4, 380 * ms,
			[]time.Duration{50, 100, 150, 150}},
		"100 ms": {article(6, 100*ms, 1.5, 500*ms, sec), 100 * ms, 5, 1500 * ms,
			[]time.Duration{100, 150, 225, 337, 500, 500}},
		"300 ms": {article(10, 100*ms, 2, 3*sec, 10*sec), 300 * ms, 9, 14 * sec,
			[]time.Duration{100, 200, 400, 800, 1600, 3000, 3000}},
	} {
		b := formula.Randomized(test.rule.Backoff.(backoff.Randomized))
		for n, want := range test.intervals {
			assert.Equal(t, want*ms, b.At(n, 0, 0.5).Truncate(ms), name)
		}
		assert.NoError(t, test.rule.Validate(), name)
		for range 50 {
			inBubble(t, func(t *testing.T, d *diary) {
				err := Do(t.Context(), test.rule, nil, func(context.Context) error {
					d.note()
					time.Sleep(test.response)
					return errBusy
				})
				assert.ErrorIs(t, err, errBusy, name)
				assert.GreaterOrEqual(t, len(d.waits()), 1, name)
				assert.LessOrEqual(t, len(d.waits()), test.retries, name)
				assert.LessOrEqual(t, d.at[len(d.at)-1], test.rule.MaxElapsedTime, name)
				assert.LessOrEqual(t, time.Since(d.start), test.longest, name)
			})
		}
	}
}

const (
	ms  = time.Millisecond
	sec = time.Second
)
