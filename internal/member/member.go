// Package member is a member of a fleet, and stands between a Transport and the backend. A Transport asks and tells it about its
// hosts, by the interfaces of package fleetlink. The member tells the others by way of the backend, in messages of package
// fleetmsg, and hears of them.
//
// News of a host that the Transport does not know is dropped. News about a setting that the rule of the host turns off has no
// effect. The word of the fleet is weaker than a member's own knowledge. It makes a request wait for three quarters of its
// time at most, and refuses none.
//
//	member.go  the member, and the backend
//	host.go    a host, as the members tell each other about it
//	quotas.go  quotas that several members use
//	tokens.go  tokens of a rate that the members share
//	ask.go     questions for them
package member

import (
	"math"
	"math/rand/v2"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
	"weak"

	"github.com/aplomb-go/aplomb/internal/fleetlink"
	"github.com/aplomb-go/aplomb/internal/fleetmsg"
	"github.com/aplomb-go/aplomb/internal/host/concurrency"
	"github.com/aplomb-go/aplomb/internal/host/instant"
	"github.com/aplomb-go/aplomb/internal/host/line"
	"github.com/aplomb-go/aplomb/internal/scope"
)

// maxMembers bounds the size of a fleet. A larger number can only be a mistake.
const maxMembers = 1 << 24

// A Backend is a fleet as a member sees it. Its functions are safe for concurrent use.
//
// A member calls them only in these cases: a host is used for the first time, a server asked to wait, named a quota or failed, or
// the rule has a RateLimit.
//
// A Backend need not report its own errors. A request waits for an answer for 10 ms at most, in the 250 ms after the first
// question for tokens until their end, or in the first second if the member has heard how many members there are. Then the member
// goes on with its own knowledge. So a Backend that is slow or away costs no request. It may also drop news that comes too often.
type Backend struct {
	// Join sets the one member. From then on the Backend calls hear with news of the other members and with answers, never with
	// the member's own news. It does so in goroutines of its own, never within a call of Join. Within a call of Tell it may only
	// answer a Meet. Hear returns at once, is safe for concurrent use, and may call Tell. Join returns an error if there is a
	// member already.
	Join func(hear func(fleetmsg.Message)) error

	// Tell takes a piece of news or a question. It does not wait for a network. A Backend ignores kinds that it does not know.
	Tell func(fleetmsg.Message)

	// Scope returns a number for the credentials of a request, or for the ThrottleKey of the rule. Members that get the same text
	// get the same number. The number leaves the process, so it must not help to guess the text. A keyed hash such as HMAC-SHA256
	// does that.
	Scope func(text string) uint64

	// State returns how the fleet is at this moment.
	State func() fleetlink.State
}

// Link makes a member, so that a Backend is a transport.Fleet.
func (b *Backend) Link() fleetlink.Fleet {
	return &member{backend: b, hosts: map[string]weak.Pointer[host]{}}
}

// A member is a fleetlink.Fleet.
type member struct {
	backend *Backend
	clock   instant.Clock
	size    atomic.Int32 // of the fleet; 0 counts as 1
	asked   atomic.Int64 // when the fleet was asked for tokens first; 0: it was not

	mu    sync.Mutex // guards the fields below
	hosts map[string]weak.Pointer[host]
	full  int // so many hosts are kept before those are dropped that the Transport has forgotten
}

// Join makes a Transport the member.
func (m *member) Join(c instant.Clock) error {
	m.clock = c
	return m.backend.Join(m.hear)
}

// State returns how the fleet is.
func (m *member) State() fleetlink.State { return m.backend.State() }

// Scope returns the number of a request's scope.
func (m *member) Scope(req *http.Request, key func(*http.Request) string) uint64 {
	text := ""
	if key != nil {
		text = "scope\x00" + key(req)
	} else if text = scope.Text(req.Header); text == "" {
		return 0
	}
	return m.backend.Scope(text)
}

// Host returns a host. It hears of others from its first Obey on.
func (m *member) Host(name string, l *line.Line, made func() *concurrency.Limiter) fleetlink.Host {
	return &host{member: m, name: name, line: l, made: made}
}

// meet lets a host hear of others. The hosts that the Transport has forgotten are dropped when their number has doubled.
func (m *member) meet(h *host) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.hosts[h.name] = weak.Make(h)
	if len(m.hosts) <= m.full {
		return
	}
	for name, p := range m.hosts {
		if p.Value() == nil {
			delete(m.hosts, name)
		}
	}
	m.full = 2*len(m.hosts) + 8
}

// all returns the hosts that the Transport knows.
func (m *member) all() (all []*host) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, p := range m.hosts {
		if h := p.Value(); h != nil {
			all = append(all, h)
		}
	}
	return all
}

// members returns the size of the fleet.
func (m *member) members() int { return max(1, int(m.size.Load())) }

// hear takes a message of the backend.
func (m *member) hear(msg fleetmsg.Message) {
	switch msg.Kind {
	case fleetmsg.Members:
		m.size.Store(int32(min(max(msg.Members, 1), maxMembers)))
		return
	case fleetmsg.Leave:
		for _, h := range m.all() {
			h.giveBack()
		}
		return
	}
	m.mu.Lock()
	h := m.hosts[msg.Host].Value()
	m.mu.Unlock()
	if h == nil {
		return
	}
	now := m.clock.Now()
	switch msg.Kind {
	case fleetmsg.Hold:
		h.hearHold(now, msg)
	case fleetmsg.Quota:
		h.hearQuota(now, msg)
	case fleetmsg.Down:
		h.hearDown(now, now.Add(-max(msg.Wait, 0)))
	case fleetmsg.Up:
		h.hearUp(now.Add(time.Duration(rand.Float64() * float64(min(max(msg.Wait, 0), maxReturn)))))
	case fleetmsg.Tokens:
		h.hearTokens(now, msg)
	}
}

// wholeUnits returns how many whole units an amount has. It is bounded, because an amount of a fleet may be any number.
func wholeUnits(amount float64) int64 {
	if !(amount > 0) { // it may be no number
		return 0
	}
	return int64(min(amount, 1<<53))
}

// answerTime returns how long a request waits for the fleet's answer if it has to go by a time, and as long as it likes if the time
// is 0. A request that waits asks again and again.
func (m *member) answerTime(now, by instant.Instant) time.Duration {
	m.asked.CompareAndSwap(0, int64(now))
	asked := instant.Instant(m.asked.Load())
	wait := asked.Add(MetTime).Sub(now)
	if m.size.Load() == 0 && now >= asked.Add(FirstTime-AnswerTime) {
		wait = 0
	}
	if by != 0 {
		wait = min(wait, by.Sub(now)*3/4)
	}
	return max(wait, AnswerTime)
}

// wholeInt returns how many whole units an amount has, as many as an int may have.
func wholeInt(amount float64) int { return int(min(wholeUnits(amount), math.MaxInt32)) }

// BackendOf returns the backend of a fleet whose Link is that of a Backend.
func BackendOf(f interface{ Link() fleetlink.Fleet }) *Backend { return f.Link().(*member).backend }
