// Hedging: a second attempt beside a slow one, and whose response counts.

package transport

import (
	"cmp"
	"math/rand/v2"
	"net/http"
	"time"

	"github.com/aplomb-go/aplomb/classify"
	"github.com/aplomb-go/aplomb/internal/flight"
	"github.com/aplomb-go/aplomb/internal/host/gate"
	"github.com/aplomb-go/aplomb/internal/race"
)

// hedgeable reports whether the first attempt may be hedged. Its request must be
// idempotent. If the request has a body, a second body must be possible without touching
// the first. A request with a trailer is not hedged. The trailer of the caller's request is
// filled in while the body is read, and an attempt has only a copy of the trailer.
//
// The effect of PUT and DELETE is idempotent, but their status is not. The second
// attempt finds the work of the first attempt done and fails. So only safe methods
// are hedged, and others if the caller or the author of the rule allows it.
func (x *exchange) hedgeable() bool {
	return (x.body == nil || x.body.Concurrent()) && !x.isSingle() && len(x.Req.Trailer) == 0 && x.isIdempotent() &&
		(flight.IsSafe(x.Req) || x.isVouchedFor()) && !flight.Upgrades(x.Req)
}

type (
	racer  = race.Racer[*attempt]
	racers = race.Race[*attempt]
)

// Began returns when the attempt was sent.
func (a *attempt) Began() time.Time { return a.timing.start }

// Ended notes how long the attempt took, and tells the hooks its end.
func (a *attempt) Ended(took time.Duration, resp *http.Response, err error) {
	a.timing.took = took
	a.watch.tellEnd(a.route, took, resp, err)
}

// launch sends the attempt. Each racer has a context of its own, so that ending the
// loser does not touch the winner, whose context ends with its body.
func launch(r *racers, a attempt) *racer {
	a.Beside = true
	return r.Launch(&a, a.prepare()) // prepared now, because the caller may change its request as soon as it has a response
}

// Fly sends the copy.
func (a *attempt) Fly(out *flight.Outgoing) (*http.Response, *flight.Slot, error) {
	resp, err := a.flyCopy(out)
	return resp, a.Refused, err
}

// race makes an attempt and, if its response takes long, a second attempt beside
// it. The first response that is worth having wins.
func (x *exchange) race() {
	r := race.New[*attempt]()
	defer r.AbandonLosers()
	var first attempt
	x.newAttempt(&first, KindFirst)
	r.First = launch(r, first)
	if delay := x.hedgeDelay(); delay > 0 && r.StillSlow(x.Ctx, delay, nil) {
		if a, ok := x.secondAttempt(); ok {
			r.Second = launch(r, a)
			x.report.tellObservers(nil, &entry{Attempt: Attempt{Number: 1, Time: time.Now()}, reason: ReasonHedged})
		}
	}
	came := r.Await()
	if r.Second != nil {
		came = x.pickRacer(r, came)
	}
	r.Winner, x.outcome, x.limits.Refused = came, outcomeOf(came), came.Refused
	if x.Rule.Policy.Hedge.Percentile > 0 && flight.ResultOf(x.Ctx, x.resp, x.err) == gate.Success {
		// Record the time of the first attempt, or the time that it had taken when
		// the second won. Otherwise each hedge would make the next hedge come
		// sooner. A failure says nothing about how long responses take.
		x.State.Machines().Latency().Record(time.Since(r.First.Of.timing.start))
	}
}

// hedgeDelay returns when a second attempt is due, or a time that is not positive.
func (x *exchange) hedgeDelay() time.Duration {
	h := x.Rule.Policy.Hedge
	delay := h.After
	if h.Percentile > 0 {
		if d, ok := x.State.Machines().Latency().Quantile(h.Percentile / 100); ok {
			// Strictly after, because a response that takes just as long as the
			// percentile is not beyond it.
			delay = d + 1
		}
	}
	return delay
}

