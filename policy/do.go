// How are the same limits put around what is not HTTP?

package policy

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"time"
)

// Do calls f until it succeeds, an error is not to be retried, or a limit of the
// rule or of ctx is reached. It is for operations that are not HTTP requests of
// package transport's: connecting to a database, a conditional write, a call of
// an SDK. f may be called several times, so it has to be idempotent, or has to
// fail in a way that shows that nothing was done.
//
// Of the rule, these count, with [Defaults] for the zero ones:
//
//   - Attempts: the number of calls, at most.
//   - Backoff: the waits between them.
//   - Elapsed: the time from the first call to the start of the last.
//   - AttemptTimeout: the time that the context of each call has. It ends when
//     the call returns, at the latest: what depends on it must be used up by
//     then.
//
// All other fields are about HTTP or about the state of hosts; a rule that sets
// one of them is refused with [Errors], which name them all. So is a rule that
// [Rule.Validate] refuses, a nil ctx and a nil f. f is not called then.
//
// An error is retried if retryable returns true for it; a nil retryable takes
// all but one with a GaveUp method that returns true, such as [*GaveUp]: what has been retried already is not retried again by
// each layer above. Never retried, whatever retryable says, are an error marked
// by [Permanent], and the caller's own cancellation or deadline: an error for
// which errors.Is(err, ctx.Err()) holds. The timeout of an attempt is none of
// these.
//
// Do returns
//
//   - nil when f does;
//   - f's error as it is when it is not to be retried, or when the rule turns
//     retries off; a mark by Permanent is taken off;
//   - otherwise a *GaveUp around f's last error, which says which limit kept it
//     from going on.
//
// Do never waits in vain: it gives up at once when the wait would end past
// Elapsed or not before ctx's deadline. A wait ends at once when ctx does. f runs
// on the caller's goroutine, and a panic in it is the caller's.
func Do(ctx context.Context, rule Rule, retryable func(error) bool, f func(context.Context) error) error {
	var call func(context.Context) (struct{}, error)
	if f != nil {
		call = func(ctx context.Context) (struct{}, error) { return struct{}{}, f(ctx) }
	}
	_, err := DoValue(ctx, rule, retryable, call)
	return err
}

// DoValue is [Do] for a function that also returns a value. Its value is that of
// the last call, also beside an error; those of earlier calls are dropped, so f
// has to release what it returns together with an error.
func DoValue[T any](ctx context.Context, rule Rule, retryable func(error) bool, f func(context.Context) (T, error)) (T, error) {
	var value T
	if f == nil {
		return value, errors.New("policy: Do: the function is nil")
	}
	run, err := newRun(ctx, rule, retryable)
	for err == nil {
		var failed error
		var timedOut bool
		if value, timedOut, failed = call(ctx, run.rule.AttemptTimeout, f); failed == nil {
			break
		}
		err = run.next(failed, timedOut)
	}
	return value, err
}

// call calls f once, and says whether its time ran out.
func call[T any](ctx context.Context, limit time.Duration, f func(context.Context) (T, error)) (T, bool, error) {
	if limit > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, limit, ErrAttemptTimeout)
		defer cancel()
	}
	value, err := f(ctx)
	return value, context.Cause(ctx) == ErrAttemptTimeout, err
}

// ErrAttemptTimeout is the context.Cause of the context that [Do] gives to f once
// AttemptTimeout has passed; the context's error is context.DeadlineExceeded. It
// tells the attempt's end from the caller's. A [*GaveUp] whose last attempt ended
// so matches it, too.
var ErrAttemptTimeout = fmt.Errorf("policy: attempt timeout: %w", context.DeadlineExceeded)

// A run is one call of Do. One goroutine uses it.
type run struct {
	ctx       context.Context
	rule      Rule
	retryable func(error) bool
	start     time.Time
	attempts  int           // made
	prev      time.Duration // the last wait
}

func newRun(ctx context.Context, rule Rule, retryable func(error) bool) (*run, error) {
	if ctx == nil {
		return nil, errors.New("policy: Do: the context is nil")
	}
	rule, err := forDo(rule)
	if err != nil {
		return nil, err
	}
	if retryable == nil {
		retryable = firstHand
	}
	r := &run{ctx: ctx, rule: rule, retryable: retryable, start: time.Now()}
	if ctx.Err() != nil {
		return nil, r.gaveUp(contextEnded, nil, false)
	}
	return r, nil
}

// next returns nil when it is time for another attempt; otherwise what Do
// returns.
func (r *run) next(failed error, timedOut bool) error {
	r.attempts++
	permanent, marked := errors.AsType[*permanentError](failed)
	switch {
	case marked && error(permanent) == failed:
		return permanent.err
	case marked: // inside other errors, which the caller gets whole
		return failed
	case r.ctx.Err() != nil && errors.Is(failed, r.ctx.Err()):
		return failed // the caller's own doing, and failed says so
	case r.rule.Attempts <= 1, !r.retryable(failed):
		return failed
	}
	reason := r.wait()
	if reason == "" {
		return nil
	}
	return r.gaveUp(reason, failed, timedOut)
}

// The reasons that gaveUp knows.
const (
	overDeadline = "the wait would not end before the context's deadline"
	contextEnded = "the context ended"
)

