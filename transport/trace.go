// Trace and its hooks, Event and Attempt.

package transport

import (
	"context"
	"net/http"
	"time"

	"github.com/aplomb-go/aplomb/classify"
)

// A Trace is a set of functions that observe requests. Each function may be nil. It
// runs in the request's goroutine, which waits for it, and concurrently for
// concurrent requests. The request's goroutine is the caller of RoundTrip, and later
// the reader of the response's body. While the first attempt is under way, a hedge has
// a goroutine that calls the functions, one at a time. A function must not change its arguments, apart
// from the header in an [AttemptStart], and must not read or close a body.
//
// The functions with a context get the context that RequestStart or AttemptStart
// returned, so that they find there what they have put into it, such as a span. These
// two return their argument, or a context derived from it. If they return nil, their
// argument counts.
//
//	RequestStart
//	  AttemptStart  AttemptEnd  Event    for each attempt
//	RequestEnd
//	  AttemptStart  AttemptEnd  Event    for each reconnect of a cut body
//	BodyEnd
//
// To count attempts, count the calls of AttemptStart, or the events that have a Kind.
type Trace struct {
	// Event is called once after each attempt, when the next step is decided and before a
	// wait begins. It is called once for a request that is refused without an attempt. When the body
	// of a response is cut and resumed, it is called for the cut and for each attempt to
	// continue, from the goroutine that reads the body. If a body ends with an error for
	// its reader, it is called once with the reason, whatever the request, unless the
	// reader has closed the body. If a retry was decided and is not made after all, it is
	// called again with the reason. If the base transport panics, there is no event for
	// the attempts under way.
	Event func(Event)

	// RequestStart is called once when a request begins, before it waits for
	// anything. The attempts get the context that it returns. A request that no
	// transport could send, for example without a URL, is not reported.
	RequestStart func(ctx context.Context, req *http.Request) context.Context

	// AttemptStart is called once before each attempt. The base transport gets the
	// context that it returns.
	AttemptStart func(ctx context.Context, a AttemptStart) context.Context

	// AttemptEnd is called once for each call of AttemptStart: when the base
	// transport has returned or panicked, or when another attempt has outrun this
	// attempt ([ErrOutrun]). The base transport may then still be busy with it.
	AttemptEnd func(ctx context.Context, a AttemptEnd)

	// RequestEnd is called once for each call of RequestStart, when RoundTrip
	// returns or panics.
	RequestEnd func(ctx context.Context, r RequestEnd)

	// HostChange is called when the state of a host has become worse or better. For
	// example it asks for a pause, or it is down (see [HostChange]). It gets the context of the
	// request that noticed the change, which may have ended since. It is called for the
	// Trace of a Config only, once for each change. Changes of limits are told one at a time
	// for each host, in their order. The goroutine that calls it is that of the request that
	// noticed the change or of one that is telling an earlier change. That request may still
	// have its slot of the gate.
	HostChange func(ctx context.Context, h HostChange)

	// Addresses asks for the address of first attempts, too (see [Attempt]). It costs some
	// allocations for each request.
	Addresses bool

	// BodyEnd is called once after a RequestEnd whose BodyFollows is true. It is called
	// when a Read of the response's body returns an error, which may be io.EOF, or
	// when the body is closed before that. It runs in the goroutine that reads or
	// closes the body.
	BodyEnd func(ctx context.Context, b BodyEnd)
}

