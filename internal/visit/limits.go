// Package visit is the part of a request at one host. Before an attempt the request passes the
// limits of the host. After the attempt it tells them what the outcome says. It also tells
// those who watch the host, and the other members of a fleet.
package visit

import (
	"hash/maphash"
	"time"

	"github.com/aplomb-go/aplomb/classify"
	"github.com/aplomb-go/aplomb/internal/flight"
	"github.com/aplomb-go/aplomb/internal/host/budget"
	"github.com/aplomb-go/aplomb/internal/host/gate"
	"github.com/aplomb-go/aplomb/internal/host/instant"
	"github.com/aplomb-go/aplomb/internal/host/news"
	"github.com/aplomb-go/aplomb/internal/host/pacing"
	"github.com/aplomb-go/aplomb/internal/host/queue"
	"github.com/aplomb-go/aplomb/internal/scope"
	"github.com/aplomb-go/aplomb/policy"
)

// Limits apply the limits of a host to the attempts of one call. Before an
// attempt, Admit waits until all of them let it go. After it, HearHeaders and NoteOutcome tell
// them what the response says (see heard.go).
type Limits struct {
	*Request
	latest instant.Instant // no retry starts later; 0: no bound

	reserved *budget.Charge  // a retry from the budget that has not gone yet
	Slot     flight.Slot     // at the gate, until an attempt takes it over, and then of a response that is no success
	Refused  *flight.Slot    // that of such a response, if a copy was sent; nil: none
	pass     pacing.Pass     // the pacing's numbers of the attempt; zero if no quota was known
	since    instant.Instant // when the attempt began to wait for the limits
	Queued   flight.Queued   // by the next attempt so far; who takes it sets it to zero
	held     time.Duration   // for how long holds have made all attempts wait
	heard    [2]hearing      // of the responses' headers, the latest first; a hedged request has two
	scope    uint64          // the scope's key, once scoped
	refusals uint32          // that the cooldown knew of when it let the attempt go; 0 if nothing was held
	scoped   bool
	crowded  bool // the attempt waited for long at an open gate, which is to be told
	rated    bool // it waited for long for the rate, or would have to, which is to be told
	failed   bool // the last outcome was a failure of the host
}

// A Refusal says why a request does not go, or not again. A nil refusal lets it
// go.
type Refusal struct {
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
	WhyFull               // at the gate, whose mode is to refuse requests
)

// The limits of a host by the names that errors, events and log lines have for them.
const (
	LimitCooldown = "cooldown"
	LimitPacing   = "pacing"
	LimitGate     = "gate"
	LimitRate     = "rate"
	LimitBudget   = "budget"
)

// Admit waits until the limits let an attempt go. The hold of the server comes
// first, then the limits of the rule, and last a slot at the gate, so that no request
// keeps a slot while it waits for another limit. If the turn of the request would
// come too late, Admit refuses it at once. latest is the time after which a retry
// may not start. It is 0 for the first attempt, and if nothing bounds it.
func (l *Limits) Admit(latest instant.Instant) *Refusal {
	if l.latest = latest; !l.Rule.Limited && l.State.Quiet() {
		return nil
	}
	l.ReviewConditions(nil)
	if l.Rule.Rate || l.Rule.Pacing {
		l.askCost() // now, because nothing is held yet if it panics
	}
	l.since = l.Ground.Now()
	for {
		if no := l.admitByServer(); no != nil {
			return no
		}
		if l.Queued.Cooldown > 0 {
			l.ReviewConditions(nil) // the hold may be over, and there is no slot yet
		}
		waited, no := l.admitByRule()
		l.rated = l.Queued.Rate > longWait || no != nil && no.Limit == LimitRate && time.Until(no.Until) > longWait
		if no != nil {
			return no
		}
		if !waited || !l.isHeldAgain() && l.askPacingAgain() {
			if l.crowded || l.rated {
				l.ReviewConditions(nil)
			}
			return nil
		}
		// While this request waited for its turn, the server asked for a wait, or
		// named its quota for the first time, and the request is not yet due.
		l.Slot.Release()
	}
}

// admitByServer waits for the end of a hold of the scope, and for its turn in the ramp.
func (l *Limits) admitByServer() *Refusal {
	if l.refusals = 0; !l.mayBeHeld() {
		return nil
	}
	before := l.Queued.Cooldown
	_, _, no := l.waitInQueue(cooldownQueue{l}, &l.Queued.Cooldown)
	l.held += l.Queued.Cooldown - before
	return no
}

// mayBeHeld reports whether the cooldown is on and may hold something.
func (l *Limits) mayBeHeld() bool { return l.Rule.Policy.Cooldown == policy.On && !l.State.Quiet() }

