// Package hosttest has a clock for the tests of the machines of a host.
package hosttest

import (
	"container/heap"

	"github.com/aplomb-go/aplomb/internal/host/instant"
	"github.com/aplomb-go/aplomb/internal/host/queue"
)

// Ms is a millisecond, and Sec is a second, of a point in time or of a length of time.
const (
	Ms  = 1_000_000
	Sec = 1_000_000_000
)

// Woken reports whether w was woken since it was asked last.
func Woken(w *queue.Waiter) bool {
	select {
	case <-w.Ready:
		return true
	default:
		return false
	}
}

// A Clock runs events in virtual time.
type Clock struct {
	Now    instant.Instant
	events eventQueue
	seq    int
}

type event struct {
	at  instant.Instant
	seq int
	do  func()
}

type eventQueue []event

func (q eventQueue) Len() int { return len(q) }
func (q eventQueue) Less(i, j int) bool {
	return q[i].at < q[j].at || q[i].at == q[j].at && q[i].seq < q[j].seq
}
func (q eventQueue) Swap(i, j int) { q[i], q[j] = q[j], q[i] }
func (q *eventQueue) Push(e any)   { *q = append(*q, e.(event)) }
func (q *eventQueue) Pop() any {
	old := *q
	e := old[len(old)-1]
	*q = old[:len(old)-1]
	return e
}

// At plans an event; those of the same time happen in the order of planning.
func (c *Clock) At(t instant.Instant, do func()) {
	c.seq++
	heap.Push(&c.events, event{max(t, c.Now), c.seq, do})
}

// RunTo runs the events that are planned until then.
func (c *Clock) RunTo(end instant.Instant) {
	for len(c.events) > 0 && c.events[0].at <= end {
		e := heap.Pop(&c.events).(event)
		c.Now = e.at
		e.do()
	}
	c.Now = max(c.Now, end)
}
