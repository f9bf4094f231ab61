// The state of a host, found without a lock.

package host

import (
	"hash/maphash"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// MaxHosts is the hard bound of a Table's hosts.
const MaxHosts = 1 << 17

// probes bounds how many hosts are looked at for one that may go. Work per new
// host is thereby independent of the number of hosts; the price is that with
// more than this many busy hosts in a row a busy one may go.
const probes = 256

// A Table finds the state of a host. R is what the owner keeps with each host
// (its resolved rule). Lookups take no lock and allocate nothing; a new host
// takes the lock. At most max hosts are kept: a further one takes the place of
// a host that was not asked for lately. Hosts with a running hold go after those
// without one, and hosts with requests in flight last. The zero Table is not
// usable; see [NewTable].
//
// It is a hash table with chains through the states themselves, so that a
// lookup among many hosts touches a bucket and a state and little else: with
// 100,000 hosts the time goes into cache misses. A reader that meets a chain
// while it is relinked may miss a host that is there; it then looks again
// under the lock.
type Table[R any] struct {
	// last is the newest host under the spelling of its URL: programs that talk
	// to one host never hash. It is written by inserts only, so reads by many
	// cores share the cache line.
	last atomic.Pointer[spelled[R]]

	buckets atomic.Pointer[[]bucket[R]] // a power of two of them
	seed    maphash.Seed

	// Now tells the time of the machines, to see which holds are over. It is
	// asked only when a host has to go. Without it every hold counts as running.
	// It is set before the first use.
	Now func() time.Duration

	mu   sync.Mutex // guards ring and hand, and all inserts and removals
	ring []entry[R] // every host in the buckets, as the clock hand meets them
	hand int
	max  int
}

type bucket[R any] struct{ first atomic.Pointer[State[R]] }

type spelled[R any] struct {
	scheme, host string
	state        *State[R]
}

// An entry remembers how many requests its host had seen when the hand passed.
type entry[R any] struct {
	state *State[R]
	seen  uint64
}

// NewTable returns an empty table for at most max hosts; a max that is not
// positive means [MaxHosts].
func NewTable[R any](max int) *Table[R] {
	if max <= 0 {
		max = MaxHosts
	}
	t := &Table[R]{max: max, seed: maphash.MakeSeed()}
	buckets := make([]bucket[R], 8)
	t.buckets.Store(&buckets)
	return t
}

// Acquire returns the state of the URL's host, made anew where there is none,
// and counts a request that begins there. The caller calls Release when the
// request has ended.
func (t *Table[R]) Acquire(u *url.URL) *State[R] {
	if l := t.last.Load(); l != nil && l.host == u.Host && l.scheme == u.Scheme && l.state.begin() {
		return l.state
	}
	key := KeyOf(u)
	hash := t.hash(key)
	for {
		s := t.find(key, hash)
		if s == nil {
			s = t.insert(key, hash, u)
		}
		// A state that was evicted between the lookup and here is not begun:
		// two states of one host would each allow the host's full limits.
		if s.begin() {
			return s
		}
	}
}

// hash leaves the scheme out: hosts that are asked under both are few, and
// share a chain.
func (t *Table[R]) hash(key Key) uint64 { return maphash.String(t.seed, key.Host) }

// find walks the chain without a lock.
func (t *Table[R]) find(key Key, hash uint64) *State[R] {
	buckets := *t.buckets.Load()
	scheme, name := key.coded()
	for s := buckets[hash&uint64(len(buckets)-1)].first.Load(); s != nil; s = s.next.Load() {
		if s.hash == hash && s.scheme == scheme && s.name == name {
			return s
		}
	}
	return nil
}

// Len returns the number of hosts kept.
func (t *Table[R]) Len() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.ring)
}

// Peek returns the state of a host without counting a request, nil where there
// is none.
func (t *Table[R]) Peek(u *url.URL) *State[R] {
	key := KeyOf(u)
	return t.find(key, t.hash(key))
}

// All calls f for the states as they are, without holding a lock during f.
func (t *Table[R]) All(f func(*State[R])) {
	t.mu.Lock()
	states := make([]*State[R], len(t.ring))
	for i := range t.ring {
		states[i] = t.ring[i].state
	}
	t.mu.Unlock()
	for _, s := range states {
		f(s)
	}
}

func (t *Table[R]) insert(key Key, hash uint64, u *url.URL) *State[R] {
	t.mu.Lock()
	defer t.mu.Unlock()
	if s := t.find(key, hash); s != nil {
		return s // another request was first, or the chain was being relinked
	}
	s := newState[R](key, hash)
	// A host that was asked for once is the first to go.
	new := entry[R]{state: s, seen: 1}
	if len(t.ring) < t.max {
		t.ring = append(t.ring, new)
		t.grow()
	} else {
		t.ring[t.victim()] = new
	}
	t.link(*t.buckets.Load(), s)
	if len(u.Host) <= maxHostLen && len(u.Scheme) <= maxSchemeLen { // others would stay in memory whole
		t.last.Store(&spelled[R]{scheme: s.Key().Scheme, host: spelling(s.Key(), u), state: s})
	}
	return s
}

// spelling returns the URL's spelling of the host without keeping the URL's
// whole text in memory.
func spelling(key Key, u *url.URL) string {
	if u.Host == key.Host {
		return key.Host
	}
	return strings.Clone(u.Host)
}

// link puts a state at the head of its chain. Called with mu held.
func (t *Table[R]) link(buckets []bucket[R], s *State[R]) {
	head := &buckets[s.hash&uint64(len(buckets)-1)].first
	s.next.Store(head.Load())
	head.Store(s)
}

// grow doubles the buckets when there are as many hosts. Each state moves once,
// so a reader on its way through a chain ends up at the end of some chain.
// Called with mu held.
func (t *Table[R]) grow() {
	old := *t.buckets.Load()
	if len(t.ring) <= len(old) {
		return
	}
	buckets := make([]bucket[R], 2*len(old))
	for i := range old {
		for s := old[i].first.Load(); s != nil; {
			next := s.next.Load()
			t.link(buckets, s)
			s = next
		}
	}
	t.buckets.Store(&buckets)
}

// victim evicts a host and returns its place in the ring. It prefers an idle
// host that saw no request since the hand last passed, then any idle one, then
// one that the server asked to wait, then the one under the hand, which is in
// flight. Called with mu held.
func (t *Table[R]) victim() int {
	var now time.Duration
	if t.Now != nil {
		now = t.Now()
	}
	best, worth := t.hand, inUse
	for range min(probes, 2*len(t.ring)) {
		i := t.hand
		t.hand = (t.hand + 1) % len(t.ring)
		sl := &t.ring[i]
		seen := sl.state.Requests()
		w := sl.state.worth(now)
		if w == idle && seen == sl.seen && sl.state.evict() {
			t.unlink(sl.state)
			return i
		}
		sl.seen = seen
		if w < worth {
			best, worth = i, w
		}
	}
	if worth == inUse {
		t.hand = (best + 1) % len(t.ring)
	}
	t.ring[best].state.forceEvict()
	t.unlink(t.ring[best].state)
	return best
}

// unlink takes an evicted state out of its chain. Its next stays, for readers
// that stand on it. Called with mu held.
func (t *Table[R]) unlink(s *State[R]) {
	buckets := *t.buckets.Load()
	at := &buckets[s.hash&uint64(len(buckets)-1)].first
	for at.Load() != s {
		at = &at.Load().next
	}
	at.Store(s.next.Load())
	if l := t.last.Load(); l != nil && l.state == s {
		t.last.Store(nil)
	}
}
