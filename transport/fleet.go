// The seam to a fleet: what Transports of several processes tell each other.

package transport

import (
	"math/rand/v2"
	"net/http"
	"time"

	"github.com/aplomb-go/aplomb/classify"
	"github.com/aplomb-go/aplomb/internal/host"
	"github.com/aplomb-go/aplomb/internal/host/instant"
	"github.com/aplomb-go/aplomb/policy"
)

// A Fleet lets the Transports of several processes share what servers tell them, so
// that the processes behave like one client. Each such Transport is a member. The
// module fleet has a Fleet over Redis. This interface is for other backends.
//
// A Transport calls a Fleet only in these cases: a host is used for the first time, a
// server asked to wait, named a quota or failed, or the rule has a Rate. The first try
// at a healthy host without a Rate never calls it.
//
// The methods of a Fleet return at once. They do not wait for the network, and they are
// safe for concurrent use. An answer comes later, by a method of the [Member]. A
// Transport waits for an answer for 10 ms at most, and for a permit to probe a host that
// is down for 250 ms. Then it goes on with its own knowledge. So a Fleet that is slow or
// away costs no request, and a Fleet need not report its own errors to a Transport. A
// Fleet may also drop news that comes too often.
//
// A time in a message is a duration from or to the call, so that the clocks of the
// processes need not agree. Host is scheme://host, as in [HostState]. Scope is what
// the method Scope returned, or 0 for requests without credentials.
type Fleet interface {
	// Join adds the member. [New] calls it once, after it has found no fault in its
	// Config. From then on the Fleet calls the methods of m, but never within a call of
	// a method of the Fleet. A Fleet has a single member. Join returns an error if there
	// is one already.
	Join(m *Member) error

	// Scope returns a number for the credentials of a request, or for the value of the
	// rule's Scope. Members that get the same text must get the same number. The number
	// leaves the process, so it must not help to guess the text. A keyed hash such as
	// HMAC-SHA256 does that.
	Scope(text string) uint64

	// Meet says that this member sends its first request to a host, or the first since
	// [Transport.Update] turned on its Cooldown, Pacing or Gate. The Fleet answers with
	// everything that other members know of the host: Member.Hold, Member.Quota and
	// Member.Down.
	Meet(host string)

	// Hold says that a server asked this member to wait, or that a hold is over before
	// its time.
	Hold(h FleetHold)

	// Quota says which quota a server named to this member.
	Quota(q FleetQuota)

	// Failing says that all requests of this member to a host have failed for some
	// time. Every host with Rule.Gate is reported a few times per second at most.
	Failing(f FleetFailing)

	// Working says that a request to a host succeeded, after Failing, after Member.Down,
	// or as a probe.
	Working(host string)

	// Probe asks for a permit to send a probe to a host at which the gate of this member
	// is closed. The answer is Member.Probe. The probe ends with Working, or with
	// ProbeFailed. While it is under way, the member asks again every 0.3 s. If it does
	// not, or if the probe takes 10 s, another member may send a probe.
	Probe(host string)

	// ProbeFailed says that a probe failed or was not sent.
	ProbeFailed(host string)

	// Tokens asks for tokens of the rate that all members share. The answer is
	// Member.Tokens. A member asks ten times per second and host at most.
	Tokens(t FleetTokens)
}

// A FleetHold is a wait that a server asked for.
type FleetHold struct {
	Host   string // its scheme and host
	Scope  uint64 // whose requests are held
	Status int    // 503 if the hold is of a 503, else 429
	// Wait is how long the server asked to wait, without jitter. Each member obeys its
	// own RetryAfter.Max. Zero means that a success has shown that the hold is over.
	Wait time.Duration
	// Again says that the request was sent although the hold was known. It was a probe,
	// and each other member that plans one waits for longer now. So a Fleet tells the
	// members even if the hold ends no later than they know. Member.Hold ignores Again.
	Again bool
}

