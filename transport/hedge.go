// When is a request sent a second time, and whose answer counts?

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
	"github.com/aplomb-go/aplomb/internal/host"
	"github.com/aplomb-go/aplomb/internal/replay"
	"github.com/aplomb-go/aplomb/policy"
)

// hedgeable reports whether the next send may be hedged: the first one of an
// idempotent request whose body, if it has one, can be made a second time
// without touching the first. A trailer is filled in while the body is read, in
// the caller's request, of which a leg has a copy.
//
// The effect of PUT and DELETE is idempotent, but their status is not: the second
// send finds the work of the first one done and fails. So only safe methods are
// hedged, and others by the word of the caller or of the rule's author.
func (x *exchange) hedgeable() bool {
	return x.sent == 0 && x.body.Concurrent() && !x.single() && len(x.req.Trailer) == 0 && x.idempotent() &&
		(safe(x.req) || x.vouched()) && !upgrades(x.req)
}

// safe reports whether the request's method is safe (RFC 9110 §9.2.1).
func safe(req *http.Request) bool {
	switch req.Method {
	case "", http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace:
		return true
	}
	return false
}

// vouched reports whether somebody has said of this very request that it may be
// repeated: the caller by Repeatable, or the rule by an Idempotent of its own.
func (x *exchange) vouched() bool {
	return x.options != nil && x.options.sending == repeatable || x.rule.vouches
}

// A runner is a leg that runs in a goroutine of its own. Whoever is first, the
// leg with its answer or the race that no longer needs it, takes the state away
// from running; so an answer that comes as the race ends is closed by exactly
// one of the two.
type runner struct {
	leg
	timer *attemptTimer
	state atomic.Uint32 // running, answered or abandoned

	// set before the state is answered
	resp     *http.Response
	err      error
	panicked any  // what the base transport panicked with
	exited   bool // the base transport called runtime.Goexit
}

const (
	running uint32 = iota
	answered
	abandoned
)

// start sends the leg. Each has a context of its own, so that ending the loser
// does not touch the winner, whose context ends with its body.
func (l leg) start(done chan<- *runner) *runner {
	l.beside = true
	req, timer := l.prepare() // now: the caller may change its request as soon as it has an answer
	r := &runner{leg: l, timer: timer}
	go func() {
		returned := false
		defer func() {
			r.panicked = recover() // next repeats it in the caller's goroutine
			r.exited = !returned && r.panicked == nil
			if !r.state.CompareAndSwap(running, answered) {
				r.close()
				return
			}
			done <- r // has room for every runner
		}()
		r.resp, r.err = r.sendCopy(req, timer)
		returned = true
	}()
	return r
}

// abandon ends a leg that nobody needs any more; its goroutine, which a base
// transport leaves as soon as the context has ended, closes what comes. It may
// be called again.
func (r *runner) abandon() {
	switch {
	case r.state.CompareAndSwap(running, abandoned):
		r.timer.abandon()
	case r.state.CompareAndSwap(answered, abandoned):
		r.timer.abandon()
		r.close()
	}
}

// close gives up an answer. It is not drained: its context has ended. A Close
// that panics would end the process here, and one that blocks would hold up the
// winner.
func (r *runner) close() { discardWithin(r.ctx, r.resp, 0) }

// runners are the legs of one race.
type runners struct {
	first, second, winner *runner
	done                  chan *runner // has room for all
}

// end abandons all but the winner, also when a hook or a classifier panics.
func (r *runners) end() {
	for _, other := range [...]*runner{r.first, r.second} {
		if other != nil && other != r.winner {
			other.abandon()
		}
	}
}

// next returns the next leg that has ended. If the base transport panicked or
// called runtime.Goexit, next does the same: without a hedge both would have
// happened in the caller's goroutine.
func (r *runners) next() *runner {
	came := <-r.done
	if came.panicked != nil {
		panic(came.panicked)
	}
	if came.exited {
		runtime.Goexit()
	}
	return came
}

// race sends the request and, when the answer takes long, sends it again. The
// first answer that is worth having wins.
func (x *exchange) race() (*http.Response, error) {
	start := time.Now()
	r := runners{done: make(chan *runner, 2)}
	defer r.end()
	r.first = x.leg(x.body.Next()).start(r.done)
	x.hedge(&r)
	came := r.next()
	if r.second != nil {
		came = x.pick(&r, came)
	}
	r.winner = came
	x.number, x.mark = came.number, came.mark
	if x.rule.rule.Hedge.Percentile > 0 && resultOf(x.ctx, came.resp, came.err) == host.Success {
		// The first send's time, or what it had taken when the second won:
		// without those each hedge would make the next come sooner. A failure
		// says nothing about how long answers take.
		x.state.Machines().Latency().Record(time.Since(start))
	}
	return came.resp, came.err
}

// hedge waits for the first send's answer for as long as the rule says, and
// then sends the request a second time if the host's limits have room for it.
func (x *exchange) hedge(r *runners) {
	delay, ok := x.hedgeDelay()
	if !ok {
		return
	}
	timer := time.NewTimer(delay)
	defer timer.Stop()
	select {
	case came := <-r.done:
		r.done <- came // has room: it has just been taken out
		return
	case <-timer.C:
	}
	l, ok := x.secondLeg()
	if !ok {
		return
	}
	r.second = l.start(r.done)
	x.tell(nil, &decision{Attempt: Attempt{Number: r.first.number, Time: time.Now()}, reason: ReasonHedged})
}

