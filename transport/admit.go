// May this attempt go now?

package transport

import (
	"hash/maphash"
	"time"

	"github.com/aplomb-go/aplomb/internal/host"
	"github.com/aplomb-go/aplomb/policy"
)

// admit waits until the host's limits let an attempt go: first what the server
// asked for, then what the rule allows, last a place in flight, so that nobody
// holds a place while it waits for something else. It refuses at once, without
// sending, where the turn would come too late.
func (x *exchange) admit() *Error {
	if !x.rule.limited && x.state.Quiet() {
		return nil
	}
	for arrives := x.sent == 0; ; arrives = false {
		if err := x.admitByServer(arrives); err != nil {
			return err
		}
		waited, err := x.admitByRule()
		if err != nil {
			return err
		}
		if !waited || !x.held() && !x.quotaCame() {
			return nil
		}
		// The server asked for a wait, or for the first time said what is left of
		// a quota, while this request waited for its turn.
		x.giveBack()
	}
}

// giveBack gives back a place at the gate that no leg has taken over.
func (x *exchange) giveBack() {
	x.flight.giveBack()
	x.flight = nil
}

// board hands the place at the gate over to a leg.
func (x *exchange) board() *flight {
	f := x.flight
	x.flight = nil
	return f
}

// admitByServer waits for what the server asked for: the end of a hold of the
// scope. A request that arrives now, and that nobody held back before, is not
// spread out behind that end.
func (x *exchange) admitByServer(arrives bool) *Error {
	x.entered = 0
	if x.rule.rule.Cooldown != policy.On || x.state.Quiet() {
		return nil
	}
	cooldown := &x.state.Machines().Cooldown
	if arrives && cooldown.Arrive(x.t.now(), x.scope()) {
		x.entered = x.t.now()
		return nil
	}
	_, err := x.stand(cooldownPlace{cooldown, x.scope()})
	x.entered = x.t.now()
	return err
}

// admitByRule waits for what the rule turns on: a share of the server's quota,
// the client's own rate, and a place in flight.
func (x *exchange) admitByRule() (waited bool, err *Error) {
	m := x.state.Machines()
	if x.rule.pacing {
		x.mark = 0
		if x.unpaced = m.Pacing().Quiet(); !x.unpaced {
			if waited, err = x.stand(pacingPlace{m.Pacing(), x}); err != nil {
				return waited, err
			}
		}
	}
	var more bool
	switch {
	case x.rule.gate:
		x.flight = &flight{t: x.t, gate: m.Gate()}
		if more, err = x.stand(x.gatePlace()); err == nil && more {
			err = x.hopeless()
		}
		if err != nil {
			x.giveBack()
		}
	case x.rule.rate:
		more, err = x.admitByRate()
	}
	return waited || more, err
}

// hopeless gives back the place of a request that waited until its deadline
// leaves less time than an answer takes. Those who wait are served in order, so
// behind a closed gate each probe would else be one that is about to leave, and
// none would ever succeed.
func (x *exchange) hopeless() *Error {
	until, ok := x.ctx.Deadline()
	due := x.t.epoch.Add(x.flight.due)
	if !ok || due.Before(until) {
		return nil
	}
	x.giveBack()
	return x.refuseUntil(ReasonDeadline, ErrOverDeadline, due)
}

// gatePlace is the line at the gate, and behind it the client's own rate.
func (x *exchange) gatePlace() gatePlace {
	p := gatePlace{f: x.flight, conf: x.rule.gateConfig(), refuse: x.rule.rule.Gate.Mode == policy.GateRefuse}
	if x.rule.rate {
		p.rate = x.state.Machines().Rate(x.rule.rateConfig())
	}
	return p
}

// quotaCame reports whether the server named a quota since this request was let
// past a pacing that knew of none.
func (x *exchange) quotaCame() bool { return x.unpaced && !x.state.Machines().Pacing().Quiet() }

