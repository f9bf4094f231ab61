// Do and DoValue, and the loop that both are.

package retry

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/aplomb-go/aplomb/internal/host/instant"
	"github.com/aplomb-go/aplomb/internal/trait"
	"github.com/aplomb-go/aplomb/policy"
)

// Do calls f until f succeeds, its error is not to be retried, or a limit of the
// rule or of ctx is reached. If [policy.Rule.Validate] finds a fault in what Do uses of the
// rule, Do returns it and does not call f. A nil ctx and a nil f are errors as well.
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
func Do(ctx context.Context, rule policy.Rule, retryable func(error) bool, f func(context.Context) error) error {
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
func DoValue[T any](ctx context.Context, rule policy.Rule, retryable func(error) bool, f func(context.Context) (T, error)) (T, error) {
	var value T
	if f == nil {
		return value, errors.New("retry: the function is nil")
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
		ctx, cancel = context.WithTimeoutCause(ctx, limit, policy.ErrAttemptTimeout)
		defer cancel()
	}
	value, err := f(ctx)
	return value, context.Cause(ctx) == policy.ErrAttemptTimeout, err
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

// A run is one call of Do. One goroutine uses it.
type run struct {
	ctx       context.Context
	rule      policy.Rule
	retryable func(error) bool
	start     time.Time
	attempts  int           // calls of f so far
	prev      time.Duration // the last wait
}

func newRun(ctx context.Context, rule policy.Rule, retryable func(error) bool) (*run, error) {
	if ctx == nil {
		return nil, errors.New("retry: the context is nil")
	}
	rule = policy.Rule{MaxAttempts: rule.MaxAttempts, Backoff: rule.Backoff, MaxElapsedTime: rule.MaxElapsedTime, AttemptTimeout: rule.AttemptTimeout}.Or(policy.Defaults())
	if err := rule.Validate(); err != nil {
		return nil, fmt.Errorf("retry: %w", err)
	}
	if retryable == nil {
		retryable = func(err error) bool { return !trait.GaveUp(err) }
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

// wait waits for the next attempt. It returns "" when the wait is over, or the
// reason why there is no further attempt. If the wait and the context end at the same
// moment, no attempt follows.
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
	}
	if instant.Sleep(r.ctx, wait, nil); r.ctx.Err() != nil {
		return contextEnded
	}
	r.prev = wait
	return ""
}