// hedgeDelay returns when a second send is due.
func (x *exchange) hedgeDelay() (time.Duration, bool) {
	h := x.rule.rule.Hedge
	if h.Percentile > 0 {
		if d, ok := x.state.Machines().Latency().Quantile(h.Percentile / 100); ok {
			// Strictly after: what takes just as long as the percentile is not
			// beyond it.
			return d + 1, true
		}
	}
	return h.After, h.After > 0
}

// secondLeg takes what a second send needs, without waiting for any of it: the
// budget, the host's limits, and the request's body.
func (x *exchange) secondLeg() (l leg, ok bool) {
	if x.ctx.Err() != nil {
		return l, false
	}
	// The budget first: it can be given back exactly, a token of the rate or a
	// slot of the server's quota cannot.
	if !x.reserve() {
		return l, false
	}
	defer func() { // also when GetBody panics
		if !ok {
			x.refund()
			x.giveBack()
		}
	}()
	if !x.admitHedge() || x.body.TakeBack(x.ctx, replay.MaxBusy) != nil || !x.body.Concurrent() {
		return l, false
	}
	return x.leg(x.body.Next()), true
}

// admitHedge asks the rule's limits without taking a place in any line.
func (x *exchange) admitHedge() bool {
	m, now := x.state.Machines(), x.t.now()
	if x.rule.rule.Cooldown == policy.On && !x.state.Quiet() && m.Cooldown.Enter(now, x.scope(), nil).Verb != host.Go {
		return false
	}
	if x.rule.pacing {
		if a, _ := (pacingPlace{m.Pacing(), x}).enter(now, nil); a.Verb != host.Go {
			return false
		}
	}
	switch {
	case x.rule.gate:
		x.flight = &flight{t: x.t, gate: m.Gate()}
		a, _ := x.gatePlace().enter(now, nil)
		return a.Verb == host.Go
	case x.rule.rate:
		return m.Rate(x.rule.rateConfig()).Take(time.Now())
	}
	return true
}

// pick returns the leg whose answer counts. One that would be retried makes way
// for the other: the host's machines hear of it at once, and its connection is
// free, however long the other takes.
func (x *exchange) pick(r *runners, came *runner) *runner {
	other := r.first
	if came == r.first {
		other = r.second
	}
	switch {
	case retryable(x.classifyLeg(came)):
		return x.makeWay(r, came)
	case !safe(x.req) && rejected(came):
		return x.waitForBetter(r, came)
	}
	other.abandon()
	x.outrun(other, errOutrun, classify.Unknown)
	return came
}

// classifyLeg asks the rule for a verdict on a leg's answer.
func (x *exchange) classifyLeg(r *runner) classify.Verdict {
	x.mark = r.mark
	return x.classify(r.resp, r.err)
}

// rejected reports whether the leg was answered by a 4xx.
func rejected(r *runner) bool {
	return r.resp != nil && r.resp.StatusCode/100 == 4
}

// waitForBetter holds a 4xx back while the other send of a request that is not
// safe is under way: the server may have refused this one because it acts on the
// other one, whose answer then is the true one. The 4xx counts if the other send
// is answered by a 4xx as well, or by nothing that is final.
func (x *exchange) waitForBetter(r *runners, came *runner) *runner {
	other := r.next()
	again := retryable(x.classifyLeg(other))
	switch {
	case x.ctx.Err() != nil: // nobody knows what the other one would have been told
	case again:
		x.outrun(other, other.err, classify.Ambiguous)
		return came
	case other.err != nil || rejected(other):
		x.outrun(other, cmp.Or(other.err, errOutrun), classify.Unknown)
		return came
	}
	x.outrun(came, errOutrun, classify.Unknown)
	return other
}

// makeWay gives up a leg whose answer would be retried, and waits for the other.
func (x *exchange) makeWay(r *runners, came *runner) *runner {
	x.outrun(came, came.err, classify.Ambiguous)
	if resp := came.resp; resp != nil {
		// The other's answer does not wait until this one is drained, which ends
		// with the race.
		ctx, over := context.WithCancel(x.ctx)
		defer over()
		go func() {
			defer func() { _ = recover() }() // of a body that nobody else reads
			discard(ctx, resp)
		}()
		came.resp = nil
	}
	return r.next()
}

// outrun records the send whose answer does not count.
func (x *exchange) outrun(r *runner, err error, v classify.Verdict) {
	d := decision{Attempt: Attempt{Number: r.number, Err: err, Verdict: v, Time: time.Now()}, reason: ReasonOutrun, u: rand.Float64()}
	if v == classify.Ambiguous { // its answer came, and is not worth having, but may ask to wait
		if r.resp != nil {
			d.Status = r.resp.StatusCode
		}
		hint, _ := x.note(r.resp, &d)
		d.Hint = max(hint, 0)
		x.notBefore = d.Time.Add(d.Hint)
	}
	x.observe(nil, &d)
}
