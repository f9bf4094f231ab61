// The seam to a fleet: what Transports of several processes tell each other.

package transport

import (
	"math"
	"math/rand/v2"
	"net/http"
	"time"

	"github.com/aplomb-go/aplomb/classify"
	"github.com/aplomb-go/aplomb/fleetmsg"
	"github.com/aplomb-go/aplomb/internal/host"
	"github.com/aplomb-go/aplomb/internal/host/cooldown"
	"github.com/aplomb-go/aplomb/internal/host/gate"
	"github.com/aplomb-go/aplomb/internal/host/instant"
	"github.com/aplomb-go/aplomb/internal/host/pacing"
	"github.com/aplomb-go/aplomb/internal/rules"
	"github.com/aplomb-go/aplomb/policy"
)

// A Fleet lets the Transports of several processes share what servers tell them, so
// that the processes behave like one client. Each such Transport is a member. The
// module fleet has a Fleet over Redis. This interface is for other backends, and package
// fleettest has the tests that a backend should pass.
//
// A Transport calls a Fleet only in these cases: a host is used for the first time, a
// server asked to wait, named a quota or failed, or the rule has a Rate. The first try
// at a healthy host without a Rate never calls it.
//
// A Fleet need not report its own errors to a Transport. A Transport waits for an answer
// for 10 ms at most, and for a permit to probe a host that is down for 250 ms. Then it
// goes on with its own knowledge. So a Fleet that is slow or away costs no request. A Fleet
// may also drop news that comes too often.
//
// A Fleet may also have a method FleetState() [FleetState], for [Transport.FleetState].
//
// The methods are safe for concurrent use.
type Fleet interface {
	// Join sets the one member of the Fleet. [New] calls it once, after it has found no
	// fault in its Config. From then on the Fleet calls hear with news of the other
	// members and with answers, never with the member's own news. It does so in goroutines
	// of its own, never within a call of Join. Within a call of Tell it may only answer a
	// Meet. Hear returns at once, is safe for concurrent use, and may call Tell. It drops
	// what it cannot use, such as news of a host that this Transport does not know. Join
	// returns an error if there is a member already.
	Join(hear func(fleetmsg.Message)) error

	// Tell takes a piece of news or a question. It does not wait for a network, and it
	// waits for a file for 10 ms at most. A Fleet ignores kinds that it does not know.
	Tell(m fleetmsg.Message)

	// Scope returns a number for the credentials of a request, or for the value of the
	// rule's Scope. Members that get the same text must get the same number. The number
	// leaves the process, so it must not help to guess the text. A keyed hash such as
	// HMAC-SHA256 does that.
	Scope(text string) uint64
}

// maxMembers bounds the size of a fleet. A larger number can only be a mistake.
const maxMembers = 1 << 24

// hear takes a message of the fleet. News of a host that this Transport does not know is
// dropped. News about a setting that the rule of the host turns off has no effect.
func (t *Transport) hear(m fleetmsg.Message) {
	if m.Kind == fleetmsg.Members {
		t.size.Store(int32(min(max(m.Members, 1), maxMembers)))
		return
	}
	s := t.hosts.Lookup(m.Host)
	if s == nil {
		if m.Kind == fleetmsg.Probe && m.Granted {
			t.fleet.Tell(fleetmsg.Message{Kind: fleetmsg.ProbeFailed, Host: m.Host}) // so that another member may send one
		}
		return
	}
	if m.Kind == fleetmsg.AskUse {
		t.fleet.Tell(fleetmsg.Message{Kind: fleetmsg.Use, Host: m.Host, Amount: float64(s.Requests()), Busy: s.InFlight() > 0})
		return
	}
	set, rule := t.rules.Load(), s.Resolved.Load()
	if rule == nil || rule.Set != set { // the first request with this rule is asking the fleet
		rule, _ = set.ForHost(s.Key())
	}
	now := t.now()
	switch m.Kind {
	case fleetmsg.Hold:
		t.hearHold(s, rule, m, now)
	case fleetmsg.Quota:
		if rule.Pacing {
			members := min(max(m.Members, 1), maxMembers)
			named := pacing.Named{Unit: m.Unit, Remaining: wholes(m.Amount), Limit: wholes(m.Limit), Reset: m.Wait}
			s.Machines().Pacing().NoteForFleet(now, m.Scope, named, members, rule.Settings.Pacing)
			if pacing.Low(named.Remaining, named.Limit) {
				t.hears(s.Machines(), ConditionLowQuota, m.Scope, now, instant.After(now, m.Wait), 0, int(min(named.Remaining, math.MaxInt)))
			}
		}
	case fleetmsg.Down:
		if rule.Gate && s.Machines().Gate().Down(now, now.Add(-max(m.Wait, 0))) {
			t.fleet.Tell(fleetmsg.Message{Kind: fleetmsg.Working, Host: m.Host})
		}
	case fleetmsg.Up:
		if rule.Gate {
			s.Machines().Gate().Up(now, now.Add(time.Duration(rand.Float64()*float64(max(m.Wait, 0)))))
		}
	case fleetmsg.Probe:
		used := rule.Gate && s.Machines().Gate().Permit(now, m.Granted, m.Wait)
		if m.Granted && !used {
			t.fleet.Tell(fleetmsg.Message{Kind: fleetmsg.ProbeFailed, Host: m.Host})
		}
	case fleetmsg.Tokens:
		if !rule.Rate || m.Unit != rule.RateUnit() {
			return
		}
		s.Machines().Rate(rule.Settings.Rate).Grant(now, int(min(wholes(m.Amount), math.MaxInt32)), now.Add(m.First), m.Every, now.Add(max(m.Wait, 0)))
		if rule.Gate {
			s.Machines().Gate().WakeFirst() // the requests that wait for tokens are in its queue
		}
	}
}

