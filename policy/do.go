// Retries for functions that do not send HTTP requests.

package policy

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

// Do calls f until f succeeds, its error is not to be retried, or a limit of the
// rule or of ctx is reached. Use it for operations that package transport does not
// see, such as connecting to a database or calling an SDK. Do may call f several
// times. So f has to be idempotent, or its error has to show that nothing was done.
//
// Do uses these fields of the rule. If one is zero, [Defaults] applies.
//
//   - MaxAttempts is the highest number of calls.
//   - Backoff computes the waits between the calls.
//   - MaxElapsedTime bounds the time from the first call to the start of the last.
//   - AttemptTimeout bounds the context of each call. That context ends when the
//     call returns, so do not use it after that.
//
// All other fields are about HTTP or about the state of hosts, and are ignored. If [Rule.Validate]
// finds a fault, Do returns it and does not call f. A nil ctx and a nil f are errors as well.
//
// An error is retried if retryable returns true for it. A nil retryable retries
// all errors except those with a method GaveUp that returns true, such as
// [*LimitError]. Such an error was retried already, and retries must not be
// multiplied by each layer above. Two kinds of errors are never retried, whatever
// retryable says. One is an error that [Permanent] marked. The other is the end of
// the caller's context, which is an error for which errors.Is(err, ctx.Err())
// holds. The timeout of an attempt is neither.
//
// Do returns
//
//   - nil if f does;
//   - f's error as it is, but without the mark of Permanent, if the error is not to
//     be retried or the rule turns retries off;
//   - otherwise a [*LimitError] around f's last error. It says which limit stopped
//     the retries.
//
// Do never waits in vain. If the next call would start after MaxElapsedTime or after
// the deadline of ctx, Do gives up at once. A wait ends as soon as ctx does. f runs
// on the caller's goroutine, and Do does not recover its panics.
func Do(ctx context.Context, rule Rule, retryable func(error) bool, f func(context.Context) error) error {
	var call func(context.Context) (struct{}, error)
	if f != nil {
		call = func(ctx context.Context) (struct{}, error) { return struct{}{}, f(ctx) }
	}
	_, err := DoValue(ctx, rule, retryable, call)
	return err
}

// DoValue is [Do] for a function that also returns a value. DoValue returns the
// value of the last call, even together with an error. The values of earlier calls
// are dropped. So if f returns a value together with an error, f has to release it.
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

// call calls f once and reports whether the attempt's time ran out.
func call[T any](ctx context.Context, limit time.Duration, f func(context.Context) (T, error)) (T, bool, error) {
	if limit > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, limit, ErrAttemptTimeout)
		defer cancel()
	}
	value, err := f(ctx)
	return value, context.Cause(ctx) == ErrAttemptTimeout, err
}

// ErrAttemptTimeout is in the error of an attempt that [Rule].AttemptTimeout ended, of a
// Transport and of [Do]. errors.Is(err, context.DeadlineExceeded) and Timeout() hold, as for
// the timeouts of net/http. It is also the context.Cause of the attempt. With it the function
// that Do calls can tell the end of the attempt from the end of the caller's context, because
// context.Err is DeadlineExceeded for both.
var ErrAttemptTimeout = fmt.Errorf("policy: attempt timeout: %w", context.DeadlineExceeded)

// ErrStallTimeout is in the error of an attempt or of a response's body that made no progress for
// [Rule].StallTimeout. errors.Is(err, context.DeadlineExceeded) and Timeout() hold, as for the
// timeouts of net/http.
var ErrStallTimeout = fmt.Errorf("policy: stall timeout: %w", context.DeadlineExceeded)

