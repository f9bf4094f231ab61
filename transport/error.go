// What the caller gets when the outcome is an error, and why.

package transport

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/aplomb-go/aplomb/policy"
)

var (
	// ErrOverDeadline is in the error of a request that was refused because its
	// turn under a limit of the host would come after the deadline of its
	// context. errors.Is(err, context.DeadlineExceeded) and
	// Timeout() hold, too, although the deadline has not passed yet.
	ErrOverDeadline error = &overDeadline{}

	// ErrCooldown is in the error of a request that was refused because the
	// host asked for a wait longer than Rule.MaxRetryAfter; Error.Until is the
	// time that it named. Requests are refused for MaxRetryAfter, and may be sent
	// again then.
	ErrCooldown = errors.New("transport: the host asked for no requests until later")

	// ErrGateFull is in the error of a request that was refused because the
	// host's gate was full and its mode is policy.GateRefuse.
	ErrGateFull = errors.New("transport: too many requests in flight to the host")

	// ErrAttemptTimeout is in the error of an attempt that Rule.AttemptTimeout
	// ended. errors.Is(err, context.DeadlineExceeded) and Timeout() hold, as
	// for the timeouts of net/http. It is the same value as in package policy.
	ErrAttemptTimeout = policy.ErrAttemptTimeout

	errNotMade         = errors.New("transport: a zero Transport; make one with New or Default")
	errRequestCanceled = errors.New("transport: request canceled")
	errOverElapsed     = errors.New("transport: its turn would come later than the rule allows")
	errOutrun          = errors.New("transport: another send of the request was answered first")
)

// A bodyError says why a request's body kept the request from being sent again.
// The error of the last attempt, if there is one, comes first for errors.Is and
// errors.As.
type bodyError struct {
	last   error // the attempt's own; nil after an answer
	why    error
	status int // of an answer that was given up for the retry; 0 elsewhere
}

func (e *bodyError) Error() string {
	var b strings.Builder
	b.WriteString("transport: the request's body cannot be sent again: ")
	b.WriteString(strings.TrimPrefix(safeText(e.why), "transport: "))
	switch {
	case e.last != nil:
		b.WriteString("; the attempt failed: " + safeText(e.last))
	case e.status != 0:
		fmt.Fprintf(&b, "; the last answer had status %d", e.status)
	}
	return b.String()
}

func (e *bodyError) Unwrap() []error {
	if e.last == nil {
		return []error{e.why}
	}
	return []error{e.last, e.why}
}

type overDeadline struct{}

func (*overDeadline) Error() string        { return "transport: its turn would come after the deadline" }
func (*overDeadline) Timeout() bool        { return true }
func (*overDeadline) Temporary() bool      { return true }
func (*overDeadline) Is(target error) bool { return target == context.DeadlineExceeded }

type attemptTimeout struct{ after time.Duration }

func (e *attemptTimeout) Error() string {
	return "transport: no answer within the attempt's " + e.after.String()
}
func (*attemptTimeout) Timeout() bool   { return true }
func (*attemptTimeout) Temporary() bool { return true }
func (*attemptTimeout) Is(target error) bool {
	return target == ErrAttemptTimeout || target == context.DeadlineExceeded
}

// An Error is what a Transport returns where it has more to say than the base
// transport: after several sends, when a limit withheld a retry, and for a
// request that it refused to send. errors.Is and errors.As see the last error
// through it, and Timeout answers as that error does. The error of a single
// send that no limit kept from a retry is returned as it is.
//
// When http.Client.Timeout fires, net/http puts a text of its own in the place
// of this error; the history is then to be had from a [Trace] only. http.Client
// puts any error into a *url.Error, with the whole URL: log this one, by
// errors.As, where queries are secret.
type Error struct {
	// Reason says why there was no further attempt.
	Reason Reason
	// Attempts are the sends, oldest first; empty where the request was
	// refused without being sent.
	Attempts []Attempt
	// Until is when a new request makes sense, the zero Time where that is
	// not known.
	Until time.Time
	// Err is the last send's error, or what refused the request.
	Err error

	request string // method and URL, without secrets
	url     string // the URL with its secrets, which Error looks for in other texts
	ended   error  // how the caller's context had ended; nil: it had not
}

