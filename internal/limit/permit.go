// Package limit is the part of a request at one host. Before an attempt the request passes the
// limits of the host. After the attempt it tells them what the outcome says. It also tells
// those who watch the host, and the other members of a fleet.
package limit

import (
	"time"

	"github.com/aplomb-go/aplomb/internal/attempt"
	"github.com/aplomb-go/aplomb/internal/field"
	"github.com/aplomb-go/aplomb/internal/host/budget"
	"github.com/aplomb-go/aplomb/internal/host/concurrency"
	"github.com/aplomb-go/aplomb/internal/host/instant"
	"github.com/aplomb-go/aplomb/internal/host/line"
	"github.com/aplomb-go/aplomb/internal/host/pacing"
)

// A Permit is what the limits of a host gave to one attempt: a slot, a token, a share of a quota and a
// retry of the budget. Before the attempt, TryAcquire or Acquire asks all of them. Start hands the
// slot over to the attempt. After it, Headers and Done tell the limits what the response says (see
// done.go). Cancel gives back what no attempt has taken over.
type Permit struct {
	Queued attempt.Queued // so far

	place    *line.Place     // in the line, or of an attempt that has left it; nil: none
	token    budget.Token    // of a retry that has not gone yet
	slot     attempt.Slot    // at the limiter, until an attempt takes it over, and then of a response that is no success
	refused  *attempt.Slot   // that of such a response, if a copy was sent; nil: none
	pass     pacing.Pass     // the numbers of the attempt at the pacing; zero if no quota was known
	since    instant.Instant // when the attempt began to wait for the limits
	heard    headersSeen     // of the headers of its response
	refusals uint32          // that the throttle knew of when it let the attempt go; 0 if nothing was held
	crowded  bool            // the attempt waited for long for a slot, or would have to, which is to be told
	rated    bool            // it waited for long for the rate, or would have to, which is to be told
	starved  bool            // it waited for long for a retry, or in vain, which is to be told
	failed   bool            // its outcome is a failure of the host
}

// A Rejection says why a request does not go, or not again. A nil refusal lets it
// go.
type Rejection struct {
	Why   why
	Err   error     // of the caller's context
	Until time.Time // when a new request makes sense; zero: not known
	Limit string    // that the request waited for; empty: none
}

// A why is the kind of a refusal.
type why uint8

const (
	whyGone    why = iota // the caller's context has ended
	WhyLate               // its turn would come after the caller's deadline
	WhyOverdue            // its turn would come later than the rule allows
	WhyFull               // at the limiter, and the rule says FailFast
)

// The limits at which a request waits, by the names that everybody has for them.
const (
	LimitThrottle    = "throttled"
	LimitPacing      = "quota"
	LimitConcurrency = "concurrency"
	LimitRate        = "rate_limit"
	LimitLine        = "retry_budget"
	LimitCircuit     = "circuit_open" // the host is down
	limitFleet       = "fleet"        // what other members were told
)

// Acquire waits until the limits let an attempt go. The hold of the server comes
// first, then the limits of the rule, and last a slot at the limiter, so that no request
// keeps a slot while it waits for another limit. If the turn of the request would
// come too late, Acquire refuses it at once. latest is the time after which a retry
// may not start. It is 0 for the first attempt, and if nothing bounds it.
func (p *Permit) Acquire(r *Request, latest instant.Instant) *Rejection {
	if r.latest = latest; !r.Rule.Limited && r.State.Quiet() {
		return nil
	}
	p.review(r, nil)
	if r.Rule.RateLimit || r.Rule.QuotaPacing {
		r.askCost() // now, because nothing is held yet if it panics
	}
	p.since = r.Registry.Now()
	for {
		if no := p.awaitServer(r); no != nil {
			return no
		}
		if p.Queued.Throttle > 0 {
			p.review(r, nil) // the hold may be over, and there is no slot yet
		}
		waited, no := p.awaitRule(r)
		p.rated = p.Queued.Rate > longWait || no != nil && no.Limit == LimitRate && time.Until(no.Until) > longWait
		goes := no == nil && (!waited || !p.isHeldAgain(r))
		if no != nil || goes {
			if p.crowded || p.rated {
				p.review(r, nil)
			}
			return no
		}
		// While this request waited for its turn, the server asked for a wait, or
		// named its quota for the first time, and the request is not yet due.
		p.slot.Release()
	}
}

// awaitServer waits for the end of a hold of the scope, and for its turn in the ramp.
func (p *Permit) awaitServer(r *Request) *Rejection {
	if p.refusals = 0; !r.mayBeHeld() {
		return nil
	}
	_, _, no := p.wait(r, LimitThrottle, &p.Queued.Throttle)
	return no
}

