// Package hosttest has a clock for the tests of the machines of a host.
package hosttest

import (
	"slices"
	"sort"

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
	events []event // in the order in which they happen
}

type event struct {
	at instant.Instant
	do func()
}

// At plans an event; those of the same time happen in the order of planning.
func (c *Clock) At(t instant.Instant, do func()) {
	t = max(t, c.Now)
	i := sort.Search(len(c.events), func(i int) bool { return c.events[i].at > t })
	c.events = slices.Insert(c.events, i, event{t, do})
}

// RunTo runs the events that are planned until then.
func (c *Clock) RunTo(end instant.Instant) {
	for len(c.events) > 0 && c.events[0].at <= end {
		e := c.events[0]
		c.events = c.events[1:]
		c.Now = e.at
		e.do()
	}
	c.Now = max(c.Now, end)
}