// A FleetQuota is a quota that a server named.
type FleetQuota struct {
	Host             string        // its scheme and host
	Scope            uint64        // whose quota it is
	Remaining, Limit int64         // Limit is 0 if the server did not name it
	Reset            time.Duration // how long until the quota is full again
	// Members is, for Member.Quota, how many members use the quota. Each of them takes
	// its part of the rest. Zero means 1.
	Members int
}

// A FleetFailing says how a host fails for a member.
type FleetFailing struct {
	Host     string        // its scheme and host
	Failures int           // in a row; 1 or more
	Since    time.Duration // how long ago the first of them was sent or failed
}

// A FleetTokens asks for tokens.
type FleetTokens struct {
	Host      string  // its scheme and host
	PerSecond float64 // of all members together
	Burst     int     // 1 or more
	Want      int     // how many this member can use soon; 1 or more
}

// A FleetGrant says which tokens a member may use. They are for this member alone.
type FleetGrant struct {
	Host string // its scheme and host
	N    int    // how many tokens; 0: none for now
	// First is how long from now the first token may be used, and Every is the time
	// between two tokens. A negative First means that some of them may be used now.
	First, Every time.Duration
	// If N is 0, Again is how long the member should wait before it asks again.
	Again time.Duration
}

// A Member is the Transport of one process in a [Fleet]. The Fleet calls its methods
// with news of the other members. The methods return at once and are safe for
// concurrent use. News of a host that this Transport does not know is dropped. News
// about a setting that the rule of the host turns off has no effect.
type Member struct{ t *Transport }

// Size says how many members the fleet has, this member included. A value below 1 counts
// as 1. The floor of the budget is divided by it. So is Rule.Rate while the Fleet does
// not answer.
func (m *Member) Size(n int) { m.t.size.Store(int32(min(max(n, 1), maxMembers))) }

// maxMembers bounds the size of a fleet. A larger number can only be a mistake.
const maxMembers = 1 << 24

// Hold holds a scope as another member was told to, or ends its hold.
func (m *Member) Hold(h FleetHold) {
	s, rule := m.find(h.Host)
	if s == nil || rule.rule.Cooldown != policy.On {
		return
	}
	cooldown, now := &s.Machines().Cooldown, m.t.now()
	if h.Wait <= 0 {
		cooldown.Free(now, h.Scope, now.Add(time.Duration(rand.Float64()*float64(host.ReturnTime(m.t.members())))))
		return
	}
	r := host.Refusal{Code: codeOf(h.Status), Wait: h.Wait, Ended: s.Ended()}
	cooldown.HoldForFleet(now, h.Scope, r, m.t.cooldown(rule, h.Wait), rand.Float64())
}

// Quota notes a quota that another member was told.
func (m *Member) Quota(q FleetQuota) {
	if s, rule := m.find(q.Host); s != nil && rule.pacing {
		members := min(max(q.Members, 1), maxMembers)
		s.Machines().Pacing().NoteForFleet(m.t.now(), q.Scope, q.Remaining, q.Limit, q.Reset, members, rule.settings.pacing)
	}
}

// Down says that a host is down for the fleet, and for how long it has been: several members
// fail, and none has told of a success. If a request of this member succeeded that was sent
// after the failures began, the member does not obey. It calls Fleet.Working instead. So
// members that cannot reach a host never stop a member that can. Otherwise the member closes
// its gate, until Up, or until a probe of its own succeeds.
func (m *Member) Down(name string, since time.Duration) {
	if s, rule := m.find(name); s != nil && rule.gate {
		now := m.t.now()
		if s.Machines().Gate().Down(now, now.Add(-max(since, 0))) {
			m.t.fleet.Working(name)
		}
	}
}

// Up says that a host works again. If its gate is closed, this member opens the gate
// after a random part of spread.
func (m *Member) Up(name string, spread time.Duration) {
	if s, rule := m.find(name); s != nil && rule.gate {
		now := m.t.now()
		s.Machines().Gate().Up(now, now.Add(time.Duration(rand.Float64()*float64(max(spread, 0)))))
	}
}

