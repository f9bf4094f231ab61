// Package cooldown holds back requests after the server said "try later", and spreads
// them when they return.
//
//	cooldown.go  the rules, and what the owner of a cooldown calls
//	config.go    the bounds of a hold
//	hold.go      the hold of a scope
//	turn.go      which request of a scope goes
package cooldown

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/aplomb-go/aplomb/internal/host/instant"
	"github.com/aplomb-go/aplomb/internal/host/queue"
)

// sweepEvery is the least time between two searches for holds that are over.
const sweepEvery = time.Second

// A Cooldown shares what a request learns from a 429 or a 503 with the other
// requests to the host. A response that names a wait (RFC 9110 §10.2.3, RFC 6585
// §4) holds every request of its scope, not only its own. A scope is the
// requests that share credentials, or the same value of the rule's Scope.
//
// The return:
//
//   - Held requests come back in a ramp, in the order in which they came. A single request goes
//     first, and each response lets two more go. That doubles them per round trip, as in a slow
//     start (RFC 5681 §3.1). At least every 100 ms a request goes, so that a slow first request
//     does not hold up the others. 10 s after the hold the ramp is over.
//   - A jitter of at most 1 s spreads the return of processes that were told the same time. In a
//     fleet it is 20 ms for each member, if that is more, and never longer than the wait or the
//     longest hold. It takes at most half of the time to a request's deadline. If a request comes
//     for the first time after the time that the server named, it goes at once.
//
// When a hold ends early:
//
//   - A hold only ever gets longer, except that a success can end it.
//   - A success that arrives after a 503 ends the hold of that 503, whenever its request was
//     sent, because the 503 was about one request. A server that sheds load serves many requests
//     and refuses some. Nothing is sent during a hold, so if only requests that were sent later
//     counted, each refusal would hold the whole scope. The request that got the 503 still waits
//     as long as it was told.
//   - The hold of a 429 ends early only if the refusals are not in a row. In a fleet the other
//     members then come back one after the other, 20 ms apart on average and within 5 s.
//
// Scattered refusals. Some servers refuse requests at random, although no quota is used up. A
// single refusal among many successes says little:
//
//   - Each success adds 1 to a count, the doubt, up to 12, and each refusal takes 2 away. A scope
//     that had no hold lately begins with the requests that the host served since the last
//     refusal. While the count is at least 2, the success of a request that was sent later than
//     the refused requests ends the hold.
//   - The requests in flight have as much time for their responses as the refused request had, or
//     100 ms if that is not known. Then the first request in the queue is sent as a probe. If the
//     probe is refused and the count is still at least 2, or if it has no response after a second,
//     a second probe follows. There are two probes at most in a run of holds. So a quota that
//     really is used up sees at most two requests too many. While a success may still end a hold,
//     no request is refused because of the hold.
//
// What only a fleet was told. A hold that another process was told may be about that process:
//
//   - A process with successes of its own halves its count, to 2 at least, and sends one probe, at
//     a random time. Few processes are early, so the first can tell the others what it got. The
//     time is 0.1 s after the news at the soonest and 0.5 s at the latest, up to 20 processes. In
//     a large fleet the latest is 5 s later, but at most half of the hold.
//   - If the probe is refused, the others wait for four times as long as the hold has lasted. If
//     it succeeds, all go on, and do not believe the fleet in this again for 10 s. The 10 s begin
//     anew when the fleet speaks of a hold again and a request of the process succeeds all the
//     same. A process that was refused itself, as others were, sends no probe before it hears of
//     a success.
//   - Such a hold refuses no request. It takes at most three quarters of the time to a request's
//     deadline, together with the ramp behind it. If the hold alone would take more, the request
//     goes after half of that time.
//
// At most 256 scopes are kept for each host. If there are more, a hold for which nobody waits
// makes room. First choice is a hold that is over, then one that a fleet brought, and then the
// one that ends first. If requests wait for all of them, the new hold is not kept. So scopes
// never hold each other.
//
// The zero Cooldown is ready. All methods are safe for concurrent use.
type Cooldown struct {
	n    atomic.Int32  // the number of holds, to be read without the lock
	told atomic.Uint32 // how many refusals there were, to be read without the lock

	mu    sync.Mutex       // guards everything below and every waiter in a hold's queue
	holds map[uint64]*hold // by scope key
	ended uint64           // how many requests ended until the last refusal, with the refused requests
	kept  *kept            // nil: there is no hold
}

// kept is what a cooldown needs while there are holds.
type kept struct {
	spares queue.Spares    // the holds that make room for others
	sweep  instant.Instant // no search for holds that are over before this time
}

// Quiet reports whether there is no hold on the host. Then no other method needs
// to be called and no scope key is needed. Quiet is a single atomic load.
func (c *Cooldown) Quiet() bool { return c.n.Load() == 0 }

