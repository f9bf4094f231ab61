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
	Fleet  bool            // a fleet told of it
}

// News are the conditions of a host. The zero News is ready. All methods are safe for
// concurrent use.
type News struct {
	n atomic.Int32 // what lasts or was heard, to be read without the lock

	mu      sync.Mutex // guards everything below; nothing is told while it is held
	lasting map[Key]Record
	heard   map[Key]Record  // of a fleet, for the next request
	next    instant.Instant // the earliest Until
	status  int             // of the last attempt, if it failed
	err     error           // of the last attempt
	queue   []func()        // what is to be told, in order; a hook that blocks for ever loses the rest
	telling bool            // a goroutine is telling it
}

// Quiet reports whether nothing lasts and nothing was heard. It is a single atomic load.
func (n *News) Quiet() bool { return n == nil || n.n.Load() == 0 }

// Begin notes that a condition lasts. If that is new, it calls tell. All beginnings and ends
// are told in their order, one at a time. So tell may be called by a goroutine that tells
// something else at the moment, and Begin does not wait for that.
func (n *News) Begin(r Record, tell func()) {
	n.mu.Lock()
	if old, lasts := n.lasting[r.Key]; lasts {
		r.Since = old.Since
	} else if len(n.lasting) < most && len(n.queue) < most {
		n.queue = append(n.queue, tell)
	} else {
		n.mu.Unlock()
		return
	}
	if n.lasting == nil {
		n.lasting = make(map[Key]Record)
	}
	n.lasting[r.Key] = r
	n.next = min(n.next, r.Until)
	n.empty()
}

// Extend notes that a condition is not over before a time.
func (n *News) Extend(k Key, until instant.Instant) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if r, lasts := n.lasting[k]; lasts {
		r.Until = until
		n.lasting[k] = r
	}
}

// End notes that a condition is over. If it lasted until now, it calls tell as Begin does.
func (n *News) End(k Key, tell func()) {
	n.mu.Lock()
	if _, lasts := n.lasting[k]; lasts {
		delete(n.lasting, k)
		if len(n.queue) < 2*most { // so that there is room for the end of all that was told
			n.queue = append(n.queue, tell)
		}
	}
	n.empty()
}

// empty tells what is queued, and gives the lock back. A panic of whoever is told leaves the
// rest to the next call.
func (n *News) empty() {
	n.n.Store(int32(len(n.lasting) + len(n.heard)))
	defer n.mu.Unlock()
	if n.telling {
		return
	}
	n.telling = true
	defer func() { n.telling = false }()
	for len(n.queue) > 0 {
		tell := n.queue[0]
		n.queue[0] = nil
		n.queue = n.queue[1:]
		func() {
			n.mu.Unlock()
			defer n.mu.Lock()
			tell()
		}()
	}
}

// Outcome notes the outcome of an attempt, which may be the cause of what is found later. A
// success has neither a status nor an error.
func (n *News) Outcome(status int, err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.status, n.err = status, err
}

// Failure returns the last outcome.
func (n *News) Failure() (status int, err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.status, n.err
}

// Hear notes what a fleet says, for the next request.
func (n *News) Hear(r Record) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.heard == nil {
		n.heard = make(map[Key]Record)
	}
	if _, again := n.heard[r.Key]; again || len(n.heard) < most {
		n.heard[r.Key] = r
		n.n.Store(int32(len(n.lasting) + len(n.heard)))
	}
}

// Heard returns what a fleet said, once.
func (n *News) Heard() (all map[Key]Record) {
	n.mu.Lock()
	defer n.mu.Unlock()
	all, n.heard = n.heard, nil
	n.n.Store(int32(len(n.lasting)))
	return all
}

// Lasts returns a condition, and whether it lasts.
func (n *News) Lasts(k Key) (r Record, ok bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	r, ok = n.lasting[k]
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
