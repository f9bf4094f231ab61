// Telling the changes of a host: who notices them, and when.

package transport

import (
	"cmp"
	"time"

	"github.com/aplomb-go/aplomb/internal/host"
	"github.com/aplomb-go/aplomb/internal/host/instant"
	"github.com/aplomb-go/aplomb/internal/host/news"
)

// crowdedWait is how long a request has to wait at an open gate for the host to count as
// crowded, and crowdedTime how long that stays so if no other request waits as long.
const (
	crowdedWait = time.Second
	crowdedTime = 10 * time.Second
)

// tells returns a function that tells the Trace and the log about a change. No lock is held
// meanwhile, because a hook or a log handler may block, or send a request over the same
// Transport. If the change came with a response, the request still has its slot of the gate.
func (c *call) tells(h HostChange) func() {
	h.Context, h.Host, h.url = c.parent(), c.hostName(), c.req.URL.String()
	h.Time = time.Now()
	h.Since = cmp.Or(h.Since, h.Time)
	t := c.t
	return func() {
		if t.hostChanged != nil {
			t.hostChanged(h)
		}
		t.changed(h)
	}
}

// begins notes that a condition of the host lasts, and tells it if that is new. A zero until
// means that nobody knows the end. d is the attempt that caused it, or nil.
func (l *limits) begins(c Condition, r news.Record, d *decision) {
	if !l.t.watched {
		return
	}
	r.Kind = uint8(c)
	r.Since = max(r.Since, 1)
	h := l.change(c, r)
	if h.Fleet = h.Fleet || r.Fleet; d != nil && !h.Fleet {
		h.Status, h.Err, h.Addr = d.Status, d.Err, d.Addr
	}
	l.state.Machines().News().Begin(r, l.tells(h))
}

// ends notes that a condition is over, and tells it if it lasted until now.
func (l *limits) ends(k news.Key) {
	n := l.state.Machines().News()
	if r, lasts := n.Lasts(k); lasts {
		h := l.change(Condition(k.Kind), r)
		h.Over, h.Status, h.Until = true, 0, time.Time{}
		n.End(k, l.tells(h))
	}
}

// change describes a condition.
func (l *limits) change(c Condition, r news.Record) HostChange {
	h := HostChange{Condition: c, Scope: r.Scope, Status: r.Status, Since: l.t.timeOf(r.Since), Room: r.Room}
	switch m := l.state.Machines(); c {
	case ConditionHeld, ConditionLowQuota:
		h.Until = l.t.timeOf(r.Until)
		if c == ConditionHeld {
			h.Waiting = m.Cooldown.Waiting(r.Scope)
			now := l.t.now()
			_, h.Refused = m.Cooldown.Held(now, r.Scope)
			if named := m.Cooldown.Named(now, r.Scope); named > 0 {
				h.Until = l.t.timeOf(named) // without the jitter of this process
			}
		}
	case ConditionDown, ConditionCrowded:
		g := m.Gate().State()
		if h.Waiting, h.Room, h.Fleet = g.Waiting, g.Limit, g.Fleet && c == ConditionDown; !l.rule.Gate {
			h.Room = 0
		}
	}
	return h
}

// review tells those who watch what the fleet said, and which conditions have begun or ended meanwhile. The
// machines have no timers, so each request does this that has to ask them anyway. d is the
// outcome of an attempt, or nil before it.
func (l *limits) review(d *decision) {
	m := l.state.MachinesMade()
	if m == nil || !l.t.watched {
		return
	}
	l.reviewGate(m, d)
	if m.NewsMade().Quiet() {
		return
	}
	now := l.t.now()
	for _, r := range m.News().Heard() {
		if now < r.Until {
			l.begins(Condition(r.Kind), r, nil)
		}
	}
	if !l.rule.Pacing {
		l.ends(news.Key{Kind: uint8(ConditionLowQuota), Scope: l.scopeKey()}) // an Update turned the pacing off
	}
	for _, r := range m.News().Due(now, news.Key{Kind: uint8(ConditionHeld), Scope: l.scopeKey()}) {
		if l.over(m, now, r) {
			l.ends(r.Key)
		}
	}
}

// over reports whether a condition is over whose time has come.
func (l *limits) over(m *host.Machines, now instant.Instant, r news.Record) bool {
	switch Condition(r.Kind) {
	case ConditionHeld:
		until, _ := m.Cooldown.Held(now, r.Scope)
		if until > r.Until {
			m.News().Extend(r.Key, until) // it was asked again
		}
		return until == 0
	case ConditionNoRetries:
		m.Budget.CountTo(l.state.Requests())
		return m.Budget.Left(now, l.budget()) >= max(l.budget().Burst/2, 1)
	case ConditionDown:
		return !l.rule.Gate
	case ConditionCrowded:
		g := m.Gate().State()
		return !l.rule.Gate || !g.Closed && g.Waiting == 0
	}
	return true
}

// reviewGate tells whether the host is down, and whether it is crowded.
func (l *limits) reviewGate(m *host.Machines, d *decision) {
	if !l.rule.Gate {
		return
	}
	switch {
	case d == nil:
	case d.Err != nil || d.Status >= 500:
		m.News().Outcome(d.Status, d.Err)
	case m.NewsMade() != nil:
		m.News().Outcome(0, nil)
	}
	g, down := m.Gate(), news.Key{Kind: uint8(ConditionDown)}
	closed := g.Closed()
	if closed {
		if _, lasts := m.News().Lasts(down); !lasts {
			var why decision
			why.Status, why.Err = m.News().Failure()
			l.begins(ConditionDown, news.Record{Since: g.State().Since}, &why) // an Update may turn the gate off
		}
	} else if !m.NewsMade().Quiet() {
		l.ends(down)
	}
	if l.crowded && !closed {
		l.crowded = false
		now := l.t.now()
		l.begins(ConditionCrowded, news.Record{Since: now.Add(-crowdedWait), Until: now.Add(crowdedTime)}, nil)
	}
}

// hears notes what the fleet says about a scope, if it has an effect. The next request
// tells it, because the goroutine that reads the messages of the fleet calls no hook.
func (t *Transport) hears(m *host.Machines, c Condition, scope uint64, now, until instant.Instant, status, room int) {
	if t.watched && until > now {
		m.News().Hear(news.Record{Key: news.Key{Kind: uint8(c), Scope: scope}, Since: now, Until: until, Status: status, Room: room, Fleet: true})
	}
}
