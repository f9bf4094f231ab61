// What is told about each attempt.

package transport

import (
	"net/http"
	"time"

	"github.com/aplomb-go/aplomb/classify"
)

// A Trace is a set of functions that are told what happens to requests. Each
// may be nil. They run in the request's goroutine, which waits for them, and
// concurrently for concurrent requests. They must not change what they are
// given, nor touch a body.
type Trace struct {
	// Event is called once after each attempt, when it is decided what comes
	// next and before a wait begins, once for a request that is refused without
	// being sent, and once when a hedge goes out ([Hedged]). When a response's body is cut and resumed, it is
	// called for the cut ([Resume]) and for each attempt to continue, from the
	// goroutine that reads the body.
	Event func(Event)
}

// An Event says what came of one attempt and what will be done about it.
type Event struct {
	Attempt

	// Request is the caller's request.
	Request *http.Request
	// Host is the scheme and host whose rule applies, as in
	// https://api.example.com.
	Host string
	// Response is the answer, nil if there was none. Its header may be read,
	// its body not.
	Response *http.Response
	// Offset is, where a response's body was cut, how far the reader was, in
	// bytes of the representation; and in the events of the attempts to
	// continue it, from where. 0 everywhere else.
	Offset int64
	// Reason says what is done and why: [Retry], or why there is no further
	// attempt.
	Reason Reason
}

// An Attempt is one send of a request, as it stands in an [Error] and in an
// [Event].
type Attempt struct {
	// Number counts the sends of the request from 1. In an event of a request
	// that was refused before a send it is the number of sends so far.
	Number int
	// Status is the answer's status, 0 where there was none.
	Status int
	// Err is the base transport's error, or the error that refused the request.
	// If the request's body kept the request from being sent again
	// ([NotReplayable], [BodyBusy]), Err says why, also after an answer: it holds
	// the error of GetBody, or names the limit that was reached.
	Err error
	// Verdict is what the classifiers made of it.
	Verdict classify.Verdict
	// Hint is how long the server asked to wait, 0 where it did not.
	Hint time.Duration
	// Wait is the time between this attempt and the next, 0 at the last.
	Wait time.Duration
	// Time is when the outcome was known.
	Time time.Time
}

// before returns a Trace that calls t's functions, then next's.
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
