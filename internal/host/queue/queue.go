// Package queue has the queues in which requests wait, and the answers that the machines
// of a host give them. It neither sleeps nor starts goroutines.
//
// # Locks
//
// Each queue belongs to a machine, and the lock of the machine guards it and the waiters
// in it. If a method of a machine needs the lock, its comment ends with: the lock is held.
// No machine holds a lock while it wakes a waiter.
//
// The lock of a concurrency limit is taken before that of its rate. No other two are held at once.
package queue

import (
	"math"
	"sync/atomic"

	"github.com/aplomb-go/aplomb/internal/host/instant"
)

// MaxScopes bounds the scopes for which a machine keeps something per host. If the
// credentials change with every request, each response brings a new scope.
const MaxScopes = 256

// A Verb is a machine's instruction to a request.
type Verb uint8

const (
	// Go lets the request pass. Its slot or token counts from now on.
	Go Verb = iota
	// Wait makes the request ask again later with the same Waiter. The request
	// asks at Answer.Ask or when it is woken, whichever comes first.
	Wait
)

// An Answer is a machine's answer to a request that asks to pass. Times count
// from the epoch of the machine's owner.
type Answer struct {
	Verb Verb
	// Ask is, with Wait, when to ask again if there is no wake-up before.
	Ask instant.Instant
	// Until is, with Wait, the earliest time at which the request can pass as
	// far as is known. A request with a nearer deadline can give up at once. Zero means
	// unknown.
	Until instant.Instant
	// Mark and Spent are, with Go, the numbers under which a pacing wants to hear of the
	// response.
	Mark, Spent uint64
	// Open is, with Wait, when a hold ends, jitter included. A caller that gives
	// up is told this time to come back at. Zero means that nothing is held.
	Open instant.Instant
	// Room says, with Wait, that a concurrency limit has a free slot, so that the request
	// or those before it wait for their turn or for the client's own rate.
	Room bool
	// Down says, with Wait, that the host is down.
	Down bool
	// NoToken says, with Wait, that the queue of a concurrency limit waits for a token of the
	// rate, whether there is a free slot or not, or that a retry waits for a token of the budget.
	NoToken bool
}

// A Waiter is a request in a queue. A request is in a single queue at a time and
// asks again when it is told to or woken. A wake-up promises nothing, so a
// needless wake-up is harmless. A request that stops waiting must call Leave on
// the machine, because a waiter that neither asks nor leaves blocks all behind
// it. A request that has a cost has a Waiter from its first question on, although it may not
// have to wait.
//
// Exactly one of Ready and Woken is set before the first use and not changed
// afterwards. No machine holds a lock while it wakes a waiter.
type Waiter struct {
	// Ready has capacity 1. It receives when it is time to ask again.
	Ready chan struct{}
	// Woken is called instead of a send on Ready, for drivers with an event queue
	// of their own. Woken notes that this waiter has to ask and does not ask
	// itself. All waiters may share a function, which tells them apart by ID.
	Woken func(*Waiter)
	// ID is for the use of Woken.
	ID int
	// By is the time by which the request has to be sent. Zero means no such
	// time. By is set before the first use.
	By instant.Instant
	// From is when the request began to wait for the limits. It is set before the
	// first use.
	From instant.Instant
	// Until is how long the request waits for the holds of others. Zero means no bound. It is
	// set before the first use.
	Until instant.Instant
	// Cost is how many tokens of a rate the request needs, and how much it takes from a
	// quota that does not count requests. Below 1 counts as 1. It is set before the first use.
	Cost int

	// The lock of the machine that owns the queue guards these fields.
	in         *Queue
	prev, next *Waiter
}

// NewWaiter returns a waiter that is woken through Ready.
func NewWaiter() *Waiter { return &Waiter{Ready: make(chan struct{}, 1)} }

// Costs returns the cost of w. A request without a waiter costs 1.
func (w *Waiter) Costs() int {
	if w == nil {
		return 1
	}
	return max(1, w.Cost)
}

// Wake tells w to ask again. If w is nil, Wake does nothing.
func (w *Waiter) Wake() {
	switch {
	case w == nil:
	case w.Woken != nil:
		w.Woken(w)
	default:
		select {
		case w.Ready <- struct{}{}:
		default: // a wake-up is pending already
		}
	}
}

