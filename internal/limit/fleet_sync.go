// What the members of a fleet tell each other about a host.

package limit

import (
	"math"
	"math/rand/v2"
	"time"

	"github.com/aplomb-go/aplomb/internal/field"
	"github.com/aplomb-go/aplomb/internal/fleetmsg"
	"github.com/aplomb-go/aplomb/internal/host"
	"github.com/aplomb-go/aplomb/internal/host/instant"
	"github.com/aplomb-go/aplomb/internal/host/news"
	"github.com/aplomb-go/aplomb/internal/host/outage"
	"github.com/aplomb-go/aplomb/internal/host/pacing"
	"github.com/aplomb-go/aplomb/internal/host/throttle"
	"github.com/aplomb-go/aplomb/internal/rules"
	"github.com/aplomb-go/aplomb/internal/scope"
	"github.com/aplomb-go/aplomb/policy"
)

const (
	// maxMembers bounds the size of a fleet. A larger number can only be a mistake.
	maxMembers = 1 << 24
)

// Hear takes a message of the fleet. News of a host that this Transport does not know is
// dropped. News about a setting that the rule of the host turns off has no effect.
func (g *Registry) Hear(m fleetmsg.Message) {
	if m.Kind == fleetmsg.Members {
		g.Size.Store(int32(min(max(m.Members, 1), maxMembers)))
		return
	}
	if m.Kind == fleetmsg.Leave {
		g.Hosts.All(g.giveBack)
		return
	}
	s := g.Hosts.Lookup(m.Host)
	if s == nil {
		return
	}
	if m.Kind == fleetmsg.AskUse {
		g.Fleet.Tell(fleetmsg.Message{Kind: fleetmsg.Use, Host: m.Host, Amount: float64(s.Requests()), Busy: s.InFlight() > 0})
		return
	}
	set, rule := g.Rules.Load(), s.Resolved.Load()
	if rule == nil || rule.Set != set { // the first request with this rule is asking the fleet
		rule, _ = set.ForHost(s.Key())
	}
	now := g.Now()
	switch m.Kind {
	case fleetmsg.Hold:
		g.hearHold(s, rule, m, now)
	case fleetmsg.Quota:
		g.hearQuota(s, rule, m, now)
	case fleetmsg.Down:
		s.Machines().Line.Hear(func(o *outage.Outage) { o.Begin(now, now.Add(-max(m.Wait, 0))) })
	case fleetmsg.Up:
		at := now.Add(time.Duration(rand.Float64() * float64(min(m.Wait, outage.LongestGap))))
		s.Machines().Line.Hear(func(o *outage.Outage) { o.Return(at) })
	case fleetmsg.Tokens:
		if !rule.RateLimit || m.Unit != rule.RateUnit() {
			return
		}
		s.Machines().Rate(rule.Settings.Rate).Grant(now, int(min(wholeUnits(m.Amount), math.MaxInt32)), now.Add(m.First), m.Every, now.Add(m.Wait))
		if rule.Concurrency {
			s.Machines().Concurrency().WakeFirst() // the requests that wait for tokens are in its queue
		}
	}
}

// hearHold holds a scope as another member was told to.
func (g *Registry) hearHold(s *host.State[rules.Resolved], rule *rules.Resolved, m fleetmsg.Message, now instant.Instant) {
	if rule.Policy.ShareRetryAfter != policy.On {
		return
	}
	holds := &s.Machines().Throttle
	holds.HoldForFleet(now, m.Scope, m.Wait, g.throttle(rule, m.Wait), rand.Float64())
	g.hearCondition(s.Machines(), news.Change{Key: news.Key{Condition: news.Held, Scope: m.Scope},
		Cause: news.Cause{Status: m.Status}, Since: now, Until: holds.Held(now, m.Scope)})
}

// hearQuota notes a quota that another member was told.
func (g *Registry) hearQuota(s *host.State[rules.Resolved], rule *rules.Resolved, m fleetmsg.Message, now instant.Instant) {
	if !rule.QuotaPacing {
		return
	}
	named := pacing.Named{Unit: m.Unit, Remaining: wholeUnits(m.Amount), Limit: wholeUnits(m.Limit), Reset: m.Wait}
	s.Machines().Pacing().NoteForFleet(now, m.Scope, named, min(m.Members, maxMembers), rule.Settings.Pacing)
	if pacing.Low(named.Remaining, named.Limit) {
		g.hearCondition(s.Machines(), news.Change{Key: news.Key{Condition: news.LowQuota, Scope: m.Scope},
			Since: now, Until: instant.After(now, m.Wait), Room: int(min(named.Remaining, math.MaxInt))})
	}
}