// Hold is told that a response asked to wait. It returns when the hold of the scope
// ends, jitter included. again reports whether the request was sent although the hold was
// known, as a probe is. u in [0,1) draws the jitter. If the wait is zero or less, Hold does
// nothing.
func (c *Cooldown) Hold(now instant.Instant, key uint64, r Refusal, conf Config, u float64) (open instant.Instant, again bool) {
	open = c.note(now, key, r, waitedFor, func(h *hold) bool {
		again = h.refuse(now, r, conf.withDefaults(), u)
		return true
	})
	return open, again
}

// HoldForFleet is Hold for a response that another member of a fleet got. It ignores the
// time when the request was sent. If there is no room for the hold, HoldForFleet does
// nothing.
func (c *Cooldown) HoldForFleet(now instant.Instant, key uint64, r Refusal, conf Config, u float64) {
	c.note(now, key, r, forgettable, func(h *hold) bool { // the fleet only replaces holds that are over
		return h.hear(now, r, conf.withDefaults(), u)
	})
}

// note notes a refusal in the hold of a scope by a function that reports whether it is news. It
// returns when the hold ends. Only a hold of a class below that makes room.
func (c *Cooldown) note(now instant.Instant, key uint64, r Refusal, below int, note func(*hold) (news bool)) (open instant.Instant) {
	if r.Wait <= 0 {
		return now
	}
	c.mu.Lock()
	h, evicted := c.holdFor(now, key, r.Ended, below)
	if own := below == waitedFor; own {
		c.ended = max(c.ended, r.Ended) + 1 // this request ends as well, and is no success
	}
	open = now
	var next queue.Pair
	if h != nil && note(h) {
		h.refusal = c.told.Add(1)
		c.kept.spares.Note(key, h.worth(now))
		open, next = h.open, h.changed(now)
	}
	c.mu.Unlock()
	next.Wake()
	evicted.Wake()
	return open
}

// Free is told that a success has ended the hold of a scope in another member of a fleet.
// It ends the demand of a 503, and everything that only the fleet was told. A 429 to this
// member stands until its time, or until this member sees that it is wrong. It sends a
// probe for that. The hold ends
// at the time at, which keeps the members apart.
func (c *Cooldown) Free(now instant.Instant, key uint64, at instant.Instant) {
	c.mu.Lock()
	var next queue.Pair
	if h := c.holds[key]; h != nil && now < h.open {
		h.free(at)
		h.settle(now)
		next = queue.Pair{h.queue.First(), h.hurried()}
	}
	c.mu.Unlock()
	next.Wake()
}

// Enter asks for a request to pass. With Wait the request joins the queue of its
// scope. It asks again with the same w, or calls Leave. A request with a nil w
// does not wait and joins no queue.
func (c *Cooldown) Enter(now instant.Instant, key uint64, w *queue.Waiter) queue.Answer {
	c.mu.Lock()
	c.tidy(now)
	h := c.find(now, key)
	var moved queue.Pair
	if w != nil && (h == nil || !h.queue.Has(w)) {
		moved = c.leave(key, w) // its hold was evicted
	}
	a, next := c.enter(now, key, h, w)
	c.mu.Unlock()
	moved.Wake()
	next.Wake()
	return a
}

// Leave takes w out of its queue.
func (c *Cooldown) Leave(key uint64, w *queue.Waiter) {
	c.mu.Lock()
	next := c.leave(key, w)
	c.mu.Unlock()
	next.Wake()
}

// Answered is told of each response with a final verdict while the host is not
// Quiet. sent is when its request was sent. It is zero if that is not known. served
// says that the response is no failure of the server. ended reports of which codes the
// response ended the hold.
func (c *Cooldown) Answered(now instant.Instant, key uint64, sent instant.Instant, served bool) (ended [codes]bool) {
	c.mu.Lock()
	var next queue.Pair
	if h := c.find(now, key); h != nil {
		before := h.holding(now)
		h.answered(now, sent, served)
		for code, held := range h.holding(now) {
			ended[code] = before[code] && !held
		}
		next = queue.Pair{h.queue.First(), h.hurried()} // may go now, or have to wait for less time
	}
	c.mu.Unlock()
	next.Wake()
	return ended
}

// Arrive reports whether a request that comes now for the first time goes at
// once. It does if nothing is held, or if the time that the server named is over.
// Such a request joins no queue. The jitter and the ramp only spread requests
// that were held. A caller that obeyed the server by itself does not wait again.
func (c *Cooldown) Arrive(now instant.Instant, key uint64) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.tidy(now)
	h := c.find(now, key)
	return h == nil || now >= h.named()
}

// Refusals returns how many refusals there were. It is a single atomic load.
func (c *Cooldown) Refusals() uint32 { return c.told.Load() }

// HeldSince reports whether a scope is held by a refusal that is not among those that were
// known to a request when it asked to pass (see Refusals).
func (c *Cooldown) HeldSince(now instant.Instant, key uint64, known uint32) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	h := c.find(now, key)
	return h != nil && now < h.named() && h.refusal > known
}

