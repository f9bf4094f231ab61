// Package limit is the gate of a host whose rule turns limits on: a rate, a limit of the requests in flight, the pacing of
// the server's quota, or waits that requests share. Requests to any other host have no permit, and enter neither this package nor
// the machines of the limits. A circuit breaker is a matter of the line, in package exchange.
package limit

import (
	"time"

	"github.com/aplomb-go/aplomb/internal/attempt"
	"github.com/aplomb-go/aplomb/internal/exchange"
	"github.com/aplomb-go/aplomb/internal/field"
	"github.com/aplomb-go/aplomb/internal/host"
	"github.com/aplomb-go/aplomb/internal/host/instant"
	"github.com/aplomb-go/aplomb/internal/host/news"
	"github.com/aplomb-go/aplomb/internal/host/pacing"
	"github.com/aplomb-go/aplomb/policy"
)

// A Permit holds the grants of a host's limits to an attempt: a slot, a token of the rate and a share of a quota.
// Before the attempt, TryAcquire or Acquire asks all of them. Start hands the slot over to the
// attempt. After it, Headers and Done tell the limits about the response (see done.go). Cancel gives
// back the grants that no attempt has taken over.
type Permit struct {
	slot    attempt.Slot    // at the limiter, until an attempt takes it over, and then of a response that is no success
	refused *attempt.Slot   // that of such a response, if a copy was sent; nil: none
	pass    pacing.Pass     // the numbers of the attempt at the pacing; zero if no quota was known
	queued  *attempt.Queued // of the attempt, while it asks
	since   instant.Instant // when it began to ask
	latest  instant.Instant // when it has to go at the latest; 0: it may always
	heard   headersSeen     // of the headers of its response
	at      atLimit         // where it waits; here so that a wait costs less
	named   instant.Instant // the end of the hold that the throttle knew of when it let the attempt go; 0: there was none
}

// A limit is where a request may have to wait. It asks them in this order.
type limit uint8

const (
	atThrottle limit = iota // for the end of a hold of the scope, and for its turn in the ramp
	atFleet                 // for the holds and quotas of other members
	atPacing                // for a share of the server's quota
	atLimiter               // for a slot, for a token of the rate, or for both
	limits
)

// The limits at which a request waits, by the names that everybody has for them.
const (
	LimitThrottle    = "throttled"
	LimitPacing      = "quota"
	LimitConcurrency = "concurrency"
	LimitRate        = "rate_limit"
)

// Acquire waits until the limits let an attempt go. The hold of the server comes
// first, then the limits of the rule, and last a slot at the limiter, so that no request
// keeps a slot while it waits for another limit. If the turn of the request would
// come too late, Acquire rejects it at once. latest is the time after which a retry
// may not start. It is 0 for the first attempt, and if nothing bounds it. queued is how long the attempt has waited so far.
func (p *Permit) Acquire(r *exchange.Request, queued *attempt.Queued, latest instant.Instant) *exchange.Rejection {
	if !r.Rule.Limited && r.State.Quiet() {
		return nil
	}
	if r.Rule.RateLimit || r.Rule.QuotaPacing {
		r.Cost() // now, because nothing is held yet if it panics
	}
	p.queued, p.since, p.latest = queued, r.Registry.Now(), latest
	for {
		waited, no := p.await(r)
		if no != nil || !waited || !p.isHeldAgain(r) {
			p.tellWaits(r, no)
			return no
		}
		// While this request waited for its turn, the server asked for a wait, or
		// named its quota for the first time, and the request is not yet due.
		p.slot.Release()
	}
}

// await waits at each limit in turn.
func (p *Permit) await(r *exchange.Request) (waited bool, no *exchange.Rejection) {
	p.begin(r)
	for at := range limits {
		if !mayWait(r, at) {
			continue
		}
		more, no := p.wait(r, at)
		if no != nil {
			p.slot.Release()
			return true, no
		}
		if waited = waited || more; at == atThrottle && p.queued.Throttle > 0 {
			r.Review() // the hold may be over, and there is no slot yet
		}
	}
	return waited, nil
}

// begin begins to ask the limits.
func (p *Permit) begin(r *exchange.Request) {
	p.named, p.pass = 0, pacing.Pass{}
	if r.Rule.Concurrency {
		p.slot = attempt.Slot{Clock: &r.Registry.Clock, Limiter: limitsOf(r).Concurrency()}
	}
}