// A run is one call of Do. One goroutine uses it.
type run struct {
	ctx       context.Context
	rule      Rule
	retryable func(error) bool
	start     time.Time
	attempts  int           // calls of f so far
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

// next waits for the next attempt and returns nil when the attempt may start.
// Otherwise next returns the error of Do.
func (r *run) next(failed error, timedOut bool) error {
	r.attempts++
	permanent, marked := errors.AsType[*permanentError](failed)
	switch {
	case marked && error(permanent) == failed:
		return permanent.err
	case marked: // within another error, which the caller gets as it is
		return failed
	case r.ctx.Err() != nil && errors.Is(failed, r.ctx.Err()):
		return failed // the caller ended the context, and failed says so
	case r.rule.MaxAttempts <= 1, !r.retryable(failed):
		return failed
	}
	reason := r.wait()
	if reason == "" {
		return nil
	}
	return r.gaveUp(reason, failed, timedOut)
}

// Reasons that gaveUp treats in a special way.
const (
	overDeadline = "the wait would not end before the context's deadline"
	contextEnded = "the context ended"
)

// wait waits for the next attempt. It returns "" when the wait is over, or the
// reason why there is no further attempt.
func (r *run) wait() string {
	if r.attempts >= r.rule.MaxAttempts {
		return "no attempts left"
	}
	wait := r.rule.Backoff.Delay(r.attempts-1, r.prev)
	deadline, bounded := r.ctx.Deadline()
	switch {
	case r.ctx.Err() != nil:
		return contextEnded
	case wait < 0:
		return "the back-off stopped"
	case r.rule.MaxElapsedTime > 0 && wait > r.rule.MaxElapsedTime-time.Since(r.start):
		return fmt.Sprintf("the wait would end past MaxElapsedTime (%v)", r.rule.MaxElapsedTime)
	case bounded && wait >= time.Until(deadline):
		return overDeadline
	case sleep(r.ctx, wait) != nil:
		return contextEnded
	}
	r.prev = wait
	return ""
}

// sleep waits until the time has passed or ctx has ended. It returns ctx's error
// even if both happen at the same moment, so that no attempt follows.
func sleep(ctx context.Context, wait time.Duration) error {
	select {
	case <-ctx.Done():
	case <-time.After(wait):
	}
	return ctx.Err()
}

func (r *run) gaveUp(reason string, last error, timedOut bool) error {
	g := &LimitError{Attempts: r.attempts, reason: reason, Err: last}
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

// forDo returns what Do knows of the rule, with its defaults, or its faults.
func forDo(rule Rule) (Rule, error) {
	rule = Rule{MaxAttempts: rule.MaxAttempts, Backoff: rule.Backoff, MaxElapsedTime: rule.MaxElapsedTime, AttemptTimeout: rule.AttemptTimeout}.Or(Defaults())
	if err := rule.Validate(); err != nil {
		return rule, fmt.Errorf("policy: Do: %w", err)
	}
	return rule, nil
}

// firstHand is the default for retryable. It reports whether no layer below has
// given up on retries of err.
func firstHand(err error) bool {
	e, ok := errors.AsType[interface {
		error
		GaveUp() bool
	}](err)
	return !ok || !e.GaveUp()
}

// Permanent marks err, so that [Do] and [DoValue] do not retry it. If f returns the
// marked error as it is, Do removes the mark. errors.Is and errors.As see err
// through the mark, and the text is the same. Permanent(nil) is nil.
func Permanent(err error) error {
	if err == nil {
		return nil
	}
	return &permanentError{err}
}

type permanentError struct{ err error }

func (p *permanentError) Error() string { return p.err.Error() }
func (p *permanentError) Unwrap() error { return p.err }

// A LimitError is the error of [Do] and [DoValue] if a limit stopped the retries of
// an error.
type LimitError struct {
	// Attempts is the number of calls of f. It is 0 if ctx had ended before the
	// first call.
	Attempts int
	// Err is f's last error. It is nil if f was not called.
	Err error

	reason  string // names the limit in words
	ended   error  // ctx's error; DeadlineExceeded if the wait would pass the deadline
	cause   error  // ctx's cause
	timeout error  // ErrAttemptTimeout if that ended the last attempt
}

// Error returns the number of attempts, the reason and the last error.
func (g *LimitError) Error() string {
	why := g.reason
	for _, err := range []error{g.cause, g.Err} {
		if err != nil {
			why += ": " + err.Error()
		}
	}
	if g.Attempts == 0 {
		return "policy: gave up before the first attempt: " + why
	}
	return fmt.Sprintf("policy: gave up after attempt %d: %s", g.Attempts, why)
}

// Unwrap returns the last error and the error of the limit. If ctx has ended, that
// is the error of ctx and its context.Cause. If the wait would have passed the
// deadline of ctx, that is context.DeadlineExceeded. If the last attempt ran out of
// time, [ErrAttemptTimeout] is in the list, too.
func (g *LimitError) Unwrap() []error {
	return slices.DeleteFunc([]error{g.Err, g.ended, g.cause, g.timeout}, func(err error) bool { return err == nil })
}

// GaveUp returns true. The errors of package transport have the same method. A
// layer that retries leaves such an error alone, so that retries are not
// multiplied.
func (*LimitError) GaveUp() bool { return true }

// Timeout reports whether the deadline of ctx was the limit. If ctx was not the
// limit, Timeout reports whether the last error is a timeout. os.IsTimeout and
// net.Error use this method.
func (g *LimitError) Timeout() bool {
	timeout, ok := errors.AsType[interface {
		error
		Timeout() bool
	}](cmp.Or(g.ended, g.Err))
	return ok && timeout.Timeout()
}
