// Package news remembers which conditions of a host last, so that the beginning and the
// end of each are told once.
package news

import (
	"sync"
	"sync/atomic"

	"github.com/aplomb-go/aplomb/internal/host/instant"
	"github.com/aplomb-go/aplomb/internal/host/queue"
)

// A Key names a condition. Its owner chooses the kinds.
type Key struct {
	Kind  uint8
	Scope uint64
}

// most is how many conditions are kept: as many as a host has scopes, and some more.
const most = 2*queue.MaxScopes + 8

// A Record says since when and until when a condition lasts.
type Record struct {
	Key
	Since  instant.Instant
	Until  instant.Instant // not over before this time
	Status int             // of the response that caused it; 0: none
	Room   int             // how many requests go
}

// News are the conditions of a host. The zero News is ready. All methods are safe for
// concurrent use.
type News struct {
	n atomic.Int32 // what lasts or is to be told, to be read without the lock

	mu      sync.Mutex // guards everything below
	lasting map[Key]Record
	heard   []Record        // of a fleet, not told yet
	next    instant.Instant // the earliest Until
	status  int             // of the last failure
	err     error           // of the last failure
}

// Quiet reports whether nothing lasts. It is a single atomic load.
func (n *News) Quiet() bool { return n == nil || n.n.Load() == 0 }

// Begin notes that a condition lasts, and reports whether that is new.
func (n *News) Begin(r Record) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.begin(r)
}

// Failed notes the last failure, which may be the cause of what is found later.
func (n *News) Failed(status int, err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.status, n.err = status, err
}

// Failure returns the last failure.
func (n *News) Failure() (status int, err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.status, n.err
}

// Hear is Begin for the word of a fleet, which the next request tells.
func (n *News) Hear(r Record) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.begin(r) {
		n.heard = append(n.heard, r)
	}
}

// Heard returns what the fleet said, once.
func (n *News) Heard() (all []Record) {
	n.mu.Lock()
	defer n.mu.Unlock()
	all, n.heard = n.heard, nil
	return all
}

// Lasts reports whether a condition lasts.
func (n *News) Lasts(k Key) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	_, ok := n.lasting[k]
	return ok
}

// End notes that a condition is over, and reports whether it lasted until now.
func (n *News) End(k Key) (r Record, ok bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if r, ok = n.lasting[k]; ok {
		delete(n.lasting, k)
		n.n.Store(int32(len(n.lasting)))
	}
	return r, ok
}

// Due returns the conditions that may be over: own, and those whose time has come.
func (n *News) Due(now instant.Instant, own Key) (all []Record) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if now < n.next {
		if r, ok := n.lasting[own]; ok {
			all = append(all, r)
		}
		return all
	}
	n.next = instant.Never
	for k, r := range n.lasting {
		if k == own || now >= r.Until {
			all = append(all, r)
		}
		n.next = min(n.next, r.Until)
	}
	return all
}

// begin is Begin; the lock is held.
func (n *News) begin(r Record) bool {
	old, lasts := n.lasting[r.Key]
	switch {
	case lasts:
		r.Since = old.Since
	case len(n.lasting) >= most:
		return false
	}
	if n.lasting == nil {
		n.lasting = make(map[Key]Record)
	}
	n.lasting[r.Key] = r
	n.next = min(n.next, r.Until)
	n.n.Store(int32(len(n.lasting)))
	return !lasts
}
