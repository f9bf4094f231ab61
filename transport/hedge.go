// Hedging: a second attempt beside a slow one, and whose response counts.

package transport

import (
	"cmp"
	"context"
	"math/rand/v2"
	"net/http"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/aplomb-go/aplomb/classify"
	"github.com/aplomb-go/aplomb/internal/flight"
	"github.com/aplomb-go/aplomb/internal/host/gate"
)

// hedgeable reports whether the next attempt may be hedged. It must be the first
// attempt of an idempotent request. If the request has a body, a second body must
// be possible without touching the first. A request with a trailer is not hedged,
// because the trailer is filled in while the body is read, in the caller's request,
// and an attempt has only a copy of it.
//
// The effect of PUT and DELETE is idempotent, but their status is not. The second
// attempt finds the work of the first attempt done and fails. So only safe methods
// are hedged, and others if the caller or the author of the rule allows it.
func (x *exchange) hedgeable() bool {
	return x.sent == 0 && (x.body == nil || x.body.Concurrent()) && !x.isSingle() && len(x.Req.Trailer) == 0 && x.isIdempotent() &&
		(flight.IsSafe(x.Req) || x.isVouchedFor()) && !flight.Upgrades(x.Req)
}

// A racer is an attempt that runs in a goroutine of its own. When its response
// comes as the race ends, exactly one of two closes the response: the racer's
// goroutine or the race. Each of the two tries to change the state from running,
// and the second to do so closes the response.
type racer struct {
	attempt
	out   *flight.Outgoing
	state atomic.Uint32 // running, answered or abandoned

	// set before the state is answered
	resp     *http.Response
	err      error
	panicked any  // the value that the base transport panicked with
	exited   bool // the base transport called runtime.Goexit
	took     time.Duration

	told bool // the hooks know its end; the request's goroutine uses it
}

const (
	running uint32 = iota
	answered
	abandoned
)

// launch sends the attempt. Each racer has a context of its own, so that ending the
// loser does not touch the winner, whose context ends with its body.
func (a attempt) launch(done chan<- *racer) *racer {
	a.Beside = true
	out := a.prepare() // now, because the caller may change its request as soon as it has a response
	r := &racer{attempt: a, out: out}
	go func() {
		returned := false
		defer func() {
			r.panicked = recover() // awaitRacer repeats it in the caller's goroutine
			r.exited = !returned && r.panicked == nil
			if !r.state.CompareAndSwap(running, answered) {
				r.closeResponse()
				return
			}
			done <- r // has room for every racer
		}()
		defer func() { r.took = time.Since(r.timing.start) }() // also if it panics
		r.resp, r.err = r.flyCopy(out)
		returned = true
	}()
	return r
}

// abandon ends a racer that nobody needs any more. Its goroutine closes a response
// that comes later. A base transport leaves the goroutine as soon as the context
// has ended. abandon may be called again.
func (r *racer) abandon() {
	switch {
	case r.state.CompareAndSwap(running, abandoned):
		r.out.Ctx.Abandon()
	case r.state.CompareAndSwap(answered, abandoned):
		r.out.Ctx.Abandon()
		r.closeResponse()
	}
}

// noteEnd notes how long the attempt took, and tells the hooks its end. Only the first
// call counts.
func (r *racer) noteEnd(took time.Duration, resp *http.Response, err error) {
	if !r.told {
		r.told, r.timing.took = true, took
		r.watch.tellEnd(r.way, took, resp, err)
	}
}

// closeResponse closes a response without draining it, because its context has ended. A
// Close that panics would end the process here, and a Close that blocks would hold
// up the winner.
func (r *racer) closeResponse() {
	r.Refused.Release()
	flight.Dismiss(r.Ctx, r.resp)
}

// A race has the racers of one call.
type race struct {
	first, second, winner *racer
	done                  chan *racer // has room for both
}

