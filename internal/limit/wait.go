// How a request waits for its turn at one limit of a host.

package limit

import (
	"time"

	"github.com/aplomb-go/aplomb/internal/attempt"
	"github.com/aplomb-go/aplomb/internal/host/instant"
	"github.com/aplomb-go/aplomb/internal/host/pacing"
	"github.com/aplomb-go/aplomb/internal/host/queue"
	"github.com/aplomb-go/aplomb/policy"
)

// enter asks a limit. At the limiter a request with a rate asks for a token as well, and takes both at once.
func (p *Permit) enter(r *Request, limit string, now instant.Instant, w *queue.Waiter) (a queue.Answer) {
	m, settings, newest := r.State.Machines(), &r.Rule.Settings, r.State.Resolved.Load()
	rated := r.Rule.RateLimit && newest.RateLimit // else an Update has removed the rate
	switch limit {
	case LimitThrottle:
		p.refusals = m.Throttle.Refusals()
		a = m.Throttle.Enter(now, r.scopeKey(), w)
	case limitFleet:
		a = m.Fleet.Enter(now, r.scopeKey(), w)
	case LimitLine:
		conf := r.lineConfig()
		a = m.Line.Enter(now, p.place, w, &conf)
	case LimitPacing:
		a = m.Pacing().Enter(now, r.scopeKey(), w, settings.Pacing)
		p.pass = pacing.Pass{Mark: a.Mark, Spent: a.Spent}
	case LimitRate:
		if rated {
			a = m.Rate(settings.Rate).Enter(now, w)
		}
	case LimitConcurrency:
		conf := settings.Concurrency
		if newest.Concurrency { // else an Update has turned the limit off
			conf = newest.Settings.Concurrency
		}
		if rated {
			conf.Rate = m.Rate(settings.Rate)
		}
		a = p.slot.Limiter.Enter(now, &p.slot.At, w, conf)
	}
	return a
}

// leave takes a waiter out of the queue of a limit.
func (p *Permit) leave(r *Request, limit string, w *queue.Waiter) {
	m := r.State.Machines()
	switch limit {
	case LimitThrottle:
		m.Throttle.Leave(w)
	case limitFleet:
		m.Fleet.Leave(r.scopeKey(), w)
	case LimitLine:
		m.Line.Leave(p.place, w)
	case LimitPacing:
		m.Pacing().Leave(r.scopeKey(), w)
	case LimitRate:
		m.Rate(r.Rule.Settings.Rate).Leave(w)
	case LimitConcurrency:
		p.slot.Limiter.Leave(w)
	}
}

// earlyWaiter returns the waiter that a limit has to see at its first question, or nil if a request
// that need not wait needs none. A hold sees each waiter from the first question on.
func (p *Permit) earlyWaiter(r *Request, limit string) *queue.Waiter {
	if limit == LimitThrottle || limit == limitFleet || r.cost(limit) > 1 {
		return p.newWaiter(r, limit)
	}
	return nil
}

// cost returns the cost of the request for a limit. A rate takes a full bucket at most.
func (r *Request) cost(limit string) int {
	switch {
	case limit == LimitPacing, limit == limitFleet:
		return r.askCost()
	case r.Rule.RateLimit:
		return min(r.askCost(), r.Rule.Settings.Rate.Bucket())
	}
	return 1
}

// ask asks a limit for an attempt that does not wait, and reports whether it may go.
func (p *Permit) ask(r *Request, limit string, now instant.Instant) bool {
	w := p.earlyWaiter(r, limit)
	a := p.enter(r, limit, now, w)
	if w != nil {
		p.leave(r, limit, w)
	}
	return a.Verb == queue.Go
}

// rateTime returns for how long in all the queue of a limit has waited for the rate, if that is not
// the limit itself.
func (r *Request) rateTime(limit string, now instant.Instant) time.Duration {
	if limit == LimitConcurrency {
		return r.State.Machines().Concurrency().RateTime(now)
	}
	return 0
}

