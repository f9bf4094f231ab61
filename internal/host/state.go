// The state of a host.

package host

import (
	"sync/atomic"

	"github.com/aplomb-go/aplomb/internal/fleetlink"
	"github.com/aplomb-go/aplomb/internal/host/concurrency"
	"github.com/aplomb-go/aplomb/internal/host/instant"
	"github.com/aplomb-go/aplomb/internal/host/latency"
	"github.com/aplomb-go/aplomb/internal/host/line"
	"github.com/aplomb-go/aplomb/internal/host/news"
	"github.com/aplomb-go/aplomb/internal/host/outage"
	"github.com/aplomb-go/aplomb/internal/host/pacing"
	"github.com/aplomb-go/aplomb/internal/host/pool"
	"github.com/aplomb-go/aplomb/internal/host/rate"
	"github.com/aplomb-go/aplomb/internal/host/throttle"
)

// A State is everything that a Transport knows about a host. It is safe for
// concurrent use.
//
// A State fills a single cache line, which contains everything that the first try
// reads. With many hosts most of the time goes into cache misses. The machines
// are behind a pointer, because only a host that failed or that a rule limits
// needs them.
type State[R any] struct {
	// word counts requests begun (upper 40 bits) and requests in flight (lower
	// 23 bits) in an atomic word. So the first try pays for an addition when it
	// begins and another when it ends. Bit 23 marks an evicted state.
	word atomic.Uint64
	next atomic.Pointer[State[R]] // the next state in its chain
	hash uint64                   // of the key

	// Resolved belongs to the owner. It is the rule for this host.
	Resolved atomic.Pointer[R]

	machines atomic.Pointer[Machines]

	name   string // scheme://host
	scheme uint8  // the length of the scheme

	Protocol atomic.Int32 // the major version of HTTP in the last response that was noted; 0: there was none
}

// Machines are the state machines of a host. The zero Line is ready and small.
// The other machines are made when they are first asked for.
type Machines struct {
	Line  line.Line
	Fleet fleetlink.Host // the fleet's view of the host; nil: there is none

	limits  atomic.Pointer[Limits]
	latency atomic.Pointer[latency.Latency]
	pools   atomic.Pointer[pool.Pools]
	news    atomic.Pointer[news.News]
}

// Limits are the machines of the limits of a host. A host whose rules turn none on has none.
type Limits struct {
	Throttle throttle.Throttle

	limiter atomic.Pointer[concurrency.Limiter]
	pacing  atomic.Pointer[pacing.Pacing]
	rate    atomic.Pointer[rate.Rate]
}

// Quiet reports whether nothing is held on the host, and nothing is to be told about it. If
// nothing has ever failed, Quiet is a single atomic load.
func (s *State[R]) Quiet() bool {
	m := s.machines.Load()
	return m == nil || m.quiet()
}

func (m *Machines) quiet() bool {
	return m.limits.Load().Quiet() && m.news.Load().Quiet() && (m.Fleet == nil || m.Fleet.Quiet())
}

// Calm reports whether the host is quiet, no quota is known, and its connections are not bad.
// If nothing has ever failed, Calm is a single atomic load.
func (s *State[R]) Calm() bool {
	m := s.machines.Load()
	return m == nil || m.quiet() && m.pools.Load().Calm() && m.limits.Load().calm()
}

// Quiet reports whether nothing is held on the host. A host without limits is quiet.
func (l *Limits) Quiet() bool { return l == nil || l.Throttle.Quiet() }

// calm reports whether no quota is known.
func (l *Limits) calm() bool { return l == nil || l.PacingMade() == nil || l.PacingMade().Quiet() }

// Failing reports whether the line of the host is not quiet.
func (s *State[R]) Failing() bool {
	m := s.machines.Load()
	return m != nil && !m.Line.Quiet()
}

// Join makes the host's machines, unless there are some, and returns the fleet's view of the host.
func (s *State[R]) Join(f fleetlink.Fleet) fleetlink.Host {
	m := new(Machines)
	m.Fleet = f.Host(s.name, &m.Line, m.LimiterMade)
	s.machines.CompareAndSwap(nil, m)
	return s.Machines().Fleet
}

// Machines returns the host's machines. The first call makes them.
func (s *State[R]) Machines() *Machines { return made(&s.machines) }

// MachinesMade returns the host's machines, or nil if none was needed yet.
func (s *State[R]) MachinesMade() *Machines { return s.machines.Load() }

// Limits returns the limits of the host. The first call makes them.
func (m *Machines) Limits() *Limits { return made(&m.limits) }

// LimitsMade returns the limits of the host, or nil if no rule turned any on yet.
func (m *Machines) LimitsMade() *Limits { return m.limits.Load() }

