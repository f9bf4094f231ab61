// Package throttle holds back requests after the server said "try later", and spreads
// them when they return.
//
//	throttle.go  the rules, and the methods for the owner of a throttle
//	hold.go      the hold of a scope, its bounds, and which of its requests goes
package throttle

import (
	"sync"
	"time"

	"github.com/aplomb-go/aplomb/internal/host/instant"
	"github.com/aplomb-go/aplomb/internal/host/queue"
)

// sweepEvery is the least time between two searches for holds that are over.
const sweepEvery = time.Second

// A Throttle shares the wait that a refused request is told with the other requests of its
// scope. A response that names a wait (RFC 9110 §10.2.3, RFC 6585 §4) holds every request
// of its scope, not only its own. Its owner knows that the requests of a scope share one
// limit. So a hold is strict: nothing of the scope is sent before the time that the server
// named, and no response ends the hold earlier.
//
// The return:
//
//   - Held requests come back in a ramp, in the order in which they came. A single request goes
//     first, and each response lets two more go. That doubles them per round trip, as in a slow
//     start (RFC 5681 §3.1). At least every 100 ms a request goes, so that a slow first request
//     does not hold up the others. At most 300 go in any 100 ms. Requests that come 10 s after the
//     hold or later go at once.
//   - A jitter of at most 1 s spreads the return of processes that were told the same time. It takes
//     at most half of the time to a request's deadline.
//   - If a hold lasts longer than a request waits (see [queue.Waiter]), the request goes before its
//     end.
//
// At most 256 scopes are kept for each host. If there are more, a hold for which nobody waits
// makes room, as [queue.Scopes] says. If requests wait for all of them, the new hold is not kept.
// So scopes never hold each other.
//
// The zero Throttle is ready. All methods are safe for concurrent use.
type Throttle struct {
	mu    sync.Mutex          // guards everything below and every waiter in a hold's queue
	holds queue.Scopes[*hold] // Quiet needs no lock
	sweep instant.Instant     // no search for holds that are over before this time
}

// Quiet reports whether there is no hold on the host. Then no other method needs
// to be called and no scope key is needed. Quiet is a single atomic load.
func (c *Throttle) Quiet() bool { return c.holds.Quiet() }

// Hold is told that a response asked to wait. It returns when the hold of the scope
// ends, jitter included. u in [0,1) draws the jitter. If the wait is zero or less, Hold does
// nothing.
func (c *Throttle) Hold(now instant.Instant, key uint64, wait time.Duration, conf Config, u float64) (open instant.Instant) {
	if wait <= 0 {
		return now
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.tidy(now)
	h := c.holds.All()[key]
	if h == nil {
		h = &hold{open: instant.At(-rampTime)} // over, as a ramp of an earlier hold would be
		if !c.holds.Add(key, h) {
			return now
		}
	}
	h.lengthen(now, min(wait, conf.Longest()), conf, u)
	return h.open
}

// Enter asks for a request to pass. With Wait the request joins the queue of its
// scope. It asks again with the same w, or calls Leave. A request with a nil w
// does not wait and joins no queue.
func (c *Throttle) Enter(now instant.Instant, key uint64, w *queue.Waiter) (a queue.Answer) {
	c.mu.Lock()
	c.tidy(now)
	var next *queue.Waiter
	switch h := c.holds.All()[key]; {
	case h == nil:
	case h.passes(now, w):
		h.queue.Leave(w)
		if next = h.queue.First(); h.forgotten(now) {
			c.holds.Drop(key)
		}
	default:
		a = h.wait(now, w)
	}
	c.mu.Unlock()
	next.Wake()
	return a
}

// Leave takes w out of its queue.
func (c *Throttle) Leave(w *queue.Waiter) {
	c.mu.Lock()
	next := w.Leave()
	c.mu.Unlock()
	next.Wake()
}

// Answered is told of each response with a final class while the host is not
// Quiet. sent is when its request was sent. It is zero if that is not known.
func (c *Throttle) Answered(now instant.Instant, key uint64, sent instant.Instant) {
	c.mu.Lock()
	var next *queue.Waiter
	if h := c.holds.All()[key]; h != nil && now >= h.open && sent >= h.named {
		h.credits += rampGrowth
		next = h.queue.First()
	}
	c.mu.Unlock()
	next.Wake()
}

// A State is a snapshot of the hold of a scope. It is zero if there is none.
type State struct {
	Named   instant.Instant // nothing is sent before this time, as the server named it
	Open    instant.Instant // that with jitter
	Waiting int
}

// State returns a snapshot.
func (c *Throttle) State(key uint64) State {
	c.mu.Lock()
	defer c.mu.Unlock()
	if h := c.holds.All()[key]; h != nil {
		return State{h.named, h.open, h.queue.Len()}
	}
	return State{}
}

// Holds returns how many scopes are held, and the end of the longest hold. It
// serves snapshots.
func (c *Throttle) Holds(now instant.Instant) (n int, until instant.Instant) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, h := range c.holds.All() {
		if h.open > now {
			n++
			until = max(until, h.open)
		}
	}
	return n, until
}

// Holding reports whether any scope is held.
func (c *Throttle) Holding(now instant.Instant) bool {
	n, _ := c.Holds(now)
	return n > 0
}

// tidy drops the holds that are over, once a second at most; the lock is held. Without
// tidy the hold of a scope that sends no further request would stay, and the host
// would never be Quiet.
func (c *Throttle) tidy(now instant.Instant) {
	if now < c.sweep {
		return
	}
	c.sweep = instant.After(now, sweepEvery)
	for key, h := range c.holds.All() {
		if h.forgotten(now) {
			c.holds.Drop(key)
		}
	}
}
