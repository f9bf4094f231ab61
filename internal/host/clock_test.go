package host

import (
	"container/heap"

	"github.com/aplomb-go/aplomb/internal/host/instant"
)

// A clock runs events in virtual time.
type clock struct {
	now    instant.Instant
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

// at plans an event; those of the same time happen in the order of planning.
func (c *clock) at(t instant.Instant, do func()) {
	c.seq++
	heap.Push(&c.events, event{max(t, c.now), c.seq, do})
}

// runTo runs the events that are planned until then.
func (c *clock) runTo(end instant.Instant) {
	for len(c.events) > 0 && c.events[0].at <= end {
		e := heap.Pop(&c.events).(event)
		c.now = e.at
		e.do()
	}
	c.now = max(c.now, end)
}
