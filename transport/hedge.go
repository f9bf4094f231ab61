// Hedging: a second attempt beside a slow one, and whose response counts.

package transport

import (
	"cmp"
	"net/http"
	"runtime"
	"time"

	"github.com/aplomb-go/aplomb/classify"
	"github.com/aplomb-go/aplomb/internal/attempt"
	"github.com/aplomb-go/aplomb/internal/host/line"
	"github.com/aplomb-go/aplomb/internal/replay"
	"github.com/aplomb-go/aplomb/policy"
)

// hedgeable reports whether the first attempt may be hedged. Its request must be
// idempotent. If the request has a body, a second body must be possible without touching
// the first. A request with a trailer is not hedged. The trailer of the caller's request is
// filled in while the body is read, and the second attempt has only a copy of the trailer.
//
// The effect of PUT and DELETE is idempotent, but their status is not. The second
// attempt finds the work of the first attempt done and fails. So only safe methods
// are hedged, and others if the rule or the caller allows it.
func (x *retrier) hedgeable() bool {
	return (x.body == nil || x.body.Concurrent()) && !x.isSingle() && len(x.Req.Trailer) == 0 && x.isIdempotent() &&
		(attempt.IsSafe(x.Req) || x.Rule.Policy.Hedge.UnsafeMethods == policy.On || x.options != nil && x.options.sending == sendRepeatable) && !attempt.Upgrades(x.Req)
}

// A race is the first attempt of a request, and a second attempt beside it if the response takes
// long. The first attempt runs in the request's goroutine. While it is under way, the goroutines of
// the timer and of the second attempt use the call, one at a time. From its end on only the
// request's goroutine does.
type race struct {
	*retrier
	first  racer
	winner *racer        // whose outcome counts; nil: that is not known yet
	ended  chan struct{} // is closed when the second attempt has ended

	// turn is a lock that guards the fields below, and the call while the first attempt is under
	// way. It is a channel because its holder may wait in a hook or a classifier, and the time of a
	// synctest bubble stands still for those who wait for a mutex.
	turn   chan struct{}
	second *racer // nil: there is none
	raise  func() // repeats a panic or a runtime.Goexit of another goroutine; nil: there was none
}

// A racer is an attempt of a race.
type racer struct {
	try
	state racerState // guarded by the lock of the race
}

type racerState uint8

const (
	underWay  racerState = iota
	abandoned            // nobody needs the outcome, and the goroutine of the attempt closes a response
	ended                // there is an outcome, and of the second its class; or the base transport has panicked
	won                  // the response of the second attempt has ended the first
)

// race makes an attempt and, if its response takes long, a second attempt beside it.
func (x *retrier) race() {
	r := &race{retrier: x, turn: make(chan struct{}, 1)}
	first := &r.first
	x.newAttempt(&first.try, attempt.First)
	first.Timed = true // so it has a context of its own, through which the second attempt ends it
	first.prepare()
	var timer *time.Timer
	defer func() { r.finish(timer) }() // also if the base transport, a hook or a classifier panics
	if delay := x.hedgeDelay(); delay > 0 {
		timer = time.AfterFunc(delay, func() { r.guard(r.launch) })
	}
	first.flyCopy()
	r.winner = r.land()
	x.last, x.permit, x.told = r.winner.Outcome, r.winner.permit, r.winner.told
	if x.Rule.Policy.Hedge.Percentile > 0 && attempt.ResultOf(x.Ctx, x.last.Resp, x.last.Err) == attempt.Success {
		// Record the time of the first attempt, or the time that it had taken when
		// the second won. Otherwise each hedge would make the next hedge come
		// sooner. A failure says nothing about how long responses take.
		x.State.Machines().Latency().Record(x.Registry.Now().Sub(first.SentAt))
	}
}

// hedgeDelay returns when a second attempt is due, or a time that is not positive.
func (c *call) hedgeDelay() time.Duration {
	h := c.Rule.Policy.Hedge
	delay := h.Delay
	if h.Percentile > 0 {
		if d, ok := c.State.Machines().Latency().Quantile(h.Percentile / 100); ok {
			// Strictly after, because a response that takes just as long as the
			// percentile is not beyond it.
			delay = d + 1
		}
	}
	return delay
}

