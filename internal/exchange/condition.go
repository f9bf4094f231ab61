// The conditions of a host, and who is told of them.

package exchange

import (
	"time"

	"github.com/aplomb-go/aplomb/internal/host"
	"github.com/aplomb-go/aplomb/internal/host/instant"
	"github.com/aplomb-go/aplomb/internal/host/news"
)

// A limit of the rule holds requests when a request has waited for longer than LongWait for a slot, for
// the rate or for a retry. It no longer does if no other request waits as long within calmTime.
const (
	LongWait = time.Second
	calmTime = 10 * time.Second
)

// An Observer tells of the changes of a host.
type Observer interface {
	// Tells returns a function that tells of a change.
	Tells(news.Change) func()
	// LogsState returns a function that tells the log the lasting conditions, after more changes
	// than it has lines for.
	LogsState(lasting []news.Change) func()
	// Safe returns an error that prints without secrets.
	Safe(error) error
}

// Begin notes that a condition of the host lasts, and tells it if that is new.
func (r *Request) Begin(v news.Change) {
	if !r.Registry.Watched {
		return
	}
	v.Since = max(v.Since, 1)
	r.State.Machines().News().Begin(v, r.Observer.Tells(r.present(v)))
}

// BeginHeld notes that a limit of the rule, or the budget, has held the request for long.
func (r *Request) BeginHeld(condition news.Condition, cause news.Cause, waited time.Duration) {
	if !r.Registry.Watched {
		return
	}
	r.reviewDown(r.State.Machines()) // which is told first
	now := r.Registry.Now()
	r.Begin(news.Change{Key: news.Key{Condition: condition}, Cause: cause, Since: now.Add(-waited), Until: now.Add(calmTime)})
}

// End notes that a condition is over, and tells it if it lasted until now.
func (r *Request) End(k news.Key) {
	n := r.State.Machines().News()
	if v, lasts := n.Lasts(k); lasts {
		v.Cause = news.Cause{}
		v = r.present(v)
		v.Over, v.Until = true, 0
		n.End(k, r.Observer.Tells(v))
	}
}

// present returns a change with the present figures of the limit that it is about.
func (r *Request) present(v news.Change) news.Change {
	switch m := r.State.Machines(); v.Condition {
	case news.Held:
		hold := m.Limits().Throttle.State(v.Scope)
		if v.Waiting = hold.Waiting; hold.Named > r.Registry.Now() {
			v.Until = hold.Named // without the jitter of this process
		}
	case news.Crowded:
		if v.Until, v.Room = 0, 0; r.Rule.Concurrency {
			g := m.Limits().Concurrency().State()
			v.Waiting, v.Room = g.Waiting, g.Limit
		}
	case news.RateLimited:
		v.Until, v.Waiting = 0, r.waitingForRate(m)
	case news.Down, news.NoRetries:
		v.Until, v.Waiting = 0, m.Line.State().Waiting
	}
	return v
}

// waitingForRate returns how many requests wait for the rate.
func (r *Request) waitingForRate(m *host.Machines) int {
	if !r.Rule.RateLimit {
		return 0
	}
	return m.LimiterMade().State().ForRate
}

// Review tells the Observer the news of the fleet, and which conditions have begun or ended
// meanwhile. The machines have no timers, so each request does this that has to ask them anyway.
func (r *Request) Review() {
	m := r.State.MachinesMade()
	if m == nil || !r.Registry.Watched {
		return
	}
	r.reviewDown(m)
	now := r.Registry.Now()
	if m.Fleet != nil {
		for _, v := range m.Fleet.Heard(now) {
			r.Begin(v)
		}
	}
	n := m.NewsMade()
	if n.Quiet() {
		return
	}
	n.TellRest()
	own := news.Key{Condition: news.Held}
	if n.LastsAnywhere(news.Held, news.LowQuota) {
		if own.Scope = r.Scope(); !r.Rule.QuotaPacing {
			r.End(news.Key{Condition: news.LowQuota, Scope: own.Scope}) // an Update turned the pacing off
		}
	}
	for _, v := range n.Due(now, own) {
		if r.isOver(m, now, v) {
			r.End(v.Key)
		}
	}
	if lasting, ok := n.TakeState(now); ok {
		for i, v := range lasting {
			lasting[i] = r.present(v)
		}
		n.Tell(r.Observer.LogsState(lasting))
	}
}

// isOver reports whether a condition is over whose time has come.
func (r *Request) isOver(m *host.Machines, now instant.Instant, v news.Change) bool {
	switch v.Condition {
	case news.Held:
		return now >= m.Limits().Throttle.State(v.Scope).Open && (!v.Fleet || now >= v.Until)
	case news.NoRetries:
		return m.Line.State().Waiting == 0
	case news.Down:
		return false // reviewDown knows
	case news.Crowded:
		return !r.Rule.Concurrency || m.Limits().Concurrency().State().Waiting == 0
	case news.RateLimited:
		return r.waitingForRate(m) == 0
	}
	return true
}

// reviewDown tells whether the host is down.
func (r *Request) reviewDown(m *host.Machines) {
	state := m.Line.State()
	key := news.Key{Condition: news.Down}
	switch {
	case state.Down:
		if _, lasts := m.News().Lasts(key); !lasts {
			r.Begin(news.Change{Key: key, Cause: m.News().Failure(), Since: state.Since})
		}
	case !m.NewsMade().Quiet():
		r.End(key)
	}
}
