// How a request waits for its turn at one limit of a host.

package visit

import (
	"time"

	"github.com/aplomb-go/aplomb/internal/flight"
	"github.com/aplomb-go/aplomb/internal/host/instant"
	"github.com/aplomb-go/aplomb/internal/host/queue"
	"github.com/aplomb-go/aplomb/policy"
)

// A hostQueue is one limit of a host, at which requests wait in order. Each queue is a
// pointer to the limits of the call, so that asking it costs no allocation.
type hostQueue interface {
	// enter asks the limit. mayWait is false if a request that cannot go at once
	// is not allowed to wait.
	enter(now instant.Instant, w *queue.Waiter) (a queue.Answer, mayWait bool)
	// leave takes a waiter out of the queue.
	leave(w *queue.Waiter)
	// takes returns the cost of the request for this limit.
	takes() int
	// limit returns the name of the limit that gave the answer.
	limit(a queue.Answer) string
	// rateTime returns for how long in all the queue has waited for the rate, if that
	// is not the limit of the queue itself.
	rateTime(now instant.Instant) time.Duration
}

func (*Limits) rateTime(instant.Instant) time.Duration { return 0 }

// rateCost returns the cost of the request for the rate, which takes a full bucket at most.
func (l *Limits) rateCost() int { return min(l.askCost(), l.Rule.Settings.Rate.Bucket()) }

type cooldownQueue struct{ *Limits }

func (q cooldownQueue) enter(now instant.Instant, w *queue.Waiter) (queue.Answer, bool) {
	c := &q.State.Machines().Cooldown
	q.refusals = c.Refusals()
	return c.Enter(now, q.scopeKey(), w), true
}
func (q cooldownQueue) leave(w *queue.Waiter)   { q.State.Machines().Cooldown.Leave(w) }
func (cooldownQueue) takes() int                { return 0 } // nothing; a hold sees the waiter from the first question on
func (cooldownQueue) limit(queue.Answer) string { return LimitCooldown }

type pacingQueue struct{ *Limits }

func (q pacingQueue) enter(now instant.Instant, w *queue.Waiter) (queue.Answer, bool) {
	return q.State.Machines().Pacing().Enter(now, q.scopeKey(), w, q.Rule.Settings.Pacing), true
}
func (q pacingQueue) leave(w *queue.Waiter)   { q.State.Machines().Pacing().Leave(q.scopeKey(), w) }
func (q pacingQueue) takes() int              { return q.askCost() }
func (pacingQueue) limit(queue.Answer) string { return LimitPacing }

type rateQueue struct{ *Limits }

func (q rateQueue) enter(now instant.Instant, w *queue.Waiter) (queue.Answer, bool) {
	return q.State.Machines().Rate(q.Rule.Settings.Rate).Enter(now, w), true
}
func (q rateQueue) leave(w *queue.Waiter) {
	q.State.Machines().Rate(q.Rule.Settings.Rate).Leave(w)
}
func (q rateQueue) takes() int              { return q.rateCost() }
func (rateQueue) limit(queue.Answer) string { return LimitRate }

// A gateQueue is the queue at the gate. If the rule has a rate as well, it is the queue
// of both. A request waits for a token, then for a slot, and takes both at once.
type gateQueue struct{ *Limits }

// enter asks for a token of the rate and a slot. If the rule refuses a request that
// would wait for a slot, the request may still wait for the rate.
func (q gateQueue) enter(now instant.Instant, w *queue.Waiter) (queue.Answer, bool) {
	conf := q.Rule.Settings.Gate
	if q.Ground.Fleet != nil {
		conf = conf.ForMember(q.Ground.members())
		conf.Fleet = true
	}
	if q.Rule.Rate {
		conf.Rate = q.State.Machines().Rate(q.Rule.Settings.Rate)
	}
	a := q.Slot.Gate.Enter(now, &q.Slot.At, w, conf)
	q.Slot.Probe = a.Probe
	return a, q.Rule.Policy.Gate.Mode != policy.GateRefuse || a.ForRate
}
func (q gateQueue) takes() int {
	if q.Rule.Rate {
		return q.rateCost()
	}
	return 1
}
func (q gateQueue) leave(w *queue.Waiter) { q.Slot.Tell(q.Slot.Gate.Leave(w)) }
func (gateQueue) limit(a queue.Answer) string {
	if a.NoToken {
		return LimitRate
	}
	return LimitGate
}
func (q gateQueue) rateTime(now instant.Instant) time.Duration {
	return q.Slot.Gate.RateTime(now)
}

