// Hedging: a second attempt beside a slow one, and whose response counts.

package transport

import (
	"cmp"
	"net/http"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/aplomb-go/aplomb/classify"
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
//   - to launch the hedge. The retrier is back when launched is closed.
//   - to tell of the end of the hedge, if that comes before the end of the first. The retrier is back
//     when the hedge has come.
//
// Apart from that, the goroutine of the hedge only uses the hedge, which has all that it needs. So no lock is
// held while a hook, a classifier or a GetBody takes its time.
type race struct {
	*retrier
	first    try
	hedge    *hedge        // nil: there is none; of no meaning before launched is closed
	launched chan struct{} // is closed when the hedge is sent, or will not be
	ended    atomic.Bool   // an attempt has ended, and who sets it first has ended first
	arrived  bool          // the hedge has come
	raise    func()        // repeats a panic or a runtime.Goexit of the goroutine of the hedge; nil: there was none
}

// A hedge is a second attempt beside the first. It has a call of its own, whose request is the copy that it sends: the
// caller may change its own request before the hedge has ended.
type hedge struct {
	try
	call call
	came chan struct{} // receives when it has ended; from then on it belongs to the goroutine of the request
	over chan struct{} // is closed when nobody waits for it any more
}

// race makes an attempt and, if its response takes long, a hedge beside it.
func (x *retrier) race() {
	r := &race{retrier: x, launched: make(chan struct{})}
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
	var timer *time.Timer
	if delay > 0 {
		timer = time.AfterFunc(delay, r.fly)
	}
	defer func() { // also if the base transport panics
		if behind := r.ended.Swap(true); timer != nil && !timer.Stop() {
			if <-r.launched; behind && r.hedge != nil {
				<-r.hedge.came
				r.arrived = true
			}
		}
		r.first.end()
	}()
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
	raise, ahead := runtime.Goexit, false
	var h *hedge
	defer func() {
		if v := recover(); v != nil {
			raise = func() { panic(v) }
		}
		if r.raise = raise; raise != nil && (ahead || !r.ended.Swap(true)) {
			r.first.Out.Ctx.Abandon()
		}
		if h == nil {
			close(r.launched)
			return
		}
		select {
		case h.came <- struct{}{}:
		case <-h.over:
			h.close()
		}
	}()
	if h = r.launch(); h != nil {
		r.hedge = h
		close(r.launched)
		h.fly(&h.call)
		h.end()
		h.call.askRule(&h.try, nil)
		if ahead = !r.ended.Swap(true); ahead && h.Failed() {
			r.discard(&h.try)
		} else if ahead && !h.rejected() {
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
	if r.ended.Load() || r.Ctx.Err() != nil || !r.next.turn.Try(&r.Request, last) {
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
		r.recordOutrun(first, attempt.ErrOutrun, classify.Unknown)
		return &h.try
	case r.isRetried(first):
		r.discard(first)
		return r.await()
	case !attempt.IsSafe(r.Req) && first.rejected():
		return r.better(first, r.await())
	}
	h.Out.Ctx.Abandon()
	r.recordOutrun(&h.try, attempt.ErrOutrun, classify.Unknown)
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
	again := r.isRetried(other)
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

// finish ends the attempts that do not count. The goroutine of the hedge closes a response that comes later. A base
// transport leaves that goroutine as soon as the context has ended.
func (r *race) finish() {
	h := r.hedge
	switch {
	case h == nil:
		return
	case r.last == &h.try:
		r.first.turn.Over(&r.Request)
		r.first.close()
		return
	}
	close(h.over)
	h.turn.Over(&r.Request)
	h.Out.Ctx.Abandon()
	o := h.Outrun()
	if r.arrived {
		o.Resp, o.Err = h.Resp, h.Err
		h.close()
	}
	r.tellUndecided(&h.told, &o)
}

// isRetried asks the rule for the class of an outcome, and reports whether it would be retried.
func (r *race) isRetried(a *try) bool {
	r.askRule(a, r.history)
	return a.Failed()
}

// discard discards a response that would be retried. The other attempt does not wait for the
// drain, which ends with the race.
func (r *race) discard(a *try) {
	r.recordOutrun(a, a.Err, a.Class)
	go attempt.Discard(&a.Out.Ctx, a.Resp)
	a.Resp = nil
}

// recordOutrun records the attempt whose outcome does not count. Its response may still
// ask for a wait, which the next attempt keeps.
func (r *race) recordOutrun(a *try, err error, v classify.Class) {
	o := a.Outrun() // it may be under way
	if retryable(v) {
		o = a.Outcome
	}
	o.Class = v
	d := decision{reason: ReasonOutrun, at: time.Now(), err: err}
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
