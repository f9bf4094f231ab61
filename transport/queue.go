// How a request waits for its turn at one limit of a host.

package transport

import (
	"time"

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

func (*limits) rateTime(instant.Instant) time.Duration { return 0 }
func (*limits) takes() int                             { return 1 }

// tokens returns the cost of the request for the rate, which takes a full bucket at most.
func (l *limits) tokens() int { return min(l.cost(), l.rule.Settings.Rate.Bucket()) }

type cooldownQueue struct{ *limits }

func (q cooldownQueue) enter(now instant.Instant, w *queue.Waiter) (queue.Answer, bool) {
	return q.state.Machines().Cooldown.Enter(now, q.scopeKey(), w), true
}
func (q cooldownQueue) leave(w *queue.Waiter)   { q.state.Machines().Cooldown.Leave(q.scopeKey(), w) }
func (cooldownQueue) limit(queue.Answer) string { return limitCooldown }

type pacingQueue struct{ *limits }

func (q pacingQueue) enter(now instant.Instant, w *queue.Waiter) (queue.Answer, bool) {
	return q.state.Machines().Pacing().Enter(now, q.scopeKey(), w, q.rule.Settings.Pacing), true
}
func (q pacingQueue) leave(w *queue.Waiter)   { q.state.Machines().Pacing().Leave(q.scopeKey(), w) }
func (q pacingQueue) takes() int              { return q.cost() }
func (pacingQueue) limit(queue.Answer) string { return limitPacing }

type rateQueue struct{ *limits }

func (q rateQueue) enter(now instant.Instant, w *queue.Waiter) (queue.Answer, bool) {
	return q.state.Machines().Rate(q.rule.Settings.Rate).Enter(now, w), true
}
func (q rateQueue) leave(w *queue.Waiter) {
	q.state.Machines().Rate(q.rule.Settings.Rate).Leave(w)
}
func (q rateQueue) takes() int              { return q.tokens() }
func (rateQueue) limit(queue.Answer) string { return limitRate }

// A gateQueue is the queue at the gate. If the rule has a rate as well, it is the queue
// of both. A request waits for a token, then for a slot, and takes both at once.
type gateQueue struct{ *limits }

// enter asks for a token of the rate and a slot. If the rule refuses a request that
// would wait for a slot, the request may still wait for the rate.
func (q gateQueue) enter(now instant.Instant, w *queue.Waiter) (queue.Answer, bool) {
	conf := q.rule.Settings.Gate
	if q.t.fleet != nil {
		conf = conf.ForMember(q.t.members())
		conf.Fleet = true
	}
	conf.Refuses = conf.Refuses || q.leaves // the request would go to an alternate
	if q.rule.Rate {
		conf.Rate = q.state.Machines().Rate(q.rule.Settings.Rate)
	}
	a := q.slot.Gate.Enter(now, &q.slot.At, w, conf)
	q.slot.Probe = a.Probe
	return a, q.rule.Policy.Gate.Mode != policy.GateRefuse || a.ForRate
}
func (q gateQueue) takes() int {
	if q.rule.Rate {
		return q.tokens()
	}
	return 1
}
func (q gateQueue) leave(w *queue.Waiter) { q.slot.Tell(q.slot.Gate.Leave(w)) }
func (gateQueue) limit(a queue.Answer) string {
	if a.NoToken {
		return limitRate
	}
	return limitGate
}
func (q gateQueue) rateTime(now instant.Instant) time.Duration {
	return q.slot.Gate.RateTime(now)
}

// wait waits in one queue until the request may go, and returns the answer that lets
// it go. A refused request leaves the queue before anybody is told. It also leaves if
// the caller's context or a Trace panics, because a waiter that nobody drives would
// stop the requests behind it.
//
// The time of the wait is added to queued, apart from the part that is due to the rate.
func (l *limits) wait(q hostQueue, queued *time.Duration) (a queue.Answer, waited bool, no *refusal) {
	w := l.early(q.takes()) // for most requests a waiter is only made if they have to wait
	var since instant.Instant
	var rated time.Duration
	defer func() {
		if waited {
			now := l.t.now()
			rated = q.rateTime(now) - rated
			l.queued.Rate += rated
			*queued += now.Sub(since) - rated
		}
		if w != nil {
			q.leave(w)
		}
		if no != nil {
			no.limit = q.limit(a)
		}
	}()
	for {
		now, mayWait := l.t.now(), false
		a, mayWait = q.enter(now, w)
		if l.t.fleet != nil && (a.Verb != queue.Go || l.rule.Rate) {
			short := a.Verb == queue.Wait && w == nil && (a.NoToken || !l.rule.Gate)
			l.askFleet(now, short)
		}
		switch {
		case a.Verb == queue.Go:
			l.sentAt = now
			return a, waited, nil
		case a.Verb == queue.Refuse:
			return a, waited, &refusal{reason: ReasonCooldown, err: ErrCooldown, until: l.t.timeOf(a.Until)}
		case !mayWait, l.leaves && l.rule.Gate && l.state.Machines().Gate().State().Closed:
			return a, waited, &refusal{reason: ReasonGateFull, err: ErrGateFull}
		}
		if no := l.tooLate(l.t.timeOf(now), l.t.timeOf(a.Until)); no != nil {
			if a.Open > 0 {
				no.until = l.t.timeOf(a.Open) // spreads the requests that come back then
			}
			return a, waited, no
		}
		if !waited {
			waited, since, rated = true, now, q.rateTime(now)
		}
		if w == nil {
			w = l.waiter(q.takes())
			continue // asks again, and takes its place in the queue
		}
		if err := l.sleepOr(min(a.Ask.Sub(now), l.patience()), w.Ready); err != nil {
			return a, waited, &refusal{reason: l.gone(), err: err}
		}
	}
}

// background reports whether the request lets others go first (see [Background]).
func (l *limits) background() bool { return l.options != nil && l.options.background }

// waiter returns a waiter for the request.
func (l *limits) waiter(cost int) *queue.Waiter {
	w := queue.NewWaiter()
	w.By, w.From, w.Background, w.Cost = l.sendBy(), l.since, l.background(), cost
	return w
}

// early returns the waiter that a machine has to see at its first question, or nil if there
// is no need for one.
func (l *limits) early(cost int) *queue.Waiter {
	if cost == 1 && !l.background() {
		return nil
	}
	return l.waiter(cost)
}

// ask asks a limit for a request that does not wait.
func (l *limits) ask(q hostQueue, now instant.Instant) queue.Answer {
	w := l.early(q.takes())
	a, _ := q.enter(now, w)
	if w != nil {
		q.leave(w)
	}
	return a
}

// sendBy returns when the request has to go at the latest, in the time of the host's
// machines. It is zero if nothing bounds it.
func (l *limits) sendBy() (at instant.Instant) {
	if until, ok := l.ctx.Deadline(); ok {
		at = l.t.instantOf(until)
	}
	if !l.latest.IsZero() {
		if end := l.t.instantOf(l.latest); at == 0 || end < at {
			at = end
		}
	}
	return at
}

// patience returns how long the request may wait for its turn.
func (l *limits) patience() time.Duration {
	if l.latest.IsZero() {
		return instant.Forever
	}
	return time.Until(l.latest) + 1
}

// tooLate refuses a request whose turn comes after the caller's deadline, and a
// retry whose turn comes later than the rule allows. A zero turn means now.
func (l *limits) tooLate(now, turn time.Time) *refusal {
	if until, ok := l.ctx.Deadline(); ok && turn.After(now) && !turn.Before(until) {
		return &refusal{reason: ReasonDeadline, err: ErrOverDeadline, until: turn}
	}
	if turn.Before(now) {
		turn = now
	}
	if !l.latest.IsZero() && turn.After(l.latest) {
		return &refusal{reason: ReasonMaxElapsed, err: errOverElapsed, until: turn}
	}
	return nil
}

// waited returns the time in queues before the attempt that goes or is refused now.
func (l *limits) waited() (q Queued) {
	if q = l.queued; q != (Queued{}) {
		l.queued = Queued{}
		l.total.add(q)
	}
	return q
}