// admitByRule waits for the limits that the rule turns on: a share of the server's
// quota, the rate, and a slot at the gate.
func (l *Limits) admitByRule() (waited bool, no *Refusal) {
	m := l.State.Machines()
	if l.Rule.Pacing {
		l.pass = pacing.Pass{}
		if !m.Pacing().Quiet() {
			var a queue.Answer
			if a, waited, no = l.waitInQueue(pacingQueue{l}, &l.Queued.Pacing); no != nil {
				return waited, no
			}
			l.pass = pacing.Pass{Mark: a.Mark, Spent: a.Spent}
		}
	}
	var more bool
	switch {
	case l.Rule.Gate:
		more, no = l.admitByGate(m.Gate())
	case l.Rule.Rate:
		more, no = l.admitByRate()
	}
	return waited || more, no
}

// admitByGate waits for a token of the rate, if the rule has one, and for a slot at the
// gate. It takes both at the same moment. It refuses
// a request that waited until its deadline leaves less time than a response takes.
// The queue is served in order. Behind a closed gate every probe would otherwise be
// such a request, and no probe would ever succeed.
func (l *Limits) admitByGate(gate *gate.Gate) (waited bool, no *Refusal) {
	l.Slot = flight.Slot{Home: l.Ground, Host: l.State.Name(), Gate: gate}
	turns := gate.Turns()
	a, waited, no := l.waitInQueue(gateQueue{l}, &l.Queued.Gate)
	l.crowded = gate.Turns() == turns && !gate.Closed() && l.Queued.Gate > longWait || no != nil && no.Why == WhyFull
	if no == nil && waited {
		due := l.Ground.TimeOf(a.Until)
		if until, ok := l.Ctx.Deadline(); ok && !due.Before(until) {
			no = &Refusal{Why: WhyLate, Until: due, Limit: LimitGate}
		}
	}
	if no != nil {
		l.Slot.Release()
	}
	return waited, no
}

// admitByRate takes a token of the rate.
func (l *Limits) admitByRate() (waited bool, no *Refusal) {
	a, waited, no := l.waitInQueue(rateQueue{l}, &l.Queued.Rate)
	early := a.Until.Sub(l.Ground.Now())
	if no != nil || early <= 0 {
		return waited, no
	}
	now := time.Now()
	if no := l.tooLate(now, now.Add(early)); no != nil {
		no.Limit = LimitRate
		return true, no
	}
	defer func() { l.Queued.Rate += time.Since(now) }()
	if err := l.SleepOr(early, nil); err != nil {
		return true, &Refusal{Err: err, Limit: LimitRate}
	}
	return true, nil
}

// Pass asks the limits for a first attempt that nothing makes wait, and takes its token and its
// slot. If it reports false, it has taken nothing, and Admit has to be asked. The host is calm.
func (r *Request) Pass(now instant.Instant, s *flight.Slot) bool {
	m, conf := r.State.Machines(), r.Rule.Settings.Gate
	if r.Ground.Fleet != nil || r.Rule.Pacing && !m.Pacing().Quiet() {
		return false
	}
	if r.Rule.Rate {
		conf.Rate = m.Rate(r.Rule.Settings.Rate)
	}
	if !r.Rule.Gate {
		return conf.Rate == nil || conf.Rate.Queue() == 0 && conf.Rate.Take(now, 1)
	}
	at := flight.Slot{Home: r.Ground, Host: r.State.Name(), Gate: m.Gate()}
	if at.Gate.Enter(now, &at.At, nil, conf).Verb != queue.Go {
		return false
	}
	*s = at
	return true
}

// HearsMore reports whether the limits have to hear of a good response to an attempt that Pass let
// go. Of most of them they need to know nothing.
func (r *Request) HearsMore(f *flight.Flight) bool {
	return f.Slot.Gate != nil || f.Refused != nil || // the response is no success
		r.Rule.Pacing && len(classify.Quotas(r.OutcomeOf(f.Resp, nil))) > 0
}

// AdmitHedge asks the limits for a hedge, which never waits.
func (l *Limits) AdmitHedge() bool {
	m, now := l.State.Machines(), l.Ground.Now()
	if l.mayBeHeld() && l.askOnce(cooldownQueue{l}, now).Verb != queue.Go {
		return false
	}
	if l.Rule.Pacing && !l.askPacing(now) {
		return false
	}
	switch {
	case l.Rule.Gate:
		l.Slot = flight.Slot{Home: l.Ground, Host: l.State.Name(), Gate: m.Gate()}
		return l.askOnce(gateQueue{l}, now).Verb == queue.Go
	case l.Rule.Rate:
		return m.Rate(l.Rule.Settings.Rate).Take(now, l.askCost())
	}
	return true
}