// awaitRule waits for the word of others, and for the limits that the rule turns on: a share of the server's
// quota, the rate, and a slot at the limiter.
func (p *Permit) awaitRule(r *Request) (waited bool, no *Rejection) {
	var more bool
	p.pass = pacing.Pass{}
	if r.mayWait(limitFleet) {
		if _, waited, no = p.wait(r, limitFleet, &p.Queued.Throttle); no != nil {
			return waited, no
		}
	}
	if r.mayWait(LimitPacing) {
		_, more, no = p.wait(r, LimitPacing, &p.Queued.Pacing)
		if waited = waited || more; no != nil {
			return waited, no
		}
	}
	switch {
	case r.Rule.Concurrency:
		more, no = p.awaitSlot(r, r.State.Machines().Concurrency())
	case r.Rule.RateLimit:
		more, no = p.awaitRate(r)
	}
	return waited || more, no
}

// awaitSlot waits for a token of the rate, if the rule has one, and for a slot at the
// limiter. It takes both at the same moment.
func (p *Permit) awaitSlot(r *Request, limiter *concurrency.Limiter) (waited bool, no *Rejection) {
	p.slot = attempt.Slot{Home: r.Registry, Limiter: limiter}
	_, waited, no = p.wait(r, LimitConcurrency, &p.Queued.Concurrency)
	p.crowded = p.Queued.Concurrency > longWait || no != nil && no.Why == WhyFull
	if no != nil {
		p.slot.Release()
	}
	return waited, no
}

// awaitRate takes a token of the rate.
func (p *Permit) awaitRate(r *Request) (waited bool, no *Rejection) {
	a, waited, no := p.wait(r, LimitRate, &p.Queued.Rate)
	early := a.Until.Sub(r.Registry.Now())
	if no != nil || early <= 0 {
		return waited, no
	}
	now := time.Now()
	if no := r.tooLate(now, now.Add(early)); no != nil {
		no.Limit = LimitRate
		return true, no
	}
	defer func() { p.Queued.Rate += time.Since(now) }()
	if err := r.Sleep(early, nil); err != nil {
		return true, &Rejection{Err: err, Limit: LimitRate}
	}
	return true, nil
}

// TryAcquire asks the limits for an attempt that does not wait. If it reports false, the caller cancels
// the permit. A share of a quota is lost then, and nothing else is taken.
func (p *Permit) TryAcquire(r *Request, now instant.Instant) bool {
	m := r.State.Machines()
	for _, limit := range [...]string{LimitThrottle, limitFleet, LimitPacing} {
		if r.mayWait(limit) && !p.ask(r, limit, now) {
			return false
		}
	}
	switch {
	case r.Rule.Concurrency:
		p.slot = attempt.Slot{Home: r.Registry, Limiter: m.Concurrency()}
		return p.ask(r, LimitConcurrency, now)
	case r.Rule.RateLimit:
		limit := m.Rate(r.Rule.Settings.Rate)
		return limit.Queue() == 0 && limit.Take(now, r.askCost())
	}
	return true
}

// HasMore reports whether the limits have to hear of a good response to an attempt that TryAcquire
// let go. Of most of them they need to know nothing.
func (p *Permit) HasMore(r *Request, o *attempt.Outcome) bool {
	return p.slot.Limiter != nil || p.refused != nil || // the response is no success
		r.Rule.QuotaPacing && len(field.Quotas(o.Resp.Header)) > 0
}

// mayWait reports whether the server, or the word of others, may make the request wait at a limit.
func (r *Request) mayWait(limit string) bool {
	switch m := r.State.Machines(); limit {
	case limitFleet:
		return m.Fleet != nil && !m.Fleet.Quiet()
	case LimitPacing:
		return r.Rule.QuotaPacing && !m.Pacing().Quiet()
	}
	return r.mayBeHeld()
}

// isHeldAgain reports whether the server asked for a wait since the throttle let the request go, which
// is not over, or named its quota for the first time, under which the request is not due.
func (p *Permit) isHeldAgain(r *Request) bool {
	m, now := r.State.Machines(), r.Registry.Now()
	if r.mayBeHeld() && m.Throttle.HeldSince(now, r.scopeKey(), p.refusals) {
		return true
	}
	return p.pass == (pacing.Pass{}) && r.mayWait(LimitPacing) && !p.ask(r, LimitPacing, now)
}

// Start notes that an attempt goes now. It uses up the retry of the budget, and
// hands the slot over to the attempt.
func (p *Permit) Start(a *attempt.Attempt) {
	a.Slot, p.slot, p.token = p.slot, attempt.Slot{}, 0
}

// Landed takes the slot back if the response is no success.
func (p *Permit) Landed(a *attempt.Attempt) { p.slot, p.refused = a.Slot, a.Refused }

// Cancel gives back everything that no attempt has taken over. A second call does nothing.
func (p *Permit) Cancel(r *Request) {
	p.Over(r)
	if p.token != 0 {
		r.State.Machines().Line.GiveBack(p.token)
		p.token = 0
	}
	p.releaseSlot(r)
}

// releaseSlot ends the slot of an attempt that did not go, or of a response that is no success.
func (p *Permit) releaseSlot(r *Request) {
	if r.Rule.Concurrency {
		p.slot.Release()
		p.refused.Release()
	}
}
