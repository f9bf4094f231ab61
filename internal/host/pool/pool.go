// Package pool knows the pools of connections of a host: over which of them its attempts go.
package pool

import (
	"cmp"
	"net/http"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/aplomb-go/aplomb/internal/host/instant"
)

// A Pool is a pool of connections to a host. The first pool of a host is the base transport
// itself, which other hosts share. Further pools belong to one host. A Pool is safe for
// concurrent use.
type Pool struct {
	Number int // counts the pools of the host; 0: the first

	turn    atomic.Pointer[chan struct{}]     // of the attempt that makes the first connection, closed at its end; nil: none
	base    atomic.Pointer[http.RoundTripper] // sends the attempts; nil: it is not made yet, or it is that of all hosts
	open    atomic.Bool                       // it has had a connection
	due     atomic.Int64                      // when an attempt may seek its first connection
	used    atomic.Int64                      // when an attempt went over it last, while it was not the current pool
	heard   atomic.Int64                      // when something came over it last; 0: never
	faults  atomic.Int32                      // the weight of the failures in a row
	waits   atomic.Int32                      // how many requests more wait for another pool
	addr    atomic.Pointer[netip.Addr]        // of the last connection in doubt; nil: not known
	answers atomic.Bool                       // the last failure over it was a response
	proven  atomic.Bool                       // it has brought a good response while the current pool was bad
}

// Base returns the transport that sends the attempts. It is nil for the first pool, and before Make.
func (p *Pool) Base() http.RoundTripper {
	if base := p.base.Load(); base != nil {
		return *base
	}
	return nil
}

// TakeTurn lets one attempt make the first connection of the pool, which calls free when it has a
// connection or has none. If it is the turn of another attempt, free is nil, and ended is closed at the
// end of that turn. Each turn has its own channel, so that no channel leaves its bubble of
// testing/synctest.
func (p *Pool) TakeTurn() (free func(), ended <-chan struct{}) {
	mine := make(chan struct{})
	for !p.turn.CompareAndSwap(nil, &mine) {
		if other := p.turn.Load(); other != nil {
			return nil, *other
		}
	}
	return sync.OnceFunc(func() {
		p.turn.Store(nil)
		close(mine)
	}), nil
}

// Make sets the transport that sends the attempts. It is the caller's turn.
func (p *Pool) Make(base http.RoundTripper) { p.base.Store(&base) }

// Hear notes that something came over the pool.
func (p *Pool) Hear(now instant.Instant) { p.heard.Store(int64(max(now, 1))) }

// Heard returns when something came over the pool last, or 0 if nothing ever did.
func (p *Pool) Heard() instant.Instant { return instant.Instant(p.heard.Load()) }

// Doubt notes the address of a connection over which an attempt failed or takes long, if it is known,
// and whether a response said so.
func (p *Pool) Doubt(addr string, answered bool) {
	p.answers.Store(answered)
	if at, err := netip.ParseAddrPort(addr); err == nil {
		ip := at.Addr().Unmap()
		p.addr.Store(&ip)
	}
}

// Answers reports whether the last failure over the pool was a response.
func (p *Pool) Answers() bool { return p.answers.Load() }

// Doubtful returns the address that was noted last, or the zero Addr.
func (p *Pool) Doubtful() (addr netip.Addr) {
	if known := p.addr.Load(); known != nil {
		addr = *known
	}
	return addr
}

// Silent notes that nothing came over the pool while so many requests were in flight. They may be lost, and so may as many
// that follow, which rather wait for another pool. A good response over the pool ends this.
func (p *Pool) Silent(inFlight int) { p.waits.Store(max(p.waits.Load(), int32(inFlight))) }

// TakesWait reports whether the next request waits for another pool, and counts it.
func (p *Pool) TakesWait() bool { return p.waits.Load() > 0 && p.waits.Add(-1) >= 0 }

// IsOpen reports whether the pool has had a connection.
func (p *Pool) IsOpen() bool { return p.open.Load() }

// Connected notes that the pool has a connection.
func (p *Pool) Connected() {
	p.due.Store(0)
	p.open.Store(true)
}

// Use notes that an attempt went over another pool than the current.
func (p *Pool) Use(now instant.Instant) { p.used.Store(int64(now)) }

// Missed notes that an attempt found no connection in time. The next seeks one after a while.
func (p *Pool) Missed(now instant.Instant) { p.due.Store(int64(now.Add(cost))) }

// Dialled notes that a dial has ended well. The attempt for which it began may not wait for it any
// more. The next finds its connection.
func (p *Pool) Dialled() { p.due.Store(0) }

// IsDue reports whether an attempt may seek a connection.
func (p *Pool) IsDue(now instant.Instant) bool { return int64(now) >= p.due.Load() }

// The weights of a failure. A pool is bad as soon as its failures in a row weigh as much as a Proof.
const (
	Weak  = 2  // a response that says that the server cannot, or none in time while others came
	Alone = 3  // none in time while nobody else asked
	Half  = 5  // an error, or no response in time until another pool brought one
	Proof = 10 // the connections are bad
)

