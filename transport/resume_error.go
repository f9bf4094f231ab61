// What does the reader of a body get that was cut and could not be resumed?

package transport

import (
	"errors"
	"strconv"
	"strings"
)

// A ResumeError is the end of a response's body that was cut, and that a limit,
// the end of the caller's context, or a later answer kept from being continued.
// Every byte before it is good. errors.Is and errors.As see both Err and Cause.
//
// There is no ResumeError, but the base transport's own error as it is, if the
// cut was not worth a reconnect, or if the first reconnect shows that the body
// cannot be resumed: by a 200, a 4xx, an answer that is not the rest, or an error
// that no retry helps against. So a caller may compare with
// io.ErrUnexpectedEOF. The reason is then in the last [Event], or in the log: an
// event with the Reason [Mismatch] has a ResumeError in its Err.
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
func (e *ResumeError) GaveUp() bool { return e.Reason.limit() || e.Reason == ReasonNested }

// hopeless reports whether it was the server, and neither a limit nor the caller,
// that kept the body from being continued.
func (e *ResumeError) hopeless() bool { return !e.GaveUp() && e.Reason != ReasonCanceled }

func isTimeout(err error) bool {
	var t interface{ Timeout() bool }
	return errors.As(err, &t) && t.Timeout()
}

// An IntegrityError is the end of a response's body, in the place of io.EOF,
// that is not as the server itself announced it: the bytes delivered are not to
// be trusted. It is checked on bodies that can be resumed only. A digest in a
// trailer is checked if the response's Trailer header announced it.
type IntegrityError struct {
	// Field is what differs: "sha-256" or "sha-512" of a Repr-Digest or
	// Content-Digest (RFC 9530), in hexadecimal; or "length", in bytes.
	Field string
	// Want is what the server announced, Got what arrived.
	Want, Got string
}

// Error names what differs, and both values.
func (e *IntegrityError) Error() string {
	return "transport: response body: " + e.Field + " is " + e.Got + ", announced was " + e.Want
}