// A Queue holds waiters in the order of their arrival. A waiter can leave from the middle
// in constant time. Only the first waiter is told a time or woken, and a waiter that passes
// wakes the next. So a hundred waiters cost a single timer, and a free slot lets a single
// waiter go.
type Queue struct {
	first, last *Waiter
	n           int
	cost        int64 // of all of them
}

// Join puts w at the end, unless w is in the queue already.
func (q *Queue) Join(w *Waiter) {
	if w.in == q {
		return
	}
	w.in, w.prev, w.next = q, q.last, nil
	if q.last != nil {
		q.last.next = w
	} else {
		q.first = w
	}
	q.last = w
	q.n++
	q.cost += int64(w.Costs())
}

// Leave takes w out. If w was first, Leave returns the new first waiter. The
// caller wakes that waiter, unless w has passed and the machine knows better.
func (q *Queue) Leave(w *Waiter) (next *Waiter) {
	if w == nil || w.in != q {
		return nil
	}
	if w.prev == nil {
		q.first, next = w.next, w.next
	} else {
		w.prev.next = w.next
	}
	if w.next == nil {
		q.last = w.prev
	} else {
		w.next.prev = w.prev
	}
	w.in, w.prev, w.next = nil, nil, nil
	q.n--
	q.cost -= int64(w.Costs())
	return next
}

// Turn reports whether no other waiter is before w. A newcomer, which may be nil, comes
// after all waiters.
func (q *Queue) Turn(w *Waiter) bool { return q.first == nil || q.first == w }

// Len returns the number of waiters.
func (q *Queue) Len() int { return q.n }

// Cost returns the cost of all waiters.
func (q *Queue) Cost() int { return int(min(q.cost, math.MaxInt32)) }

// First returns the first waiter, or nil if there is none.
func (q *Queue) First() *Waiter { return q.first }

// Has reports whether w is in the queue.
func (q *Queue) Has(w *Waiter) bool { return w != nil && w.in == q }

// Waits reports whether w is in any queue.
func (w *Waiter) Waits() bool { return w != nil && w.in != nil }

// Leave takes w out of the queue that it is in, if any, and returns the waiter to wake next.
func (w *Waiter) Leave() (next *Waiter) {
	if !w.Waits() {
		return nil
	}
	return w.in.Leave(w)
}

// A Scope is what a machine keeps for a scope.
type Scope interface {
	// Spare returns when the scope ends or ended, and whether it can make room for another: nobody waits in it.
	Spare() (end instant.Instant, ok bool)
}

// Scopes are the scopes of a machine, [MaxScopes] at most. The lock of the machine guards all but Quiet. The zero Scopes is
// ready.
type Scopes[S Scope] struct {
	n   atomic.Int32 // len(all), to be read without the lock
	all map[uint64]S
}

// Quiet reports whether there are no scopes. It is a single atomic load.
func (s *Scopes[S]) Quiet() bool { return s.n.Load() == 0 }

// All returns the scopes by their keys. Only the methods change the map.
func (s *Scopes[S]) All() map[uint64]S { return s.all }

// Add adds a scope, and reports whether there was room. If there are too many, another makes room. It is the one of a few, taken
// at random, that ends first. So a new scope costs the same however many there are.
func (s *Scopes[S]) Add(key uint64, v S) bool {
	if len(s.all) >= MaxScopes && !s.makeRoom() {
		return false
	}
	if s.all == nil {
		s.all = make(map[uint64]S)
	}
	s.all[key] = v
	s.n.Store(int32(len(s.all)))
	return true
}

// looks is at how many scopes at least makeRoom looks.
const looks = 16

// makeRoom drops a scope that can be spared, and reports whether there was one.
func (s *Scopes[S]) makeRoom() (found bool) {
	least, first, seen := uint64(0), instant.Never, 0
	for key, v := range s.all { // in random order
		if end, ok := v.Spare(); ok && (!found || end < first) {
			least, first, found = key, end, true
		}
		if seen++; found && seen >= looks {
			break
		}
	}
	if found {
		s.Drop(least)
	}
	return found
}

// Drop forgets a scope.
func (s *Scopes[S]) Drop(key uint64) {
	if delete(s.all, key); len(s.all) == 0 {
		s.all = nil
	}
	s.n.Store(int32(len(s.all)))
}
