// A host, as the members of a fleet tell each other about it.

package member

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/aplomb-go/aplomb/internal/field"
	"github.com/aplomb-go/aplomb/internal/fleetmsg"
	"github.com/aplomb-go/aplomb/internal/host/concurrency"
	"github.com/aplomb-go/aplomb/internal/host/instant"
	"github.com/aplomb-go/aplomb/internal/host/line"
	"github.com/aplomb-go/aplomb/internal/host/news"
	"github.com/aplomb-go/aplomb/internal/host/outage"
	"github.com/aplomb-go/aplomb/internal/host/pacing"
	"github.com/aplomb-go/aplomb/internal/host/queue"
	"github.com/aplomb-go/aplomb/internal/host/throttle"
	"github.com/aplomb-go/aplomb/policy"
)

const (
	// memberGap is the mean time between two members that come back after a hold.
	memberGap = 20 * time.Millisecond

	// firstGap is the time from the begin of an outage to the first probe, and maxReturn bounds the time in which the members return
	// after it.
	firstGap  = time.Second
	maxReturn = outage.LongestGap

	// The fleet is told of the failures every reportEvery at most, so that Redis bears a thousand members that fail.
	reportEvery = 250 * time.Millisecond

	// maxNews is how many changes are kept until a request tells them.
	maxNews = 2 * queue.MaxScopes
)

// A host is a fleetlink.Host. A request passes it after the throttle, and waits for the holds that others were told, and then for the
// quotas that they use. So it is in one queue at a time.
type host struct {
	member *member
	name   string
	line   *line.Line
	made   func() *concurrency.Limiter
	rule   atomic.Pointer[rule] // nil before the first Obey
	asked  atomic.Pointer[rule] // for which the fleet has been asked; nil: it has not

	holds  throttle.Throttle // those of others, and those of this member with the jitter of the fleet
	quotas quotas
	tokens // Set, Take and WaitFor are for the rate of the host, which wakes who waits after a Set

	shared atomic.Bool  // the host is down for the fleet, whose members share the probes
	down   atomic.Bool  // the host is down, and the fleet knows
	told   atomic.Int64 // when the fleet was told of the failures last; 0: never

	mu   sync.Mutex // guards the field below
	news map[news.Key]news.Change
}

// A rule has the settings of a rule that matter to a fleet.
type rule struct {
	holds, quotas bool
	longest       time.Duration // that the word of a fleet holds a request
	unit          string        // of the rate. Members with a Cost share no tokens with members without it
}

// pacing returns how the word of a fleet spreads requests.
func (r *rule) pacing() pacing.Config { return pacing.Config{MaxWait: r.longest} }

// Obey is told the rule, and asks the fleet if more matters than before. The fleet may answer within Tell. So no request goes
// before it, and that includes one that comes meanwhile and asks as well.
func (h *host) Obey(p *policy.Rule) {
	r := &rule{holds: p.ShareRetryAfter == policy.On, quotas: p.QuotaPacing == policy.On, longest: min(instant.Bound(p.MaxRetryAfter), time.Hour)}
	if p.Cost != nil {
		r.unit = "cost"
	}
	h.rule.Store(r)
	if old := h.asked.Load(); old == nil || r.holds && !old.holds || r.quotas && !old.quotas {
		h.member.meet(h)
		h.tell(fleetmsg.Message{Kind: fleetmsg.Meet})
	}
	h.asked.Store(r)
}

// tell tells the backend something about the host.
func (h *host) tell(m fleetmsg.Message) {
	m.Host = h.name
	h.member.backend.Tell(m)
}

// Divide returns this member's part of the settings of the line. It keeps the earnings of its own requests. The members share
// the earnings of time, and the probes of an outage of all.
func (h *host) Divide(c line.Config) line.Config {
	members := h.member.members()
	if c.Budget.PerSecond /= float64(members); h.shared.Load() {
		c.Probers = members
	}
	return c
}

// Held tells of a response that asked a scope to wait. The members come back spread, as in hold.
func (h *host) Held(now instant.Instant, scope uint64, status int, wait time.Duration) {
	h.tell(fleetmsg.Message{Kind: fleetmsg.Hold, Scope: scope, Status: status, Wait: wait})
	if h.member.members() > 1 {
		h.hold(now, scope, wait)
	}
}

// hold holds a scope, and returns until when if that is longer than before. The jitter spreads the members 20 ms apart, over at most
// the time of the wait, so that a size that is not true holds nobody for hours.
func (h *host) hold(now instant.Instant, scope uint64, wait time.Duration) (until instant.Instant) {
	r := h.rule.Load()
	wait = min(wait, r.longest)
	if !r.holds || wait <= 0 || now.Add(wait) <= h.holds.State(scope).Named {
		return 0
	}
	spread := max(time.Duration(h.member.members())*memberGap, min(wait/2, time.Second))
	return h.holds.Hold(now, scope, wait, throttle.Config{Max: r.longest, Jitter: min(spread, wait)}, rand.Float64())
}

// hearHold holds a scope as another member was told to.
func (h *host) hearHold(now instant.Instant, m fleetmsg.Message) {
	if until := h.hold(now, m.Scope, m.Wait); until > now {
		h.note(news.Change{Key: news.Key{Condition: news.Held, Scope: m.Scope}, Cause: news.Cause{Status: m.Status}, Since: now, Until: until})
	}
}