// wait waits in the queue of a limit until the request may go, and returns the answer that lets
// it go. A refused request leaves the queue before anybody is told. It also leaves if
// the caller's context or a Trace panics, because a waiter that nobody drives would
// stop the requests behind it.
//
// The time of the wait is added to sum, apart from the part that is due to the rate.
func (p *Permit) wait(r *Request, limit string, sum *time.Duration) (a queue.Answer, waited bool, no *Rejection) {
	w := p.earlyWaiter(r, limit) // for most requests a waiter is only made if they have to wait
	var since instant.Instant
	var rated time.Duration
	defer func() {
		if waited {
			now := r.Registry.Now()
			rated = r.rateTime(limit, now) - rated
			p.Queued.Rate += rated
			*sum += now.Sub(since) - rated
			if sum == &p.Queued.Throttle {
				r.held += now.Sub(since)
			}
		}
		if w != nil {
			p.leave(r, limit, w)
		}
		no.name(limit, &a)
	}()
	now := p.since
	if p.Queued != (attempt.Queued{}) { // it has waited since then
		now = r.Registry.Now()
	}
	for ; ; now = r.Registry.Now() {
		a = p.enter(r, limit, now, w)
		if f := r.State.Machines().Fleet; f != nil && r.Rule.RateLimit {
			f.Ask(now, r.sendAtLatest(), a.Verb == queue.Wait && w == nil && (a.NoToken || !r.Rule.Concurrency))
		}
		switch {
		case a.Verb == queue.Go:
			return a, waited, nil
		case r.mayNotWait(limit, &a):
			return a, waited, &Rejection{Why: WhyFull, Until: r.Registry.TimeOf(a.Until)}
		}
		if limit == LimitLine {
			a.Until = 0 // a probe is no turn
		}
		if no := r.tooLate(r.Registry.TimeOf(now), r.Registry.TimeOf(a.Until)); no != nil {
			if a.Open > 0 {
				no.Until = r.Registry.TimeOf(a.Open) // spreads the requests that come back then
			}
			return a, waited, no
		}
		if !waited {
			waited, since, rated = true, now, r.rateTime(limit, now)
		}
		if w == nil {
			w = p.newWaiter(r, limit)
			continue // asks again, and takes its place in the queue
		}
		if err := r.Sleep(min(a.Ask.Sub(now), r.patience()), w.Ready); err != nil {
			return a, waited, &Rejection{Err: err}
		}
	}
}

// name notes the limit at which a request was refused, if it was. At the limiter it may have waited for the rate.
func (no *Rejection) name(limit string, a *queue.Answer) {
	switch {
	case no == nil:
	case limit == LimitConcurrency && a.NoToken && no.Why != WhyFull:
		no.Limit = LimitRate
	case limit == limitFleet:
		no.Limit = LimitThrottle
	default:
		no.Limit = limit
	}
}

// mayNotWait reports whether the rule says that the request fails instead of waiting. It may always wait for the rate.
func (r *Request) mayNotWait(limit string, a *queue.Answer) bool {
	switch limit {
	case LimitConcurrency:
		return r.Rule.Policy.Concurrency.FailFast == policy.On && !a.Room
	case LimitLine:
		return a.Down && r.State.Resolved.Load().FailsFast() // an Update may have turned it on
	}
	return false
}

// newWaiter returns a waiter for the request at a limit.
func (p *Permit) newWaiter(r *Request, limit string) *queue.Waiter {
	w := queue.NewWaiter()
	w.By, w.From, w.Cost = r.sendAtLatest(), p.since, r.cost(limit)
	w.Until = instant.After(r.Registry.Now(), r.Rule.Settings.Throttle.Longest()-r.held)
	return w
}

// sendAtLatest returns when the request has to go at the latest, in the time of the host's
// machines. It is zero if nothing bounds it.
func (r *Request) sendAtLatest() (at instant.Instant) {
	if until, ok := r.Ctx.Deadline(); ok {
		at = r.Registry.InstantOf(until)
	}
	if r.latest != 0 && (at == 0 || r.latest < at) {
		at = r.latest
	}
	return at
}

// patience returns how long the request may wait for its turn.
func (r *Request) patience() time.Duration {
	if r.latest == 0 {
		return instant.Forever
	}
	return r.latest.Sub(r.Registry.Now()) + 1
}

// tooLate refuses a request whose turn comes after the caller's deadline, and a
// retry whose turn comes later than the rule allows. A zero turn means now.
func (r *Request) tooLate(now, turn time.Time) *Rejection {
	if until, ok := r.Ctx.Deadline(); ok && turn.After(now) && !turn.Before(until) {
		return &Rejection{Why: WhyLate, Until: turn}
	}
	if turn.Before(now) {
		turn = now
	}
	if r.latest != 0 && r.Registry.InstantOf(turn) > r.latest {
		return &Rejection{Why: WhyOverdue, Until: turn}
	}
	return nil
}
