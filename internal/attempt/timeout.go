// The timeouts of attempts, and the errors of those that took too long.

package attempt

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/aplomb-go/aplomb/policy"
)

// Timeouts are the timeouts of a rule. If one is not positive, it is off.
type Timeouts struct {
	After   time.Duration // the shorter of attempt and quiet
	Connect time.Duration // until the attempt has a connection

	attempt time.Duration // for the headers, from the start of an attempt or from the end of a body that takes time to send
	quiet   time.Duration // without progress
	idle    time.Duration // without a further piece of the request's body, if there is no quiet
	event   time.Duration // from the headers of an event stream to its first event
}

// TimeoutsOf returns the timeouts of a rule.
func TimeoutsOf(r *policy.Rule) Timeouts {
	t := Timeouts{
		After:   r.AttemptTimeout,
		Connect: r.ConnectTimeout,
		attempt: r.AttemptTimeout,
		quiet:   r.StallTimeout,
		event:   r.FirstEventTimeout,
	}
	if t.quiet > 0 && (t.After <= 0 || t.quiet < t.After) {
		t.After = t.quiet
	}
	return t
}

// BoundUpload bounds the time in which the server takes nothing of the request's body, for attempts
// after the first. attempt is the AttemptTimeout of the rule. A StallTimeout takes its place.
func (t *Timeouts) BoundUpload(attempt time.Duration) {
	switch {
	case t.quiet > 0:
	case attempt > 0:
		t.idle = max(attempt, 10*time.Second)
	default:
		t.idle = 30 * time.Second
	}
}

// On reports whether attempts are timed, so that they need a context of their own.
func (t *Timeouts) On() bool { return t.After > 0 || t.Connect > 0 || t.event > 0 }

var (
	ErrOutrun      = errors.New("transport: another attempt of the request got a response first")
	errUnconnected = errors.New("transport: no connection in time") // is in the error of Rule.ConnectTimeout

	// ErrRequestCanceled is the cause of the end of a context that Request.Cancel ended. Its
	// text is that of net/http.
	ErrRequestCanceled = errors.New("net/http: request canceled")
)

// A TimeoutError says that something took too long. errors.Is also sees
// context.DeadlineExceeded in it.
type TimeoutError struct {
	Text  string
	Same  error     // that errors.Is sees in it as well; nil: none
	Until time.Time // until when a Transport below would have waited as the server had asked; zero: none did
}

// tooLong returns the error of a time that was over.
func tooLong(format string, after time.Duration, same error) *TimeoutError {
	return &TimeoutError{Text: fmt.Sprintf(format, after), Same: same}
}

func (e *TimeoutError) Error() string { return e.Text }
func (*TimeoutError) Timeout() bool   { return true }
func (*TimeoutError) Temporary() bool { return true }
func (e *TimeoutError) Is(target error) bool {
	return target == e.Same || target == context.DeadlineExceeded
}

// A ContextError says that the caller's context ended during a wait. errors.Is and
// errors.As see both the error of the context and its cause.
type ContextError struct {
	Err, Cause error
}

// ContextErr returns the error of a context that has ended. If Request.Cancel ended it, the
// caller knows of no context.
func ContextErr(ctx context.Context) error {
	err, cause := ctx.Err(), context.Cause(ctx)
	switch cause {
	case nil, err:
		return err
	case ErrRequestCanceled:
		return cause
	}
	return &ContextError{err, cause}
}

func (e *ContextError) Error() string   { return e.Err.Error() + ": " + e.Cause.Error() }
func (e *ContextError) Unwrap() []error { return []error{e.Err, e.Cause} }
func (e *ContextError) Timeout() bool   { return errors.Is(e.Err, context.DeadlineExceeded) }