// askPacing asks the pacing for a request that does not wait, and reports whether it may go.
func (l *Limits) askPacing(now instant.Instant) bool {
	a := l.askOnce(pacingQueue{l}, now)
	l.pass = pacing.Pass{Mark: a.Mark, Spent: a.Spent}
	return a.Verb == queue.Go
}

// askPacingAgain asks the pacing a second time if it let the request pass without a quota and
// the server has named one since then. It reports whether the request may go.
func (l *Limits) askPacingAgain() bool {
	asks := l.Rule.Pacing && l.pass == (pacing.Pass{}) && !l.State.Machines().Pacing().Quiet()
	return !asks || l.askPacing(l.Ground.Now())
}

// isHeldAgain reports whether the server asked for a wait since the cooldown let the request
// go, and the wait is not over.
func (l *Limits) isHeldAgain() bool {
	return l.mayBeHeld() && l.State.Machines().Cooldown.HeldSince(l.Ground.Now(), l.scopeKey(), l.refusals)
}

// NextTurn returns when the limits would let the next attempt go, as far as is known,
// counted from now, and the limit that takes longest.
func (l *Limits) NextTurn(now time.Time) (turn time.Duration, limit string) {
	if l.Rule.Rate {
		turn, limit = l.State.Machines().Rate(l.Rule.Settings.Rate).Peek(l.Ground.InstantOf(now), l.askCost()), LimitRate
	}
	if l.mayBeHeld() {
		// The request's own wait keeps its own jitter although the hold has jitter as well.
		at := l.Ground.Now()
		named := min(l.State.Machines().Cooldown.Named(at, l.scopeKey()).Sub(at), l.Rule.Settings.Cooldown.Longest()-l.held)
		if named > turn {
			turn, limit = named, LimitCooldown
		}
	}
	return turn, limit
}

// ReserveRetry takes one retry or hedge that counts after some time from the host's budget. It
// reports false if none is left then.
func (l *Limits) ReserveRetry(now time.Time, later time.Duration) bool {
	settings, at := l.budgetConfig(), l.Ground.InstantOf(now)
	budget := &l.State.Machines().Budget
	budget.CountTo(l.State.Requests())
	l.reserved = budget.Take(at, l.Ground.InstantOf(now.Add(later)), settings)
	return l.reserved != nil
}

// TellUsedUp tells that no request gets a retry from the budget. o is the outcome that got none.
func (l *Limits) TellUsedUp(o *flight.Outcome) {
	l.beginCondition(news.Change{Key: news.Key{Condition: news.NoRetries}, Cause: l.causeOf(o), Since: l.Ground.Now()})
}

// budgetConfig returns the settings of the budget. In a fleet each member has its part.
func (l *Limits) budgetConfig() budget.Config {
	c := l.Rule.Settings.Budget
	c.Rests = l.State.Machines().Failures.Helpless()
	if l.Ground.Fleet != nil {
		c = c.ForMember(l.Ground.members())
	}
	return c
}

// ReleaseBudget gives the retry of the budget back, if it does not go.
func (l *Limits) ReleaseBudget() {
	if l.reserved != nil {
		budget := &l.State.Machines().Budget
		budget.CountTo(l.State.Requests())
		budget.Release(l.Ground.Now(), l.budgetConfig(), l.reserved)
		l.reserved = nil
	}
}

// TakeOff notes that an attempt goes now. It uses up the retry of the budget, and
// hands the slot over to the attempt.
func (l *Limits) TakeOff(f *flight.Flight) {
	f.Slot, f.Pass = l.Slot, l.pass
	l.reserved, l.Slot = nil, flight.Slot{}
}

// Release releases everything that no attempt has taken over.
func (l *Limits) Release() {
	l.ReleaseBudget()
	if l.Rule.Gate {
		l.Slot.Release()
		l.Refused.Release()
	}
}

// scopeKey returns the key of the request's scope. It is computed once, and only
// if something is held or known of the host.
func (l *Limits) scopeKey() uint64 {
	if !l.scoped {
		l.scoped = true
		own := l.Rule.Policy.Scope
		switch {
		case l.Ground.Fleet != nil:
			l.scope = l.fleetScope()
		case own != nil:
			l.scope = maphash.String(l.Ground.Seed, own(l.Req))
		default:
			l.scope = scope.Key(l.Ground.Seed, l.Req.Header)
		}
	}
	return l.scope
}
