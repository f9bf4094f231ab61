// Requests wait in queues for the machines of this package. The machines
// themselves neither sleep nor start goroutines.

package host

import (
	"github.com/aplomb-go/aplomb/internal/host/instant"
)

// A Verb is a machine's instruction to a request.
type Verb uint8

const (
	// Go lets the request pass. Its slot or token counts from now on.
	Go Verb = iota
	// Wait makes the request ask again later with the same Waiter. The request
	// asks at Answer.Ask or when it is woken, whichever comes first.
	Wait
	// Refuse turns the request away. Answer.Until is when that ends.
	Refuse
)

// An Answer is a machine's answer to a request that asks to pass. Times count
// from the epoch of the machine's owner.
type Answer struct {
	Verb Verb
	// Ask is, with Wait, when to ask again if there is no wake-up before.
	Ask instant.Instant
	// Until is, with Wait, the earliest time at which the request can pass as
	// far as is known. A request with a nearer deadline can give up at once. With
	// Refuse it is the time that the server named. Zero means unknown.
	Until instant.Instant
	// Mark is, with Go, the number under which a Pacing wants to hear of the
	// response.
	Mark uint64
	// Open is, with Wait, when a hold ends, jitter included. A caller that gives
	// up is told this time to come back at. Zero means that nothing is held.
	Open instant.Instant
	// ForRate says, with Wait, that a gate has a free slot, so that the request
	// or those before it wait for the client's own rate.
	ForRate bool
	// Probe says, with Go, that the request is a probe of a gate of a fleet. Its permit
	// has to be renewed while it is under way (see [Gate.Renew]).
	Probe bool
	// NoToken says, with Wait, that the queue of a gate waits for a token of the
	// rate, whether there is a free slot or not.
	NoToken bool
}

// A Waiter is a request in a queue. A request is in a single queue at a time and
// asks again when it is told to or woken. A wake-up promises nothing, so a
// needless wake-up is harmless. A request that stops waiting must call Leave on
// the machine, because a waiter that neither asks nor leaves blocks all behind
// it.
//
// Exactly one of Ready and Wake is set before the first use and not changed
// afterwards. No machine holds a lock while it wakes a waiter.
type Waiter struct {
	// Ready has capacity 1. It receives when it is time to ask again.
	Ready chan struct{}
	// Wake is called instead of a send on Ready, for drivers with an event queue
	// of their own. Wake notes that this waiter has to ask and does not ask
	// itself. All waiters may share a function, which tells them apart by ID.
	Wake func(*Waiter)
	// ID is for the use of Wake.
	ID int
	// By is the time by which the request has to be sent. Zero means no such
	// time. By is set before the first use.
	By instant.Instant
	// From is when the request began to wait for the limits. It is set before the
	// first use.
	From instant.Instant

	// The lock of the machine that owns the queue guards these fields.
	in         *queue
	prev, next *Waiter
	told       instant.Instant // when a cooldown told w to ask again
	place      int             // the index in a byDeadline
}

// NewWaiter returns a waiter that is woken through Ready.
func NewWaiter() *Waiter { return &Waiter{Ready: make(chan struct{}, 1)} }

// half returns when half of the time of w is over. w has a deadline.
func (w *Waiter) half() instant.Instant { return w.From.Add(w.By.Sub(w.From) / 2) }

// wake tells w to ask again. If w is nil, wake does nothing.
func (w *Waiter) wake() {
	switch {
	case w == nil:
	case w.Wake != nil:
		w.Wake(w)
	default:
		select {
		case w.Ready <- struct{}{}:
		default: // a wake-up is pending already
		}
	}
}

// A queue holds waiters in the order of their arrival. A waiter can leave from
// the middle in constant time. Only the first waiter is told a time or woken,
// and a waiter that passes wakes the next. So a hundred waiters cost a single timer,
// and a free slot lets a single waiter go.
type queue struct {
	first, last *Waiter
	n           int
}

// join puts w at the end, unless w is in the queue already.
func (q *queue) join(w *Waiter) {
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
}

// leave takes w out. If w was first, leave returns the new first waiter. The
// caller wakes that waiter, unless w has passed and the machine knows better.
func (q *queue) leave(w *Waiter) (next *Waiter) {
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
	return next
}

// turn reports whether no other waiter is before w. A nil w or a newcomer comes
// after all waiters.
func (q *queue) turn(w *Waiter) bool { return q.first == nil || q.first == w }

// A byDeadline is a heap of waiters that have a deadline. The nearest comes first.
type byDeadline []*Waiter

func (h byDeadline) Len() int           { return len(h) }
func (h byDeadline) Less(i, j int) bool { return h[i].By < h[j].By }
func (h byDeadline) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].place, h[j].place = i, j
}

// Push and Pop are for package heap.
func (h *byDeadline) Push(w any) {
	w.(*Waiter).place = len(*h)
	*h = append(*h, w.(*Waiter))
}

func (h *byDeadline) Pop() any {
	last := len(*h) - 1
	w := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	return w
}

// A pair is two waiters to wake after an event. Each may be nil.
type pair [2]*Waiter

func (p pair) wake() {
	p[0].wake()
	if p[1] != p[0] {
		p[1].wake()
	}
}
