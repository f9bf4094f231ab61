// How an attempt waits for its turn at one limit of a host.

package limit

import (
	"time"

	"github.com/aplomb-go/aplomb/internal/attempt"
	"github.com/aplomb-go/aplomb/internal/exchange"
	"github.com/aplomb-go/aplomb/internal/host/concurrency"
	"github.com/aplomb-go/aplomb/internal/host/instant"
	"github.com/aplomb-go/aplomb/internal/host/pacing"
	"github.com/aplomb-go/aplomb/internal/host/queue"
	"github.com/aplomb-go/aplomb/policy"
)

// atLimit is the request of a permit at a limit.
type atLimit struct {
	p *Permit
	*exchange.Request
	limit limit
	waits bool // for its turn, if that is not now
}

// Enter asks the limit. At the limiter a request with a rate asks for a token as well, and takes both at once.
func (q *atLimit) Enter(now instant.Instant, w *queue.Waiter) (a queue.Answer) {
	p, m, settings, newest := q.p, q.State.Machines(), &q.Rule.Settings, q.State.Resolved.Load()
	l, rated := m.Limits(), q.Rule.RateLimit && newest.RateLimit // else an Update has removed the rate
	switch q.limit {
	case atThrottle:
		p.named = l.Throttle.State(q.Scope()).Named
		a = l.Throttle.Enter(now, q.Scope(), w)
	case atFleet:
		a = m.Fleet.Enter(now, q.Scope(), w)
	case atPacing:
		a = l.Pacing().Enter(now, q.Scope(), w, settings.Pacing)
		p.pass = pacing.Pass{Mark: a.Mark, Spent: a.Spent}
	case atLimiter:
		conf, slot := concurrency.Config{Max: concurrency.NoMax}, (*concurrency.Slot)(nil)
		switch {
		case q.Rule.Concurrency && newest.Concurrency:
			conf, slot = newest.Settings.Concurrency, &p.slot.At
		case q.Rule.Concurrency: // an Update has turned the limit off
			conf, slot = settings.Concurrency, &p.slot.At
		}
		if conf.Cost = q.cost(); rated {
			conf.Rate = m.Rate(settings.Rate)
		}
		a = l.Concurrency().Enter(now, slot, w, conf)
	}
	if q.waits && m.Fleet != nil && q.Rule.RateLimit {
		m.Fleet.Ask(now, q.SendAtLatest(p.latest), a.Verb == queue.Wait && w == nil && (a.NoToken || !q.Rule.Concurrency))
	}
	return a
}

// Leave takes a waiter out of the queue of the limit.
func (q *atLimit) Leave(w *queue.Waiter) {
	m := q.State.Machines()
	switch l := m.Limits(); q.limit {
	case atThrottle:
		l.Throttle.Leave(w)
	case atFleet:
		m.Fleet.Leave(q.Scope(), w)
	case atPacing:
		l.Pacing().Leave(w)
	case atLimiter:
		l.Concurrency().Leave(w)
	}
}

// NewWaiter returns a waiter for the request at the limit.
func (q *atLimit) NewWaiter() *queue.Waiter {
	w := queue.NewWaiter()
	w.By, w.From, w.Cost = q.SendAtLatest(q.p.latest), q.p.since, q.cost()
	w.Until = instant.After(q.Registry.Now(), q.Rule.Settings.Throttle.Longest()-q.Held)
	return w
}

// Rejects reports whether the rule says that the request fails instead of waiting. It may always wait for the rate.
func (q *atLimit) Rejects(a *queue.Answer) bool {
	return q.limit == atLimiter && q.Rule.Policy.Concurrency.FailFast == policy.On && !a.Room
}

// earlyWaiter returns the waiter that the limit has to see at its first question, or nil if a request
// that need not wait needs none. A hold sees each waiter from the first question on.
func (q *atLimit) earlyWaiter() *queue.Waiter {
	if q.limit == atLimiter || q.limit == atPacing && q.cost() == 1 {
		return nil
	}
	return q.NewWaiter()
}

// cost returns the cost of the request for the limit. A rate takes a full bucket at most.
func (q *atLimit) cost() int {
	switch {
	case q.limit == atPacing, q.limit == atFleet:
		return q.Cost()
	case q.Rule.RateLimit:
		return q.Rule.Settings.Rate.Tokens(q.Cost())
	}
	return 1
}

// rateTime returns for how long in all the queue of the limit has waited for the rate.
func (q *atLimit) rateTime(now instant.Instant) time.Duration {
	if q.limit == atLimiter {
		return q.State.Machines().Limits().Concurrency().RateTime(now)
	}
	return 0
}

// ask asks a limit for an attempt that does not wait, and reports whether it may go.
func (p *Permit) ask(r *exchange.Request, at limit, now instant.Instant) bool {
	q := &atLimit{p, r, at, false}
	w := q.earlyWaiter()
	a := q.Enter(now, w)
	if w != nil {
		q.Leave(w)
	}
	return a.Verb == queue.Go
}

// wait waits in the queue of a limit until the request may go. It notes the time of the wait, apart from the
// part that is due to the rate.
func (p *Permit) wait(r *exchange.Request, at limit) (waited bool, no *exchange.Rejection) {
	q, now := &p.at, p.since
	*q = atLimit{p, r, at, true}
	if *p.queued != (attempt.Queued{}) { // it has waited since then
		now = r.Registry.Now()
	}
	rated := q.rateTime(now)
	a, waited, no := r.Wait(q, q.earlyWaiter(), now, p.latest)
	if waited {
		over := r.Registry.Now()
		rated = q.rateTime(over) - rated
		p.queued.Rate += rated
		q.note(over.Sub(now) - rated)
	}
	switch {
	case no == nil:
	case at == atLimiter && no.Why != exchange.WhyFull && (a.NoToken || !r.Rule.Concurrency):
		no.Limit = LimitRate
	default:
		no.Limit = [...]string{LimitThrottle, LimitThrottle, LimitPacing, LimitConcurrency}[at]
	}
	return waited, no
}

// note notes how long the request has waited at the limit.
func (q *atLimit) note(waited time.Duration) {
	switch queued := q.p.queued; {
	case q.limit == atPacing:
		queued.Pacing += waited
	case q.limit == atLimiter && q.Rule.Concurrency:
		queued.Concurrency += waited
	case q.limit == atLimiter:
		queued.Rate += waited
	default:
		queued.Throttle += waited
		q.Held += waited
	}
}
