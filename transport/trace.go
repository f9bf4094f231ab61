// Trace and its hooks, and Attempt.

package transport

import (
	"cmp"
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
// from the header in an [AttemptStart], and must not read or close a body. If it panics, so does
// RoundTrip, or the Read or Close of the body, and nothing stays open. Other traces may then hear of
// the start without the end, or of the end without the start.
//
// The Request that a function gets is the caller's. If the rule made an Idempotency-Key for it, it is the
// request with the key, as it is sent: a copy of the caller's with the same context.
//
// Each function gets the context that RequestStart or AttemptStart returned, so that it finds
// there the values that these have put into it, such as a span. They return their argument, or a context
// derived from it. If they return nil, their argument counts.
//
//	RequestStart
//	  AttemptStart  AttemptEnd    for each attempt
//	RequestEnd
//	  AttemptStart  AttemptEnd    for each attempt to continue a cut body
//	BodyEnd
//
// To count attempts, count the calls of AttemptStart.
type Trace struct {
	// RequestStart is called once when a request begins, before it waits for
	// anything. The attempts get the context that it returns. A request that no
	// transport could send, for example without a URL, is not reported.
	RequestStart func(ctx context.Context, req *http.Request) context.Context

	// AttemptStart is called once before each attempt. The base transport gets the
	// context that it returns.
	AttemptStart func(ctx context.Context, a AttemptStart) context.Context

	// AttemptEnd is called once for each call of AttemptStart, when the next step is decided and
	// before a wait begins. If another attempt has outrun the attempt ([ReasonOutrun]), the base
	// transport may still be busy with it. If the base transport or another function of the
	// program panics, nothing is decided, and the Reason is "". A retry that was decided is not
	// made if the caller's context ends meanwhile, or if a limit refuses it after all. Then the
	// RequestEnd says why. A Trace with an AttemptEnd costs some allocations for each attempt,
	// because it is told the address of the connection.
	AttemptEnd func(ctx context.Context, a AttemptEnd)

	// RequestEnd is called once for each call of RequestStart, when RoundTrip
	// returns or panics. For a request that is not sent there is nothing else.
	RequestEnd func(ctx context.Context, r RequestEnd)

	// HostChange is called when the state of a host has become worse or better. For
	// example it asks for a pause, or it is down (see [HostChange]). It gets the context of the
	// request that noticed the change, which may have ended since. It is called for the
	// Trace of a Config only, once for each change. Changes of limits are told one at a time
	// for each host, in their order. The goroutine that calls it is that of the request that
	// noticed the change, or of another. Each request tells some changes at most, and may still
	// have its slot of the limiter. If changes come faster than they are told, later requests
	// tell the rest.
	HostChange func(ctx context.Context, h HostChange)

	// BodyEnd is called once after a RequestEnd whose BodyFollows is true. It is called
	// when a Read of the response's body returns an error, which may be io.EOF, or
	// when the body is closed before that. It runs in the goroutine that reads or
	// closes the body.
	BodyEnd func(ctx context.Context, b BodyEnd)
}

// An Attempt records a send of a request by the base transport. It is part of an
// [AttemptEnd], an [Error] and a [History].
type Attempt struct {
	// Number counts the attempts of the request from 1. It starts again from 1 when an attempt
	// to continue a body follows progress.
	Number int
	// Kind says why the attempt was made.
	Kind AttemptKind
	// Offset is where the attempt continues a body, in bytes of the representation, or 0.
	Offset int64
	// Status is the status of the response, or 0 if there was none.
	Status int
	// Err is the base transport's error. In an AttemptEnd it prints without the secrets of URLs.
	// If the request's body prevented a retry ([ReasonNotReplayable]), Err says why, even
	// after a response. It holds the error of GetBody, or names the limit that was reached.
	Err error
	// Class is the class that the classifiers found. It is "" if nobody asked them.
	Class classify.Class
	// Addr is the address of the server or proxy at the other end of the connection, as
	// in "192.0.2.1:443". It is known if a Trace has an AttemptEnd, and from the first retry on
	// if somebody observes. It is "" if it is not known, and if the base transport does not call
	// the hooks of net/http/httptrace.
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
	// transport returned the headers of the response or an error. If another attempt has
	// outrun the attempt, it is the time until then. Both may be zero for the first attempt of a
	// request without timeouts that no Trace observes, nor a Logger of debug lines.
	Start    time.Time
	Duration time.Duration
	// Waited is the time that the attempt spent in the queues of its host's limits before it was
	// sent, and WaitedFor is the limit that took longest. It is [ReasonRetryBudget] in the line for a
	// retry, and [ReasonCircuitOpen] if the host was down. If nothing held the attempt, they are
	// 0 and "".
	Waited    time.Duration
	WaitedFor Reason
	// Reason is [ReasonRetry], or says why there was no further attempt.
	Reason Reason

	at     time.Time // when the outcome was known
	unsent bool      // it surely had no connection
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

// An AttemptStart describes an attempt that is about to be sent.
type AttemptStart struct {
	// Request is the request of the call. For an attempt to continue a body it is the request for
	// the rest.
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
	// Offset is where the attempt continues a body, or 0.
	Offset int64
	// Start is when the attempt is sent.
	Start time.Time
	// Deadline is when nobody waits for the headers of its response any more. It is the end
	// of the AttemptTimeout, of StallTimeout or the deadline of the caller's context,
	// whichever is earliest, and zero if there is none. If a body is sent for which these
	// timeouts stand still, only the caller's deadline counts. A function can tell it to the server in
	// Header, so that the server drops work that has expired.
	Deadline time.Time
}

// An AttemptEnd has the outcome of an attempt and the decision about it.
type AttemptEnd struct {
	// Request is the request of the call. For an attempt to continue a body it is the request for
	// the rest.
	Request *http.Request
	// Host is the scheme and host whose rule applies, as in
	// https://api.example.com.
	Host string
	// Response is the response, or nil if there was none. Its header may be read,
	// but not its body. If Response and Err are nil, the base transport panicked or ended its
	// goroutine.
	Response *http.Response
	Attempt
}

// A RequestEnd sums up a request whose RoundTrip returns.
type RequestEnd struct {
	// Request is the request of the call.
	Request *http.Request
	// Host is the scheme and host whose rule applies.
	Host string
	// Response and Err are the results of RoundTrip. Both are nil after a panic.
	Response *http.Response
	Err      error
	// Reason says why there was no further attempt. It means nothing after a panic.
	Reason Reason
	// Duration is the time from the beginning of RoundTrip to its end.
	Duration time.Duration
	// Attempts counts the attempts, hedges included.
	Attempts int
	// Waited is the time that the request spent in the queues of its host's limits, before all
	// attempts together and before it was refused.
	Waited time.Duration
	// BodyFollows reports that a BodyEnd follows. It is false if there is no body, and
	// if the body is the connection itself (101, CONNECT).
	BodyFollows bool
}

// A BodyEnd describes the end of a response's body.
type BodyEnd struct {
	// Request is the request of the call.
	Request *http.Request
	// Host is the scheme and host whose rule applies.
	Host string
	// Bytes counts the bytes that the caller got.
	Bytes int64
	// Err is the error that ended the body. It is nil after a clean end, and if the
	// caller closed the body before its end. If a cut body was to be continued and could not be,
	// it is an [Error] that says why, even where the reader gets the bare error of the cut.
	Err error
	// Complete reports whether the body came to its clean end.
	Complete bool
	// Resumes counts the reconnects that continued the body.
	Resumes int
	// Duration is the time from the end of RoundTrip to the end of the body.
	Duration time.Duration
}

// hasHooks reports whether there is a hook for requests.
func (t *Trace) hasHooks() bool {
	return t != nil && (t.RequestStart != nil || t.AttemptStart != nil || t.AttemptEnd != nil || t.RequestEnd != nil || t.BodyEnd != nil)
}

// callStart calls a hook that may return a context.
func callStart[A any](hook func(context.Context, A) context.Context, ctx context.Context, a A) context.Context {
	if hook == nil {
		return ctx
	}
	return cmp.Or(hook(ctx, a), ctx)
}

// fewAttempts is how many attempts of a call have room without a further allocation.
const fewAttempts = 3

// A History says how a request went: which attempts were made, and why there was no further attempt.
type History struct {
	// Reason says why there was no further attempt. It is [ReasonFinal] if the
	// response did not call for a retry, and "" if there is no history.
	Reason Reason
	// Until is the time before which a new request would meet the same Reason. It is zero if that
	// is not known, as for a deadline, for Rule.Concurrency, for the retry budget and for attempts
	// that are used up.
	//
	//	ReasonThrottled                   the end of the wait that the server asked for
	//	ReasonQuota, ReasonRateLimit      when its turn would have come
	//	ReasonCircuitOpen                 the next probe, if Rule.CircuitBreaker says FailFast
	Until time.Time
	// Attempts are all attempts, oldest first, with hedges.
	Attempts []Attempt

	began   time.Time     // when the request did; zero: not known
	took    time.Duration // until its end
	held    held          // after the last attempt, in vain
	leftOut int           // attempts of its schedule that passed in a line
}

// A held is how long limits held a request, and the limit that took longest.
type held struct {
	waited time.Duration
	by     Reason
}
