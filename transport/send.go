// The next attempt of a call, and the body that it sends.

package transport

import (
	"cmp"
	"context"
	"errors"
	"io"
	"time"

	"github.com/aplomb-go/aplomb/internal/attempt"
	"github.com/aplomb-go/aplomb/internal/limit"
	"github.com/aplomb-go/aplomb/internal/replay"
	"github.com/aplomb-go/aplomb/internal/route"
)

// A try is an attempt of a call, with its permit and those who watch it.
type try struct {
	attempt.Attempt
	permit limit.Permit
	by     *retrier          // tells the hooks AttemptStart; nil: there are none
	told   context.Context   // of the hooks AttemptEnd; nil: there are none
	trial  *route.Trial      // its base, if that is one; it may go over another pool
	out    *attempt.Outgoing // nil: it is the caller's own request
}

// prepare makes the copy that is sent. If it panics, it releases the slot and closes the body.
func (a *try) prepare() {
	prepared := false
	defer func() {
		if !prepared {
			a.Abort()
		}
	}()
	out := a.Copied()
	if a.Watched {
		a.by.tellStart(a, out.Req.Header)
	}
	a.Arm(out)
	if a.trial != nil {
		a.trial.Restart = out.Restart
	}
	a.out, prepared = out, true
}

// fly sends a copy of the request, or the caller's own request if that is possible.
func (a *try) fly() {
	if a.Light() {
		a.SendLight()
	} else {
		a.prepare()
		a.flyCopy()
	}
	a.permit.Landed(&a.Attempt)
}

// flyCopy sends a copy of the request. The error of a timer says until when a Transport below would have
// waited.
func (a *try) flyCopy() {
	if a.SendCopy(a.out); a.Hidden == nil {
		return
	}
	if until := heldUntil(a.Hidden); !until.IsZero() {
		a.Err = &attempt.HeldBelow{Late: a.Err, Until: until}
	}
}

// send makes the next attempt.
func (x *retrier) send() {
	if x.Rule.Hedge && x.sent == 0 && x.hedgeable() {
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
	var a try
	x.newAttempt(&a, kind)
	defer func() { // also if the base transport panics
		if a.DoneAt == 0 {
			a.DoneAt = x.Registry.Now()
		}
		if a.trial != nil && a.out != nil {
			a.Pool = a.out.Over()
		}
		x.last, x.told, x.permit = a.Outcome, a.told, a.permit
	}()
	a.fly()
}

// newAttempt makes a the next attempt, whose outcome will be at hand.
func (x *retrier) newAttempt(a *try, kind attempt.Kind) {
	proves := x.provesConnection() // may panic, and nothing is sent then
	x.sent++
	a.Number, a.Kind, a.Queued = x.sent, kind, x.permit.Queued
	if a.Queued != (attempt.Queued{}) {
		x.waited += heldBy(a.Queued).waited
	}
	a.Req, a.Clock, a.Timeouts, a.Timed = x.Req, &x.Registry.Clock, &x.Rule.Timeouts, x.Rule.Timed
	if _, ok := x.Ctx.Deadline(); x.sent > 1 && !ok {
		a.Timeouts, a.Timed = &x.Rule.Later, true
	} else if x.sent > 1 && x.body != nil {
		a.Timeouts, a.Timed = &x.Rule.Retries, true
	}
	x.broke = x.broke || x.last.Err != nil
	a.Own = x.sent > 1 && (x.Rule.Timed || x.broke)
	a.Ctx, a.Plain = x.parentContext(), x.Plain != nil
	if a.SentAt = x.Registry.Now(); x.sent == 1 {
		x.start = a.SentAt
	}
	a.Base, a.First = x.planner.Next(&a.Outcome), x.base
	if a.trial, _ = a.Base.(*route.Trial); a.trial != nil {
		a.Timed = true // it needs a context that ends with it
	}
	proves = proves || x.sent > 1 && (x.planner.MayLeave() || !x.isIdempotent())
	if x.watchAttempt(a) || proves {
		a.Link = &attempt.Link{Proves: proves}
	}
	if x.body != nil {
		a.Body, a.GetBody = x.nextBody()
	}
	a.permit, x.permit = x.permit, limit.Permit{}
	a.permit.Start(&a.Attempt)
}

// rewind takes the body from the last attempt, for a retry. If it fails, it returns
// the Reason why there is no retry. busy is how long it may wait for a Read of the body.
func (x *retrier) rewind(d *decision, busy time.Duration) Reason {
	getBody, err := x.body.Rewind(x.Ctx, busy)
	d.getsBody = getBody
	switch err {
	case nil:
		return ReasonRetry
	case replay.ErrBusy:
		d.why = err
	case replay.ErrEnded:
		return x.reasonGone()
	}
	return ReasonNotReplayable
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

// provesConnection reports whether it may matter that an attempt had no connection. A request that
// is idempotent is sent again in any case.
func (c *call) provesConnection() bool {
	return c.Rule.Timeouts.Connect > 0 || c.Rule.Timed && !c.isIdempotent()
}

// parentContext returns the context that the attempts begin with: the caller's, or the one
// that RequestStart returned.
func (c *call) parentContext() context.Context {
	return cmp.Or(c.spanned, c.Req.Context())
}

// heldUntil returns the end of the longest wait that a server asked for in the attempts
// of a Transport below. It is zero if err does not come from such a Transport.
func heldUntil(err error) (until time.Time) {
	if held, ok := errors.AsType[*attempt.HeldBelow](err); ok {
		return held.Until
	}
	below, ok := errors.AsType[*Error](err)
	if !ok {
		return until
	}
	for _, a := range below.Attempts {
		if end := a.at.Add(a.RetryAfter); a.RetryAfter > 0 && end.After(until) {
			until = end
		}
	}
	return until
}
