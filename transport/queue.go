// How a request waits for its turn at one limit of a host.

package transport

import (
	"time"

	"github.com/aplomb-go/aplomb/internal/host"
	"github.com/aplomb-go/aplomb/policy"
)

// A queue is one limit of a host, at which requests wait in order.
type queue interface {
	// enter asks the limit. mayWait is false if a request that cannot go at once
	// is not allowed to wait.
	enter(now time.Duration, w *host.Waiter) (a host.Answer, mayWait bool)
	// leave takes a waiter out of the queue.
	leave(w *host.Waiter)
}

type cooldownQueue struct {
	c     *host.Cooldown
	scope uint64
}

func (q cooldownQueue) enter(now time.Duration, w *host.Waiter) (host.Answer, bool) {
	return q.c.Enter(now, q.scope, w), true
}
func (q cooldownQueue) leave(w *host.Waiter) { q.c.Leave(q.scope, w) }

type pacingQueue struct {
	p *host.Pacing
	l *limits
}

func (q pacingQueue) enter(now time.Duration, w *host.Waiter) (host.Answer, bool) {
	a := q.p.Enter(now, q.l.scopeKey(), w, q.l.rule.settings.pacing)
	q.l.mark = a.Mark
	return a, true
}
func (q pacingQueue) leave(w *host.Waiter) { q.p.Leave(q.l.scopeKey(), w) }

type rateQueue struct {
	r    *host.Rate
	wait time.Duration // with host.Go, the time until the request may go
}

func (q *rateQueue) enter(now time.Duration, w *host.Waiter) (host.Answer, bool) {
	a := q.r.Enter(now, w)
	q.wait = a.Until - now
	return a, true
}
func (q *rateQueue) leave(w *host.Waiter) { q.r.Leave(w) }

// A gateQueue is the queue at the gate. If the rule has a rate as well, a request
// takes a token of the rate when it has a slot.
type gateQueue struct {
	s      *slot
	conf   host.GateConfig
	refuse bool
}

func (l *limits) gateQueue() gateQueue {
	q := gateQueue{s: l.slot, conf: l.rule.settings.gate, refuse: l.rule.rule.Gate.Mode == policy.GateRefuse}
	if l.rule.rate {
		q.conf.Rate = l.state.Machines().Rate(l.rule.settings.rate)
	}
	return q
}

// enter asks for a slot and a token of the rate. If the rule refuses a request that
// would wait for a slot, the request may still wait for the rate.
func (q gateQueue) enter(now time.Duration, w *host.Waiter) (host.Answer, bool) {
	a := q.s.gate.Enter(now, &q.s.at, w, q.conf)
	q.s.due = a.Until
	return a, !q.refuse || a.ForRate
}
func (q gateQueue) leave(w *host.Waiter) { q.s.gate.Leave(w) }

// wait waits in one queue until the request may go. A refused request leaves the
// queue before anybody is told. It also leaves if the caller's context or a Trace
// panics, because a waiter that nobody drives would stop the requests behind it.
func (l *limits) wait(q queue) (waited bool, no *refusal) {
	var w *host.Waiter // only made for a request that has to wait
	defer func() {
		if w != nil {
			q.leave(w)
		}
	}()
	for {
		now := l.t.now()
		a, mayWait := q.enter(now, w)
		switch {
		case a.Verb == host.Go:
			return w != nil, nil
		case a.Verb == host.Refuse:
			return true, &refusal{ReasonCooldown, ErrCooldown, l.t.epoch.Add(a.Until)}
		case !mayWait:
			return true, &refusal{reason: ReasonGateFull, err: ErrGateFull}
		}
		if no := l.tooLate(l.t.epoch.Add(now), l.t.epoch.Add(a.Until)); no != nil {
			if a.Open > 0 {
				no.until = l.t.epoch.Add(a.Open) // spreads the requests that come back then
			}
			return true, no
		}
		if w == nil {
			w = host.NewWaiter()
			w.By = l.by()
			continue // asks again, and takes its place in the queue
		}
		if err := l.sleepOr(min(a.Ask-now, l.patience()), w.Ready); err != nil {
			return true, &refusal{reason: ReasonCanceled, err: err}
		}
	}
}

// by returns when the request has to go at the latest, in the time of the host's
// machines. It is zero if nothing bounds it.
func (l *limits) by() (at time.Duration) {
	if until, ok := l.ctx.Deadline(); ok {
		at = until.Sub(l.t.epoch)
	}
	if !l.latest.IsZero() {
		if end := l.latest.Sub(l.t.epoch); at == 0 || end < at {
			at = end
		}
	}
	return at
}

// patience returns how long the request may wait for its turn.
func (l *limits) patience() time.Duration {
	if l.latest.IsZero() {
		return host.Never
	}
	return time.Until(l.latest) + 1
}

// tooLate refuses a request whose turn comes after the caller's deadline, and a
// retry whose turn comes later than the rule allows. A zero turn means now.
func (l *limits) tooLate(now, turn time.Time) *refusal {
	if until, ok := l.ctx.Deadline(); ok && turn.After(now) && !turn.Before(until) {
		return &refusal{ReasonDeadline, ErrOverDeadline, turn}
	}
	if turn.Before(now) {
		turn = now
	}
	if !l.latest.IsZero() && turn.After(l.latest) {
		return &refusal{ReasonMaxElapsed, errOverElapsed, turn}
	}
	return nil
}
