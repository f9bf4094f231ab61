// What does the reader of a body get that was cut and could not be resumed?

package transport

import (
	"errors"
	"strconv"
	"strings"
)

// A ResumeError is the end of a response's body whose connection was cut and
// which could not be continued. Every byte before it is good. errors.Is and
// errors.As see both Err and Cause; a cut that was not worth a reconnect, such
// as one by the caller's own context, comes as the base transport's plain
// error instead.
type ResumeError struct {
	// Offset is where the body stopped, in bytes of the representation: a new
	// request for the rest begins there.
	Offset int64
	// Reason says why it was not continued.
	Reason Reason
	// Err is the error of the cut, as the base transport gave it.
	Err error
	// Cause is what stood in the way of continuing: an error of the request for
	// the rest, or what was wrong with the answer.
	Cause error

	url string // the request's, which Error looks for in the texts of both
}

// Error gives the error of the cut, and why it stayed.
func (e *ResumeError) Error() string {
	return "transport: body cut at byte " + strconv.FormatInt(e.Offset, 10) + ": " +
		safeText(e.Err, e.url) + "; not resumed: " + strings.TrimPrefix(safeText(e.Cause, e.url), "transport: ")
}

// Unwrap returns Err and Cause.
func (e *ResumeError) Unwrap() []error { return []error{e.Err, e.Cause} }

// Timeout reports whether Err or Cause is a timeout.
func (e *ResumeError) Timeout() bool { return isTimeout(e.Err) || isTimeout(e.Cause) }

// GaveUp reports whether a limit withheld a reconnect that was otherwise due: a
// Transport around this one, and policy.Do, do not start again. After a
// [Mismatch] a new request may well make sense, from the beginning.
func (e *ResumeError) GaveUp() bool { return e.Reason.limit() || e.Reason == Nested }

func isTimeout(err error) bool {
	var t interface{ Timeout() bool }
	return errors.As(err, &t) && t.Timeout()
}