// An Event has the outcome of one attempt and the decision about it. Its Err prints without the
// secrets of URLs. If the error of the base transport has any, Err wraps it.
type Event struct {
	Attempt

	// Context is the context that RequestStart returned, or that of the Request.
	Context context.Context
	// Request is the caller's request. In an event about a reconnect it is the request
	// for the rest.
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
	// before an attempt, it is the number of attempts so far. It starts again from 1
	// when a reconnect follows progress.
	Number int
	// Kind says why the attempt was made. It is empty in an event that is not the
	// outcome of an attempt.
	Kind AttemptKind
	// Status is the status of the response, or 0 if there was none.
	Status int
	// Err is the base transport's error, or the error that refused the request.
	// If the request's body prevented a retry ([ReasonNotReplayable]), Err says why, even
	// after a response. It holds the error of GetBody, or names the limit that was reached.
	Err error
	// Class is the class that the classifiers found.
	Class classify.Class
	// Addr is the address of the server or proxy at the other end of the connection, as
	// in "192.0.2.1:443". It is known from the first retry on, and of the first attempt if
	// Trace.Addresses asks for it. It is "" if it is not known, and if the base transport
	// does not call the hooks of net/http/httptrace.
	Addr string
	// Pool counts the pools of connections to the host. It is 0 for the base transport
	// itself, and more for the pools that were made because a connection of an earlier
	// pool seemed dead or its server bad.
	Pool int
	// RetryAfter is how long the server asked to wait, or 0 if it did not ask.
	RetryAfter time.Duration
	// Delay is the time from this outcome to the next attempt, or 0 after the last
	// attempt.
	Delay time.Duration
	// Start is when the attempt was sent, and Duration is the time until the base
	// transport returned the headers of the response or an error. Both may be zero for
	// the first attempt of a request without timeouts that no Trace observes, nor a Logger of
	// debug lines.
	Start    time.Time
	Duration time.Duration
	// Queued is the time that the attempt spent in queues before it was sent. If the
	// request was refused, it is the time until then.
	Queued Queued
	// Time is when the outcome was known.
	Time time.Time

	unsent bool // it surely had no connection
}

// An AttemptKind says why an attempt was made. It can be the label of a metric.
type AttemptKind string

const (
	// AttemptFirst is the first attempt of a request.
	AttemptFirst AttemptKind = "first"
	// AttemptRetry is an attempt after a failure.
	AttemptRetry AttemptKind = "retry"
	// AttemptHedge is an attempt beside a slow attempt.
	AttemptHedge AttemptKind = "hedge"
	// AttemptResume is an attempt for the rest of a cut body.
	AttemptResume AttemptKind = "resume"
)

// Queued is the time that a request spent in the queues of its host's limits. A wait
// for a slot of the limiter includes the wait for the rate, if the rule has both.
type Queued struct {
	Cooldown time.Duration // until the end of a hold
	Pacing   time.Duration // because the server's quota was nearly used up
	Gate     time.Duration // for a slot
	Rate     time.Duration // for a token
}

// Total returns the time in all queues together.
func (q Queued) Total() time.Duration { return q.Cooldown + q.Pacing + q.Gate + q.Rate }

// longest returns the limit that took longest.
func (q Queued) longest() Reason {
	most := max(q.Cooldown, q.Pacing, q.Gate, q.Rate)
	switch most {
	case q.Cooldown:
		return ReasonThrottled
	case q.Pacing:
		return ReasonQuota
	case q.Rate:
		return ReasonRateLimit
	}
	return ReasonConcurrency
}

func (q *Queued) add(more Queued) {
	q.Cooldown += more.Cooldown
	q.Pacing += more.Pacing
	q.Gate += more.Gate
	q.Rate += more.Rate
}

// An AttemptStart describes an attempt that is about to be sent.
type AttemptStart struct {
	// Request is the caller's request. For a reconnect it is the request for the
	// rest.
	Request *http.Request
	// Host is the scheme and host whose rule applies.
	Host string
	// Header is the header that the attempt sends. The function may change it, for
	// instance to add the number of the attempt or the identity of a span. The caller's
	// request and other attempts do not see the change.
	Header http.Header
	// Number and Kind are those of the [Attempt].
	Number int
	Kind   AttemptKind
	// Offset is the offset at which a reconnect continues the body, or 0.
	Offset int64
	// Start is when the attempt is sent.
	Start time.Time
	// Deadline is when nobody waits for the headers of its response any more. It is the end
	// of the AttemptTimeout, of StallTimeout or the deadline of the caller's context,
	// whichever is earliest, and zero if there is none. If a body is sent for which these
	// timeouts stand still, only the caller's deadline counts. A function can tell it to the server in
	// Header, so that the server drops work that has expired.
	Deadline time.Time
	// Queued is the time that the attempt spent in queues.
	Queued Queued
}

// An AttemptEnd has the outcome of an attempt before anything is decided about it.
type AttemptEnd struct {
	AttemptStart
	// Addr and Pool are those of the [Attempt].
	Addr string
	Pool int
	// Duration is the time until the base transport returned the headers of the
	// response or an error. If the attempt was outrun, it is the time until then.
	Duration time.Duration
	// Response is the response, or nil if there was none. Its header may be read,
	// but not its body.
	Response *http.Response
	// Err is the base transport's error, or [ErrOutrun]. If both Response and Err are
	// nil, the base transport panicked or ended its goroutine.
	Err error
}