// launch sends a second attempt if the first is still under way, and everything that it needs is there:
// the budget, the host's limits, and the request's body. It waits for nothing but the caller's GetBody.
// The lock is held.
func (r *race) launch() {
	// The budget comes first, because it can be released exactly. A token of the
	// rate and a share of the server's quota cannot.
	last := line.Place{Sent: 2, Failed: r.Registry.Now(), Scope: r.LineScope(http.StatusOK)} // behind all who wait
	if r.first.state != underWay || r.Ctx.Err() != nil || !r.permit.TryLine(&r.Request, last) {
		return
	}
	defer r.permit.Cancel(&r.Request) // what the attempt does not take over, also if GetBody panics
	if !r.permit.TryAcquire(&r.Request, r.Registry.Now()) || !r.bodyBeside() {
		return
	}
	r.planner.Beside(&r.first.Outcome)
	s := new(racer)
	r.newAttempt(&s.try, attempt.Hedge)
	s.Beside, s.Ctx = true, attempt.Untraced(s.Ctx) // the caller's ClientTrace follows one attempt at a time
	s.prepare()                                     // now, because the caller may change its request as soon as it has a response
	r.second, r.ended = s, make(chan struct{})
	x := *r.retrier
	x.Req, x.Plain, x.Linked = &s.out.Req, nil, true // a copy whose context is that of the call
	go func() {
		defer close(r.ended)
		r.guard(func() { r.fly(&x) })
	}()
}

// bodyBeside takes what a second attempt beside the first needs of the body.
func (r *race) bodyBeside() bool {
	if r.body == nil {
		return true
	}
	_, err := r.body.Rewind(r.Ctx, replay.MaxBusy)
	return err == nil && r.body.Concurrent()
}

// fly sends the second attempt and asks the rule about its outcome, in a goroutine of its own. A
// classifier may wait for a body, and the first attempt must not wait with it. So until the class is
// known the second attempt is under way, and x is a copy of the retrier with its request, because the call
// may end before. If the first attempt is still under way then, a response that is no failure ends it,
// and so does a final error. A final 4xx or 5xx is kept until the first has ended. If the outcome
// would be retried, the limits hear of it at once.
func (r *race) fly(x *retrier) {
	s := r.second
	if r.unlocked(s.flyCopy, s.end); s.state == ended {
		s.state, x.last, x.permit = underWay, s.Outcome, s.permit
		r.unlocked(x.askRule, func() { s.state, s.Class, s.permit = ended, x.last.Class, x.permit })
	}
	if s.state == abandoned || r.first.state != underWay {
		return
	}
	switch {
	case s.Failed():
		r.discardRacer(s)
		s.state = abandoned
	case !s.rejected():
		s.state = won
		r.first.out.Ctx.Abandon()
	}
}

// unlocked calls a function of the second attempt without the lock, and then another with it, also if the
// first panics. If the attempt was abandoned meanwhile, unlocked closes its response instead.
func (r *race) unlocked(f, then func()) {
	defer func() {
		if r.turn <- struct{}{}; r.second.state == abandoned {
			go r.second.close() // the winner may need the lock
		} else {
			then()
		}
	}()
	<-r.turn
	f()
}

// guard calls a function under the lock. If it panics or calls runtime.Goexit, the first attempt ends,
// and the request's goroutine does the same, because without a second attempt that would have happened
// there.
func (r *race) guard(f func()) {
	raise := runtime.Goexit
	r.turn <- struct{}{}
	defer func() { <-r.turn }()
	defer func() {
		if v := recover(); v != nil {
			raise = func() { panic(v) }
		}
		if raise == nil {
			return
		}
		if r.raise = raise; r.first.state == underWay {
			r.first.out.Ctx.Abandon()
		}
	}()
	f()
	raise = nil
}

// land notes how the first attempt has ended, and returns the attempt whose outcome counts. If the
// outcome of the first would be retried, the second gets its chance. The limits hear of it at once,
// and its connection becomes free, however long the second takes.
func (r *race) land() *racer {
	first, state := &r.first, abandoned
	r.turn <- struct{}{}
	first.end()
	second, raise := r.second, r.raise
	if second != nil {
		state = second.state
	}
	<-r.turn
	switch {
	case raise != nil:
		raise()
	case state == won:
		r.recordOutrun(first, attempt.ErrOutrun, classify.Unknown)
		return second
	}
	switch {
	case state == abandoned: // there is none, or its outcome would be retried
		return first
	case state == ended:
		return r.better(second, first)
	case r.classifyRacer(first):
		r.discardRacer(first)
		return r.await()
	case !attempt.IsSafe(r.Req) && first.rejected():
		return r.better(first, r.await())
	}
	r.abandon(second)
	r.recordOutrun(second, attempt.ErrOutrun, classify.Unknown)
	return first
}