// Concurrency returns the limiter of the requests in flight to the host.
func (l *Limits) Concurrency() *concurrency.Limiter { return made(&l.limiter) }

// Pacing returns the host's pacing.
func (l *Limits) Pacing() *pacing.Pacing { return made(&l.pacing) }

// PacingMade returns the host's pacing, or nil if nobody asked for it yet.
func (l *Limits) PacingMade() *pacing.Pacing { return l.pacing.Load() }

// Latency returns the host's latencies.
func (m *Machines) Latency() *latency.Latency { return made(&m.latency) }

// Pools returns the host's pools. They are made when something has to be noted about them.
func (m *Machines) Pools() *pool.Pools { return made(&m.pools) }

// News returns the news of the host.
func (m *Machines) News() *news.News { return made(&m.news) }

// NewsMade returns the news of the host, or nil if there was none.
func (m *Machines) NewsMade() *news.News { return m.news.Load() }

// PoolsMade returns the host's pools, or nil if it had no trouble yet.
func (s *State[R]) PoolsMade() *pool.Pools {
	if m := s.machines.Load(); m != nil {
		return m.pools.Load()
	}
	return nil
}

// Rate returns the host's rate. The first call makes it with c.
func (m *Machines) Rate(c rate.Config) *rate.Rate {
	l := m.Limits()
	if r := l.rate.Load(); r != nil {
		return r
	}
	l.rate.CompareAndSwap(nil, rate.New(c, m.Fleet))
	return l.rate.Load()
}

// LimiterMade returns the limiter, in whose queue requests wait for the rate as well, or nil if nobody asked for it yet.
func (m *Machines) LimiterMade() *concurrency.Limiter {
	if l := m.limits.Load(); l != nil {
		return l.limiter.Load()
	}
	return nil
}

// WakeFirst lets the first in each queue ask again, because the rule has changed.
func (m *Machines) WakeFirst() {
	m.Line.Hear(func(*outage.Outage) {})
	if limiter := m.LimiterMade(); limiter != nil {
		limiter.WakeFirst()
	}
}

// made returns the value at p, which the first call makes. If two calls race, both
// return the value of the winner.
func made[T any](p *atomic.Pointer[T]) *T {
	if v := p.Load(); v != nil {
		return v
	}
	p.CompareAndSwap(nil, new(T))
	return p.Load()
}

// Name returns scheme://host.
func (s *State[R]) Name() string { return s.name }

// Key names the host.
func (s *State[R]) Key() Key {
	return Key{Scheme: s.name[:s.scheme], Host: s.name[int(s.scheme)+len("://"):]}
}

const (
	oneRequest = 1 << 24
	evicted    = 1 << 23
	inFlight   = evicted - 1
)

// begin counts a request. If the state was evicted, begin counts nothing and
// reports false.
func (s *State[R]) begin() bool {
	if s.word.Add(oneRequest+1)&evicted == 0 {
		return true
	}
	s.word.Add(^uint64(0)) // the count of requests no longer matters
	return false
}

// Release ends a request that Acquire began.
func (s *State[R]) Release() { s.word.Add(^uint64(0)) }

// ReleaseCount takes back the count of a request that Acquire began. It is for a
// request that continues an earlier request or that is refused, which must not earn a
// retry. The request is still in flight, so the caller must call Release as well.
func (s *State[R]) ReleaseCount() { s.word.Add(^uint64(oneRequest - 1)) }

// Count counts a request whose count was released, because it goes after all.
func (s *State[R]) Count() { s.word.Add(oneRequest) }

// Requests returns how many requests began, modulo 2^40.
func (s *State[R]) Requests() uint64 { return s.word.Load() / oneRequest }

// InFlight returns how many requests have begun and not ended.
func (s *State[R]) InFlight() int { return int(s.word.Load() & inFlight) }

// A worth says how much is lost if a state is evicted.
type worth uint8

const (
	idle  worth = iota
	held        // the server asked for a wait that is not over
	inUse       // requests are in flight
)

// worth returns how much is lost with the state. A hold that is over is worth
// nothing, even while it is still kept.
func (s *State[R]) worth(now instant.Instant) worth {
	switch m := s.machines.Load(); {
	case s.InFlight() > 0:
		return inUse
	case m != nil && m.limits.Load() != nil && m.limits.Load().Throttle.Holding(now):
		return held
	}
	return idle
}

// evict marks the state as evicted and reports true, unless a request is in
// flight.
func (s *State[R]) evict() bool {
	w := s.word.Load()
	return w&inFlight == 0 && s.word.CompareAndSwap(w, w|evicted)
}

// forceEvict marks the state as evicted. Requests in flight go on using it.
func (s *State[R]) forceEvict() { s.word.Or(evicted) }
