// Package queue has the queues in which requests wait, and the answers that the machines
// of a host give them. It neither sleeps nor starts goroutines.
//
// # Locks
//
// Each queue belongs to a machine, and the lock of the machine guards it and the waiters
// in it. If a method of a machine needs the lock, its comment ends with: the lock is held.
// No machine holds a lock while it wakes a waiter.
//
// Locks are taken in this order, and no other two are held at once:
//
//	the lock of a concurrency limit, then those of its rate
//	the lock of the queue of a rate (turns), then that of the rate (mu)
package queue

import (
	"math"
	"slices"
	"time"

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

// Leave takes w out of the queue that it is in, and returns the waiter to wake next.
func (w *Waiter) Leave() (next *Waiter) { return w.in.Leave(w) }

// A Pair is two waiters to wake after an event. Each may be nil.
type Pair [2]*Waiter

// Wake wakes both waiters.
func (p Pair) Wake() {
	p[0].Wake()
	if p[1] != p[0] {
		p[1].Wake()
	}
}

// A look at all scopes finds so many spares at once, which count for spareTime.
const spares, spareTime = 32, 10 * time.Millisecond

// Spares are the scopes that a machine misses least. A look at all scopes finds some at once, so that
// a new scope costs the same however many there are. The zero Spares is ready.
type Spares struct {
	list  []Worth // missed least first
	until instant.Instant
}

// A Worth says how much a scope is missed: first by its class, and then by when it ends.
type Worth struct {
	Class int
	End   instant.Instant
	key   uint64
}

func (w Worth) less(than Worth) bool {
	return w.Class < than.Class || w.Class == than.Class && w.End < than.End
}

// Spare returns the scope that is missed least, if its class is below a bound. There must be scopes.
func Spare[V any](s *Spares, now instant.Instant, scopes map[uint64]V, below int, worth func(V) Worth) (key uint64, found bool) {
	for {
		if now >= s.until || len(s.list) == 0 {
			s.list, s.until = s.list[:0], instant.After(now, spareTime)
			for key, v := range scopes {
				s.add(key, worth(v), spares)
			}
		}
		first, same := s.list[0], false
		if v, known := scopes[first.key]; known {
			w := worth(v)
			if same = !first.less(w); same && w.Class >= below {
				return 0, false
			}
		}
		if s.list = slices.Delete(s.list, 0, 1); same {
			return first.key, true
		}
	}
}

// Note notes how much a scope is missed that is new, or has changed.
func (s *Spares) Note(key uint64, w Worth) {
	s.list = slices.DeleteFunc(s.list, func(x Worth) bool { return x.key == key })
	s.add(key, w, len(s.list)) // nobody knows which comes after the last
}

// add adds a scope to the list, if its place is below a bound.
func (s *Spares) add(key uint64, w Worth, below int) {
	at := len(s.list)
	for at > 0 && w.less(s.list[at-1]) {
		at--
	}
	if w.key = key; at < below {
		s.list = slices.Insert(s.list[:min(len(s.list), spares-1)], at, w)
	}
}