// await waits for the end of the second attempt.
func (r *race) await() *racer {
	if <-r.ended; r.raise != nil {
		r.raise()
	}
	return r.second
}

// better returns the attempt whose outcome counts, if the one that came first was refused. The server
// may have refused it because it acts on the other. Then the response of the other is the true
// response. The refusal counts if the other is refused as well, or gets nothing that is final. If the
// caller has gone, nobody knows what the server would have said to the other.
func (r *race) better(came, other *racer) *racer {
	again := r.classifyRacer(other)
	switch {
	case r.Ctx.Err() != nil, !again && other.Err == nil && !other.rejected():
		r.recordOutrun(came, attempt.ErrOutrun, classify.Unknown)
		return other
	case again:
		r.recordOutrun(other, other.Err, classify.Ambiguous)
	default:
		r.recordOutrun(other, cmp.Or(other.Err, attempt.ErrOutrun), classify.Unknown)
	}
	return came
}

// finish ends the attempts that do not count. The hooks hear of it when all are ended, because they
// may panic themselves.
func (r *race) finish(timer *time.Timer) {
	if timer != nil {
		timer.Stop()
	}
	r.turn <- struct{}{}
	if r.first.state == underWay { // the base transport has panicked
		r.first.end()
	}
	second := r.second
	<-r.turn
	for _, a := range [...]*racer{&r.first, second} {
		if a != nil && a != r.winner {
			o := r.abandon(a)
			defer r.report.tellUndecided(&a.told, &o)
		}
	}
}

// abandon ends an attempt that nobody needs any more. The goroutine of the second attempt closes a
// response that comes later. A base transport leaves the goroutine as soon as the context has ended.
// abandon returns the outcome of which the hooks hear, if they have not heard of the end yet.
func (r *race) abandon(a *racer) attempt.Outcome {
	r.turn <- struct{}{}
	over := a.state >= ended
	a.state = abandoned
	a.permit.Over(&r.Request)
	<-r.turn
	a.out.Ctx.Abandon()
	if over {
		a.close()
	}
	if over && a.Resp == nil && a.Err == nil {
		return a.Outcome // the base transport has panicked
	}
	return a.outrun()
}

// classifyRacer asks the rule for the class of an outcome, and reports whether it would be retried.
func (r *race) classifyRacer(a *racer) (again bool) {
	r.last, r.permit = a.Outcome, a.permit
	r.askRule()
	a.Class, a.permit = r.last.Class, r.permit
	return a.Failed()
}

// discardRacer discards a response that would be retried. The other attempt does not wait for the
// drain, which ends with the race.
func (r *race) discardRacer(a *racer) {
	r.recordOutrun(a, a.Err, a.Class)
	go attempt.Discard(&a.out.Ctx, a.Resp)
	a.Resp = nil
}

// recordOutrun records the attempt whose outcome does not count. Its response may still
// ask for a wait, which the next attempt keeps.
func (r *race) recordOutrun(a *racer, err error, v classify.Class) {
	last := &r.last
	if *last = a.outrun(); retryable(v) { // else it may be under way
		*last = a.Outcome
	}
	last.Class = v
	d := decision{reason: ReasonOutrun, at: time.Now(), err: err}
	if last.Failed() {
		r.planner.Note(last)
		d.retryAfter, _ = a.permit.Done(&r.Request, last)
		r.wait = d.at.Add(d.retryAfter)
	}
	r.report.record(&a.told, last, &d)
}

// end notes that the attempt has ended.
func (a *racer) end() {
	a.state, a.Pool = ended, a.out.Over()
	a.permit.Landed(&a.Attempt)
	if a.DoneAt == 0 {
		a.DoneAt = a.Clock.Now()
	}
}

// outrun returns the outcome of an attempt that another was faster than, and that may be under way.
func (a *racer) outrun() attempt.Outcome {
	o := a.AsSent()
	o.Pool, o.Err, o.DoneAt = a.out.Over(), attempt.ErrOutrun, a.Clock.Now()
	return o
}

// rejected reports whether the response is a failure.
func (a *racer) rejected() bool {
	return a.Resp != nil && a.Resp.StatusCode/100 != 2 && a.Resp.StatusCode/100 != 3
}

// close closes a response without draining it, because its context has ended. A Close that panics
// would end the process in the goroutine of the second attempt, and a Close that blocks would hold
// up the winner.
func (a *racer) close() {
	a.Refused.Release()
	attempt.Dismiss(&a.out.Ctx, a.Resp)
}