// Named returns the time before which nothing of a scope is sent, as the server
// named it to this member and without jitter. It is zero if that time is over, or if
// the hold is in doubt.
func (c *Cooldown) Named(now instant.Instant, key uint64) instant.Instant {
	c.mu.Lock()
	defer c.mu.Unlock()
	if h := c.find(now, key); h != nil && now < h.ownEnd() && !h.undecided(now) {
		return h.ownEnd()
	}
	return 0
}

// Held returns until when a scope is held, jitter included. It is zero if nothing
// is held. If requests are refused meanwhile, refused is true and the time is the
// time that the server named. Held changes nothing.
func (c *Cooldown) Held(now instant.Instant, key uint64) (until instant.Instant, refused bool) {
	if c.Quiet() {
		return 0, false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	h := c.find(now, key)
	if h == nil || now >= h.open {
		return 0, false
	}
	if named := h.refusing(now); named > 0 {
		return named, true
	}
	return h.open, false
}

// Waiting returns how many requests of a scope wait.
func (c *Cooldown) Waiting(key uint64) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	if h := c.holds[key]; h != nil {
		return h.queue.Len()
	}
	return 0
}

// Holds returns how many scopes are held, and the end of the longest hold. It
// serves snapshots.
func (c *Cooldown) Holds(now instant.Instant) (n int, until instant.Instant) {
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
func (c *Cooldown) Holding(now instant.Instant) bool {
	if c.Quiet() {
		return false
	}
	n, _ := c.Holds(now)
	return n > 0
}

// enter answers w and returns the waiters to wake next; the lock is held.
func (c *Cooldown) enter(now instant.Instant, key uint64, h *hold, w *queue.Waiter) (a queue.Answer, next queue.Pair) {
	if h == nil {
		return queue.Answer{}, queue.Pair{}
	}
	if named := h.refusing(now); named > 0 {
		h.leave(w)
		return queue.Answer{Verb: queue.Refuse, Until: named}, queue.Pair{h.queue.First()} // all waiters have to hear of the refusal
	}
	if !h.passes(now, w) {
		a = h.wait(now, w)
		if next[1] = h.hurried(); next[1] == w || h.queue.First() != w {
			next[1] = nil
		}
		return a, next // the time of a probe may be over, so that the hold stands
	}
	h.leave(w)
	if h.forgotten(now) {
		c.drop(key)
		return queue.Answer{}, queue.Pair{}
	}
	return queue.Answer{}, queue.Pair{h.queue.First(), h.hurried()}
}

// leave takes w out of its queue and returns the waiters to wake next; the lock is
// held.
func (c *Cooldown) leave(key uint64, w *queue.Waiter) (next queue.Pair) {
	if !w.Waits() {
		return queue.Pair{}
	}
	if h := c.holds[key]; h != nil && h.queue.Has(w) {
		return queue.Pair{h.leave(w), h.hurried()}
	}
	return queue.Pair{w.Leave()} // its hold was evicted
}

// find returns the hold of a scope, or nil if there is none; the lock is held.
func (c *Cooldown) find(now instant.Instant, key uint64) *hold {
	h := c.holds[key]
	if h != nil {
		h.settle(now)
	}
	return h
}

// holdFor returns the hold of a scope, and makes it if there is none; the lock is held.
// If another hold had to go for it, evicted is the first waiter of that hold. It
// goes and wakes the next. If there is no room, holdFor returns nil. ended is how many
// requests to the host have ended. Only a hold of a class below that makes room.
func (c *Cooldown) holdFor(now instant.Instant, key, ended uint64, below int) (h *hold, evicted *queue.Waiter) {
	c.tidy(now)
	if h = c.find(now, key); h != nil {
		return h, nil
	}
	if len(c.holds) >= queue.MaxScopes {
		victim, found := queue.Spare(&c.kept.spares, now, c.holds, below, func(h *hold) queue.Worth { return h.worth(now) })
		if !found {
			return nil, nil
		}
		evicted = c.holds[victim].queue.First()
		c.drop(victim)
	}
	if c.holds == nil {
		c.holds, c.kept = make(map[uint64]*hold), new(kept)
	}
	h = newHold()
	if ended > c.ended {
		h.doubt = int8(min(ended-c.ended, maxDoubt))
	}
	c.holds[key] = h
	c.n.Store(int32(len(c.holds)))
	return h, evicted
}

// tidy drops the holds that are over, once a second at most; the lock is held. Without
// tidy the hold of a scope that sends no further request would stay, and the host
// would never be Quiet.
func (c *Cooldown) tidy(now instant.Instant) {
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
func (c *Cooldown) drop(key uint64) {
	delete(c.holds, key)
	if len(c.holds) == 0 {
		c.holds, c.kept = nil, nil
	}
	c.n.Store(int32(len(c.holds)))
}
