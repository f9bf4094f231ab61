// What one attempt to send a request returned.

package classify

import (
	"net/http"

	"github.com/aplomb-go/aplomb/internal/peek"
)

// An Outcome is the result of one attempt to send a request. It is passed by
// value. Either Response or Err is set, never both. If neither is set, nothing
// is known, and [Default] returns Final.
type Outcome struct {
	// Request is the caller's request with the caller's context, which does not
	// end at the timeout of an attempt. It must not be changed. A nil Request
	// has no method, and its context never ends.
	Request *http.Request
	// Response is the server's response with its body unread. It is nil if Err
	// is set.
	Response *http.Response
	// Err is the error of the base transport. It is nil if Response is set.
	Err error
}

// Peek returns up to n bytes from the beginning of the response's body. The
// body can still be read in full afterwards. If its Content-Encoding is gzip or
// deflate, Peek reads up to 64 KiB of it, or n bytes if that is more, and returns
// up to n bytes of the decoded content.
//
// Peek returns when it has n bytes, at the end of the body, at a read error, at
// the end of the Request's context, when its Cancel is closed, or after a second. A
// Transport whose attempts have a shorter timeout than that takes the timeout instead. All calls of
// Peek for one response share this time, so several body classifiers delay a stalled response no
// longer than a single classifier. A later Read returns the read error, after the bytes before it.
//
// Peek also returns if the source breaks the contract of io.Reader. If its Read
// panicked, the later Read panics with the same value in the goroutine of its
// caller. If its Read returned an invalid count, the later Read returns an
// error.
//
// The result is nil, and the body untouched, if the body cannot be read ahead:
//
//   - There is no response or no body.
//   - n is not positive.
//   - The body is a connection (status 101, CONNECT).
//   - The response has no content (HEAD).
//
// For an empty body the result is empty but not nil.
//
// The first Peek replaces Response.Body. Peek must not be called at the same
// time as a Read of the body or another Peek of the same response. Close may be
// called at any time. The result is valid until the body is closed and must not
// be changed.
func (o Outcome) Peek(n int) []byte { return peek.Outcome(o).Peek(n) }

// ended reports whether the caller has stopped waiting.
func (o Outcome) ended() bool { return o.Request != nil && o.Request.Context().Err() != nil }

// failed reports whether there is a response of status 400 or above. No other
// response can be a reason to send again.
func (o Outcome) failed() bool {
	return o.Response != nil && o.Response.StatusCode >= http.StatusBadRequest
}
