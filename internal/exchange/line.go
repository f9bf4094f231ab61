// The line of a host: its retry budget, its outages and its circuit breaker.

package limit

import (
	"cmp"
	"hash/maphash"
	"net/http"
	"time"

	"github.com/aplomb-go/aplomb/internal/attempt"
	"github.com/aplomb-go/aplomb/internal/host/instant"
	"github.com/aplomb-go/aplomb/internal/host/line"
	"github.com/aplomb-go/aplomb/internal/host/queue"
)

// TryLine asks the line of the host for an attempt that does not wait: a retry or hedge, or with a circuit breaker
// a first attempt.
func (p *Permit) TryLine(r *Request, place line.Place) bool {
	conf, now := r.lineConfig(), r.Registry.Now()
	a := r.State.Machines().Line.Enter(now, &place, nil, &conf)
	if p.token = place.Token(); place.Leaves() {
		left := place // so that a place costs no allocation if nobody has to hear of its end
		p.place = &left
	}
	return a.Verb == queue.Go
}

// AwaitLine waits in the line of the host, until a time at the latest.
func (p *Permit) AwaitLine(r *Request, place line.Place, latest instant.Instant) *Rejection {
	p.place, p.since, r.latest = &place, r.Registry.Now(), latest
	sum, known := &p.Queued.Line, r.State.Machines().Line.State()
	at := LimitLine
	if known.Down && r.Rule.Breaker {
		at = LimitCircuit
	}
	if r.latest <= p.since {
		return &Rejection{Why: WhyOverdue, Limit: at}
	}
	if known.Down || place.Failed < known.Ended {
		sum = &p.Queued.Outage
	}
	a, _, no := p.wait(r, LimitLine, sum)
	p.starved = p.Queued.Line > longWait
	switch {
	case no == nil:
		p.token = place.Token()
	case no.Err != nil:
		no.Limit = "" // the end of the context is the reason
	case a.Down && r.Rule.Breaker:
		no.Limit = LimitCircuit
	default:
		p.starved = p.Queued.Line > 0
	}
	if p.starved {
		p.review(r, nil)
	}
	return no
}

// Down reports whether the host is down.
func (r *Request) Down() bool {
	m := r.State.MachinesMade()
	return m != nil && m.Line.State().Down
}

// LineScope returns the scope of a response or an error in the line: that of the credentials after a 429, and else that of
// the path.
func (r *Request) LineScope(status int) uint64 {
	if status == http.StatusTooManyRequests {
		return r.scopeKey()
	}
	return maphash.String(r.Registry.Seed, r.Req.URL.Path)
}

// lineConfig returns the settings of the line. In a fleet each member has its part of the budget.
func (r *Request) lineConfig() line.Config {
	rule := r.State.Resolved.Load() // an Update may have changed it since
	c := line.Config{Budget: rule.Settings.Budget, Breaker: rule.Breaker, FailFast: rule.FailsFast(), Probers: 1}
	c.Budget.Requests = r.State.Requests()
	if f := r.State.Machines().Fleet; f != nil {
		c = f.Divide(c)
	}
	return c
}

// Succeeded tells the line of a success that is no retry. If nothing has failed, it is a single atomic load.
func (r *Request) Succeeded() { r.succeeded(line.Success{}) }

func (r *Request) succeeded(v line.Success) {
	m := r.State.MachinesMade()
	if m == nil || m.Line.Quiet() {
		return
	}
	v.Scopes = [...]uint64{r.LineScope(http.StatusOK), r.LineScope(http.StatusTooManyRequests)}
	if now := r.Registry.Now(); m.Line.Succeeded(now, v) && m.Fleet != nil {
		m.Fleet.Changed(now, m.Line.State())
	}
}

// tellLine tells the line of an outcome. retryAfter is the wait that the server asked for. failed says that the host has failed,
// and done that the outcome is final.
func (p *Permit) tellLine(r *Request, o *attempt.Outcome, retryAfter time.Duration, result attempt.Result, done bool) {
	m, told := r.State.Machines(), o.Status() == http.StatusTooManyRequests
	left := p.place != nil && p.place.Leaves()
	p.Over(r)
	switch {
	case p.failed || told:
		m.Line.Failed(r.Registry.Now(), line.Failure{Began: cmp.Or(o.SentAt, o.DoneAt), Scope: r.LineScope(o.Status()), Wait: retryAfter,
			Told: !p.failed, Late: result == attempt.Lost && r.Ctx.Err() == nil})
		if m.Fleet != nil {
			m.Fleet.Changed(r.Registry.Now(), m.Line.State())
		}
	case done && o.Err == nil && !(retryAfter > 0 && TellsToWait(o.Status())):
		r.succeeded(line.Success{Retry: o.Kind == attempt.Retry, Left: left, Began: o.SentAt})
	}
}

// Over notes that the attempt of the permit is over.
func (p *Permit) Over(r *Request) {
	if p.place != nil {
		r.State.Machines().Line.Over(p.place)
	}
}