// Answered is told of a response without a wait.
func (h *host) Answered(now instant.Instant, scope uint64, sent instant.Instant) {
	h.holds.Answered(now, scope, sent)
}

// Named tells of quotas that are half used up, or whose size is not known. Nobody has to wait before that.
func (h *host) Named(now instant.Instant, scope uint64, sent instant.Instant, all []field.Quota, success bool) {
	for _, q := range all {
		if q.Remaining <= q.Limit/2 {
			h.tell(fleetmsg.Message{Kind: fleetmsg.Quota, Scope: scope, Unit: q.Unit, Amount: float64(q.Remaining), Limit: float64(q.Limit), Wait: q.Reset})
		}
	}
	h.quotas.named(now, scope, sent, all, success, h.rule.Load().pacing())
}

// hearQuota notes a quota that another member was told.
func (h *host) hearQuota(now instant.Instant, m fleetmsg.Message) {
	r := h.rule.Load()
	if !r.quotas || m.Wait <= 0 {
		return
	}
	q := field.Quota{Unit: m.Unit, Remaining: wholeUnits(m.Amount), Limit: wholeUnits(m.Limit), Reset: m.Wait}
	if h.quotas.heard(now, m.Scope, q, min(max(m.Members, 1), maxMembers), r.pacing()) && pacing.Low(q.Remaining, q.Limit) {
		h.note(news.Change{Key: news.Key{Condition: news.LowQuota, Scope: m.Scope}, Since: now, Until: instant.After(now, m.Wait), Room: int(q.Remaining)})
	}
}

// Changed tells of an outage, and of its failures as long as it lasts, and of its end.
func (h *host) Changed(now instant.Instant, s line.State) {
	switch told := h.told.Load(); {
	case !s.Down && s.Failures == 0:
		if h.shared.Store(false); h.down.Swap(false) {
			h.told.Store(0)
			h.tell(fleetmsg.Message{Kind: fleetmsg.Working})
		}
	case s.Down && s.Failures > 0 && (told == 0 || now.Sub(instant.Instant(told)) >= reportEvery) && h.told.CompareAndSwap(told, int64(now)):
		h.down.Store(true)
		h.tell(fleetmsg.Message{Kind: fleetmsg.Failing, Failures: s.Failures, Wait: now.Sub(s.Since)})
	}
}

// hearDown is told that the host has been down for the fleet since a time. A member whose own requests have not failed may find out
// at once: the others may fail for reasons of their own.
func (h *host) hearDown(now, since instant.Instant) {
	h.line.Hear(func(o *outage.Outage) {
		h.shared.Store(true)
		h.down.Store(true)
		if o.Down {
			return
		}
		gap := firstGap
		if o.Failures == 0 {
			gap = 0
		}
		o.Hear(since, now, gap)
	})
}

// hearUp is told that the host is back for the fleet. This member probes at a time.
func (h *host) hearUp(at instant.Instant) {
	h.line.Hear(func(o *outage.Outage) {
		if h.shared.Store(false); o.Down {
			o.Hear(at, at, 0)
		}
	})
}

// Quiet reports whether all requests may go.
func (h *host) Quiet() bool { return h.holds.Quiet() && h.quotas.scopes.Quiet() }

// Enter asks for a request to pass.
func (h *host) Enter(now instant.Instant, scope uint64, w *queue.Waiter) queue.Answer {
	r, late := h.rule.Load(), beforeEnd(w, 4)
	switch {
	case h.quotas.has(scope, w): // it has passed the holds
	case !r.holds || now >= late:
		h.holds.Leave(w)
	default:
		if a := h.holds.Enter(now, scope, w); a.Verb == queue.Wait {
			return queue.Answer{Verb: queue.Wait, Ask: min(a.Ask, late)}
		}
	}
	if !r.quotas {
		return queue.Answer{}
	}
	return h.quotas.enter(now, scope, w, r.pacing())
}

// Leave takes a request out of its queue.
func (h *host) Leave(scope uint64, w *queue.Waiter) {
	if !h.quotas.leave(scope, w) {
		h.holds.Leave(w)
	}
}

// beforeEnd returns when a part of the time of a request is left. Without a deadline that is never.
func beforeEnd(w *queue.Waiter, part time.Duration) instant.Instant {
	if w == nil || w.By <= 0 {
		return instant.Never
	}
	return w.By.Add(-w.By.Sub(w.From) / part)
}

// note keeps a change for the next request. It tells it, because the goroutine that hears the backend calls no hook.
func (h *host) note(c news.Change) {
	c.Fleet = true
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.news == nil {
		h.news = map[news.Key]news.Change{}
	}
	if _, again := h.news[c.Key]; again || len(h.news) < maxNews {
		h.news[c.Key] = c
	}
}

// Heard returns the changes since the last call that are not over.
func (h *host) Heard(now instant.Instant) (all []news.Change) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, c := range h.news {
		if now < c.Until {
			all = append(all, c)
		}
	}
	h.news = nil
	slices.SortFunc(all, func(a, b news.Change) int {
		return cmp.Or(cmp.Compare(a.Since, b.Since), cmp.Compare(a.Condition, b.Condition))
	})
	return all
}