// A RequestEnd sums up a request whose RoundTrip returns.
type RequestEnd struct {
	// Request is the caller's request.
	Request *http.Request
	// Host is the scheme and host whose rule applies.
	Host string
	// Response and Err are the results of RoundTrip. Both are nil after a panic.
	Response *http.Response
	Err      error
	// Reason says why there was no further attempt. It means nothing after a panic.
	Reason Reason
	// Start is when RoundTrip began, and Duration is the time until its end.
	Start    time.Time
	Duration time.Duration
	// Attempts counts the attempts, hedges included.
	Attempts int
	// Queued is the time in queues before all attempts together.
	Queued Queued
	// BodyFollows reports that a BodyEnd follows. It is false if there is no body, and
	// if the body is the connection itself (101, CONNECT).
	BodyFollows bool
}

// A BodyEnd describes the end of a response's body.
type BodyEnd struct {
	// Request is the caller's request.
	Request *http.Request
	// Host is the scheme and host whose rule applies.
	Host string
	// Bytes counts the bytes that the caller got.
	Bytes int64
	// Err is the error that ended the body. It is nil after a clean end, and if the
	// caller closed the body before its end.
	Err error
	// Complete reports whether the body came to its clean end.
	Complete bool
	// Resumes counts the reconnects that continued the body.
	Resumes int
	// Duration is the time from the end of RoundTrip to the end of the body.
	Duration time.Duration
}

// empty reports whether there is nobody to tell.
func (t *Trace) empty() bool {
	return t == nil || t.Event == nil && t.HostChange == nil && !t.hasHooks()
}

// hasHooks reports whether there is a hook besides Event.
func (t *Trace) hasHooks() bool {
	return t != nil && (t.RequestStart != nil || t.AttemptStart != nil || t.AttemptEnd != nil || t.RequestEnd != nil || t.BodyEnd != nil)
}

// joinTraces returns a Trace that calls the functions of all traces, in their order. A
// later trace gets the contexts that an earlier trace returned. Traces may be nil.
func joinTraces(traces ...*Trace) *Trace {
	all := &Trace{}
	for _, t := range traces {
		if t == nil {
			continue
		}
		all.Event = callBoth(all.Event, t.Event)
		all.HostChange = callBothEnds(all.HostChange, t.HostChange)
		all.RequestStart = startBoth(all.RequestStart, t.RequestStart)
		all.AttemptStart = startBoth(all.AttemptStart, t.AttemptStart)
		all.AttemptEnd = callBothEnds(all.AttemptEnd, t.AttemptEnd)
		all.RequestEnd = callBothEnds(all.RequestEnd, t.RequestEnd)
		all.BodyEnd = callBothEnds(all.BodyEnd, t.BodyEnd)
		all.Addresses = all.Addresses || t.Addresses
	}
	return all
}

// callBoth returns a function that calls first and then next.
func callBoth[A any](first, next func(A)) func(A) {
	switch {
	case first == nil:
		return next
	case next == nil:
		return first
	}
	return func(a A) {
		first(a)
		next(a)
	}
}

// startBoth returns a function that calls first and then next, which gets the context
// of first.
func startBoth[A any](first, next func(context.Context, A) context.Context) func(context.Context, A) context.Context {
	switch {
	case first == nil:
		return next
	case next == nil:
		return first
	}
	return func(ctx context.Context, a A) context.Context {
		return callStart(next, callStart(first, ctx, a), a)
	}
}

// callStart calls a hook that may return a context.
func callStart[A any](hook func(context.Context, A) context.Context, ctx context.Context, a A) context.Context {
	if hook == nil {
		return ctx
	}
	if own := hook(ctx, a); own != nil {
		return own
	}
	return ctx
}

// callBothEnds returns a function that calls first and then next.
func callBothEnds[A any](first, next func(context.Context, A)) func(context.Context, A) {
	switch {
	case first == nil:
		return next
	case next == nil:
		return first
	}
	return func(ctx context.Context, a A) {
		first(ctx, a)
		next(ctx, a)
	}
}

// fewAttempts is how many attempts of a call have room without a further allocation.
const fewAttempts = 3