// held reports whether the server asked for a wait that is not over.
func (x *exchange) held() bool {
	if x.rule.rule.Cooldown != policy.On || x.state.Quiet() {
		return false
	}
	return x.state.Machines().Cooldown.Named(x.t.now(), x.scope()) != 0
}

// admitByRate takes a token of the client's own rate.
func (x *exchange) admitByRate() (waited bool, err *Error) {
	p := &ratePlace{r: x.state.Machines().Rate(x.rule.rateConfig())}
	if waited, err = x.stand(p); err != nil || p.wait <= 0 {
		return waited, err
	}
	now := time.Now()
	if turn, reason, late := x.tooLate(now, now.Add(p.wait)); late != nil {
		return true, x.refuseUntil(reason, late, turn)
	}
	if err := x.sleep(p.wait); err != nil {
		return true, x.refuse(ReasonCanceled, err)
	}
	return true, nil
}

// A place is where a request stands in line at one machine.
type place interface {
	// enter asks the machine; mayWait is false where a request that cannot go
	// at once is not to wait.
	enter(now time.Duration, w *host.Waiter) (a host.Answer, mayWait bool)
	leave(w *host.Waiter)
}

type cooldownPlace struct {
	c     *host.Cooldown
	scope uint64
}

func (p cooldownPlace) enter(now time.Duration, w *host.Waiter) (host.Answer, bool) {
	return p.c.Enter(now, p.scope, w), true
}
func (p cooldownPlace) leave(w *host.Waiter) { p.c.Leave(p.scope, w) }

type pacingPlace struct {
	p *host.Pacing
	x *exchange
}

func (p pacingPlace) enter(now time.Duration, w *host.Waiter) (host.Answer, bool) {
	a := p.p.Enter(now, p.x.scope(), w, p.x.rule.pacingConfig())
	p.x.mark = a.Mark
	return a, true
}
func (p pacingPlace) leave(w *host.Waiter) { p.p.Leave(p.x.scope(), w) }

type ratePlace struct {
	r    *host.Rate
	wait time.Duration // with Go, until it may go
}

func (p *ratePlace) enter(now time.Duration, w *host.Waiter) (host.Answer, bool) {
	a := p.r.Enter(now, time.Now(), w)
	p.wait = a.Until - now
	return a, true
}
func (p *ratePlace) leave(w *host.Waiter) { p.r.Leave(w) }

type gatePlace struct {
	f      *flight
	conf   host.GateConfig
	rate   *host.Rate // nil: no limit
	refuse bool
}

// enter takes a place in flight, and then a token of the rate: taken before the
// gate, tokens would pile up behind a closed one, and all be used when it
// opens. Who finds no token gives the place back meanwhile.
func (p gatePlace) enter(now time.Duration, w *host.Waiter) (host.Answer, bool) {
	a := p.f.gate.Enter(now, &p.f.pass, w, p.conf)
	p.f.due = a.Until
	if p.rate == nil {
		return a, !p.refuse
	}
	at := time.Now()
	if a.Verb != host.Go {
		if w == nil { // how long those in line before it take, at the least
			ahead := time.Duration(float64(p.f.gate.State().Waiting) / p.rate.PerSecond() * float64(time.Second))
			a.Until = max(a.Until, now+p.rate.Peek(at)+ahead)
		}
		return a, !p.refuse || p.f.gate.Room() // with room it is the rate that those in line wait for
	}
	if p.rate.Take(at) {
		return a, true
	}
	p.f.gate.Release(now, &p.f.pass, w)
	turn := now + p.rate.Peek(at)
	return host.Answer{Verb: host.Wait, Ask: turn, Until: turn}, true
}
func (p gatePlace) leave(w *host.Waiter) { p.f.gate.Leave(w) }

