// What is kept per host.

package host

import (
	"strings"
	"sync/atomic"
	"time"
)

// A State is what a Transport knows about one host. It is safe for concurrent
// use.
//
// It fills one cache line, and all that the first try reads is in it: among
// many hosts the time goes into cache misses. What a host needs that failed, or
// whose rule limits it, is behind a pointer.
type State[R any] struct {
	// word counts requests begun (upper 40 bits) and requests in flight (lower
	// 23 bits) in one atomic word, so that the first try pays for one addition
	// when it begins and one when it ends. Bit 23 marks an evicted state.
	word atomic.Uint64
	next atomic.Pointer[State[R]] // in its chain
	hash uint64                   // of the key

	// Resolved is the owner's: the rule that applies to this host.
	Resolved atomic.Pointer[R]

	machines atomic.Pointer[Machines]

	name   string // the host, or the whole key of another scheme
	scheme uint8
}

// Machines are the state machines of one host. Cooldown and Budget are on by
// default, and their zero values are ready; the others are made when they are
// first asked for.
type Machines struct {
	Cooldown Cooldown
	Budget   Budget

	gate    atomic.Pointer[Gate]
	latency atomic.Pointer[Latency]
	pacing  atomic.Pointer[Pacing]
	rate    atomic.Pointer[Rate]
}

// Quiet reports whether nothing is held on the host: one atomic load where
// nothing has ever failed.
func (s *State[R]) Quiet() bool {
	m := s.machines.Load()
	return m == nil || m.Cooldown.Quiet()
}

// Machines returns the host's machines, made at the first call.
func (s *State[R]) Machines() *Machines { return made(&s.machines) }

// MachinesMade returns the host's machines, nil where it has needed none.
func (s *State[R]) MachinesMade() *Machines { return s.machines.Load() }

// Gate returns the host's gate.
func (m *Machines) Gate() *Gate { return made(&m.gate) }

// Latency returns the host's latencies.
func (m *Machines) Latency() *Latency { return made(&m.latency) }

// Pacing returns what is known of the server's quota.
func (m *Machines) Pacing() *Pacing { return made(&m.pacing) }

// Rate returns the host's rate limit, made with c at the first call.
func (m *Machines) Rate(c RateConfig) *Rate {
	if r := m.rate.Load(); r != nil {
		return r
	}
	m.rate.CompareAndSwap(nil, NewRate(c))
	return m.rate.Load()
}

// Made returns the gate and the rate limit where there are some, nil where
// nobody asked for them yet.
func (m *Machines) Made() (*Gate, *Rate) { return m.gate.Load(), m.rate.Load() }

// made returns what p points to, made at the first call. The loser of a race
// takes the winner's.
func made[T any](p *atomic.Pointer[T]) *T {
	if v := p.Load(); v != nil {
		return v
	}
	p.CompareAndSwap(nil, new(T))
	return p.Load()
}

// newState keeps a copy of the host's name: the URL's may be a part of a long
// text that would stay in memory with it.
func newState[R any](key Key, hash uint64) *State[R] {
	scheme, name := key.coded()
	return &State[R]{hash: hash, scheme: scheme, name: strings.Clone(name)}
}

// The schemes that everybody uses are told apart by a number; the name of any
// other is part of the host's.
const (
	schemeHTTPS uint8 = iota
	schemeHTTP
	schemeOther
)

func (k Key) coded() (scheme uint8, name string) {
	switch k.Scheme {
	case "https":
		return schemeHTTPS, k.Host
	case "http":
		return schemeHTTP, k.Host
	}
	return schemeOther, k.String()
}

// Key names the host.
func (s *State[R]) Key() Key {
	switch s.scheme {
	case schemeHTTPS:
		return Key{"https", s.name}
	case schemeHTTP:
		return Key{"http", s.name}
	}
	scheme, name, _ := strings.Cut(s.name, "://")
	return Key{scheme, name}
}

const (
	oneRequest = 1 << 24
	evicted    = 1 << 23
	inFlight   = evicted - 1
)

// begin counts a request; it reports false, and counts nothing, where the
// state was evicted.
func (s *State[R]) begin() bool {
	if s.word.Add(oneRequest+1)&evicted == 0 {
		return true
	}
	s.word.Add(^uint64(0)) // the requests that it counts interest nobody any more
	return false
}

// Release ends a request that Acquire began.
func (s *State[R]) Release() { s.word.Add(^uint64(0)) }

// ReleaseCount takes back that Acquire counted a request, for one that only goes on
// with an earlier one, or that is refused. It still has to be released.
func (s *State[R]) ReleaseCount() { s.word.Add(^uint64(oneRequest - 1)) }

// Requests returns how many requests began, modulo 2^40.
func (s *State[R]) Requests() uint64 { return s.word.Load() / oneRequest }

// InFlight returns how many requests have begun and not ended.
func (s *State[R]) InFlight() int { return int(s.word.Load() & inFlight) }

// A worth says how much is lost with a state.
type worth uint8

const (
	idle  worth = iota
	held        // the server asked for a wait that is not over
	inUse       // requests are in flight
)

// worth returns what is lost with the state. A hold that is over is worth
// nothing, also while its scope is still kept.
func (s *State[R]) worth(now time.Duration) worth {
	switch m := s.machines.Load(); {
	case s.InFlight() > 0:
		return inUse
	case m != nil && m.Cooldown.Holding(now):
		return held
	}
	return idle
}

// evict marks the state as gone, unless a request is in flight.
func (s *State[R]) evict() bool {
	w := s.word.Load()
	return w&inFlight == 0 && s.word.CompareAndSwap(w, w|evicted)
}

// forceEvict marks the state as gone; requests in flight keep using it.
func (s *State[R]) forceEvict() { s.word.Or(evicted) }
