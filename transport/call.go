// What a call consists of.

package transport

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/aplomb-go/aplomb/internal/attempt"
	"github.com/aplomb-go/aplomb/internal/host/instant"
	"github.com/aplomb-go/aplomb/internal/limit"
	"github.com/aplomb-go/aplomb/internal/replay"
	"github.com/aplomb-go/aplomb/internal/route"
)

// A call is a request with what its caller said. One goroutine uses it.
type call struct {
	limit.Request
	t       *Transport
	base    http.RoundTripper
	options *options        // nil: none
	spanned context.Context // what RequestStart returned; nil: no hook
	keyed   bool            // the rule made the request's Idempotency-Key
}

// isSingle reports whether at most one attempt is allowed.
func (c *call) isSingle() bool {
	return c.Rule.Policy.Attempts <= 1 || c.options != nil && c.options.sending == sendOnce
}

// isIdempotent reports whether the request may be sent again although the server
// may have acted on it.
func (c *call) isIdempotent() bool {
	return c.options != nil && c.options.sending == sendRepeatable || c.Rule.Policy.Idempotent(c.Req)
}

// reasonGone returns why the caller's context ended. Request.Cancel and the deadline of
// http.Client.Timeout come at the same time, so a deadline that has passed counts.
func (c *call) reasonGone() Reason {
	if until, ok := c.Ctx.Deadline(); ok && !time.Now().Before(until) || errors.Is(c.Ctx.Err(), context.DeadlineExceeded) {
		return ReasonTimeout
	}
	return ReasonCanceled
}

// A retrier is one call of RoundTrip with all its attempts. One goroutine uses
// it.
type retrier struct {
	call
	series

	last     attempt.Outcome // at hand
	permit   limit.Permit    // of the attempt at hand, and from the decision on that of the next
	planner  route.Planner   // of the routes to the host
	start    instant.Instant // of the first attempt of the series; of no meaning if the rule does not need it
	wait     time.Time       // until then a response has asked to wait, or one of a Transport below
	report   report
	body     replay.Body // nil: none
	queued   Queued      // by all attempts
	retried  bool        // the loop has retried; a hedge is no retry
	broke    bool        // an attempt ended with an error
	download *download   // the body that this continues, or that the response got; nil: it does not resume
}

// A series is the state that the attempts of a call share. For the body of a response
// these are the attempts since the last progress.
type series struct {
	sent int           // attempts so far
	prev time.Duration // the previous value of the back-off
}

// A decision is the result of judging one attempt.
type decision struct {
	Event                  // of which Context, Request, Host and Offset are not filled in
	drain    time.Duration // how long after Time the response may be drained before the retry
	getsBody bool          // before the retry, the caller's GetBody is to be called
	ended    error         // the end of the caller's context, if it ended a wait for the body
	u        float64       // random, in [0,1): for the jitter of a server's wait, here and in its hold
	stuck    bool          // the server wants the request over another connection, and there is none
}

// eventOf returns what is told of an outcome now.
func (c *call) eventOf(o *attempt.Outcome) Event {
	e := Event{Response: o.Resp, Attempt: Attempt{
		Number: o.Number, Kind: Kind(o.Kind), Status: o.Status(), Err: o.Err, Verdict: o.Verdict, Addr: o.Link.Addr(), Lane: o.Lane(),
		Duration: o.Took(), Queued: Queued(o.Queued), Time: time.Now(),
	}}
	if o.SentAt != 0 {
		e.Start = c.Registry.TimeOf(o.SentAt)
	}
	return e
}
