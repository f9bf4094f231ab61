// Telling the changes of a host: who notices them, and when.

package visit

import (
	"time"

	"github.com/aplomb-go/aplomb/internal/flight"
	"github.com/aplomb-go/aplomb/internal/host"
	"github.com/aplomb-go/aplomb/internal/host/instant"
	"github.com/aplomb-go/aplomb/internal/host/news"
)

// A limit of the rule holds requests when one has waited for longer than longWait at an open gate or for
// the rate. It no longer does if no other request waits as long within calmTime.
const (
	longWait = time.Second
	calmTime = 10 * time.Second
)

// A Teller tells of the changes of a host.
type Teller interface {
	// Tells returns a function that tells of a change.
	Tells(news.Change) func()
	// LogsState returns a function that tells the log what lasts, after more changes than it has
	// lines for.
	LogsState(lasting []news.Change) func()
	// Safe returns an error that prints without secrets.
	Safe(error) error
}

// beginCondition notes that a condition of the host lasts, and tells it if that is new.
func (r *Request) beginCondition(c news.Change) {
	if !r.Ground.Watched {
		return
	}
	c.Since = max(c.Since, 1)
	r.State.Machines().News().Begin(c, r.Teller.Tells(r.present(c)))
}

// endCondition notes that a condition is over, and tells it if it lasted until now.
func (r *Request) endCondition(k news.Key) {
	n := r.State.Machines().News()
	if c, lasts := n.Lasts(k); lasts {
		c.Cause = news.Cause{}
		c = r.present(c)
		c.Over, c.Until = true, 0
		n.End(k, r.Teller.Tells(c))
	}
}

// present returns a change with the present figures of the limit that it is about.
func (r *Request) present(c news.Change) news.Change {
	switch m := r.State.Machines(); c.Condition {
	case news.Held:
		c.Waiting = m.Cooldown.Waiting(c.Scope)
		if named := m.Cooldown.Named(r.Ground.Now(), c.Scope); named > 0 {
			c.Until = named // without the jitter of this process
		}
	case news.Down, news.Crowded:
		c.Until, c.Room = 0, 0
		if !r.Rule.Gate {
			break
		}
		g := m.Gate().State()
		c.Waiting, c.Room = g.Waiting, g.Limit
		if c.Condition == news.Down && g.Fleet {
			c.Fleet, c.Cause = true, news.Cause{}
		}
	case news.RateLimited:
		c.Until, c.Waiting = 0, r.waitingForRate(m)
	}
	return c
}

// waitingForRate returns how many requests wait for the rate. With a gate they wait in its queue.
func (r *Request) waitingForRate(m *host.Machines) int {
	g, limit := m.Made()
	switch {
	case !r.Rule.Rate || limit == nil:
		return 0
	case r.Rule.Gate && g != nil: // else an Update has just turned the gate on
		return g.State().ForRate
	}
	return limit.Queue()
}

// review tells those who watch what the fleet said, and which conditions have
// begun or ended meanwhile. The machines have no timers, so each request does this that
// has to ask them anyway. o is the outcome of an attempt, or nil before it.
func (p *Permit) review(r *Request, o *flight.Outcome) {
	if !r.Ground.Watched {
		return
	}
	m := r.State.MachinesMade()
	if m == nil {
		return
	}
	p.reviewDown(r, m, o)
	p.reviewWaits(r, m)
	n := m.NewsMade()
	if n.Quiet() {
		return
	}
	now := r.Ground.Now()
	for _, c := range n.Heard() {
		if now < c.Until {
			r.beginCondition(c)
		}
	}
	if !r.Rule.Pacing {
		r.endCondition(news.Key{Condition: news.LowQuota, Scope: r.scopeKey()}) // an Update turned the pacing off
	}
	for _, c := range n.Due(now, news.Key{Condition: news.Held, Scope: r.scopeKey()}) {
		if r.isOver(m, now, c) {
			r.endCondition(c.Key)
		}
	}
	if lasting, ok := n.TakeState(now); ok {
		for i, c := range lasting {
			lasting[i] = r.present(c)
		}
		n.Tell(r.Teller.LogsState(lasting))
	}
}

// isOver reports whether a condition is over whose time has come.
func (r *Request) isOver(m *host.Machines, now instant.Instant, c news.Change) bool {
	switch c.Condition {
	case news.Held:
		until := m.Cooldown.Held(now, c.Scope)
		if until > c.Until {
			m.News().Extend(c.Key, until) // it was asked again
		}
		return until == 0
	case news.NoRetries:
		m.Budget.CountTo(r.State.Requests())
		return m.Budget.Left(now, r.budgetConfig()) >= max(r.budgetConfig().Burst/2, 1)
	case news.Down:
		return false // reviewDown knows
	case news.Crowded:
		g := m.Gate().State()
		return !r.Rule.Gate || !g.Closed && g.Waiting == 0
	case news.RateLimited:
		return r.waitingForRate(m) == 0
	}
	return true
}

// reviewDown tells whether the host is down. A gate knows that by itself. Without a gate the host is
// down after five failures in a row.
func (p *Permit) reviewDown(r *Request, m *host.Machines, o *flight.Outcome) {
	if o != nil && p.failed {
		m.News().Failed(r.causeOf(o))
	}
	since, down := m.Failures.Down()
	if g, _ := m.Made(); r.Rule.Gate && g != nil {
		if down = g.Closed(); down {
			since = g.State().Since
		}
	}
	key := news.Key{Condition: news.Down}
	switch {
	case down:
		if _, lasts := m.News().Lasts(key); !lasts {
			r.beginCondition(news.Change{Key: key, Cause: m.News().Failure(), Since: since})
		}
	case !m.NewsMade().Quiet():
		r.endCondition(key)
	}
}

// reviewWaits tells that a limit of the rule held the request for long.
func (p *Permit) reviewWaits(r *Request, m *host.Machines) {
	if !p.crowded && !p.rated {
		return
	}
	now := r.Ground.Now()
	if p.crowded && !m.Gate().Closed() {
		r.beginCondition(news.Change{Key: news.Key{Condition: news.Crowded}, Since: now.Add(-p.Queued.Gate), Until: now.Add(calmTime)})
	}
	if p.rated {
		r.beginCondition(news.Change{Key: news.Key{Condition: news.RateLimited}, Since: now.Add(-p.Queued.Rate), Until: now.Add(calmTime)})
	}
	p.crowded, p.rated = false, false
}

// causeOf returns an outcome as the cause of a change.
func (r *Request) causeOf(o *flight.Outcome) news.Cause {
	return news.Cause{Status: o.Status(), Err: r.Teller.Safe(o.Err), Addr: o.Link.Addr()}
}
