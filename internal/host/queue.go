// How does a request wait its turn when the machines neither sleep nor start
// anything?

package host

import (
	"math"
	"time"
)

// Never is a time that does not come: who is told to ask again then waits for
// a wake-up only.
const Never = time.Duration(math.MaxInt64)

// A Verb is what a machine tells a request to do.
type Verb uint8

const (
	// Go lets the request pass; what it takes up is counted from now on.
	Go Verb = iota
	// Wait makes it ask again later, with the same Waiter: at Answer.Ask, or
	// when it is woken, whichever comes first.
	Wait
	// Refuse turns it away; Answer.Until says until when that is so.
	Refuse
)

// An Answer is what a machine says to a request. Times are since the owner's
// epoch.
type Answer struct {
	Verb Verb
	// Ask is, with Wait, when to ask again unless woken before.
	Ask time.Duration
	// Until is, with Wait, the earliest time at which the request can pass as
	// far as is known, so that one with a nearer deadline can give up at once;
	// with Refuse the time that the server named. Zero where nothing is known.
	Until time.Duration
	// Mark is, with Go, the number under which a Pacing wants to hear of the
	// request's answer.
	Mark uint64
	// Open is, with Wait, when a hold ends with its jitter, zero where nothing
	// is held: the time to tell to whoever gives up and comes back.
	Open time.Duration
}

// A Waiter is a place in a line. It belongs to one request, which stands in one
// line at a time and asks again when it is told or woken; a wake-up promises
// nothing, so a spare one is harmless. Whoever stops waiting calls Leave on the
// machine that it waits at: a place that is neither used nor left makes those
// behind it wait.
//
// Exactly one of Ready and Wake is set, before the first use and not changed
// afterwards. No machine holds a lock while it wakes.
type Waiter struct {
	// Ready, of capacity one, receives when it is time to ask again.
	Ready chan struct{}
	// Wake is called instead, for drivers with an event queue of their own: it
	// notes that this waiter has to ask, and does not itself ask. It may be one
	// function for all waiters, which are told apart by ID.
	Wake func(*Waiter)
	// ID is for the use of Wake.
	ID int
	// By is the time by which the request has to be sent, zero where there is
	// none. It is set before the first use.
	By time.Duration

	// What follows is guarded by the lock of the machine that owns the line.
	in         *queue
	prev, next *Waiter
	came       uint64        // where w stood in the order of arrival
	told       time.Duration // the hold's end that w knows of
}

// NewWaiter returns a waiter that is woken through Ready.
func NewWaiter() *Waiter { return &Waiter{Ready: make(chan struct{}, 1)} }

// wake tells w to ask again. A nil w is nobody.
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

// A line is a queue of waiters in the order of their arrival, from the middle
// of which one can step out in constant time. Only its first waiter is ever
// told a time or woken, and who passes wakes the next: so a hundred waiters
// cost one timer, and nobody is let go twice for one place.
type queue struct {
	first, last *Waiter
	n           int
	joined      uint64 // how many ever
}

// join puts w at the end, unless it stands in the line already.
func (q *queue) join(w *Waiter) {
	if w.in == q {
		return
	}
	q.joined++
	w.came = q.joined
	q.insert(w, q.last)
}

// rejoin puts w, which has just passed, back where it stood: at the front, but
// behind one that came before it and is back already.
func (q *queue) rejoin(w *Waiter) {
	if w.in == q {
		return
	}
	var prev *Waiter
	for next := q.first; next != nil && next.came < w.came; next = next.next {
		prev = next
	}
	q.insert(w, prev)
}

// insert puts w behind prev, nil for the front.
func (q *queue) insert(w, prev *Waiter) {
	w.in, w.prev, w.next = q, prev, q.first
	if prev != nil {
		w.next = prev.next
		prev.next = w
	} else {
		q.first = w
	}
	if w.next != nil {
		w.next.prev = w
	} else {
		q.last = w
	}
	q.n++
}

// leave takes w out. Where it stood first, it returns who does so now and has to
// be woken, unless w has passed and the machine says who.
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

// turn reports whether it is the turn of w, which may be nil or a newcomer:
// whether nobody stands before it.
func (q *queue) turn(w *Waiter) bool { return q.first == nil || q.first == w }

// after returns now + d, or [Never] where that overflows. A negative d is zero.
func after(now, d time.Duration) time.Duration {
	if d <= 0 {
		return now
	}
	if now > Never-d {
		return Never
	}
	return now + d
}

// disband empties a line and returns those who stood in it, to be woken when
// the lock is released.
func (q *queue) disband() (all []*Waiter) {
	for q.first != nil {
		all = append(all, q.first)
		q.leave(q.first)
	}
	return all
}