// hearHold holds a scope as another member was told to, or ends its hold.
func (t *Transport) hearHold(s *host.State[rules.Resolved], rule *rules.Resolved, m fleetmsg.Message, now instant.Instant) {
	if rule.Policy.Cooldown != policy.On {
		return
	}
	holds := &s.Machines().Cooldown
	if m.Wait <= 0 {
		holds.Free(now, m.Scope, now.Add(time.Duration(rand.Float64()*float64(cooldown.ReturnTime(t.members())))))
		return
	}
	r := cooldown.Refusal{Code: codeOf(m.Status), Wait: m.Wait, Again: m.Again, Ended: s.Ended()}
	holds.HoldForFleet(now, m.Scope, r, t.cooldown(rule, m.Wait), rand.Float64())
	until, _ := holds.Held(now, m.Scope)
	t.hears(s.Machines(), ConditionHeld, m.Scope, now, until, m.Status, 0)
}

// wholes returns how many whole units an amount has. It is bounded, because an amount of a
// fleet may be any number.
func wholes(amount float64) int64 {
	if !(amount > 0) { // it may be no number
		return 0
	}
	return int64(min(amount, 1<<53))
}

// members returns the size of the fleet.
func (t *Transport) members() int { return max(1, int(t.size.Load())) }

// cooldown returns the settings of a hold.
func (t *Transport) cooldown(rule *rules.Resolved, wait time.Duration) cooldown.Config {
	return rule.Settings.Cooldown.ForMember(t.members(), wait)
}

// tellGate tells the fleet the news of a gate.
func (t *Transport) tellGate(host string, gate *gate.Gate) {
	switch n := gate.News(); {
	case n.Working:
		t.fleet.Tell(fleetmsg.Message{Kind: fleetmsg.Working, Host: host})
	default:
		if n.ProbeFailed {
			t.fleet.Tell(fleetmsg.Message{Kind: fleetmsg.ProbeFailed, Host: host})
		}
		if n.Failures > 0 {
			t.fleet.Tell(fleetmsg.Message{Kind: fleetmsg.Failing, Host: host, Failures: n.Failures, Wait: max(0, t.now().Sub(n.Since))})
		}
	}
}

// askFleet asks the fleet for what the requests at the gate and at the rate wait for. short
// says that this request needs a token as well, and is not in the queue. It may be refused
// because the member's own part of the rate is small. If it asked for nothing, the member
// would never learn that the fleet is back.
func (l *limits) askFleet(now instant.Instant, short bool) {
	m := l.state.Machines()
	if l.rule.Gate && m.Gate().AskPermit(now) {
		l.t.fleet.Tell(fleetmsg.Message{Kind: fleetmsg.AskProbe, Host: l.state.Name()})
	}
	if !l.rule.Rate {
		return
	}
	r := m.Rate(l.rule.Settings.Rate)
	if !r.MayAsk(now) {
		return
	}
	waiting := r.Waiting()
	if l.rule.Gate {
		waiting = m.Gate().Wants()
	}
	if short {
		waiting = max(waiting, 1)
	}
	r.Share(now, l.t.members())
	if ask, ok := r.AskTokens(now, waiting, rand.Float64()); ok {
		l.t.fleet.Tell(fleetmsg.Message{Kind: fleetmsg.AskTokens, Host: l.state.Name(), Unit: l.state.Resolved.Load().RateUnit(),
			PerSecond: ask.PerSecond, Burst: float64(ask.Burst), Amount: float64(ask.Want)})
	}
}

// fleetScope returns the key of the request's scope in the fleet.
func (l *limits) fleetScope() uint64 {
	text := ""
	if own := l.rule.Policy.Scope; own != nil {
		text = "scope\x00" + own(l.req)
	} else if text = host.ScopeText(l.req.Header); text == "" {
		return 0
	}
	return l.t.fleet.Scope(text)
}

// tellHold tells the fleet that a server asked to wait. A zero wait says that a response
// with this status ended the hold. again says that the request was sent although the hold
// was known.
func (l *limits) tellHold(status int, wait time.Duration, again bool) {
	if l.t.fleet != nil {
		l.t.fleet.Tell(fleetmsg.Message{Kind: fleetmsg.Hold, Host: l.state.Name(), Scope: l.scopeKey(), Status: status, Wait: wait, Again: again})
	}
}

// tellQuota tells the fleet of a quota that is half used up, or whose size is not known.
// Nobody has to wait before that.
func (l *limits) tellQuota(q classify.Quota) {
	if l.t.fleet != nil && q.Remaining <= q.Limit/2 {
		l.t.fleet.Tell(fleetmsg.Message{Kind: fleetmsg.Quota, Host: l.state.Name(), Scope: l.scopeKey(), Unit: q.Unit,
			Amount: float64(q.Remaining), Limit: float64(q.Limit), Wait: q.Reset})
	}
}

// codeOf returns the kind of hold that a status begins.
func codeOf(status int) cooldown.Code {
	if status == http.StatusServiceUnavailable {
		return cooldown.Unavailable
	}
	return cooldown.TooMany
}

// statusOf has the status of each kind of hold.
var statusOf = [...]int{cooldown.TooMany: http.StatusTooManyRequests, cooldown.Unavailable: http.StatusServiceUnavailable}
