// The errors of an attempt that took too long.

package transport

import (
	"context"
	"errors"
	"fmt"
	"time"
)

var (
	errOutrun      = errors.New("transport: another attempt of the request got a response first")
	errUnconnected = errors.New("transport: no connection in time") // is in the error of Rule.ConnectTimeout

	errStalled error = &timeoutError{Text: "transport: no progress"}
)

// A timeoutError says that something took too long. errors.Is also sees
// context.DeadlineExceeded in it.
type timeoutError struct {
	Text  string        // has %v in the place of after, if that is not 0
	after time.Duration // the time that was over
	Same  error         // what errors.Is sees in it as well; nil: nothing
}

func (e *timeoutError) Error() string {
	if e.after == 0 {
		return e.Text
	}
	return fmt.Sprintf(e.Text, e.after)
}
func (*timeoutError) Timeout() bool   { return true }
func (*timeoutError) Temporary() bool { return true }
func (e *timeoutError) Is(target error) bool {
	return target == e.Same || target == context.DeadlineExceeded
}

// A contextError says that the caller's context ended during a wait. errors.Is and
// errors.As see both the error of the context and its cause.
type contextError struct {
	Err, Cause error
}

// contextErr returns the error of a context that has ended.
func contextErr(ctx context.Context) error {
	err, cause := ctx.Err(), context.Cause(ctx)
	if cause == nil || cause == err {
		return err
	}
	return &contextError{err, cause}
}

func (e *contextError) Error() string   { return e.Err.Error() + ": " + e.Cause.Error() }
func (e *contextError) Unwrap() []error { return []error{e.Err, e.Cause} }
func (e *contextError) Timeout() bool   { return errors.Is(e.Err, context.DeadlineExceeded) }
