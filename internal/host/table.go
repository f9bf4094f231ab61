// The table finds the state of a host without a lock.

package host

import (
	"hash/maphash"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/aplomb-go/aplomb/internal/host/instant"
)

// MaxHosts is the largest number of hosts in a Table.
const MaxHosts = 1 << 17

// probes bounds how many hosts are looked at to find a host to evict. So the work
// per new host does not depend on the number of hosts. The price is that a busy
// host may go if more than this many busy hosts follow each other.
const probes = 256

// A Table finds the state of a host. R is the owner's data for each host,
// which is its resolved rule. A lookup takes no lock and allocates nothing. A new
// host takes the lock.
//
// A Table keeps max hosts at most. A further host replaces a host that was not
// asked for lately. Hosts with a running hold go after hosts without a hold. Hosts
// with requests in flight go last.
//
// The Table is a hash table whose chains run through the states themselves. So a
// lookup touches a bucket and a state and little else. With 100,000 hosts the time
// goes into cache misses. A reader may miss a host that is there if its chain is
// being relinked. The reader then looks again under the lock.
//
// The zero Table is not usable. See [NewTable].
type Table[R any] struct {
	// last is the newest of the first hosts, under the spelling of its URL. A program that
	// talks to a single host never computes a hash. Only inserts write last, so reads by
	// many cores share the cache line.
	last atomic.Pointer[spelled[R]]

	buckets atomic.Pointer[[]bucket[R]] // their number is a power of two
	seed    maphash.Seed

	now     func() instant.Instant // the time of the machines, which shows which holds are over
	evicted func(*State[R])        // is called for each state that had to go, without a lock

	mu   sync.Mutex // guards everything below, and all inserts and removals
	ring []entry[R] // every host in the buckets, in the order in which the hand meets them
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

	asked uint64          // how many requests it had seen when UsedLately looked last
	at    instant.Instant // when that had changed since the look before
}

// NewTable returns an empty table for at most max hosts. It calls now only when a host is new or has to go, or for
// UsedLately. It calls evicted for each state that had to go, without a lock. Requests may still be under way with the
// state.
func NewTable[R any](max int, now func() instant.Instant, evicted func(*State[R])) *Table[R] {
	t := &Table[R]{max: max, now: now, evicted: evicted, seed: maphash.MakeSeed()}
	buckets := make([]bucket[R], 8)
	t.buckets.Store(&buckets)
	return t
}

// Acquire returns the state of the URL's host, and makes it if there is none. It
// counts a request that begins there. The caller calls Release when the request
// has ended.
func (t *Table[R]) Acquire(u *url.URL) *State[R] {
	if l := t.last.Load(); l != nil && l.host == u.Host && l.scheme == u.Scheme && l.state.begin() {
		return l.state
	}
	key := KeyOf(u)
	hash := maphash.String(t.seed, key.Host) // without the scheme, because few hosts are used with two
	for {
		s := t.find(key, hash)
		if s == nil {
			var gone *State[R]
			if s, gone = t.insert(key, hash, u); gone != nil {
				t.evicted(gone)
			}
		}
		// A state that was evicted between the lookup and here must not be used. If a
		// host had two states, each would allow the full limits of the host.
		if s.begin() {
			return s
		}
	}
}

// find looks in the chain without a lock.
func (t *Table[R]) find(key Key, hash uint64) *State[R] {
	buckets := *t.buckets.Load()
	for s := buckets[hash&uint64(len(buckets)-1)].first.Load(); s != nil; s = s.next.Load() {
		if s.hash == hash && s.Key() == key {
			return s
		}
	}
	return nil
}

// All calls f for each state of this moment. It holds no lock during f. Its time is linear in the
// number of hosts, and with the most hosts nearly a millisecond without f.
func (t *Table[R]) All(f func(*State[R])) {
	t.mu.Lock()
	ring := slices.Clone(t.ring)
	t.mu.Unlock()
	for _, e := range ring {
		f(e.state)
	}
}

// UsedLately reports whether a host other than not may have been asked within d. A host shows that it was not
// asked when two looks at it, or its first request and a look, are so far apart.
func (t *Table[R]) UsedLately(not *State[R], d time.Duration) (lately bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for i, now := 0, t.now(); i < len(t.ring); i++ {
		e := &t.ring[i]
		if n := e.state.Requests(); n != e.asked || e.state.InFlight() > 0 {
			e.asked, e.at = n, now
		}
		lately = lately || e.state != not && now.Sub(e.at) < d
	}
	return lately
}

// insert returns the state of a host, and makes it if there is none. gone is the state
// that it replaces, or nil.
func (t *Table[R]) insert(key Key, hash uint64, u *url.URL) (s, gone *State[R]) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if s := t.find(key, hash); s != nil {
		return s, nil // another request was first, or the chain was being relinked
	}
	// The name in a URL may be part of a long text, which would stay in memory with it.
	s = &State[R]{hash: hash, name: key.Scheme + "://" + key.Host, scheme: uint8(len(key.Scheme))}
	// A host that was asked for once is the first to go.
	e := entry[R]{state: s, seen: 1, asked: 1, at: t.now()}
	if len(t.ring) < t.max {
		t.ring = append(t.ring, e)
		if len(t.ring) > len(*t.buckets.Load()) {
			t.grow()
		}
	} else {
		i := t.victim()
		gone = t.ring[i].state
		t.ring[i] = e
	}
	t.link(*t.buckets.Load(), s)
	if len(t.ring) <= fewHosts && len(u.Host) <= maxHostLen && len(u.Scheme) <= maxSchemeLen { // longer texts would stay in memory whole
		key = s.Key()
		if u.Host != key.Host {
			key.Host = strings.Clone(u.Host)
		}
		t.last.Store(&spelled[R]{scheme: key.Scheme, host: key.Host, state: s})
	}
	return s, gone
}

// fewHosts is how many hosts a program has that asks one of them time and again.
const fewHosts = 8

// link puts a state at the head of its chain; the lock is held.
func (t *Table[R]) link(buckets []bucket[R], s *State[R]) {
	head := &buckets[s.hash&uint64(len(buckets)-1)].first
	s.next.Store(head.Load())
	head.Store(s)
}

// grow doubles the buckets; the lock is held. Each state moves once, so a reader on its
// way through a chain ends at the end of some chain.
func (t *Table[R]) grow() {
	old := *t.buckets.Load()
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

// victim evicts a host and returns its index in the ring; the lock is held. It prefers
// an idle host that saw no request since the hand last passed. Then it takes any
// idle host, then a host that the server asked to wait, and last the host under
// the hand, which is in flight.
func (t *Table[R]) victim() int {
	now := t.now()
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

// unlink takes an evicted state out of its chain; the lock is held. The state keeps its
// next, for readers that are looking at it.
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