// wholeUnits returns how many whole units an amount has. It is bounded, because an amount of a
// fleet may be any number.
func wholeUnits(amount float64) int64 {
	if !(amount > 0) { // it may be no number
		return 0
	}
	return int64(min(amount, 1<<53))
}

// members returns the size of the fleet.
func (g *Registry) members() int { return max(1, int(g.Size.Load())) }

// throttle returns the settings of a hold.
func (g *Registry) throttle(rule *rules.Resolved, wait time.Duration) throttle.Config {
	return rule.Settings.Throttle.ForMember(g.members(), wait)
}

// askFleet asks the fleet for the tokens of the rate that requests wait for. short
// says that this request needs a token as well, and is not in the queue. It may be refused
// because the member's own part of the rate is small. If it asked for nothing, the member
// would never learn that the fleet is back.
func (r *Request) askFleet(now instant.Instant, short bool) {
	m := r.State.Machines()
	if !r.Rule.RateLimit {
		return
	}
	limit := m.Rate(r.Rule.Settings.Rate)
	if !limit.MayAsk(now) {
		return
	}
	waiting := limit.Waiting()
	if r.Rule.Concurrency {
		waiting = m.Concurrency().Wants()
	}
	if short {
		waiting = max(waiting, 1)
	}
	limit.Share(now, r.Registry.members())
	if ask, ok := limit.AskTokens(now, waiting, r.Registry.answerTime(now, r.sendAtLatest()), rand.Float64()); ok {
		r.Registry.Fleet.Tell(fleetmsg.Message{Kind: fleetmsg.AskTokens, Host: r.State.Name(), Unit: r.State.Resolved.Load().RateUnit(),
			PerSecond: ask.PerSecond, Burst: float64(ask.Burst), Amount: float64(ask.Want), Wait: ask.Silence, Spent: float64(ask.Spent)})
	}
}

// giveBack gives the tokens of a host that were not used back to the fleet.
func (g *Registry) giveBack(s *host.State[rules.Resolved]) {
	m, rule := s.MachinesMade(), s.Resolved.Load()
	if m == nil || rule == nil {
		return
	}
	if _, r := m.Made(); r != nil {
		if u := r.GiveBack(g.Now()); u.Want > 0 {
			g.Fleet.Tell(fleetmsg.Message{Kind: fleetmsg.Unused, Host: s.Name(), Unit: rule.RateUnit(),
				PerSecond: u.PerSecond, Burst: float64(u.Burst), Amount: float64(u.Want)})
		}
	}
}

// fleetScope returns the key of the request's scope in the fleet.
func (r *Request) fleetScope() uint64 {
	text := ""
	if own := r.Rule.Policy.ThrottleKey; own != nil {
		text = "scope\x00" + own(r.Req)
	} else if text = scope.Text(r.Req.Header); text == "" {
		return 0
	}
	return r.Registry.Fleet.Scope(text)
}

// tellQuota tells the fleet of a quota that is half used up, or whose size is not known.
// Nobody has to wait before that.
func (r *Request) tellQuota(q field.Quota) {
	if r.Registry.Fleet != nil && q.Remaining <= q.Limit/2 {
		r.Registry.Fleet.Tell(fleetmsg.Message{Kind: fleetmsg.Quota, Host: r.State.Name(), Scope: r.scopeKey(), Unit: q.Unit,
			Amount: float64(q.Remaining), Limit: float64(q.Limit), Wait: q.Reset})
	}
}

// hearCondition notes what the fleet says about a scope, if it has an effect. The next request
// tells it, because the goroutine that reads the messages of the fleet calls no hook.
func (g *Registry) hearCondition(m *host.Machines, c news.Change) {
	if g.Watched && c.Until > c.Since {
		c.Fleet = true
		m.News().Hear(c)
	}
}