// Probe answers Fleet.Probe. If it is not granted, the member asks again after wait at
// the soonest.
func (m *Member) Probe(name string, granted bool, wait time.Duration) {
	s, rule := m.find(name)
	used := s != nil && rule.gate && s.Machines().Gate().Permit(m.t.now(), granted, wait)
	if granted && !used {
		m.t.fleet.ProbeFailed(name) // so that another member may send one
	}
}

// Tokens answers Fleet.Tokens.
func (m *Member) Tokens(g FleetGrant) {
	s, rule := m.find(g.Host)
	if s == nil || !rule.rate {
		return
	}
	now, machines := m.t.now(), s.Machines()
	machines.Rate(rule.settings.rate).Grant(now, g.N, now.Add(g.First), g.Every, now.Add(max(g.Again, 0)))
	if rule.gate {
		machines.Gate().WakeFirst() // the requests that wait for tokens are in its queue
	}
}

// find returns the state of a host and its rule. Both are nil if this Transport does not
// know the host.
func (m *Member) find(name string) (*host.State[resolved], *resolved) {
	s := m.t.hosts.Lookup(name)
	if s == nil {
		return nil, nil
	}
	rule := s.Resolved.Load()
	if rule == nil { // its first request has not come that far
		return nil, nil
	}
	return s, rule
}

// members returns the size of the fleet.
func (t *Transport) members() int { return max(1, int(t.size.Load())) }

// cooldown returns the settings of a hold.
func (t *Transport) cooldown(rule *resolved, wait time.Duration) host.CooldownConfig {
	return rule.settings.cooldown.Part(t.members(), wait)
}

// tellGate tells the fleet the news of a gate.
func (t *Transport) tellGate(s *host.State[resolved], gate *host.Gate) {
	switch n := gate.News(); {
	case n.Working:
		t.fleet.Working(s.Name())
	default:
		if n.ProbeFailed {
			t.fleet.ProbeFailed(s.Name())
		}
		if n.Failures > 0 {
			t.fleet.Failing(FleetFailing{Host: s.Name(), Failures: n.Failures, Since: max(0, t.now().Sub(n.Since))})
		}
	}
}

// askFleet asks the fleet for what the requests at the gate and at the rate wait for.
func (l *limits) askFleet(now instant.Instant) {
	m := l.state.Machines()
	if l.rule.gate && m.Gate().AskPermit(now) {
		l.t.fleet.Probe(l.state.Name())
	}
	if !l.rule.rate {
		return
	}
	r := m.Rate(l.rule.settings.rate)
	if !r.MayAsk(now) {
		return
	}
	waiting := r.Waiting()
	if l.rule.gate {
		waiting = m.Gate().Wants()
	}
	r.Share(now, l.t.members())
	if ask, ok := r.AskTokens(now, waiting, rand.Float64()); ok {
		l.t.fleet.Tokens(FleetTokens{Host: l.state.Name(), PerSecond: ask.PerSecond, Burst: ask.Burst, Want: ask.Want})
	}
}

// fleetScope returns the key of the request's scope in the fleet.
func (l *limits) fleetScope() uint64 {
	text := ""
	if own := l.rule.rule.Scope; own != nil {
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
		l.t.fleet.Hold(FleetHold{Host: l.state.Name(), Scope: l.scopeKey(), Status: status, Wait: wait, Again: again})
	}
}

// tellQuota tells the fleet of a quota that is half used up, or whose size is not known.
// Nobody has to wait before that.
func (l *limits) tellQuota(q classify.Quota) {
	if l.t.fleet != nil && q.Remaining <= q.Limit/2 {
		l.t.fleet.Quota(FleetQuota{Host: l.state.Name(), Scope: l.scopeKey(), Remaining: q.Remaining, Limit: q.Limit, Reset: q.Reset})
	}
}

// codeOf returns the kind of hold that a status begins.
func codeOf(status int) host.Code {
	if status == http.StatusServiceUnavailable {
		return host.Unavailable
	}
	return host.TooMany
}

// statusOf returns the status of a kind of hold.
func statusOf(code host.Code) int {
	if code == host.Unavailable {
		return http.StatusServiceUnavailable
	}
	return http.StatusTooManyRequests
}
