// The timeouts of attempts, and the errors of those that took too long.

package attempt

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/aplomb-go/aplomb/policy"
)

// Timeouts are the timeouts of a rule, with their errors. They are made once for a rule.
type Timeouts struct {
	After time.Duration // the shorter of attempt and quiet

	attempt time.Duration // for the headers, from the start of an attempt or from the end of a body that takes time to send; not positive: off
	late    error         // if that takes longer

	quiet  time.Duration // without progress; not positive: off
	silent error         // if that takes longer

	idle  time.Duration // without a further piece of the request's body, if there is no quiet; 0: off
	stuck error         // if that takes longer

	Connect     time.Duration // until the attempt has a connection; not positive: off
	unconnected error         // if that takes longer

	event     time.Duration // from the headers of an event stream to its first event; not positive: off
	eventless error         // if that takes longer
}

// TimeoutsOf returns the timeouts of a rule.
func TimeoutsOf(r *policy.Rule) Timeouts {
	t := Timeouts{
		After: r.AttemptTimeout,

		attempt: r.AttemptTimeout,
		late:    &TimeoutError{"transport: no response within the attempt's %v", r.AttemptTimeout, policy.ErrAttemptTimeout},

		quiet:  r.StallTimeout,
		silent: &TimeoutError{"transport: no progress for %v", r.StallTimeout, policy.ErrStallTimeout},

		Connect:     r.ConnectTimeout,
		unconnected: &net.OpError{Op: "dial", Net: "tcp", Err: &TimeoutError{"no connection within %v", r.ConnectTimeout, errUnconnected}},

		event:     r.FirstEventTimeout,
		eventless: &TimeoutError{"transport: no event within %v after the headers", r.FirstEventTimeout, policy.ErrAttemptTimeout},
	}
	if t.quiet > 0 && (t.After <= 0 || t.quiet < t.After) {
		t.After = t.quiet
	}
	return t
}

// BoundUpload bounds the time in which the server takes nothing of the request's body, for attempts
// after the first. attempt is the AttemptTimeout of the rule. A StallTimeout takes its place.
func (t *Timeouts) BoundUpload(attempt time.Duration) {
	if t.quiet > 0 {
		return
	}
	if t.idle = 30 * time.Second; attempt > 0 {
		t.idle = max(attempt, 10*time.Second)
	}
	t.stuck = &TimeoutError{"transport: nothing of the request's body was taken for %v", t.idle, policy.ErrAttemptTimeout}
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
	Text  string        // has %v in the place of after, if that is not 0
	after time.Duration // the time that was over
	Same  error         // that errors.Is sees in it as well; nil: none
}

func (e *TimeoutError) Error() string {
	if e.after == 0 {
		return e.Text
	}
	return fmt.Sprintf(e.Text, e.after)
}
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

// A HeldBelow is the error of an attempt that our timer ended while a Transport below
// waited as long as the server had asked. It hides the error of that Transport, which
// says that its context ended.
type HeldBelow struct {
	Late  error
	Until time.Time // the end of the server's wait
}

func (e *HeldBelow) Error() string   { return e.Late.Error() }
func (e *HeldBelow) Unwrap() error   { return e.Late }
func (e *HeldBelow) Timeout() bool   { return true }
func (e *HeldBelow) Temporary() bool { return true }