// Error names the request, the number of sends, the last answer's status, the
// reason and the last error. It hides what may be a secret in the URL of the
// request and in all other URLs that it finds in the texts of the errors:
// userinfo, query values and fragments. Other secrets that a base transport
// writes into its errors stay as they are.
func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString("transport: ")
	if e.request != "" {
		b.WriteString(e.request)
		b.WriteString(": ")
	}
	switch n := len(e.Attempts); n {
	case 0:
		b.WriteString("not sent")
	case 1:
		b.WriteString("gave up after 1 attempt")
	default:
		fmt.Fprintf(&b, "gave up after %d attempts", n)
	}
	b.WriteString(e.lastOutcome())
	b.WriteString(e.reasonText())
	if !e.Until.IsZero() {
		b.WriteString(", try again at " + e.Until.UTC().Format(time.RFC3339))
	}
	if e.Err != nil {
		b.WriteString(": ")
		b.WriteString(e.safe(e.Err))
	}
	return b.String()
}

// safe returns the text of an error for the text of e.
func (e *Error) safe(err error) string {
	return strings.TrimPrefix(safeText(err, e.url), "transport: ")
}

// lastOutcome names the status of the last answer, or the error of the last
// attempt if there was no answer and Err is another error.
func (e *Error) lastOutcome() string {
	for _, a := range slices.Backward(e.Attempts) {
		if a.Status != 0 {
			return ", last status " + strconv.Itoa(a.Status)
		}
	}
	if n := len(e.Attempts); n > 0 && e.Attempts[n-1].Err != nil && !e.isLast() {
		return ", last error " + e.safe(e.Attempts[n-1].Err)
	}
	return ""
}

// isLast reports whether Err is the outcome of the last attempt. Otherwise Err
// says itself why there was no further one.
func (e *Error) isLast() bool {
	n := len(e.Attempts)
	return n > 0 && e.Err != nil && e.Attempts[n-1].Err != nil && errors.Is(e.Err, e.Attempts[n-1].Err)
}

// reasonText names the reason, unless the number of attempts or Err names it.
func (e *Error) reasonText() string {
	switch {
	case e.Reason == ReasonAttempts, e.Reason == ReasonFinal:
		return ""
	case e.Reason == ReasonCanceled:
		return e.endText()
	case e.Err != nil && !e.isLast():
		return ""
	}
	return " (" + strings.ReplaceAll(e.Reason.String(), "_", " ") + ")"
}

// endText says how the caller's context ended, unless Err says so.
func (e *Error) endText() string {
	switch {
	case len(e.Attempts) == 0:
		return " while it waited for its turn"
	case errors.Is(e.Err, context.Canceled), errors.Is(e.Err, errRequestCanceled):
		return ""
	case errors.Is(e.Err, context.DeadlineExceeded) && !errors.Is(e.ended, context.Canceled):
		return ""
	case errors.Is(e.ended, context.DeadlineExceeded):
		return " (deadline exceeded)"
	}
	return " (canceled)"
}

// Unwrap returns Err.
func (e *Error) Unwrap() error { return e.Err }

// Timeout reports whether Err is a timeout.
func (e *Error) Timeout() bool { return isTimeout(e.Err) }

// GaveUp reports whether a limit withheld a retry that was otherwise due. Who
// sends requests through this package and retries around it, policy.Do among
// them, leaves such an error alone: retries are not multiplied.
func (e *Error) GaveUp() bool { return e.Reason.limit() || e.Reason == ReasonNested }

// Temporary reports what Err says of itself. It is there for callers that ask
// net.Error.
func (e *Error) Temporary() bool {
	var t interface{ Temporary() bool }
	return errors.As(e.Err, &t) && t.Temporary()
}

// contextError is the end of the caller's context during a wait: both the
// context's error and its cause are to be found in it.
type contextError struct {
	err, cause error
}

// contextErr returns the error of a context that has ended.
func contextErr(ctx context.Context) error {
	err, cause := ctx.Err(), context.Cause(ctx)
	if cause == nil || cause == err {
		return err
	}
	return &contextError{err, cause}
}

func (e *contextError) Error() string   { return e.err.Error() + ": " + e.cause.Error() }
func (e *contextError) Unwrap() []error { return []error{e.err, e.cause} }
func (e *contextError) Timeout() bool   { return errors.Is(e.err, context.DeadlineExceeded) }
