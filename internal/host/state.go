// What is kept per host.

package host

import (
	"strings"
	"sync/atomic"
)

// A State is what a Transport knows about one host. It is safe for concurrent
// use.
type State[R any] struct {
	// word counts requests begun (upper 40 bits) and requests in flight (lower
	// 23 bits) in one atomic word, so that the first try pays for one addition
	// when it begins and one when it ends. Bit 23 marks an evicted state.
	word atomic.Uint64

	next atomic.Pointer[State[R]] // in its chain
	hash uint64                   // of the key

	// Key names the host. It does not change.
	Key Key

	// Resolved is the owner's: the rule that applies to this host.
	Resolved atomic.Pointer[R]
}

// newState keeps a copy of the host's name: the URL's may be a part of a long
// text that would stay in memory with it.
func newState[R any](key Key, hash uint64) *State[R] {
	switch key.Scheme {
	case "https":
		key.Scheme = "https"
	case "http":
		key.Scheme = "http"
	default:
		key.Scheme = strings.Clone(key.Scheme)
	}
	key.Host = strings.Clone(key.Host)
	return &State[R]{Key: key, hash: hash}
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

// Requests returns how many requests began, modulo 2^40.
func (s *State[R]) Requests() uint64 { return s.word.Load() / oneRequest }

// InFlight returns how many requests have begun and not ended.
func (s *State[R]) InFlight() int { return int(s.word.Load() & inFlight) }

// Busy reports whether the host should be kept although nobody asked for it
// lately.
func (s *State[R]) Busy() bool { return s.InFlight() > 0 }

// evict marks the state as gone, unless a request is in flight.
func (s *State[R]) evict() bool {
	w := s.word.Load()
	return w&inFlight == 0 && s.word.CompareAndSwap(w, w|evicted)
}

// forceEvict marks the state as gone; requests in flight keep using it.
func (s *State[R]) forceEvict() { s.word.Or(evicted) }