// wait waits for the next attempt. It returns "" when it is due, or the reason
// why there is none.
func (r *run) wait() string {
	if r.attempts >= r.rule.Attempts {
		return "no attempts left"
	}
	wait := r.rule.Backoff.Delay(r.attempts-1, r.prev)
	deadline, bounded := r.ctx.Deadline()
	switch {
	case r.ctx.Err() != nil:
		return contextEnded
	case wait < 0:
		return "the back-off stopped"
	case r.rule.MaxElapsed > 0 && wait > r.rule.MaxElapsed-time.Since(r.start):
		return fmt.Sprintf("the wait would end past MaxElapsed (%v)", r.rule.MaxElapsed)
	case bounded && wait >= time.Until(deadline):
		return overDeadline
	case sleep(r.ctx, wait) != nil:
		return contextEnded
	}
	r.prev = wait
	return ""
}

// sleep waits, and returns the context's error as soon as there is one: also
// when the wait is over at the same moment, so that no attempt is made then.
func sleep(ctx context.Context, wait time.Duration) error {
	if wait > 0 {
		timer := time.NewTimer(wait)
		defer timer.Stop()
		select {
		case <-ctx.Done():
		case <-timer.C:
		}
	}
	return ctx.Err()
}

func (r *run) gaveUp(reason string, last error, timedOut bool) error {
	g := &LimitError{Attempts: r.attempts, Reason: reason, Last: last}
	switch {
	case r.ctx.Err() != nil:
		g.ended, g.cause = r.ctx.Err(), context.Cause(r.ctx)
	case reason == overDeadline:
		g.ended = context.DeadlineExceeded
	}
	if timedOut {
		g.timeout = ErrAttemptTimeout
	}
	return g
}

// forDo returns the rule with its defaults, or what is wrong with it. Which
// fields are allowed is what is listed, so that one that is new in Rule is
// refused until somebody has thought of Do.
func forDo(rule Rule) (Rule, error) {
	var bad Errors
	for fields, i := reflect.ValueOf(&rule).Elem(), 0; i < fields.NumField(); i++ {
		switch name := fields.Type().Field(i).Name; name {
		case "Attempts", "Backoff", "MaxElapsed", "AttemptTimeout":
		default:
			if !fields.Field(i).IsZero() {
				bad.add(name, nil, "is for requests to HTTP hosts; Do knows Attempts, Backoff, MaxElapsed and AttemptTimeout")
				fields.Field(i).SetZero() // one fault is enough for it
			}
		}
	}
	rule = rule.Or(Defaults())
	if err := rule.Validate(); err != nil {
		own, _ := errors.AsType[Errors](err)
		bad = append(bad, own...)
	}
	if bad != nil {
		return rule, fmt.Errorf("policy: Do: %w", bad)
	}
	return rule, nil
}

// firstHand is the default for retryable.
func firstHand(err error) bool {
	e, ok := errors.AsType[interface {
		error
		GaveUp() bool
	}](err)
	return !ok || !e.GaveUp()
}

// Permanent marks err as not to be retried by [Do] and [DoValue], which take the
// mark off when f returns it as it is. errors.Is and errors.As see through it,
// and it has err's text. Permanent(nil) is nil.
func Permanent(err error) error {
	if err == nil {
		return nil
	}
	return &permanentError{err}
}

type permanentError struct{ err error }

func (p *permanentError) Error() string { return p.err.Error() }
func (p *permanentError) Unwrap() error { return p.err }

// GaveUp is the error of [Do] and [DoValue] when an error would have been
// retried but for a limit.
type LimitError struct {
	// Attempts is how often f was called. It is 0 when ctx had ended before.
	Attempts int
	// Reason says in words which limit it was.
	Reason string
	// Last is f's last error; nil when f was not called.
	Last error

	ended   error // the context's error, or DeadlineExceeded ahead of time
	cause   error // the context's cause
	timeout error // ErrAttemptTimeout when that ended the last attempt
}

// Error returns the number of attempts, the reason and the last error.
func (g *LimitError) Error() string {
	why := g.Reason
	for _, err := range []error{g.cause, g.Last} {
		if err != nil {
			why += ": " + err.Error()
		}
	}
	if g.Attempts == 0 {
		return "policy: gave up before the first attempt: " + why
	}
	return fmt.Sprintf("policy: gave up after attempt %d: %s", g.Attempts, why)
}

// Unwrap returns the last error. When the limit was ctx, its error and its
// context.Cause come with it; when the wait would not have ended before ctx's
// deadline, context.DeadlineExceeded; when the last attempt's time ran out,
// [ErrAttemptTimeout].
func (g *LimitError) Unwrap() []error {
	return slices.DeleteFunc([]error{g.Last, g.ended, g.cause, g.timeout}, func(err error) bool { return err == nil })
}

// GaveUp returns true. Package transport's errors have the same method: whoever
// sees it true leaves the error alone, so that retries are not multiplied.
func (*LimitError) GaveUp() bool { return true }

// Timeout reports whether it was ctx's deadline that left no time; where ctx was
// not the limit, whether the last error is a timeout. It makes a GaveUp what
// os.IsTimeout and net.Error mean by one.
func (g *LimitError) Timeout() bool {
	timeout, ok := errors.AsType[interface {
		error
		Timeout() bool
	}](cmp.Or(g.ended, g.Last))
	return ok && timeout.Timeout()
}