// abandonLosers abandons all racers but the winner, also if a hook or a classifier panics. The
// hooks hear of it when all are abandoned, because they may panic themselves.
func (r *race) abandonLosers() {
	for _, other := range [...]*racer{r.first, r.second} {
		if other != nil && other != r.winner {
			defer func() { other.noteEnd(time.Since(other.timing.start), nil, ErrOutrun) }()
			other.abandon()
		}
	}
}

// awaitRacer returns the next racer that has ended. If the base transport panicked or
// called runtime.Goexit, awaitRacer does the same, because without a hedge both would
// have happened in the caller's goroutine.
func (r *race) awaitRacer() *racer {
	came := <-r.done
	if came.Link != came.way.Link {
		came.way.Went(came.Lane, came.Link)
	}
	came.noteEnd(came.took, came.resp, came.err)
	if came.panicked != nil {
		panic(came.panicked)
	}
	if came.exited {
		runtime.Goexit()
	}
	return came
}

// other returns the racer beside this one.
func (r *race) other(than *racer) *racer {
	if than == r.first {
		return r.second
	}
	return r.first
}

// race makes an attempt and, if its response takes long, a second attempt beside
// it. The first response that is worth having wins.
func (x *exchange) race() {
	start := time.Now()
	r := race{done: make(chan *racer, 2)}
	defer r.abandonLosers()
	var first attempt
	x.newAttempt(&first, KindFirst)
	r.first = first.launch(r.done)
	x.sendHedge(&r)
	came := r.awaitRacer()
	if r.second != nil {
		came = x.pickRacer(&r, came)
	}
	if came == r.second {
		came.way.Outran(&r.first.way)
	}
	r.winner, x.outcome, x.limits.Refused = came, came.outcomeOf(), came.Refused
	if x.Rule.Policy.Hedge.Percentile > 0 && flight.ResultOf(x.Ctx, x.resp, x.err) == gate.Success {
		// Record the time of the first attempt, or the time that it had taken when
		// the second won. Otherwise each hedge would make the next hedge come
		// sooner. A failure says nothing about how long responses take.
		x.State.Machines().Latency().Record(time.Since(start))
	}
}

// sendHedge waits for the first response as long as the rule says. Then it makes the
// second attempt, if the host's limits have room for it.
func (x *exchange) sendHedge(r *race) {
	delay, ok := x.hedgeDelay()
	if !ok || !x.stillSlow(r, delay, nil) {
		return
	}
	a, ok := x.secondAttempt(r)
	if !ok {
		return
	}
	x.hedges++
	r.second = a.launch(r.done)
	x.report.tellObservers(nil, &entry{Attempt: Attempt{Number: r.first.number, Time: time.Now()}, sent: x.sent, reason: ReasonHedged})
}

// hedgeDelay returns when a second attempt is due.
func (x *exchange) hedgeDelay() (time.Duration, bool) {
	h := x.Rule.Policy.Hedge
	if h.Percentile > 0 {
		if d, ok := x.State.Machines().Latency().Quantile(h.Percentile / 100); ok {
			// Strictly after, because a response that takes just as long as the
			// percentile is not beyond it.
			return d + 1, true
		}
	}
	return h.After, h.After > 0
}

// secondAttempt takes everything that a second attempt needs: the budget, its connection,
// the host's limits, and the request's body. It waits for nothing but a connection that
// another attempt makes.
func (x *exchange) secondAttempt(r *race) (a attempt, ok bool) {
	if x.Ctx.Err() != nil {
		return a, false
	}
	// The budget comes first, because it can be released exactly. A token of the
	// rate and a share of the server's quota cannot.
	if !x.limits.ReserveRetry(time.Now()) {
		return a, false
	}
	defer func() { // also if GetBody panics
		if !ok {
			x.limits.Release()
			x.road.Leave()
		}
	}()
	if !x.road.AwaitBeside(x.way, func(d time.Duration, ready <-chan struct{}) bool { return x.stillSlow(r, d, ready) }) || !x.limits.AdmitHedge() || !x.bodyBeside() {
		return a, false
	}
	x.newAttempt(&a, KindHedge)
	return a, true
}

