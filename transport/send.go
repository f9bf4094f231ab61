// The next attempt of a call, and the body that it sends.

package transport

import (
	"errors"
	"io"
	"net/http"
	"time"

	"github.com/aplomb-go/aplomb/internal/attempt"
	"github.com/aplomb-go/aplomb/internal/replay"
	"github.com/aplomb-go/aplomb/internal/route"
)

// prepare makes the copy that is sent.
func (a *try) prepare(c *call) {
	var tell func(http.Header)
	if a.Watched {
		tell = func(header http.Header) { c.tellStart(a, header) }
	}
	if a.Prepare(tell); a.trial != nil {
		a.trial.Restart = a.Out.Restart
	}
}

// fly sends a copy of the request, or the caller's own request if that is possible. The error of a timer says until when a
// Transport below would have waited.
func (a *try) fly(c *call) {
	if a.Out == nil {
		if a.Light() {
			a.SendLight()
			return
		}
		a.prepare(c)
	}
	if a.SendCopy(); a.Hidden == nil {
		return
	}
	if late, ok := errors.AsType[*attempt.TimeoutError](a.Err); ok {
		late.Until = heldUntil(a.Hidden)
	}
}

// end notes that the attempt has ended.
func (a *try) end() {
	if a.permit != nil {
		a.permit.Landed(&a.Attempt)
	}
	if a.DoneAt == 0 {
		a.DoneAt = a.Clock.Now()
	}
	if a.Out != nil && a.trial != nil {
		a.Pool = a.Out.Over()
	}
}

// send makes the next attempt.
func (x *retrier) send() {
	if x.Rule.Hedge && x.sent == 0 && x.hedgeable(x.body) {
		x.race()
		return
	}
	kind := attempt.Retry
	switch {
	case x.download != nil:
		kind = attempt.Resume
	case x.sent == 0:
		kind = attempt.First
	}
	a := &x.room
	x.newAttempt(a, kind)
	x.last = a
	defer a.end() // also if the base transport panics
	a.fly(&x.call)
}

// newAttempt makes a the next attempt, which gets the turn and the permit.
func (x *retrier) newAttempt(a *try, kind attempt.Kind) {
	proves := x.provesConnection() // these may panic, and nothing counts as sent then
	if kind == attempt.First && !x.State.Calm() {
		x.planner.Retried = !x.isSingle() && x.isIdempotent()
	}
	x.sent++
	*a = try{body: x.body, offset: x.offset}
	a.Number, a.Kind, a.Queued, x.queued = x.sent, kind, x.queued, attempt.Queued{}
	if a.Queued != (attempt.Queued{}) {
		x.waited += heldBy(a.Queued).waited
	}
	a.Req, a.Clock, a.Timeouts, a.Timed = x.Req, &x.Registry.Clock, &x.Rule.Timeouts, x.Rule.Timed
	if _, ok := x.Ctx.Deadline(); x.sent > 1 && !ok {
		a.Timeouts, a.Timed = &x.Rule.Later, true
	} else if x.sent > 1 && x.body != nil {
		a.Timeouts, a.Timed = &x.Rule.Retries, true
	}
	a.Own = x.sent > 1 && (x.Rule.Timed || x.broke)
	a.Ctx, a.Plain = x.parentContext(), x.Plain != nil
	if a.SentAt = x.Registry.Now(); x.sent == 1 {
		x.start = a.SentAt
	}
	a.Base, a.First = x.planner.Next(&x.Request, &a.Outcome), x.base
	if a.trial, _ = a.Base.(*route.Trial); a.trial != nil {
		a.Timed = true // it needs a context that ends with it
	}
	a.Proves = proves || x.sent > 1 && (x.planner.MayLeave() || !x.isIdempotent())
	a.Linked = x.watchAttempt(a) || a.Proves
	if x.body != nil {
		a.Body, a.GetBody = x.nextBody()
	}
	a.admission, x.next = x.next, admission{}
	if a.turn.Start(); a.permit != nil {
		a.permit.Start(&a.Attempt)
	}
}

// provesConnection reports whether it may matter that an attempt had no connection. A request that
// is idempotent is sent again in any case.
func (c *call) provesConnection() bool {
	return c.Rule.Timeouts.Connect > 0 || c.Rule.Timed && !c.isIdempotent()
}

// nextBody returns the body for the next attempt, and the GetBody that the base
// transport may call during it. They are nil if the base transport may have the
// caller's.
func (x *retrier) nextBody() (body io.ReadCloser, getBody func() (io.ReadCloser, error)) {
	ctx := x.Ctx
	body, inner := x.body.Next(ctx, x.sent)
	if inner == nil {
		return body, nil
	}
	return body, func() (io.ReadCloser, error) {
		body, err := inner()
		switch err {
		case nil, replay.ErrDetached:
			return body, err
		case replay.ErrEnded:
			return nil, attempt.ContextErr(ctx)
		}
		return nil, &bodyError{why: err}
	}
}

// heldUntil returns the end of the longest wait that a server asked for in the attempts
// of a Transport below. It is zero if err does not come from such a Transport.
func heldUntil(err error) (until time.Time) {
	if late, ok := errors.AsType[*attempt.TimeoutError](err); ok && !late.Until.IsZero() {
		return late.Until
	}
	below := errorBelow(err)
	if below == nil {
		return until
	}
	for _, a := range below.Attempts {
		if end := a.at.Add(a.RetryAfter); a.RetryAfter > 0 && end.After(until) {
			until = end
		}
	}
	return until
}