// secondAttempt takes everything that a second attempt needs: the budget, the host's limits,
// and the request's body. It waits for nothing.
func (x *exchange) secondAttempt() (a attempt, ok bool) {
	if x.Ctx.Err() != nil {
		return a, false
	}
	// The budget comes first, because it can be released exactly. A token of the
	// rate and a share of the server's quota cannot.
	if !x.limits.ReserveRetry(time.Now(), 0) {
		return a, false
	}
	defer func() { // also if GetBody panics
		if !ok {
			x.limits.Release()
		}
	}()
	if !x.limits.AdmitHedge() || !x.bodyBeside() {
		return a, false
	}
	x.planner.Beside(&x.route)
	x.newAttempt(&a, KindHedge)
	return a, true
}

// pickRacer returns the racer whose response counts. If a response would be retried, the
// other racer gets its chance. The limits hear of such a response at once, and its
// connection becomes free, however long the other racer takes.
func (x *exchange) pickRacer(r *racers, came *racer) *racer {
	switch {
	case retryable(x.classifyRacer(came)):
		return x.discardAndWait(r, came)
	case !flight.IsSafe(x.Req) && came.Rejected():
		return x.waitForBetter(r, came)
	}
	other := r.First
	if other == came {
		other = r.Second
	}
	other.Abandon()
	x.recordOutrun(other, ErrOutrun, classify.Unknown)
	return came
}

// outcomeOf returns how the racer has ended.
func outcomeOf(r *racer) outcome { return outcome{trip: r.Of.trip, resp: r.Resp, err: r.Err} }

// classifyRacer asks the rule for a verdict on a racer's outcome.
func (x *exchange) classifyRacer(r *racer) classify.Verdict {
	x.outcome = outcomeOf(r)
	x.askRule()
	return x.verdict
}

// waitForBetter holds a 4xx back while the other attempt of an unsafe request is
// under way. The server may have refused this attempt because it acts on the other.
// Then the response of the other is the true response. The 4xx counts if the other
// attempt gets a 4xx as well, or nothing that is final.
func (x *exchange) waitForBetter(r *racers, came *racer) *racer {
	other := r.Await()
	again := retryable(x.classifyRacer(other))
	switch {
	case x.Ctx.Err() != nil: // nobody knows what the server would have said to the other
		x.recordOutrun(came, cmp.Or(came.Err, ErrOutrun), classify.Unknown)
	case again:
		x.recordOutrun(other, other.Err, classify.Ambiguous)
		return came
	case other.Err != nil || other.Rejected():
		x.recordOutrun(other, cmp.Or(other.Err, ErrOutrun), classify.Unknown)
		return came
	}
	x.recordOutrun(came, ErrOutrun, classify.Unknown)
	return other
}

// discardAndWait discards a response that would be retried, and waits for the other racer.
func (x *exchange) discardAndWait(r *racers, came *racer) *racer {
	x.recordOutrun(came, came.Err, x.verdict)
	// The other response does not wait for this drain, which ends with the race.
	defer flight.DiscardAside(x.Ctx, came.Resp)()
	came.Resp = nil
	return r.Await()
}

// recordOutrun records the attempt whose outcome does not count. Its response may still
// ask for a wait, which the next attempt keeps.
func (x *exchange) recordOutrun(r *racer, err error, v classify.Verdict) {
	r.TellOutrun()
	x.outcome = outcome{trip: r.Of.trip}
	if retryable(v) { // else it may be under way
		x.outcome = outcomeOf(r)
	}
	var e entry
	x.fill(&e, x.resp, err)
	e.Verdict, e.reason = v, ReasonOutrun
	if retryable(v) {
		x.verdict = v
		over := x.forPlanner(&e)
		x.planner.Note(&over)
		told := x.forLimits(&e, rand.Float64())
		e.Hint = x.limits.NoteOutcome(&told)
		r.Refused.Release()
		x.wait = e.Time.Add(e.Hint)
	}
	x.report.record(nil, &e)
}
