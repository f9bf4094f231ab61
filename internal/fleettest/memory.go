package fleettest

import (
	"errors"
	"hash/maphash"
	"slices"
	"sync"
	"time"

	"github.com/aplomb-go/aplomb/internal/fleetlink"
	"github.com/aplomb-go/aplomb/internal/fleetmsg"
	"github.com/aplomb-go/aplomb/internal/host/instant"
	"github.com/aplomb-go/aplomb/internal/ledger"
	"github.com/aplomb-go/aplomb/internal/mailbox"
	"github.com/aplomb-go/aplomb/internal/member"
)

// maxHosts bounds the hosts of a Memory. If it is full, it forgets the host whose last news is the
// oldest.
const maxHosts = 4096

// A Memory is a fleet in the memory of a process. It is for tests of code that uses a
// fleet, also in virtual time, and for several Transports of one program. News reaches the
// other members at once. It is safe for concurrent use. Make it with [NewMemory].
type Memory struct {
	seed  maphash.Seed
	begun time.Time

	mu      sync.Mutex // guards the fields below, and those of the members
	members []*Member
	hosts   map[string]*ledger.Record
	last    int64 // the number of the last member
}

// NewMemory returns a fleet without members.
func NewMemory() *Memory {
	return &Memory{seed: maphash.MakeSeed(), begun: time.Now(), hosts: map[string]*ledger.Record{}}
}

// Member returns a Fleet for one further Transport. It becomes a member when the Transport
// is made.
func (f *Memory) Member() *Member { return &Member{fleet: f} }

// A Member is a transport.Fleet. It is the place of a Transport in a [Memory]. A type that
// has a Member and methods of its own needs a method Link of its own, too.
type Member struct {
	fleet *Memory
	id    int64 // 0: nobody has joined
	hear  func(fleetmsg.Message)
	box   mailbox.Box[fleetmsg.Message]
	told  uint64
	lost  uint64 // scopes that made room for later scopes
}

// Link connects a Transport.
func (m *Member) Link() fleetlink.Fleet { return Link(m).Link() }

// Link returns a backend with these methods, which is a transport.Fleet.
func Link(f interface {
	Join(hear func(fleetmsg.Message)) error
	Tell(fleetmsg.Message)
	Scope(text string) uint64
	State() fleetlink.State
}) *member.Backend {
	return &member.Backend{Join: f.Join, Tell: f.Tell, Scope: f.Scope, State: f.State}
}

// Join makes a Transport the member.
func (m *Member) Join(hear func(fleetmsg.Message)) error {
	f := m.fleet
	f.mu.Lock()
	defer f.mu.Unlock()
	if m.id != 0 {
		return errors.New("fleettest: a Member serves a single Transport, and this one has another already")
	}
	f.last++
	m.id, m.hear = f.last, hear
	f.members = append(f.members, m)
	f.tellSize()
	return nil
}

// Close takes the member out of the fleet, which gets back the tokens that it has not used. The
// Transport can be used on.
func (m *Member) Close() error {
	f := m.fleet
	f.mu.Lock()
	hear := m.hear
	f.mu.Unlock()
	if hear != nil {
		hear(fleetmsg.Message{Kind: fleetmsg.Leave})
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.members = slices.DeleteFunc(f.members, func(o *Member) bool { return o == m })
	f.tellSize()
	return nil
}

// tellSize tells all members how many they are; the lock is held.
func (f *Memory) tellSize() {
	for _, m := range f.members {
		m.box.Put(m.hear, fleetmsg.Message{Kind: fleetmsg.Members, Members: len(f.members)})
	}
}

// Scope returns a hash of a text. Its key is random.
func (m *Member) Scope(text string) uint64 { return maphash.String(m.fleet.seed, text) }

// Tell takes news and questions.
func (m *Member) Tell(msg fleetmsg.Message) {
	answers := m.tell(msg)
	for _, a := range answers { // to a Meet
		m.hear(a)
	}
}

// State returns how the fleet is. A member is connected until Close, and its heartbeat is
// never old.
func (m *Member) State() fleetlink.State {
	f := m.fleet
	f.mu.Lock()
	defer f.mu.Unlock()
	if !slices.Contains(f.members, m) {
		return fleetlink.State{Commands: m.told}
	}
	return fleetlink.State{Connected: true, Members: len(f.members), LastHeartbeat: time.Now(), Commands: m.told, Dropped: m.lost}
}

// forget forgets the host whose last news is the oldest; the lock is held.
func (f *Memory) forget() {
	oldest := ""
	for host, r := range f.hosts {
		if oldest == "" || r.Told < f.hosts[oldest].Told {
			oldest = host
		}
	}
	delete(f.hosts, oldest)
}

// tell returns the answers to a Meet. Others hear of the rest.
func (m *Member) tell(msg fleetmsg.Message) (answers []fleetmsg.Message) {
	f := m.fleet
	f.mu.Lock()
	defer f.mu.Unlock()
	if !slices.Contains(f.members, m) || !ledger.Valid(msg) {
		return nil
	}
	m.told++
	r := f.hosts[msg.Host]
	if r == nil {
		if len(f.hosts) >= maxHosts {
			f.forget()
		}
		r = new(ledger.Record)
		f.hosts[msg.Host] = r
	}
	now := instant.At(time.Since(f.begun) + 2*ledger.MaxWait) // no time is before the epoch
	answers, news := r.Tell(now, m.id, len(f.members), msg)
	m.lost, r.Dropped = m.lost+r.Dropped, 0
	if msg.Kind == fleetmsg.Meet {
		return answers
	}
	m.box.Put(m.hear, answers...)
	for _, o := range f.members {
		if o != m {
			o.box.Put(o.hear, news...)
		}
	}
	return nil
}