// stand waits in the line of one machine until it lets the request go. A request
// leaves the line before anybody is told of its refusal, and also if the caller's
// context or a Trace panics: a waiter that nobody drives would stop those behind
// it.
func (x *exchange) stand(p place) (waited bool, err *Error) {
	var w *host.Waiter // made only for a request that has to wait
	defer func() {
		if w != nil {
			p.leave(w)
		}
	}()
	for {
		now := x.t.now()
		a, mayWait := p.enter(now, w)
		switch {
		case a.Verb == host.Go:
			return w != nil, nil
		case a.Verb == host.Refuse:
			p.leave(w)
			return true, x.refuseUntil(ReasonCooldown, ErrCooldown, x.t.epoch.Add(a.Until))
		case !mayWait:
			p.leave(w)
			return true, x.refuse(ReasonGateFull, ErrGateFull)
		}
		if turn, reason, late := x.tooLate(x.t.epoch.Add(now), x.t.epoch.Add(a.Until)); late != nil {
			p.leave(w)
			if a.Open > 0 {
				turn = x.t.epoch.Add(a.Open) // spreads those who come back then
			}
			return true, x.refuseUntil(reason, late, turn)
		}
		if w == nil {
			w = host.NewWaiter()
			w.By = x.by()
			continue // takes its place in line
		}
		if err := x.sleepOr(min(a.Ask-now, x.patience()), w.Ready); err != nil {
			p.leave(w)
			return true, x.refuse(ReasonCanceled, err)
		}
	}
}

// by returns when the request has to be sent at the latest, as the machines
// count the time, zero where nothing bounds it.
func (x *exchange) by() (at time.Duration) {
	if until, ok := x.ctx.Deadline(); ok {
		at = until.Sub(x.t.epoch)
	}
	if limit := x.rule.rule.MaxElapsed; x.sent > 0 && limit > 0 {
		if end := x.start.Add(limit).Sub(x.t.epoch); at == 0 || end < at {
			at = end
		}
	}
	return at
}

// patience returns for how long a request may wait for its turn: a retry starts
// no later than the rule's Elapsed allows.
func (x *exchange) patience() time.Duration {
	if x.sent == 0 || x.rule.rule.MaxElapsed <= 0 {
		return host.Never
	}
	return time.Until(x.start.Add(x.rule.rule.MaxElapsed)) + 1
}

// tooLate returns when a request's turn comes, and why it is refused: its turn
// comes after the caller's deadline, or it is a retry that would start later
// than the rule allows. Without an error it is not too late. A turn that is not
// known is now.
func (x *exchange) tooLate(now, turn time.Time) (time.Time, Reason, error) {
	if until, ok := x.ctx.Deadline(); ok && turn.After(now) && !turn.Before(until) {
		return turn, ReasonDeadline, ErrOverDeadline
	}
	if turn.Before(now) {
		turn = now
	}
	if limit := x.rule.rule.MaxElapsed; x.sent > 0 && limit > 0 && turn.Sub(x.start) > limit {
		return turn, ReasonMaxElapsed, errOverElapsed
	}
	return turn, 0, nil
}

// scope returns the number of the request's scope, computed once and only when
// something is held or known of the host.
func (x *exchange) scope() uint64 {
	if !x.scoped {
		x.scoped = true
		if own := x.rule.rule.Scope; own != nil {
			x.scopeKey = maphash.String(x.t.seed, own(x.req))
		} else {
			x.scopeKey = host.ScopeKey(x.t.seed, x.req.Header)
		}
	}
	return x.scopeKey
}

// refuse ends the request without a further send, and tells the observers.
func (x *exchange) refuse(reason Reason, err error) *Error {
	return x.refuseUntil(reason, err, time.Time{})
}

func (x *exchange) refuseUntil(reason Reason, err error, until time.Time) *Error {
	x.refund()
	x.tell(nil, &decision{
		Attempt: Attempt{Number: x.sent, Err: err, Time: time.Now()},
		reason:  reason,
	})
	e := x.newError(reason, err)
	e.Until = until
	return e
}
