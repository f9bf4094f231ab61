// What did a finished attempt leave behind?

package classify

import (
	"context"
	"net/http"
	"time"
)

// An Outcome is what one attempt to send a request came to. It is passed by
// value; a Response or an Err is set, never both. Where neither is, nothing is
// known, and [Default] gives it to the caller.
type Outcome struct {
	// Request is the caller's request, with the caller's context: its end is
	// the caller's, never an attempt's timeout. Read only. A nil Request has
	// no method and never ends.
	Request *http.Request
	// Response is the server's answer, its body unread; nil where Err is set.
	Response *http.Response
	// Err is the base transport's error; nil where Response is set.
	Err error
	// PeekWait bounds the time that all calls of Peek for this Response may
	// take together, from the first one on. Zero means one second; a negative
	// value turns Peek off. The transport sets it to the attempt's timeout
	// where that is shorter.
	PeekWait time.Duration
}

// failed reports whether there is an answer of status 400 or above: the only
// answers that can be a reason to send again, or to wait.
func (o Outcome) failed() bool {
	return o.Response != nil && o.Response.StatusCode >= http.StatusBadRequest
}

// ended reports whether the caller has stopped waiting.
func (o Outcome) ended() bool {
	return o.context().Err() != nil
}

// context is the caller's context; without a Request, one that never ends.
func (o Outcome) context() context.Context {
	if o.Request == nil {
		return context.Background()
	}
	return o.Request.Context()
}

// method is the method that was sent. A Response alone knows it by the request
// that it answers.
func (o Outcome) method() string {
	switch {
	case o.Request != nil:
		return o.Request.Method
	case o.Response != nil && o.Response.Request != nil:
		return o.Response.Request.Method
	}
	return ""
}