// tellWaits tells that the attempt waited for long for a slot or for the rate, or would have to.
func (p *Permit) tellWaits(r *exchange.Request, no *exchange.Rejection) {
	crowded := p.queued.Concurrency > exchange.LongWait || no != nil && no.Why == exchange.WhyFull
	rated := p.queued.Rate > exchange.LongWait || no != nil && no.Limit == LimitRate && time.Until(no.Until) > exchange.LongWait
	if crowded {
		r.BeginHeld(news.Crowded, news.Cause{}, p.queued.Concurrency)
	}
	if rated {
		r.BeginHeld(news.RateLimited, news.Cause{}, p.queued.Rate)
	}
}

// TryAcquire asks the limits for an attempt that does not wait. If it reports false, the caller cancels
// the permit. A share of a quota is lost then, and nothing else is taken.
func (p *Permit) TryAcquire(r *exchange.Request, now instant.Instant) bool {
	p.since = now // from then to the deadline, a fleet makes it wait for three quarters of the time
	p.begin(r)
	for at := range limits {
		if mayWait(r, at) && !p.ask(r, at, now) {
			return false
		}
	}
	return true
}

// HasMore reports whether the limits have to hear of a good response to an attempt that TryAcquire
// let go. Of most of them they need to know nothing.
func (p *Permit) HasMore(r *exchange.Request, o *attempt.Outcome) bool {
	return p.slot.Limiter != nil || p.refused != nil || // the response is no success
		r.Rule.QuotaPacing && len(field.Quotas(o.Resp.Header)) > 0
}

// Forecast returns when the limits would let the next attempt go, as far as is known,
// counted from now, and the limit that takes longest.
func (p *Permit) Forecast(r *exchange.Request, now time.Time) (turn time.Duration, limit string) {
	if r.Rule.RateLimit {
		m := r.State.Machines()
		others := m.LimiterMade().State().Cost
		turn, limit = m.Rate(r.Rule.Settings.Rate).Peek(r.Registry.InstantOf(now), r.Cost(), others), LimitRate
	}
	if mayWait(r, atThrottle) {
		// The request's own wait keeps its own jitter although the hold has jitter as well.
		at := r.Registry.Now()
		named := min(limitsOf(r).Throttle.State(r.Scope()).Named.Sub(at), r.Rule.Settings.Throttle.Longest()-r.Held)
		if named > turn {
			turn, limit = named, LimitThrottle
		}
	}
	return turn, limit
}

// Start notes that an attempt goes now, and hands the slot over to it.
func (p *Permit) Start(a *attempt.Attempt) { a.Slot, p.slot = p.slot, attempt.Slot{} }

// Landed takes the slot back if the response is no success.
func (p *Permit) Landed(a *attempt.Attempt) { p.slot, p.refused = a.Slot, a.Refused }

// Cancel ends the slot of an attempt that did not go, or of a response that is no success. A second call does nothing.
func (p *Permit) Cancel() {
	p.slot.Release()
	p.refused.Release()
}

// limitsOf returns the limits of the request's host.
func limitsOf(r *exchange.Request) *host.Limits { return r.State.Machines().Limits() }

// mayWait reports whether a limit may make the request wait.
func mayWait(r *exchange.Request, at limit) bool {
	m := r.State.Machines()
	switch at {
	case atFleet:
		return m.Fleet != nil && !m.Fleet.Quiet()
	case atPacing:
		return r.Rule.QuotaPacing && !m.Limits().Pacing().Quiet()
	case atLimiter:
		return r.Rule.Concurrency || r.Rule.RateLimit
	}
	return r.Rule.Policy.ShareRetryAfter == policy.On && !m.Limits().Quiet()
}

// isHeldAgain reports whether the server asked for a wait since the throttle let the request go, which
// is not over, or named its quota for the first time, under which the request is not due.
func (p *Permit) isHeldAgain(r *exchange.Request) bool {
	now := r.Registry.Now()
	if mayWait(r, atThrottle) && limitsOf(r).Throttle.State(r.Scope()).Named > max(now, p.named) {
		return true
	}
	return p.pass == (pacing.Pass{}) && mayWait(r, atPacing) && !p.ask(r, atPacing, now)
}
