// Hedging: a second attempt beside a slow one, and whose response counts.

package transport

import (
	"cmp"
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

// Elapsed returns how long ago the attempt was sent.
func (a *attempt) Elapsed() time.Duration { return a.Home.Now().Sub(a.SentAt) }

// Ended notes how long the attempt took, and tells the hooks its end. If another attempt was first,
// this one may be under way.
func (a *attempt) Ended(took time.Duration, resp *http.Response, err error) {
	o := a.AsSent()
	o.Pool, o.Resp, o.Err, o.DoneAt = a.out.Over(), resp, err, o.SentAt.Add(took)
	a.watch.tellEnd(&o)
}

// launch sends the attempt. Each racer has a context of its own, so that ending the
// loser does not touch the winner, whose context ends with its body.
func launch(r *racers, a attempt) *racer {
	a.Beside = true
	a.prepare() // now, because the caller may change its request as soon as it has a response
	return r.Launch(&a, a.out)
}

// Fly sends the copy.
func (a *attempt) Fly(*flight.Outgoing) (*http.Response, *flight.Slot, error) {
	a.flyCopy()
	if a.DoneAt == 0 {
		a.DoneAt = a.Home.Now()
	}
	return a.Resp, a.Refused, a.Err
}

// race makes an attempt and, if its response takes long, a second attempt beside
// it. The first response that is worth having wins.
func (x *exchange) race() {
	r := race.New[*attempt]()
	defer r.AbandonLosers()
	var first attempt
	x.newAttempt(&first, flight.First)
	r.First = launch(r, first)
	if delay := x.hedgeDelay(); delay > 0 && r.StillSlow(x.Ctx, delay, nil) {
		if a, ok := x.secondAttempt(&first); ok {
			r.Second = launch(r, a)
			x.report.tellObservers(&Event{Attempt: Attempt{Number: 1, Time: time.Now()}, Reason: ReasonHedged})
		}
	}
	came := r.Await()
	if r.Second != nil {
		came = x.pickRacer(r, came)
	}
	r.Winner, x.last, x.limits.Refused = came, outcomeOf(came), came.Refused
	if x.Rule.Policy.Hedge.Percentile > 0 && flight.ResultOf(x.Ctx, x.last.Resp, x.last.Err) == gate.Success {
		// Record the time of the first attempt, or the time that it had taken when
		// the second won. Otherwise each hedge would make the next hedge come
		// sooner. A failure says nothing about how long responses take.
		x.State.Machines().Latency().Record(r.First.Of.Elapsed())
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
func (x *exchange) secondAttempt(first *attempt) (a attempt, ok bool) {
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
	x.planner.Beside(&first.Outcome)
	x.newAttempt(&a, flight.Hedge)
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
func outcomeOf(r *racer) flight.Outcome {
	o := r.Of.Outcome
	o.Resp, o.Pool = r.Resp, r.Of.out.Over()
	return o
}

// classifyRacer asks the rule for a verdict on a racer's outcome.
func (x *exchange) classifyRacer(r *racer) classify.Verdict {
	x.last = outcomeOf(r)
	x.askRule()
	return x.last.Verdict
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
	x.recordOutrun(came, came.Err, x.last.Verdict)
	// The other response does not wait for this drain, which ends with the race.
	defer flight.DiscardAside(x.Ctx, came.Resp)()
	came.Resp = nil
	return r.Await()
}

// recordOutrun records the attempt whose outcome does not count. Its response may still
// ask for a wait, which the next attempt keeps.
func (x *exchange) recordOutrun(r *racer, err error, v classify.Verdict) {
	r.TellOutrun()
	a := &x.last
	if *a = r.Of.AsSent(); retryable(v) { // else it may be under way
		*a = outcomeOf(r)
	} else {
		a.DoneAt = x.Ground.Now()
	}
	a.Verdict = v
	var hint time.Duration
	if retryable(v) {
		x.planner.Note(a)
		hint, _ = x.limits.NoteOutcome(a)
		r.Refused.Release()
	}
	a.Err = err
	e := x.eventOf(a)
	if e.Reason, e.Hint = ReasonOutrun, hint; retryable(v) {
		x.wait = e.Time.Add(e.Hint)
	}
	x.report.record(&e)
}
