// Hedging: a second attempt beside a slow one, and whose response counts.

package transport

import (
	"net/http"
	"runtime"
	"time"

	"github.com/aplomb-go/aplomb/internal/attempt"
	"github.com/aplomb-go/aplomb/internal/host/line"
	"github.com/aplomb-go/aplomb/internal/limit"
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
func (c *call) hedgeable(body replay.Body) bool {
	return (body == nil || body.Concurrent()) && !c.isSingle() && len(c.Req.Trailer) == 0 && c.isIdempotent() &&
		(attempt.IsSafe(c.Req) || c.Rule.Policy.Hedge.UnsafeMethods == policy.On || c.options != nil && c.options.sending == sendRepeatable) && !attempt.Upgrades(c.Req)
}

// A race is the first attempt of a request, and a hedge beside it if the response takes long. The first
// attempt runs in the goroutine of the request, which owns the retrier. While that goroutine is in the base
// transport, it lends the retrier to the goroutine of the hedge, for two things:
//
//   - to launch the hedge.
//   - to tell of the end of the hedge, if that comes before the end of the first.
//
// Apart from that, the goroutine of the hedge only uses the hedge, which has all that it needs. When the first
// attempt has ended, the goroutine of the request takes the retrier back for good. It waits for that, because
// a hook or a function of the rule may take its time.
type race struct {
	*retrier
	first   try
	taken   chan struct{} // is full while the goroutine of the hedge uses the retrier, and since the first attempt has ended
	hedge   *hedge        // nil: there is none
	arrived bool          // the hedge has come
	raise   func()        // repeats a panic or a runtime.Goexit of the goroutine of the hedge; nil: there was none
}

// take takes the retrier for the goroutine of the hedge. It reports whether the first attempt is still under way.
func (r *race) take() bool {
	select {
	case r.taken <- struct{}{}:
		return true
	default:
		return false
	}
}

// A hedge is a second attempt beside the first. It has a call of its own, whose request is the copy that it sends: the
// caller may change its own request before the hedge has ended.
type hedge struct {
	try
	call call
	came chan struct{} // receives when it has ended after the first; from then on it belongs to the goroutine of the request
	over chan struct{} // is closed when nobody waits for it any more
}

// race makes an attempt and, if its response takes long, a hedge beside it.
func (x *retrier) race() {
	r := &race{retrier: x, taken: make(chan struct{}, 1)}
	first := &r.first
	x.newAttempt(first, attempt.First)
	x.last = first
	first.Timed = true // so it has a context of its own, through which the hedge ends it
	first.prepare(&x.call)
	defer r.finish() // also if the base transport, a hook or a classifier panics
	r.sendFirst()
	x.last = r.land()
	if x.Rule.Policy.Hedge.Percentile > 0 && attempt.ResultOf(x.Ctx, x.last.Resp, x.last.Err) == attempt.Success {
		// Record the time of the first attempt, or the time that it had taken when
		// the second won. Otherwise each hedge would make the next hedge come
		// sooner. A failure says nothing about how long responses take.
		x.State.Machines().Latency().Record(x.Registry.Now().Sub(first.SentAt))
	}
}

// sendFirst sends the first attempt, during which it lends the retrier.
func (r *race) sendFirst() {
	rule := r.Rule.Policy.Hedge
	delay := rule.Delay
	if rule.Percentile > 0 {
		if d, ok := r.State.Machines().Latency().Quantile(rule.Percentile / 100); ok {
			// Strictly after, because a response that takes just as long as the
			// percentile is not beyond it.
			delay = d + 1
		}
	}
	if delay > 0 {
		defer time.AfterFunc(delay, r.fly).Stop()
	}
	defer r.first.end()
	defer func() { r.taken <- struct{}{} }() // also if the base transport panics
	r.first.fly(&r.call)
}

// fly launches the hedge, sends it and asks the rule about its outcome, in a goroutine of its own. A
// classifier may wait for a body, and the first attempt must not wait with it. If the first attempt is
// still under way then, a response that is no failure ends it, and so does a final error. A final 4xx or 5xx
// is kept until the first has ended. If the outcome would be retried, the limits hear of it at once.
//
// If something panics or calls runtime.Goexit, the first attempt ends, and the goroutine of the request does the same,
// because without a hedge that would have happened there.
func (r *race) fly() {
	if !r.take() {
		return
	}
	raise, owns := runtime.Goexit, true
	var h *hedge
	defer func() {
		if v := recover(); v != nil {
			raise = func() { panic(v) }
		}
		if r.raise = raise; owns || r.take() {
			if raise != nil {
				r.first.Out.Ctx.Abandon()
			}
			r.arrived = h != nil
			<-r.taken
			return
		}
		select {
		case h.came <- struct{}{}:
		case <-h.over:
			h.close()
		}
	}()
	if h = r.launch(); h != nil {
		r.hedge, owns = h, false
		<-r.taken
		h.fly(&h.call)
		h.end()
		h.call.askRule(&h.try, nil)
		if owns = r.take(); owns && h.Failed() {
			r.discard(&h.try)
		} else if owns && !h.rejected() {
			r.first.Out.Ctx.Abandon()
		}
	}
	raise = nil
}

// launch returns a hedge if the first attempt is still under way, and everything that it needs is there:
// the budget and the host's limits. It waits for nothing.
func (r *race) launch() *hedge {
	// The budget comes first, because it can be released exactly. A token of the
	// rate and a share of the server's quota cannot.
	last := line.Place{Sent: 2, Failed: r.Registry.Now(), Scope: r.LineScope(http.StatusOK)} // behind all who wait
	if r.Ctx.Err() != nil || !r.next.turn.Try(&r.Request, last) {
		return nil
	}
	defer r.next.cancel(&r.Request) // the parts that the attempt does not take over
	if r.Rule.Gated {
		if r.next.permit = new(limit.Permit); !r.next.permit.TryAcquire(&r.Request, r.Registry.Now()) {
			return nil
		}
	}
	r.planner.Beside(&r.Request, &r.first.Outcome)
	h := &hedge{call: r.call, came: make(chan struct{}), over: make(chan struct{})}
	r.newAttempt(&h.try, attempt.Hedge)
	h.Beside, h.Ctx = true, attempt.Untraced(h.Ctx) // the caller's ClientTrace follows one attempt at a time
	h.prepare(&r.call)                              // now, because the caller may change its request as soon as it has a response
	h.call.Req, h.call.Plain, h.call.Linked = &h.Out.Req, nil, true
	return h
}

// land returns the attempt whose outcome counts, when the first has ended. If the
// outcome of the first would be retried, the hedge gets its chance. The limits hear of it at once,
// and its connection becomes free, however long the hedge takes.
func (r *race) land() *try {
	first, h := &r.first, r.hedge
	if (h == nil || r.arrived) && r.raise != nil {
		r.raise()
	}
	switch {
	case h == nil, r.arrived && h.Failed(): // which is told already
		return first
	case r.arrived && h.rejected():
		return r.better(&h.try, first)
	case r.arrived:
		r.lose(first, first.Outrun())
		return &h.try
	}
	r.askRule(first, r.history)
	switch {
	case first.Failed():
		r.discard(first)
		return r.await()
	case !attempt.IsSafe(r.Req) && first.rejected():
		return r.better(first, r.await())
	}
	r.lose(&h.try, h.Outrun())
	return first
}

// await waits for the end of the hedge.
func (r *race) await() *try {
	<-r.hedge.came
	if r.arrived = true; r.raise != nil {
		r.raise()
	}
	return &r.hedge.try
}

// better returns the attempt whose outcome counts, if the attempt that came first was refused. The
// server may have refused it because it acts on the other. Then the response of the other is the true
// response. The refusal counts if the other is refused as well, or gets nothing that is final. If the
// caller has gone, nobody will know the server's answer to the other.
func (r *race) better(came, other *try) *try {
	r.askRule(other, r.history)
	if r.Ctx.Err() != nil || !other.Failed() && other.Err == nil && !other.rejected() {
		came, other = other, came
	}
	r.lose(other, other.Outcome)
	return came
}

// finish ends the attempts that do not count. The goroutine of the hedge closes a response that comes later. A base
// transport leaves that goroutine as soon as the context has ended.
func (r *race) finish() {
	h := r.hedge
	if h == nil {
		return
	}
	close(h.over)
	lost, ended := &h.try, r.arrived
	if r.last == lost {
		lost, ended = &r.first, true
	}
	lost.turn.Over(&r.Request)
	lost.Out.Ctx.Abandon()
	o := lost.Outrun()
	if ended {
		o = lost.Outcome
		lost.close()
	}
	r.tellUndecided(&lost.told, &o)
}

// discard discards a response that would be retried. The other attempt does not wait for the
// drain, which ends with the race.
func (r *race) discard(a *try) {
	r.lose(a, a.Outcome)
	go attempt.Discard(&a.Out.Ctx, a.Resp)
	a.Resp = nil
}

// lose records the attempt whose outcome o does not count. Its response may still
// ask for a wait, which the next attempt keeps.
func (r *race) lose(a *try, o attempt.Outcome) {
	d := decision{reason: ReasonOutrun, at: time.Now(), err: o.Err}
	if o.Failed() {
		r.planner.Note(&r.Request, &o)
		d.retryAfter, _ = a.done(&r.Request, &o)
		r.wait = d.at.Add(d.retryAfter)
	}
	r.record(&a.told, &o, &d)
}

// rejected reports whether the response is a failure.
func (a *try) rejected() bool {
	return a.Resp != nil && a.Resp.StatusCode/100 != 2 && a.Resp.StatusCode/100 != 3
}

// close ends an attempt without draining its response, if there is any. A Close that panics
// would end the process in the goroutine of the hedge, and a Close that blocks would hold
// up the winner.
func (a *try) close() {
	a.Out.Ctx.Abandon()
	a.Refused.Release()
	attempt.Dismiss(&a.Out.Ctx, a.Resp)
}
