// Package throttle holds back requests after the server said "try later", and spreads
// them when they return.
//
//	throttle.go  the rules, and the methods for the owner of a throttle
//	hold.go      the hold of a scope, its bounds, and which of its requests goes
package throttle

import (
	"sync"
	"sync/atomic"
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
// makes room. First choice is a hold that is over, and then the hold that ends first. If requests
// wait for all of them, the new hold is not kept. So scopes never hold each other.
//
// The zero Throttle is ready. All methods are safe for concurrent use.
type Throttle struct {
	n    atomic.Int32  // the number of holds, to be read without the lock
	told atomic.Uint32 // how many refusals there were, to be read without the lock

	mu    sync.Mutex       // guards everything below and every waiter in a hold's queue
	holds map[uint64]*hold // by scope key
	kept  *kept            // nil: there is no hold
}

// kept is the state of a throttle while there are holds.
type kept struct {
	spares queue.Spares    // the holds that make room for others
	sweep  instant.Instant // no search for holds that are over before this time
}

// Quiet reports whether there is no hold on the host. Then no other method needs
// to be called and no scope key is needed. Quiet is a single atomic load.
func (c *Throttle) Quiet() bool { return c.n.Load() == 0 }

// Hold is told that a response asked to wait. It returns when the hold of the scope
// ends, jitter included. u in [0,1) draws the jitter. If the wait is zero or less, Hold does
// nothing.
func (c *Throttle) Hold(now instant.Instant, key uint64, wait time.Duration, conf Config, u float64) (open instant.Instant) {
	if wait <= 0 {
		return now
	}
	c.mu.Lock()
	h, evicted := c.holdFor(now, key)
	open = now
	if h != nil {
		end := instant.After(now, min(wait, conf.Longest()))
		h.begin(now, end, conf, u)
		h.named = max(h.named, end)
		h.refusal = c.told.Add(1)
		h.reopen()
		c.kept.spares.Note(key, h.worth(now))
		open = h.open
	}
	c.mu.Unlock()
	evicted.Wake()
	return open
}

// Enter asks for a request to pass. With Wait the request joins the queue of its
// scope. It asks again with the same w, or calls Leave. A request with a nil w
// does not wait and joins no queue.
func (c *Throttle) Enter(now instant.Instant, key uint64, w *queue.Waiter) (a queue.Answer) {
	c.mu.Lock()
	c.tidy(now)
	h := c.holds[key]
	var moved, next *queue.Waiter
	if h == nil || !h.queue.Has(w) {
		moved = c.leave(w) // its hold was evicted
	}
	switch {
	case h == nil:
	case h.passes(now, w):
		h.queue.Leave(w)
		if next = h.queue.First(); h.forgotten(now) {
			c.drop(key)
		}
	default:
		a = h.wait(now, w)
	}
	c.mu.Unlock()
	queue.Pair{moved, next}.Wake()
	return a
}

// Leave takes w out of its queue.
func (c *Throttle) Leave(w *queue.Waiter) {
	c.mu.Lock()
	next := c.leave(w)
	c.mu.Unlock()
	next.Wake()
}

// Answered is told of each response with a final class while the host is not
// Quiet. sent is when its request was sent. It is zero if that is not known.
func (c *Throttle) Answered(now instant.Instant, key uint64, sent instant.Instant) {
	c.mu.Lock()
	var next *queue.Waiter
	if h := c.holds[key]; h != nil && now >= h.open && sent >= h.named {
		h.credits += rampGrowth
		next = h.queue.First()
	}
	c.mu.Unlock()
	next.Wake()
}

// Refusals returns how many refusals there were. It is a single atomic load.
func (c *Throttle) Refusals() uint32 { return c.told.Load() }

// HeldSince reports whether a scope is held by a refusal that is not among those that were
// known to a request when it asked to pass (see Refusals).
func (c *Throttle) HeldSince(now instant.Instant, key uint64, known uint32) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	h := c.holds[key]
	return h != nil && now < h.named && h.refusal > known
}

// Named returns the time before which nothing of a scope is sent, as the server
// named it and without jitter. It is zero if that time is over.
func (c *Throttle) Named(now instant.Instant, key uint64) instant.Instant {
	c.mu.Lock()
	defer c.mu.Unlock()
	if h := c.holds[key]; h != nil && now < h.named {
		return h.named
	}
	return 0
}

// Held returns until when a scope is held, jitter included. It is zero if nothing
// is held. Held changes nothing.
func (c *Throttle) Held(now instant.Instant, key uint64) (until instant.Instant) {
	if c.Quiet() {
		return 0
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if h := c.holds[key]; h != nil && now < h.open {
		return h.open
	}
	return 0
}

// Waiting returns how many requests of a scope wait.
func (c *Throttle) Waiting(key uint64) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	if h := c.holds[key]; h != nil {
		return h.queue.Len()
	}
	return 0
}

// Holds returns how many scopes are held, and the end of the longest hold. It
// serves snapshots.
func (c *Throttle) Holds(now instant.Instant) (n int, until instant.Instant) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, h := range c.holds {
		if h.open > now {
			n++
			until = max(until, h.open)
		}
	}
	return n, until
}

// Holding reports whether any scope is held.
func (c *Throttle) Holding(now instant.Instant) bool {
	if c.Quiet() {
		return false
	}
	n, _ := c.Holds(now)
	return n > 0
}

// leave takes w out of its queue and returns the waiter to wake next; the lock is held.
func (c *Throttle) leave(w *queue.Waiter) (next *queue.Waiter) {
	if !w.Waits() {
		return nil
	}
	return w.Leave()
}

// holdFor returns the hold of a scope, and makes it if there is none; the lock is held.
// If another hold had to go for it, evicted is the first waiter of that hold. It
// goes and wakes the next. If there is no room, holdFor returns nil.
func (c *Throttle) holdFor(now instant.Instant, key uint64) (h *hold, evicted *queue.Waiter) {
	c.tidy(now)
	if h = c.holds[key]; h != nil {
		return h, nil
	}
	if len(c.holds) >= queue.MaxScopes {
		victim, found := queue.Spare(&c.kept.spares, now, c.holds, waitedFor, func(h *hold) queue.Worth { return h.worth(now) })
		if !found {
			return nil, nil
		}
		evicted = c.holds[victim].queue.First()
		c.drop(victim)
	}
	if c.holds == nil {
		c.holds, c.kept = make(map[uint64]*hold), new(kept)
	}
	h = &hold{open: instant.At(-rampTime)} // over, as a ramp of an earlier hold would be
	c.holds[key] = h
	c.n.Store(int32(len(c.holds)))
	return h, evicted
}

// tidy drops the holds that are over, once a second at most; the lock is held. Without
// tidy the hold of a scope that sends no further request would stay, and the host
// would never be Quiet.
func (c *Throttle) tidy(now instant.Instant) {
	if c.Quiet() || now < c.kept.sweep {
		return
	}
	c.kept.sweep = instant.After(now, sweepEvery)
	for key, h := range c.holds {
		if h.forgotten(now) {
			c.drop(key)
		}
	}
}

// drop forgets a hold; the lock is held.
func (c *Throttle) drop(key uint64) {
	delete(c.holds, key)
	if len(c.holds) == 0 {
		c.holds, c.kept = nil, nil
	}
	c.n.Store(int32(len(c.holds)))
}
