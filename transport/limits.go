// The limits of a host before an attempt.

package transport

import (
	"hash/maphash"
	"time"

	"github.com/aplomb-go/aplomb/internal/flight"
	"github.com/aplomb-go/aplomb/internal/host"
	"github.com/aplomb-go/aplomb/internal/host/budget"
	"github.com/aplomb-go/aplomb/internal/host/gate"
	"github.com/aplomb-go/aplomb/internal/host/instant"
	"github.com/aplomb-go/aplomb/internal/host/pacing"
	"github.com/aplomb-go/aplomb/internal/host/queue"
	"github.com/aplomb-go/aplomb/policy"
)

// limits apply the limits of a host to the attempts of one call. Before an
// attempt, admit waits until all of them let it go. After it, hear and note tell
// them what the response says (see heard.go).
type limits struct {
	*call
	latest time.Time // no retry starts later; zero: no bound

	reserved *budget.Charge  // a retry from the budget that has not gone yet
	slot     flight.Slot     // at the gate, before an attempt takes it over
	unpaced  bool            // no quota was known when the pacing was asked
	pass     pacing.Pass     // the pacing's numbers of the attempt
	since    instant.Instant // when the attempt began to wait for the limits
	entered  instant.Instant // when the cooldown let the attempt go; 0 if nothing was held
	started  instant.Instant // when the attempt was sent whose response is at hand; 0 if that is not known
	queued   Queued          // by the next attempt so far
	total    Queued          // by all attempts
	sentAt   instant.Instant // when the last limit that was asked let the attempt go
	heard    [2]hearing      // of the responses' headers, the latest first; a hedged request has two
	scope    uint64          // the scope's key, once scoped
	scoped   bool
	crowded  bool // the attempt waited for long at an open gate, which is to be told
	leaves   bool // the attempt may go elsewhere, so it does not wait at a closed gate
}

// A refusal says why a request does not go, or not again. A nil refusal lets it
// go.
type refusal struct {
	reason Reason
	err    error
	until  time.Time // when a new request makes sense; zero: not known
	limit  string    // that the request waited for; empty: none
}

// The limits of a host by the names that errors, events and log lines have for them.
const (
	limitCooldown = "cooldown"
	limitPacing   = "pacing"
	limitGate     = "gate"
	limitRate     = "rate"
	limitBudget   = "budget"
)

// admit waits until the limits let an attempt go. The hold of the server comes
// first, then the limits of the rule, and last a slot at the gate, so that no request
// keeps a slot while it waits for another limit. If the turn of the request would
// come too late, admit refuses it at once. latest is the time after which a retry
// may not start. It is zero for the first attempt, and if nothing bounds it.
func (l *limits) admit(first bool, latest time.Time) *refusal {
	l.latest = latest
	if !l.rule.Limited && l.state.Quiet() {
		return nil
	}
	l.review(nil)
	l.since = l.t.now()
	if l.rule.Rate || l.rule.Pacing {
		l.cost() // now, because nothing is held yet if it panics
	}
	passed := instant.Instant(0)
	for arrives := first; ; arrives = false {
		if no := l.admitByServer(arrives); no != nil {
			return no
		}
		if l.queued.Cooldown > 0 {
			l.review(nil) // the hold may be over, and there is no slot yet
		}
		waited, no := l.admitByRule()
		if no != nil {
			return no
		}
		// If the cooldown let the request pass a second time at the same instant, it knew
		// of all holds. Another question would get the same answer until the clock moves.
		if held := l.held() && (passed == 0 || l.entered != passed); !waited || !held && (!l.quotaCame() || l.paced(l.t.now())) {
			return nil
		}
		// While this request waited for its turn, the server asked for a wait, or
		// named its quota for the first time, and the request is not yet due.
		passed = l.entered
		l.slot.Release()
	}
}

