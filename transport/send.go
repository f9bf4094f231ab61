// The next attempt of an exchange.

package transport

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/aplomb-go/aplomb/internal/flight"
	"github.com/aplomb-go/aplomb/internal/visit"
)

// An attempt is a flight of an exchange, with its record.
type attempt struct {
	flight.Flight
	trip
	watch watch
	out   *flight.Outgoing // nil: it is the caller's own request
}

// prepare makes the copy that is sent. If it panics, it releases the slot and closes the body.
func (a *attempt) prepare() *flight.Outgoing {
	prepared := false
	defer func() {
		if !prepared {
			a.Abort()
		}
	}()
	out := a.Copied()
	if a.Watched {
		a.Ctx = a.watch.tellStart(a.Ctx, out.Req.Header)
	}
	a.Arm(out)
	if a.route.Trial != nil {
		a.route.Trial.Restart = out.Restart
	}
	prepared = true
	return out
}

// fly sends a copy of the request, or the caller's own request if that is possible.
func (a *attempt) fly() (*http.Response, error) {
	if a.Light() {
		return a.SendLight()
	}
	a.out = a.prepare()
	return a.flyCopy(a.out)
}

// flyCopy sends a copy of the request.
func (a *attempt) flyCopy(out *flight.Outgoing) (*http.Response, error) {
	resp, err := a.SendCopy(out)
	if a.Below != nil {
		err = withHold(err, a.Below)
	}
	return resp, err
}

// send makes the next attempt.
func (x *exchange) send() {
	if x.Rule.Hedge && x.sent == 0 && x.hedgeable() {
		x.race()
		return
	}
	kind := KindRetry
	switch {
	case x.segment:
		kind = KindReconnect
	case x.sent == 0:
		kind = KindFirst
	}
	var a attempt
	x.newAttempt(&a, kind)
	defer func() { // also if the base transport panics
		if a.sent.Came = a.Came; a.Came == 0 {
			a.sent.Came = x.Ground.Now()
		}
		a.timing.took = a.sent.Came.Sub(a.sent.At)
		x.trip = a.trip
		if a.Watched {
			a.watch.tellEnd(a.route, a.timing.took, x.resp, x.err)
		}
	}()
	x.resp, x.err = a.fly()
	x.limits.Slot, x.limits.Refused = a.Slot, a.Refused
}

// newAttempt makes a the next attempt, whose outcome will be at hand.
func (x *exchange) newAttempt(a *attempt, kind Kind) {
	proves := x.provesConnection() // may panic, and nothing is sent then
	x.sent++
	now := time.Now()
	if x.sent == 1 && x.Rule.Policy.MaxElapsed > 0 {
		x.start = now
	}
	x.equip(&a.Flight, x.sent)
	x.broke = x.broke || x.err != nil
	a.Own = x.sent > 1 && (x.Rule.Timed || x.broke)
	a.number, a.timing = x.sent, timing{kind: kind, start: now, queued: x.takeQueued()}
	a.Ctx, a.Plain = x.parentContext(), x.Plain != nil
	a.route = x.planner.Next(x.asksConnection() || proves)
	a.Pool, a.Link = a.route.Pool, a.route.Link
	a.Base, a.Timed = x.t.pools.Base(&a.route), a.Timed || a.route.Trial != nil
	if x.body != nil {
		a.Body, a.GetBody = x.nextBody()
	}
	x.watchAttempt(a)
	a.Slot, a.sent = x.limits.TakeOff(now)
	x.outcome = outcome{trip: a.trip}
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

// takeQueued returns the time in queues before the attempt that goes or is refused now.
func (x *exchange) takeQueued() Queued {
	q := Queued(x.limits.Queued)
	x.limits.Queued = visit.Queued{}
	if q != (Queued{}) {
		x.queued.add(q)
	}
	return q
}

// equip makes f a flight of the call.
func (c *call) equip(f *flight.Flight, number int) {
	f.Req, f.Ctx, f.Number, f.Home = c.Req, c.Ctx, number, c.Ground
	f.Timeouts, f.Timed = &c.Rule.Timeouts, c.Rule.Timed
	if number == 1 {
		return
	}
	if _, ok := c.Ctx.Deadline(); !ok {
		f.Timeouts, f.Timed = &c.Rule.Later, true
	}
}

// withHold adds the wait that err tells of to the error of a timer.
func withHold(late, err error) error {
	if until := heldUntil(err); !until.IsZero() {
		return &flight.HeldBelow{Late: late, Until: until}
	}
	return late
}

// heldUntil returns the end of the longest wait that a server asked for in the attempts
// of a Transport below. It is zero if err does not come from such a Transport.
func heldUntil(err error) (until time.Time) {
	if held, ok := errors.AsType[*flight.HeldBelow](err); ok {
		return held.Until
	}
	below, ok := errors.AsType[*Error](err)
	if !ok {
		return until
	}
	for _, a := range below.Attempts {
		if end := a.Time.Add(a.Hint); a.Hint > 0 && end.After(until) {
			until = end
		}
	}
	return until
}
