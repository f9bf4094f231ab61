// What one attempt to send a request returned.

package classify

import (
	"context"
	"net/http"
	"time"
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
	// PeekWait limits the time that all calls of Peek for this Response may
	// take together, from the first call on. Zero means one second. A negative
	// value turns Peek off. The transport sets it to the timeout of an attempt
	// if that is shorter.
	PeekWait time.Duration
}

// ended reports whether the caller has stopped waiting.
func (o Outcome) ended() bool {
	return o.context().Err() != nil
}

// context returns the caller's context. Without a Request it is a context that
// never ends.
func (o Outcome) context() context.Context {
	if o.Request == nil {
		return context.Background()
	}
	return o.Request.Context()
}

// method returns the method that was sent. Without a Request it is the method
// of the request that the Response refers to.
func (o Outcome) method() string {
	switch {
	case o.Request != nil:
		return o.Request.Method
	case o.Response != nil && o.Response.Request != nil:
		return o.Response.Request.Method
	}
	return ""
}