// admitByServer waits for the end of a hold of the scope. A request that arrives
// after the time that the server named, and that was not held back before, goes
// at once.
func (l *limits) admitByServer(arrives bool) *refusal {
	l.entered = 0
	if !l.cooling() {
		return nil
	}
	if now := l.t.now(); arrives && l.state.Machines().Cooldown.Arrive(now, l.scopeKey(), l.background()) {
		l.entered = now
		return nil
	}
	_, _, no := l.wait(cooldownQueue{l}, &l.queued.Cooldown)
	l.entered = l.sentAt
	return no
}

// cooling reports whether the cooldown is on and may hold something.
func (l *limits) cooling() bool { return l.rule.Policy.Cooldown == policy.On && !l.state.Quiet() }

// admitByRule waits for the limits that the rule turns on: a share of the server's
// quota, the rate, and a slot at the gate.
func (l *limits) admitByRule() (waited bool, no *refusal) {
	m := l.state.Machines()
	if l.rule.Pacing {
		l.pass = pacing.Pass{}
		if l.unpaced = m.Pacing().Quiet(); !l.unpaced {
			var a queue.Answer
			if a, waited, no = l.wait(pacingQueue{l}, &l.queued.Pacing); no != nil {
				return waited, no
			}
			l.pass = pacing.Pass{Mark: a.Mark, Spent: a.Spent}
		}
	}
	var more bool
	switch {
	case l.rule.Gate:
		more, no = l.admitByGate(m.Gate())
	case l.rule.Rate:
		more, no = l.admitByRate()
	}
	return waited || more, no
}

// admitByGate waits for a token of the rate, if the rule has one, and for a slot at the
// gate. It takes both at the same moment. It refuses
// a request that waited until its deadline leaves less time than a response takes.
// The queue is served in order. Behind a closed gate every probe would otherwise be
// such a request, and no probe would ever succeed.
func (l *limits) admitByGate(gate *gate.Gate) (waited bool, no *refusal) {
	l.slot = flight.Slot{Home: &l.t.ground, Host: l.state.Name(), Gate: gate}
	turns := gate.Turns()
	a, waited, no := l.wait(gateQueue{l}, &l.queued.Gate)
	l.crowded = gate.Turns() == turns && !gate.Closed() && l.queued.Gate >= crowdedWait || no != nil && no.reason == ReasonGateFull
	if no == nil && waited {
		due := l.t.timeOf(a.Until)
		if until, ok := l.ctx.Deadline(); ok && !due.Before(until) {
			no = &refusal{ReasonDeadline, ErrOverDeadline, due, limitGate}
		}
	}
	if no != nil {
		l.slot.Release()
	}
	return waited, no
}

// admitByRate takes a token of the rate.
func (l *limits) admitByRate() (waited bool, no *refusal) {
	a, waited, no := l.wait(rateQueue{l}, &l.queued.Rate)
	early := a.Until.Sub(l.sentAt)
	if no != nil || early <= 0 {
		return waited, no
	}
	now := time.Now()
	if no := l.tooLate(now, now.Add(early)); no != nil {
		no.limit = limitRate
		return true, no
	}
	l.sentAt = a.Until
	defer func() { l.queued.Rate += time.Since(now) }()
	if err := l.sleepOr(early, nil); err != nil {
		return true, &refusal{reason: l.gone(), err: err, limit: limitRate}
	}
	return true, nil
}

// admitHedge asks the limits for a hedge, which never waits.
func (l *limits) admitHedge() bool {
	m, now := l.state.Machines(), l.t.now()
	l.sentAt = now
	if l.cooling() && l.ask(cooldownQueue{l}, now).Verb != queue.Go {
		return false
	}
	if l.rule.Pacing && !l.paced(now) {
		return false
	}
	switch {
	case l.rule.Gate:
		l.slot = flight.Slot{Home: &l.t.ground, Host: l.state.Name(), Gate: m.Gate()}
		return l.ask(gateQueue{l}, now).Verb == queue.Go
	case l.rule.Rate:
		return m.Rate(l.rule.Settings.Rate).Take(now, l.cost())
	}
	return true
}