// waitInQueue waits in one queue until the request may go, and returns the answer that lets
// it go. A refused request leaves the queue before anybody is told. It also leaves if
// the caller's context or a Trace panics, because a waiter that nobody drives would
// stop the requests behind it.
//
// The time of the wait is added to sum, apart from the part that is due to the rate.
func (l *Limits) waitInQueue(q hostQueue, sum *time.Duration) (a queue.Answer, waited bool, no *Refusal) {
	w := l.earlyWaiter(q.takes()) // for most requests a waiter is only made if they have to wait
	var since instant.Instant
	var rated time.Duration
	defer func() {
		if waited {
			now := l.Ground.Now()
			rated = q.rateTime(now) - rated
			l.Queued.Rate += rated
			*sum += now.Sub(since) - rated
		}
		if w != nil {
			q.leave(w)
		}
		if no != nil && no.Limit == "" {
			no.Limit = q.limit(a)
		}
	}()
	now := l.since
	if l.Queued != (flight.Queued{}) { // it has waited since then
		now = l.Ground.Now()
	}
	for ; ; now = l.Ground.Now() {
		var mayWait bool
		a, mayWait = q.enter(now, w)
		if l.Ground.Fleet != nil && (a.Verb != queue.Go || l.Rule.Rate) {
			short := a.Verb == queue.Wait && w == nil && (a.NoToken || !l.Rule.Gate)
			l.askFleet(now, short)
		}
		switch {
		case a.Verb == queue.Go:
			return a, waited, nil
		case !mayWait:
			return a, waited, &Refusal{Why: WhyFull, Limit: LimitGate}
		}
		if no := l.tooLate(l.Ground.TimeOf(now), l.Ground.TimeOf(a.Until)); no != nil {
			if a.Open > 0 {
				no.Until = l.Ground.TimeOf(a.Open) // spreads the requests that come back then
			}
			return a, waited, no
		}
		if !waited {
			waited, since, rated = true, now, q.rateTime(now)
		}
		if w == nil {
			w = l.newWaiter(q.takes())
			continue // asks again, and takes its place in the queue
		}
		if err := l.SleepOr(min(a.Ask.Sub(now), l.patience()), w.Ready); err != nil {
			return a, waited, &Refusal{Err: err}
		}
	}
}

// newWaiter returns a waiter for the request.
func (l *Limits) newWaiter(cost int) *queue.Waiter {
	w := queue.NewWaiter()
	w.By, w.From, w.Cost = l.sendAtLatest(), l.since, cost
	w.Until = instant.After(l.Ground.Now(), l.Rule.Settings.Cooldown.Longest()-l.held)
	return w
}

// earlyWaiter returns the waiter that a machine has to see at its first question, or nil if there
// is no need for one.
func (l *Limits) earlyWaiter(cost int) *queue.Waiter {
	if cost == 1 {
		return nil
	}
	return l.newWaiter(cost)
}

// askOnce asks a limit for a request that does not wait.
func (l *Limits) askOnce(q hostQueue, now instant.Instant) queue.Answer {
	w := l.earlyWaiter(q.takes())
	a, _ := q.enter(now, w)
	if w != nil {
		q.leave(w)
	}
	return a
}

// sendAtLatest returns when the request has to go at the latest, in the time of the host's
// machines. It is zero if nothing bounds it.
func (l *Limits) sendAtLatest() (at instant.Instant) {
	if until, ok := l.Ctx.Deadline(); ok {
		at = l.Ground.InstantOf(until)
	}
	if l.latest != 0 && (at == 0 || l.latest < at) {
		at = l.latest
	}
	return at
}

// patience returns how long the request may wait for its turn.
func (l *Limits) patience() time.Duration {
	if l.latest == 0 {
		return instant.Forever
	}
	return l.latest.Sub(l.Ground.Now()) + 1
}

// tooLate refuses a request whose turn comes after the caller's deadline, and a
// retry whose turn comes later than the rule allows. A zero turn means now.
func (l *Limits) tooLate(now, turn time.Time) *Refusal {
	if until, ok := l.Ctx.Deadline(); ok && turn.After(now) && !turn.Before(until) {
		return &Refusal{Why: WhyLate, Until: turn}
	}
	if turn.Before(now) {
		turn = now
	}
	if l.latest != 0 && l.Ground.InstantOf(turn) > l.latest {
		return &Refusal{Why: WhyOverdue, Until: turn}
	}
	return nil
}