// cost is the time after which a host may have one new pool more. It may have two at once.
const cost = 10 * time.Second

// Rest is the time after which another pool than the current closes its idle connections, if no
// attempt has gone over it. They may die with those of the current pool.
const Rest = 2 * time.Second

// keeps bounds how many pools of before are known.
const keeps = 3

// Pools says over which pool the attempts to a host go: over the current pool, and over another
// while that is bad. The zero Pools is ready. Pools is safe for concurrent use.
//
//	what happens                                  what follows
//	failures weigh as much as a proof             the current pool is bad, and attempts try the other
//	a good response over the other pool           if the current pool is bad, the host moves
//	a good response over the current pool         it is not bad any more, and the other may seek a connection at once
//	the other pool is bad as well                 it is given up, and a new pool may take its place
type Pools struct {
	HTTP1 atomic.Bool // the server wants HTTP/1.1

	first   Pool
	current atomic.Pointer[Pool] // nil: the first

	mu     sync.Mutex // guards the fields below, and all changes of current
	other  *Pool      // nil: none
	opened int
	debt   instant.Instant // falls with time, and rises with each new pool
	closed instant.Instant // when the idle connections of the first pool were closed last; 0: never
	cause  any             // why the current pool is bad
	left   []*Pool         // pools of before, the last few
}

// Current returns the pool over which attempts go.
func (s *Pools) Current() *Pool { return cmp.Or(s.current.Load(), &s.first) }

// Or returns p, or the first pool if p is nil.
func (s *Pools) Or(p *Pool) *Pool { return cmp.Or(p, &s.first) }

// Calm reports whether the current pool is not bad. It is not if s is nil.
func (s *Pools) Calm() bool { return s == nil || s.Current().faults.Load() < Proof }

// Good notes a response that needs no retry. A nil pool is the first. left is the pool that the host leaves because of it,
// or nil, and cause says why that was bad. alone says that nobody else asks the host. The current pool
// could be well then, and nobody finds out, so a second response has to follow.
func (s *Pools) Good(from *Pool, alone bool) (left *Pool, cause any) {
	from = cmp.Or(from, &s.first)
	if faults := from.faults.Load(); faults != 0 {
		from.faults.Store(0)
		from.waits.Store(0)
		if faults >= Proof {
			s.reached()
		}
	}
	if from == s.Current() || s.Calm() || !from.proven.Swap(true) && alone {
		return nil, nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if from != s.other || s.Calm() {
		return nil, nil
	}
	left = s.Current()
	s.current.Store(from)
	s.other = nil
	s.leave(left)
	return left, s.cause
}

// reached lets the next attempt seek a connection of the other pool. If an attempt found none, the host could perhaps
// not be reached at all, and now it can.
func (s *Pools) reached() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.other != nil {
		s.other.due.Store(0)
	}
}

// Failed notes a failure of a weight. left is another pool that is given up because of it, or nil.
func (s *Pools) Failed(from *Pool, weight int32, cause any) (left *Pool) {
	if from.faults.Add(weight) < Proof {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch from {
	case s.Current():
		s.cause = cause
	case s.other:
		s.other = nil
		s.leave(from)
		return from
	}
	return nil
}

// leave keeps a pool for All; the lock is held.
func (s *Pools) leave(p *Pool) {
	if p != &s.first {
		s.left = append(slices.Clone(s.left[max(len(s.left)-keeps+1, 0):]), p)
	}
}

// Other returns another pool than not, which may be a new one, or nil if there is none.
func (s *Pools) Other(now instant.Instant, not *Pool) *Pool {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.other != nil && s.other != not:
		return s.other
	case s.other != nil || !s.take(now):
		return nil
	}
	s.opened++
	s.other = &Pool{Number: s.opened}
	return s.other
}

// MayRefresh reports whether the idle connections of the first pool may be closed, because the host
// can have no other. That counts as a new pool. If nothing has come since they were closed last, those
// that are being made now would be lost.
func (s *Pools) MayRefresh(now instant.Instant) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.first.faults.Store(0)
	if s.closed > s.first.Heard() || !s.take(now) {
		return false
	}
	s.closed = now
	return true
}

// take reports whether there may be a new pool, and counts it; the lock is held.
func (s *Pools) take(now instant.Instant) bool {
	if s.debt > now.Add(cost) {
		return false
	}
	s.debt = max(s.debt, now).Add(cost)
	return true
}

// Rests reports whether a pool is not the current one and has had no attempt for a while. It then
// counts as a pool without a connection.
func (s *Pools) Rests(p *Pool, now instant.Instant, rest time.Duration) bool {
	if p == s.Current() || now.Sub(instant.Instant(p.used.Load())) < rest {
		return false
	}
	p.open.Store(false)
	return true
}

// All returns the pools of the host but the first.
func (s *Pools) All() []*Pool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.DeleteFunc(append(slices.Clone(s.left), s.current.Load(), s.other), func(p *Pool) bool { return p == nil })
}