// paced asks the pacing for a request that does not wait, and reports whether it may go.
func (l *limits) paced(now instant.Instant) bool {
	a := l.ask(pacingQueue{l}, now)
	l.pass = pacing.Pass{Mark: a.Mark, Spent: a.Spent}
	return a.Verb == queue.Go
}

// quotaCame reports whether the server named a quota since the pacing, which knew
// of none, let the request pass.
func (l *limits) quotaCame() bool { return l.unpaced && !l.state.Machines().Pacing().Quiet() }

// held reports whether the server asked for a wait since the cooldown let the request
// go, and the wait is not over.
func (l *limits) held() bool {
	return l.cooling() && l.state.Machines().Cooldown.HeldSince(l.t.now(), l.scopeKey(), l.entered)
}

// next returns when the limits would let the next attempt go, as far as is known,
// counted from now, and the limit that takes longest. refused means that a hold refuses
// requests.
func (l *limits) next(now time.Time) (turn time.Duration, limit string, refused bool) {
	if l.rule.Rate {
		turn, limit = l.state.Machines().Rate(l.rule.Settings.Rate).Peek(l.t.instantOf(now), l.background(), l.cost()), limitRate
	}
	if !l.cooling() {
		return turn, limit, false
	}
	at, cooldown := l.t.now(), &l.state.Machines().Cooldown
	if _, refused = cooldown.Held(at, l.scopeKey()); refused {
		return turn, limitCooldown, true
	}
	// The request's own wait keeps its own jitter although the hold has jitter as
	// well. A success of another request may end the hold before its time.
	if held := cooldown.Named(at, l.scopeKey()).Sub(at); held > turn {
		turn, limit = held, limitCooldown
	}
	return turn, limit, false
}

// reserve takes one retry or hedge from the host's budget. It reports false if
// none is left.
func (l *limits) reserve() bool {
	budget := &l.state.Machines().Budget
	budget.CountTo(l.state.Requests())
	l.reserved = budget.Take(l.t.now(), l.budget())
	return l.reserved != nil
}

// usedUp reports whether no request gets a retry from the budget. A background request may get
// none although there are some for others.
func (l *limits) usedUp() bool {
	return !l.background() || l.state.Machines().Budget.Left(l.t.now(), l.budget()) < 1
}

// budget returns the settings of the budget. In a fleet each member has its part.
func (l *limits) budget() budget.Config {
	c := l.rule.Settings.Budget
	if l.t.fleet != nil {
		c = c.ForMember(l.t.members())
	}
	if o := l.options; o != nil && o.background {
		c = c.ForBackground()
	}
	return c
}

// releaseBudget gives the retry of the budget back, if it does not go.
func (l *limits) releaseBudget() {
	if l.reserved != nil {
		budget := &l.state.Machines().Budget
		budget.CountTo(l.state.Requests())
		budget.Release(l.t.now(), l.budget(), l.reserved)
		l.reserved = nil
	}
}

// going notes that an attempt goes now. It uses up the retry of the budget, and
// hands the slot over to the attempt.
func (l *limits) going() flight.Slot {
	s := l.slot
	l.reserved, l.slot = nil, flight.Slot{}
	return s
}

// release releases everything that no attempt has taken over.
func (l *limits) release() {
	if l.reserved != nil {
		l.releaseBudget()
	}
	l.slot.Release()
}

// scopeKey returns the key of the request's scope. It is computed once, and only
// if something is held or known of the host.
func (l *limits) scopeKey() uint64 {
	if !l.scoped {
		l.scoped = true
		own := l.rule.Policy.Scope
		switch {
		case l.t.fleet != nil:
			l.scope = l.fleetScope()
		case own != nil:
			l.scope = maphash.String(l.t.seed, own(l.req))
		default:
			l.scope = host.ScopeKey(l.t.seed, l.req.Header)
		}
	}
	return l.scope
}
