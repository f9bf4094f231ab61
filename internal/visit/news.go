// Telling the changes of a host: who notices them, and when.

package visit

import (
	"time"

	"github.com/aplomb-go/aplomb/internal/host"
	"github.com/aplomb-go/aplomb/internal/host/instant"
	"github.com/aplomb-go/aplomb/internal/host/news"
)

// A host counts as crowded when a request has waited for crowdedWait at an open gate. It
// no longer does if no other request waits as long within crowdedTime.
const (
	crowdedWait = time.Second
	crowdedTime = 10 * time.Second
)

// A condition keeps requests from a host, or the host is short of something.
type condition uint8

const (
	conditionHeld      condition = iota // the server asked the requests of a scope to wait
	conditionDown                       // the gate is closed
	conditionCrowded                    // requests wait for long at an open gate
	conditionNoRetries                  // the budget is used up
	conditionLowQuota                   // a fifth or less is left of a quota
	ConditionLane                       // requests take another lane
)

// A cause is the response or the error that caused a change, if it is known.
type cause struct {
	Status int
	Err    error
	Addr   string
}

// A Change says that a condition began, or is over.
type Change struct {
	cause
	Condition    condition
	Over         bool
	Scope        uint64
	Fleet        bool // another member of the fleet told of it
	Since, Until time.Time
	Waiting      int
	Refused      bool
	Room         int
	Lane         int // that requests take now
}

// beginCondition notes that a condition of the host lasts, and tells it if that is new. A zero until
// means that nobody knows the end. why is what caused it.
func (l *Limits) beginCondition(c condition, r news.Record, why cause) {
	if !l.Ground.Watched {
		return
	}
	r.Kind = uint8(c)
	r.Since = max(r.Since, 1)
	h := l.changeOf(c, r)
	if h.Fleet = h.Fleet || r.Fleet; why != (cause{}) && !h.Fleet {
		h.cause = why
	}
	l.State.Machines().News().Begin(r, l.Teller.Tells(h))
}

// endCondition notes that a condition is over, and tells it if it lasted until now.
func (l *Limits) endCondition(k news.Key) {
	n := l.State.Machines().News()
	if r, lasts := n.Lasts(k); lasts {
		h := l.changeOf(condition(k.Kind), r)
		h.Over, h.Status, h.Until = true, 0, time.Time{}
		n.End(k, l.Teller.Tells(h))
	}
}

// changeOf describes a condition.
func (l *Limits) changeOf(c condition, r news.Record) Change {
	h := Change{Condition: c, Scope: r.Scope, cause: cause{Status: r.Status}, Since: l.Ground.TimeOf(r.Since), Room: r.Room}
	switch m := l.State.Machines(); c {
	case conditionHeld, conditionLowQuota:
		h.Until = l.Ground.TimeOf(r.Until)
		if c == conditionHeld {
			h.Waiting = m.Cooldown.Waiting(r.Scope)
			now := l.Ground.Now()
			_, h.Refused = m.Cooldown.Held(now, r.Scope)
			if named := m.Cooldown.Named(now, r.Scope); named > 0 {
				h.Until = l.Ground.TimeOf(named) // without the jitter of this process
			}
		}
	case conditionDown, conditionCrowded:
		g := m.Gate().State()
		if h.Waiting, h.Room, h.Fleet = g.Waiting, g.Limit, g.Fleet && c == conditionDown; !l.Rule.Gate {
			h.Room = 0
		}
	}
	return h
}

// ReviewConditions tells those who watch what the fleet said, and which conditions have
// begun or ended meanwhile. The machines have no timers, so each request does this that
// has to ask them anyway. o is the outcome of an attempt, or nil before it.
func (l *Limits) ReviewConditions(o *Ending) {
	if !l.Ground.Watched {
		return
	}
	m := l.State.MachinesMade()
	if m == nil {
		return
	}
	l.reviewGate(m, o)
	if m.NewsMade().Quiet() {
		return
	}
	now := l.Ground.Now()
	for _, r := range m.News().Heard() {
		if now < r.Until {
			l.beginCondition(condition(r.Kind), r, cause{})
		}
	}
	if !l.Rule.Pacing {
		l.endCondition(news.Key{Kind: uint8(conditionLowQuota), Scope: l.scopeKey()}) // an Update turned the pacing off
	}
	for _, r := range m.News().Due(now, news.Key{Kind: uint8(conditionHeld), Scope: l.scopeKey()}) {
		if l.isOver(m, now, r) {
			l.endCondition(r.Key)
		}
	}
}

// isOver reports whether a condition is over whose time has come.
func (l *Limits) isOver(m *host.Machines, now instant.Instant, r news.Record) bool {
	switch condition(r.Kind) {
	case conditionHeld:
		until, _ := m.Cooldown.Held(now, r.Scope)
		if until > r.Until {
			m.News().Extend(r.Key, until) // it was asked again
		}
		return until == 0
	case conditionNoRetries:
		m.Budget.CountTo(l.State.Requests())
		return m.Budget.Left(now, l.budgetConfig()) >= max(l.budgetConfig().Burst/2, 1)
	case conditionDown:
		return !l.Rule.Gate
	case conditionCrowded:
		g := m.Gate().State()
		return !l.Rule.Gate || !g.Closed && g.Waiting == 0
	}
	return true
}

// reviewGate tells whether the host is down, and whether it is crowded.
func (l *Limits) reviewGate(m *host.Machines, o *Ending) {
	if !l.Rule.Gate {
		return
	}
	switch {
	case o == nil:
	case o.Err != nil || o.Status >= 500:
		m.News().Outcome(o.Status, o.Err)
	case m.NewsMade() != nil:
		m.News().Outcome(0, nil)
	}
	g, down := m.Gate(), news.Key{Kind: uint8(conditionDown)}
	closed := g.Closed()
	if closed {
		if _, lasts := m.News().Lasts(down); !lasts {
			status, err := m.News().Failure()
			l.beginCondition(conditionDown, news.Record{Since: g.State().Since}, cause{Status: status, Err: err}) // an Update may turn the gate off
		}
	} else if !m.NewsMade().Quiet() {
		l.endCondition(down)
	}
	if l.crowded && !closed {
		l.crowded = false
		now := l.Ground.Now()
		l.beginCondition(conditionCrowded, news.Record{Since: now.Add(-crowdedWait), Until: now.Add(crowdedTime)}, cause{})
	}
}