// stillSlow waits until d is over or ready is closed. It reports whether the caller still
// waits for the first attempt then.
func (x *exchange) stillSlow(r *race, d time.Duration, ready <-chan struct{}) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case came := <-r.done:
		r.done <- came // has room, because came has just been taken out
		return false
	case <-x.Ctx.Done(): // the base may take its time to end the first attempt
		return false
	case <-ready:
	case <-timer.C:
	}
	return true
}

// pickRacer returns the racer whose response counts. If a response would be retried, the
// other racer gets its chance. The limits hear of such a response at once, and its
// connection becomes free, however long the other racer takes.
func (x *exchange) pickRacer(r *race, came *racer) *racer {
	switch {
	case retryable(x.classifyRacer(came)):
		return x.discardAndWait(r, came)
	case !flight.IsSafe(x.Req) && rejected(came):
		return x.waitForBetter(r, came)
	}
	other := r.other(came)
	other.abandon()
	x.recordOutrun(other, ErrOutrun, classify.Unknown)
	return came
}

// outcomeOf returns how the racer has ended.
func (r *racer) outcomeOf() outcome { return outcome{trip: r.trip, resp: r.resp, err: r.err} }

// classifyRacer asks the rule for a verdict on a racer's outcome.
func (x *exchange) classifyRacer(r *racer) classify.Verdict {
	x.outcome = r.outcomeOf()
	x.askRule()
	return x.verdict
}

// rejected reports whether the racer has a 4xx.
func rejected(r *racer) bool {
	return r.resp != nil && r.resp.StatusCode/100 == 4
}

// waitForBetter holds a 4xx back while the other attempt of an unsafe request is
// under way. The server may have refused this attempt because it acts on the other.
// Then the response of the other is the true response. The 4xx counts if the other
// attempt gets a 4xx as well, or nothing that is final.
func (x *exchange) waitForBetter(r *race, came *racer) *racer {
	other := r.awaitRacer()
	again := retryable(x.classifyRacer(other))
	switch {
	case x.Ctx.Err() != nil: // nobody knows what the server would have said to the other
		x.recordOutrun(came, cmp.Or(came.err, ErrOutrun), classify.Unknown)
	case again:
		x.recordOutrun(other, other.err, classify.Ambiguous)
		return came
	case other.err != nil || rejected(other):
		x.recordOutrun(other, cmp.Or(other.err, ErrOutrun), classify.Unknown)
		return came
	}
	x.recordOutrun(came, ErrOutrun, classify.Unknown)
	return other
}

// discardAndWait discards a response that would be retried, and waits for the other racer.
func (x *exchange) discardAndWait(r *race, came *racer) *racer {
	x.recordOutrun(came, came.err, classify.Ambiguous)
	if resp := came.resp; resp != nil {
		// The other response does not wait for this drain, which ends with the race.
		ctx, over := context.WithCancel(x.Ctx)
		defer over()
		go func() {
			defer func() { _ = recover() }() // nobody else reads this body
			flight.Discard(ctx, resp)
		}()
		came.resp = nil
	}
	return r.awaitRacer()
}

// recordOutrun records the attempt whose outcome does not count. Its response may still
// ask for a wait, which the next attempt keeps.
func (x *exchange) recordOutrun(r *racer, err error, v classify.Verdict) {
	r.noteEnd(time.Since(r.timing.start), nil, ErrOutrun)
	x.outcome = outcome{trip: r.trip}
	if v == classify.Ambiguous { // else it may be under way
		x.outcome = r.outcomeOf()
	}
	var e entry
	x.fill(&e, x.resp, err)
	e.Verdict, e.reason = v, ReasonOutrun
	if v == classify.Ambiguous {
		x.bindToPlace(v)
		x.verdict = v
		over := x.forRoad(&e)
		x.road.Note(&over)
		told := x.forLimits(&e, rand.Float64())
		e.Hint = x.limits.NoteOutcome(&told)
		r.Refused.Release()
		x.wait = e.Time.Add(e.Hint)
	}
	x.report.record(nil, &e)
}
