// Trace, Event and Attempt.

package transport

import (
	"net/http"
	"time"

	"github.com/aplomb-go/aplomb/classify"
)

// A Trace is a set of functions that observe requests. Each function may be nil. It
// runs in the request's goroutine, which waits for it, and concurrently for
// concurrent requests. It must not change its arguments, and must not read or close
// a body.
type Trace struct {
	// Event is called once after each attempt, when the next step is decided and
	// before a wait begins. It is called once for a request that is refused
	// without an attempt, and once when a hedge goes out ([ReasonHedged]). When the
	// body of a response is cut and resumed, it is called for the cut
	// ([ReasonResume]) and for each attempt to continue, from the goroutine that
	// reads the body.
	Event func(Event)
}

// An Event has the outcome of one attempt and the decision about it.
type Event struct {
	Attempt

	// Request is the caller's request.
	Request *http.Request
	// Host is the scheme and host whose rule applies, as in
	// https://api.example.com.
	Host string
	// Response is the response, or nil if there was none. Its header may be read,
	// but not its body.
	Response *http.Response
	// Offset is how far the reader of a body was when the body was cut, in bytes of
	// the representation. It is also set in the events of the attempts to continue
	// the body. Otherwise it is 0.
	Offset int64
	// Reason is [ReasonRetry], or says why there is no further attempt.
	Reason Reason
}

// An Attempt records one send of a request by the base transport. It is part of an
// [Event], an [Error] and a [History].
type Attempt struct {
	// Number counts the attempts of the request from 1. If the request was refused
	// before an attempt, it is the number of attempts so far.
	Number int
	// Status is the status of the response, or 0 if there was none.
	Status int
	// Err is the base transport's error, or the error that refused the request.
	// If the request's body prevented a retry ([ReasonNotReplayable],
	// [ReasonBodyBusy]), Err says why, even after a response. It holds the error of
	// GetBody, or names the limit that was reached.
	Err error
	// Verdict is the verdict of the classifiers.
	Verdict classify.Verdict
	// Hint is how long the server asked to wait, or 0 if it did not ask.
	Hint time.Duration
	// Wait is the time from this outcome to the next attempt, or 0 after the last
	// attempt.
	Wait time.Duration
	// Time is when the outcome was known.
	Time time.Time
}

// before returns a Trace that calls the functions of t and then those of next.
func (t *Trace) before(next *Trace) *Trace {
	switch {
	case next == nil || next.Event == nil:
		trace := *t
		return &trace
	case t.Event == nil:
		return next
	}
	first, then := t.Event, next.Event
	return &Trace{Event: func(e Event) {
		first(e)
		then(e)
	}}
}
