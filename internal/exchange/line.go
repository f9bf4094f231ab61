// The turn of a request in the line of its host: its retry budget, its outages and its circuit breaker.

package exchange

import (
	"cmp"
	"hash/maphash"
	"net/http"
	"time"

	"github.com/aplomb-go/aplomb/internal/attempt"
	"github.com/aplomb-go/aplomb/internal/host/instant"
	"github.com/aplomb-go/aplomb/internal/host/line"
	"github.com/aplomb-go/aplomb/internal/host/news"
	"github.com/aplomb-go/aplomb/internal/host/queue"
)

// The limits that the line stands for, by the names that everybody has for them.
const (
	LimitLine    = "retry_budget"
	LimitCircuit = "circuit_open" // the host is down
)

// A Turn is that of an attempt in the line of its host. The zero Turn is that of an attempt that has not asked the line.
type Turn struct{ place line.Place }

// Try asks the line of the host for an attempt that does not wait: a retry or hedge, or with a circuit breaker
// a first attempt.
func (t *Turn) Try(r *Request, place line.Place) bool {
	conf := r.lineConfig()
	t.place = place
	return r.State.Machines().Line.Enter(r.Registry.Now(), &t.place, nil, &conf).Verb == queue.Go
}

// Await waits in the line of the host, until a time at the latest. It adds the time to that for which the attempt has queued.
func (t *Turn) Await(r *Request, place line.Place, latest instant.Instant, queued *attempt.Queued) *Rejection {
	t.place = place
	since, sum, known := r.Registry.Now(), &queued.Line, r.State.Machines().Line.State()
	at := LimitLine
	if known.Down && r.Rule.Breaker {
		at = LimitCircuit
	}
	if latest <= since {
		return &Rejection{Why: WhyOverdue, Limit: at}
	}
	if known.Down || t.place.Failed < known.Ended {
		sum = &queued.Outage
	}
	a, waited, no := r.Wait(&inLine{r, &t.place, since, latest}, nil, since, latest)
	if waited {
		*sum += r.Registry.Now().Sub(since)
	}
	starved := queued.Line > LongWait
	switch {
	case no == nil:
	case no.Err != nil: // the end of the context is the reason
	case a.Down && r.Rule.Breaker:
		no.Limit = LimitCircuit
	default:
		no.Limit, starved = LimitLine, queued.Line > 0
	}
	if starved {
		r.BeginHeld(news.NoRetries, r.State.Machines().News().Failure(), queued.Line)
	}
	return no
}

// inLine is a request in the line of its host.
type inLine struct {
	*Request
	place         *line.Place
	since, latest instant.Instant
}

func (q *inLine) Enter(now instant.Instant, w *queue.Waiter) queue.Answer {
	conf := q.lineConfig()
	return q.State.Machines().Line.Enter(now, q.place, w, &conf)
}

func (q *inLine) Leave(w *queue.Waiter) { q.State.Machines().Line.Leave(q.place, w) }

func (q *inLine) NewWaiter() *queue.Waiter {
	w := queue.NewWaiter()
	w.By, w.From = q.SendAtLatest(q.latest), q.since
	return w
}

// Rejects reports whether requests fail while the host is down. An Update may have turned that on.
func (q *inLine) Rejects(a *queue.Answer) bool { return a.Down && q.State.Resolved.Load().FailsFast }

// Start notes that the attempt goes now.
func (t *Turn) Start() { t.place.Goes() }

// Over notes that the attempt is over, or does not go. A second call does nothing.
func (t *Turn) Over(r *Request) {
	if m := r.State.MachinesMade(); m != nil {
		m.Line.Over(&t.place)
	}
}

// Done tells the line the outcome of an attempt, and returns how long the server asked to wait. It is called once for each
// outcome, whether there is a retry or not.
func (t *Turn) Done(r *Request, o *attempt.Outcome) (retryAfter time.Duration) {
	retryAfter = r.RetryAfter(o)
	result, told := attempt.ResultOf(r.Ctx, o.Resp, o.Err), o.Status() == http.StatusTooManyRequests
	failed := o.Kind != attempt.Cut && !o.BodyBroke && (result == attempt.Failed || result == attempt.Lost)
	m, left, now := r.State.Machines(), t.place.Leaves(), o.DoneAt
	if m.Line.Over(&t.place); now == 0 {
		now = r.Registry.Now()
	}
	switch {
	case failed || told:
		m.Line.Failed(now, line.Failure{Began: cmp.Or(o.SentAt, o.DoneAt), Scope: r.LineScope(o.Status()), Wait: retryAfter,
			Told: !failed, Late: result == attempt.Lost && r.Ctx.Err() == nil})
		if m.Fleet != nil {
			m.Fleet.Changed(now, m.Line.State())
		}
		if r.Registry.Watched || r.Rule.Breaker {
			m.News().Failed(news.Cause{Status: o.Status(), Err: r.Observer.Safe(o.Err), Addr: o.Link.Addr()})
		}
	case (!o.Failed() || o.BodyBroke) && o.Err == nil && retryAfter == 0:
		r.Succeeded(line.Success{Retry: o.Kind == attempt.Retry, Left: left, Began: o.SentAt})
	}
	return retryAfter
}

// Succeeded tells the line of a success. The scopes are those of the request. If nothing has failed, it is a single atomic load.
func (r *Request) Succeeded(v line.Success) {
	m := r.State.MachinesMade()
	if m == nil || m.Line.Quiet() {
		return
	}
	v.Scopes[0] = r.LineScope(http.StatusOK)
	if m.Line.Told() {
		v.Scopes[1] = r.LineScope(http.StatusTooManyRequests)
	}
	if now := r.Registry.Now(); m.Line.Succeeded(now, v) && m.Fleet != nil {
		m.Fleet.Changed(now, m.Line.State())
	}
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
		return r.Scope()
	}
	return maphash.String(r.Registry.Seed, r.Req.URL.Path)
}

// lineConfig returns the settings of the line. In a fleet each member has its part of the budget.
func (r *Request) lineConfig() line.Config {
	rule := r.State.Resolved.Load() // an Update may have changed it since
	c := line.Config{Budget: rule.Settings.Budget, Breaker: rule.Breaker, FailFast: rule.FailsFast, Probers: 1}
	c.Budget.Requests = r.State.Requests()
	if f := r.State.Machines().Fleet; f != nil {
		c = f.Divide(c)
	}
	return c
}
