// Telling the changes of a host: who notices them, and when.

package limit

import (
	"time"

	"github.com/aplomb-go/aplomb/internal/attempt"
	"github.com/aplomb-go/aplomb/internal/host"
	"github.com/aplomb-go/aplomb/internal/host/instant"
	"github.com/aplomb-go/aplomb/internal/host/news"
)

// A limit of the rule holds requests when one has waited for longer than longWait at a closed circuit or for
// the rate. It no longer does if no other request waits as long within calmTime.
const (
	longWait = time.Second
	calmTime = 10 * time.Second
)

// A Observer tells of the changes of a host.
type Observer interface {
	// Tells returns a function that tells of a change.
	Tells(news.Change) func()
	// LogsState returns a function that tells the log what lasts, after more changes than it has
	// lines for.
	LogsState(lasting []news.Change) func()
	// Safe returns an error that prints without secrets.
	Safe(error) error
}

// conditions are what lasts at the host of a request, and is told when it begins and ends.
type conditions struct{ *Request }

// begin notes that a condition of the host lasts, and tells it if that is new.
func (c conditions) begin(v news.Change) {
	if !c.Registry.Watched {
		return
	}
	v.Since = max(v.Since, 1)
	c.State.Machines().News().Begin(v, c.Observer.Tells(c.present(v)))
}

// end notes that a condition is over, and tells it if it lasted until now.
func (c conditions) end(k news.Key) {
	n := c.State.Machines().News()
	if v, lasts := n.Lasts(k); lasts {
		v.Cause = news.Cause{}
		v = c.present(v)
		v.Over, v.Until = true, 0
		n.End(k, c.Observer.Tells(v))
	}
}

// present returns a change with the present figures of the limit that it is about.
func (c conditions) present(v news.Change) news.Change {
	switch m := c.State.Machines(); v.Condition {
	case news.Held:
		v.Waiting = m.Cooldown.Waiting(v.Scope)
		if named := m.Cooldown.Named(c.Registry.Now(), v.Scope); named > 0 {
			v.Until = named // without the jitter of this process
		}
	case news.Down, news.Crowded:
		v.Until, v.Room = 0, 0
		if !c.Rule.Concurrency {
			break
		}
		g := m.Concurrency().State()
		v.Waiting, v.Room = g.Waiting, g.Limit
		if v.Condition == news.Down && g.Fleet {
			v.Fleet, v.Cause = true, news.Cause{}
		}
	case news.RateLimited:
		v.Until, v.Waiting = 0, c.waitingForRate(m)
	}
	return v
}

// waitingForRate returns how many requests wait for the rate. With a concurrency limit they wait in its queue.
func (c conditions) waitingForRate(m *host.Machines) int {
	g, limit := m.Made()
	switch {
	case !c.Rule.RateLimit || limit == nil:
		return 0
	case c.Rule.Concurrency && g != nil: // else an Update has just turned the limiter on
		return g.State().ForRate
	}
	return limit.Queue()
}

// review tells those who watch what the fleet said, and which conditions have
// begun or ended meanwhile. The machines have no timers, so each request does this that
// has to ask them anyway. o is the outcome of an attempt, or nil before it.
func (p *Permit) review(r *Request, o *attempt.Outcome) {
	c := conditions{r}
	if o != nil && p.failed && (r.Registry.Watched || r.Rule.Concurrency) { // the error of a request that meets an open circuit tells it
		r.State.Machines().News().Failed(c.causeOf(o))
	}
	if !r.Registry.Watched {
		return
	}
	m := r.State.MachinesMade()
	if m == nil {
		return
	}
	c.reviewDown(m)
	p.reviewWaits(c, m)
	n := m.NewsMade()
	if n.Quiet() {
		return
	}
	now := r.Registry.Now()
	for _, v := range n.Heard() {
		if now < v.Until {
			c.begin(v)
		}
	}
	if !r.Rule.QuotaPacing {
		c.end(news.Key{Condition: news.LowQuota, Scope: r.scopeKey()}) // an Update turned the pacing off
	}
	for _, v := range n.Due(now, news.Key{Condition: news.Held, Scope: r.scopeKey()}) {
		if c.isOver(m, now, v) {
			c.end(v.Key)
		}
	}
	if lasting, ok := n.TakeState(now); ok {
		for i, v := range lasting {
			lasting[i] = c.present(v)
		}
		n.Tell(r.Observer.LogsState(lasting))
	}
}

// isOver reports whether a condition is over whose time has come.
func (c conditions) isOver(m *host.Machines, now instant.Instant, v news.Change) bool {
	switch v.Condition {
	case news.Held:
		return m.Cooldown.Held(now, v.Scope) == 0
	case news.NoRetries:
		conf := c.budgetConfig()
		return m.Budget.Left(now, conf) >= max(conf.Burst/2, 1)
	case news.Down:
		return false // reviewDown knows
	case news.Crowded:
		g := m.Concurrency().State()
		return !c.Rule.Concurrency || !g.CircuitOpen && g.Waiting == 0
	case news.RateLimited:
		return c.waitingForRate(m) == 0
	}
	return true
}

// reviewDown tells whether the host is down. A concurrency limit knows that by itself. Without a concurrency limit the host is
// down after five failures in a row.
func (c conditions) reviewDown(m *host.Machines) {
	since, down := m.Failures.Down()
	if g, _ := m.Made(); c.Rule.Concurrency && g != nil {
		if down = g.CircuitOpen(); down {
			since = g.State().Since
		}
	}
	key := news.Key{Condition: news.Down}
	switch {
	case down:
		if _, lasts := m.News().Lasts(key); !lasts {
			c.begin(news.Change{Key: key, Cause: m.News().Failure(), Since: since})
		}
	case !m.NewsMade().Quiet():
		c.end(key)
	}
}

// reviewWaits tells that a limit of the rule held the request for long.
func (p *Permit) reviewWaits(c conditions, m *host.Machines) {
	if !p.crowded && !p.rated {
		return
	}
	now := c.Registry.Now()
	if p.crowded && !m.Concurrency().CircuitOpen() {
		c.begin(news.Change{Key: news.Key{Condition: news.Crowded}, Since: now.Add(-p.Queued.Gate), Until: now.Add(calmTime)})
	}
	if p.rated {
		c.begin(news.Change{Key: news.Key{Condition: news.RateLimited}, Since: now.Add(-p.Queued.Rate), Until: now.Add(calmTime)})
	}
	p.crowded, p.rated = false, false
}

// causeOf returns an outcome as the cause of a change.
func (c conditions) causeOf(o *attempt.Outcome) news.Cause {
	return news.Cause{Status: o.Status(), Err: c.Observer.Safe(o.Err), Addr: o.Link.Addr()}
}
