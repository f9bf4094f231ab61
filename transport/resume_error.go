// The error of a response's body that was cut.

package transport

import (
	"strconv"
	"strings"
)

// A ResumeError ends a response's body that was cut, and that could not be continued to its
// end. Every byte before the error is good. errors.Is and errors.As see both Err and Cause.
//
// As long as no byte came from a second response, the reader gets the error of the cut
// instead, as the base transport gave it. So a caller may compare it with
// io.ErrUnexpectedEOF. Only if the caller's context has ended meanwhile, the reader gets a
// ResumeError all the same, whose Cause is the end of the context. The last [Event] and the
// log have the reason in any case. An event with the Reason [ReasonNotResumable] or
// [ReasonNotResumable] has a ResumeError in its Err.
type ResumeError struct {
	// Offset is the number of good bytes, counted from the beginning of the
	// representation. A new request for the rest begins there.
	Offset int64
	// Reason says why the body was not continued.
	Reason Reason
	// Err is the error of the cut, as the base transport gave it.
	Err error
	// Cause says what prevented the continuation. It is the error of the request
	// for the rest, or it describes the fault of the response.
	Cause error

	url string // of the request; Error hides its secrets in both texts
}

// Error names the offset, the error of the cut, and the reason not to resume.
func (e *ResumeError) Error() string {
	return "transport: body cut at byte " + strconv.FormatInt(e.Offset, 10) + ": " +
		safeText(e.Err, e.url) + "; not resumed: " + strings.TrimPrefix(safeText(e.Cause, e.url), "transport: ")
}

// GoString returns the text of Error for %#v, because the fields have secrets.
func (e *ResumeError) GoString() string { return goString(e) }

// Unwrap returns Err and Cause.
func (e *ResumeError) Unwrap() []error { return []error{e.Err, e.Cause} }

// Timeout reports whether Err or Cause is a timeout, or whether the deadline has passed.
func (e *ResumeError) Timeout() bool {
	return e.Reason == ReasonDeadline || isTimeout(e.Err) || isTimeout(e.Cause)
}

// Temporary reports whether Err or Cause has a method Temporary that returns true. It makes
// ResumeError a net.Error.
func (e *ResumeError) Temporary() bool { return isTemporary(e.Err) || isTemporary(e.Cause) }

// GaveUp reports whether a limit withheld a reconnect that was otherwise due. If it
// did, neither a Transport around this Transport nor policy.Do starts again. After a
// [ReasonNotResumable] a new request for the whole body may make sense.
func (e *ResumeError) GaveUp() bool { return e.Reason.isLimit() || e.Reason == ReasonNested }
