// A cooldown holds back requests after the server said "try later", and spreads
// them when they return.

package host

import (
	"container/heap"
	"iter"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// maxScopes bounds the scopes for which something is kept per host. If the
	// credentials change with every request, each response brings a new scope.
	maxScopes = 256

	// rampStep, rampGrowth and rampTime shape the return after a hold. See
	// Cooldown.
	rampStep   = 100 * time.Millisecond
	rampGrowth = 2
	rampTime   = 10 * time.Second

	// These constants shape the probes during a hold. See Cooldown.
	maxProbes   = 2 // in a run of holds
	minDoubt    = 2 // successes that allow a probe
	maxDoubt    = 8 // successes that count at most
	refusalCost = 2 // successes that a refusal outweighs

	// sweepEvery is the least time between two searches for holds that are over.
	sweepEvery = time.Second
)

// A CooldownConfig bounds holds. Zero fields take the defaults.
type CooldownConfig struct {
	// Max is the longest time for which a single response can hold a scope. The
	// default is 1 min. A negative Max means no bound.
	Max time.Duration
	// Stop matters for a scope that was told to wait for longer than Max. With
	// Stop the scope refuses requests while the hold lasts. Without it the
	// requests wait.
	Stop bool
	// Spread is the width of the jitter at the end of a hold. The jitter keeps
	// processes that were told the same time from coming back in the same
	// instant. It only ever makes a hold longer. The default is half the wait,
	// at most 1 s. A negative Spread means no jitter.
	Spread time.Duration
}

// A Code tells apart the two kinds of response that hold a scope.
type Code uint8

const (
	// TooMany is 429 and everything else that says "you send too much". Its hold
	// stands until its time is over.
	TooMany Code = iota
	// Unavailable is 503. Its hold ends when the server shows that it is back.
	Unavailable
	codes
)

// A Cooldown shares what a request learns from a 429 or a 503 with the other
// requests to the host. A response that names a wait (RFC 9110 §10.2.3, RFC 6585
// §4) holds every request of its scope, not only its own. A scope is the
// requests that share credentials, or the same value of the rule's Scope. The rules:
//
// During a hold:
//
//   - A hold only ever gets longer, except that a success can end it.
//   - A success that arrives after a 503 ends the hold of the 503, whenever its
//     request was sent. A server that sheds load serves many requests and
//     refuses some. Nothing is sent during a hold. If only requests that were
//     sent later counted, each refusal would hold the whole scope, and the storm
//     experiment would end at a tenth of the load.
//   - A probe that succeeds ends every hold of the scope.
//   - A request that was itself told to wait always waits that long.
//   - A response holds for Max at most. With Stop, requests are refused during
//     the hold of a response that asked for more. They are told the time that
//     the server named.
//
// Probes:
//
//   - Some servers refuse at random, and not because a quota is used up. So a
//     hold is doubted if most responses of the scope are successes. Each success
//     adds 1 to the doubt, up to 8. Each refusal takes 2 away.
//   - While the doubt is at least 2, the first waiter is let go as a probe. If the
//     probe is refused and the doubt is still at least 2, a second probe follows.
//   - Only a hold that a response to this process began or lengthened is doubted. If a
//     fleet brought it, the process that was told probes.
//   - There are two probes at most in a run of holds. So a server whose quota
//     really is used up sees two requests at most before the time that it named.
//   - Responses count from the scope's first hold on. So a first refusal holds
//     until two requests that were in flight have succeeded.
//
// After a hold:
//
//   - Held requests come back in the order in which they came. A jitter follows
//     the time that the server named. The jitter takes half of the time to a
//     request's deadline at most.
//   - Then they come back in a ramp. First a single request goes, and then two more
//     for each response, which doubles them per round trip as in a slow start (RFC
//     5681 §3.1). A request also goes every 100 ms whatever is answered, so that a
//     slow first request does not block the others. The ramp ends 10 s after the
//     hold.
//   - A request that comes for the first time after the named time goes at once
//     (see Arrive). A caller that obeys the server by itself does not wait twice.
//
// At most 256 holds are kept. If there is no room, the hold that ended first goes,
// before any hold with waiters. If all of them are running, the remaining scopes
// of the host share one hold. A response that names a wait then holds all scopes
// that have no hold of their own.
//
// The zero Cooldown is ready. All methods are safe for concurrent use.
type Cooldown struct {
	n atomic.Int32 // the number of holds, to be read without the lock

	mu     sync.Mutex       // guards everything below and every waiter in a hold's queue
	holds  map[uint64]*hold // by scope key
	shared *hold            // for all scopes that are not in holds; nil if not needed
	sweep  time.Duration    // no search for holds that are over before this time
}

// A demand holds the wait that the responses of one code asked for.
type demand struct {
	end    time.Duration // no request before this time
	refuse time.Duration // requests are refused until this time
	named  time.Duration // the time that the server named, if it is later than end
	at     time.Duration // when the last such response came
}

// A hold is the record of a scope that has to wait. No request goes before the time
// that the server named. With the jitter the hold lasts until open. Then its ramp
// begins.
type hold struct {
	demands [codes]demand
	open    time.Duration
	jitter  time.Duration // the part of open that was drawn once for this run of holds
	next    time.Duration // when the ramp lets the next request go, whatever is answered
	credits int32         // how many more requests the responses let go
	doubt   int8          // how much speaks against the hold: see probe
	probes  int8          // probes in this run of holds
	own     bool          // a response to this process is part of this run of holds
	freeAt  time.Duration // a success in the fleet ends the hold then; 0: there was none
	probing bool          // nothing was refused since the last probe
	probed  time.Duration // when the first probe was let go
	saved   ramp          // the ramp that this run of holds interrupted

	// Two waiters hear of changes: the first in the queue, and the waiter with the
	// nearest deadline. When one of them goes or leaves, its successor hears. So an
	// event wakes at most two waiters, however many there are.
	queue queue
	dated *byDeadline // the waiters in the queue that have a deadline; nil if there was none
}

// A ramp says how far the return of a scope had come at a time.
type ramp struct {
	at, open, next time.Duration
	credits        int32
}

// Quiet reports whether there is no hold on the host. Then no other method needs
// to be called and no scope key is needed. Quiet is a single atomic load.
func (c *Cooldown) Quiet() bool { return c.n.Load() == 0 }

// Hold is told that a response of this code asked to wait. It returns when the
// hold of the scope ends, jitter included. u in [0,1) draws the jitter. If wait is
// zero or less, Hold does nothing.
func (c *Cooldown) Hold(now time.Duration, key uint64, code Code, wait time.Duration, conf CooldownConfig, u float64) time.Duration {
	if wait <= 0 {
		return now
	}
	return c.hold(now, key, code, wait, conf, u, true)
}

// HoldForFleet is Hold for a response that another process of a fleet got. If there is no
// room for the hold, HoldForFleet does nothing. A shared hold would hold other scopes for
// a response that none of the requests here has got.
func (c *Cooldown) HoldForFleet(now time.Duration, key uint64, code Code, wait time.Duration, conf CooldownConfig, u float64) {
	if wait > 0 {
		c.hold(now, key, code, wait, conf, u, false)
	}
}

// Free is told that a success has ended the hold of a scope in another process of a fleet.
// It ends the demand of a 503. If only the fleet was told of a 429, the scope may be sent
// requests from now on, and the jitter of its hold keeps the processes apart. A 429 to
// this process stands until its time, or until a probe of its own succeeds. The hold ends at
// the time at, which keeps the processes apart.
func (c *Cooldown) Free(now time.Duration, key uint64, at time.Duration) {
	c.mu.Lock()
	var next pair
	if h := c.holds[key]; h != nil && now < h.open {
		if h.freeAt == 0 || at < h.freeAt {
			h.freeAt = max(at, 1)
		}
		h.settle(now)
		next = pair{h.queue.first, h.hurried()}
	}
	c.mu.Unlock()
	next.wake()
}

// hold begins or lengthens a hold. own says that a response to this process asked for it.
func (c *Cooldown) hold(now time.Duration, key uint64, code Code, wait time.Duration, conf CooldownConfig, u float64, own bool) time.Duration {
	conf = conf.withDefaults()
	c.mu.Lock()
	h, evicted := c.holdFor(now, key, own)
	if h == nil {
		c.mu.Unlock()
		return now
	}
	h.extend(now, code, wait, conf, u, own)
	open, next := h.open, pair{nil, h.hurried()}
	if h.refusing(now) > 0 || h.doubted() {
		next[0] = h.queue.first
	}
	c.mu.Unlock()
	next.wake()
	evicted.wake()
	return open
}

// Enter asks for a request to pass. With Wait the request joins the queue of its
// scope. It asks again with the same w, or calls Leave. A request with a nil w
// does not wait and joins no queue.
func (c *Cooldown) Enter(now time.Duration, key uint64, w *Waiter) Answer {
	c.mu.Lock()
	c.tidy(now)
	h := c.find(now, key)
	moved := c.claim(key, h, w)
	a, next := c.enter(now, key, h, w)
	c.mu.Unlock()
	moved.wake()
	next.wake()
	return a
}

// Leave takes w out of its queue.
func (c *Cooldown) Leave(key uint64, w *Waiter) {
	c.mu.Lock()
	next := c.leave(key, w)
	c.mu.Unlock()
	next.wake()
}

// Answered is told of each response with a final verdict while the host is not
// Quiet. sent is when Enter let the request pass. It is zero if Enter was not
// asked because the host was Quiet then. success says that the response is no
// failure of the server. ended reports that the response ended the hold of the scope.
func (c *Cooldown) Answered(now time.Duration, key uint64, sent time.Duration, success bool) (ended bool) {
	c.mu.Lock()
	var next pair
	if h := c.find(now, key); h != nil {
		held := now < h.open
		h.answered(now, sent, success)
		ended = held && now >= h.open && h != c.shared
		next = pair{h.queue.first, h.hurried()} // may go now, or have to wait for less time
	}
	c.mu.Unlock()
	next.wake()
	return ended
}

// Arrive reports whether a request that comes now for the first time goes at
// once. It does if nothing is held, or if the time that the server named is over.
// Such a request joins no queue. The jitter and the ramp only spread requests
// that were held. A caller that obeyed the server by itself does not wait again.
func (c *Cooldown) Arrive(now time.Duration, key uint64) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.tidy(now)
	h := c.find(now, key)
	return h == nil || now >= h.named()
}

// Named returns the time before which nothing of a scope is sent, as the server
// named it and without jitter. It is zero if that time is over.
func (c *Cooldown) Named(now time.Duration, key uint64) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	if h := c.find(now, key); h != nil && now < h.named() {
		return h.named()
	}
	return 0
}

// Held returns until when a scope is held, jitter included. It is zero if nothing
// is held. If requests are refused meanwhile, refused is true and the time is the
// time that the server named. Held changes nothing.
func (c *Cooldown) Held(now time.Duration, key uint64) (until time.Duration, refused bool) {
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

// Holds returns how many scopes are held, and the end of the longest hold. It
// serves snapshots.
func (c *Cooldown) Holds(now time.Duration) (n int, until time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for h := range c.all() {
		if h.open > now {
			n++
			until = max(until, h.open)
		}
	}
	return n, until
}

// Holding reports whether any scope is held.
func (c *Cooldown) Holding(now time.Duration) bool {
	if c.Quiet() {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for h := range c.all() {
		if now < h.open {
			return true
		}
	}
	return false
}

// enter answers w and returns the waiters to wake next; c.mu is held.
func (c *Cooldown) enter(now time.Duration, key uint64, h *hold, w *Waiter) (a Answer, next pair) {
	if h == nil {
		return Answer{}, pair{}
	}
	if named := h.refusing(now); named > 0 {
		h.leave(w)
		return Answer{Verb: Refuse, Until: named}, pair{h.queue.first} // all waiters have to hear of the refusal
	}
	if !h.passes(now, w) {
		return h.wait(now, w), pair{}
	}
	h.leave(w)
	if h.over(now) && h.queue.n == 0 {
		c.drop(key, h)
		return Answer{}, pair{}
	}
	return Answer{}, pair{h.queue.first, h.hurried()}
}

// claim takes w out of any queue but that of h, and returns the waiters to wake
// next; c.mu is held. A waiter in the shared hold changes queues if its scope got
// a hold of its own meanwhile, and a waiter of an evicted hold has to leave its
// queue.
func (c *Cooldown) claim(key uint64, h *hold, w *Waiter) (next pair) {
	if w == nil || h != nil && w.in == &h.queue {
		return pair{}
	}
	return c.leave(key, w)
}

// leave takes w out of its queue and returns the waiters to wake next; c.mu is
// held.
func (c *Cooldown) leave(key uint64, w *Waiter) (next pair) {
	if w == nil || w.in == nil {
		return pair{}
	}
	for _, h := range [...]*hold{c.holds[key], c.shared} {
		if h != nil && w.in == &h.queue {
			return pair{h.leave(w), h.hurried()}
		}
	}
	return pair{w.in.leave(w)} // its hold was evicted
}

// find returns the hold of a scope, or nil if there is none; c.mu is held.
func (c *Cooldown) find(now time.Duration, key uint64) *hold {
	if h := c.holds[key]; h != nil {
		h.settle(now)
		return h
	}
	return c.shared
}

// all yields every hold; c.mu is held.
func (c *Cooldown) all() iter.Seq[*hold] {
	return func(yield func(*hold) bool) {
		if c.shared != nil && !yield(c.shared) {
			return
		}
		for _, h := range c.holds {
			if !yield(h) {
				return
			}
		}
	}
}

// holdFor returns the hold of a scope, and makes it if there is none; c.mu is held.
// If another hold had to go for it, evicted is the first waiter of that hold. It
// goes and wakes the next. If all holds are running, holdFor returns the shared
// hold, or nil if the hold is not own.
func (c *Cooldown) holdFor(now time.Duration, key uint64, own bool) (h *hold, evicted *Waiter) {
	c.tidy(now)
	if h = c.holds[key]; h != nil {
		return h, nil
	}
	defer c.count()
	h = &hold{open: -rampTime} // a ramp of an earlier hold would be over
	if len(c.holds) >= maxScopes-1 {
		victim, found := c.victim(now, own)
		if !found && !own {
			return nil, nil
		}
		if !found {
			if c.shared == nil {
				c.shared = h
			}
			return c.shared, nil
		}
		evicted = c.holds[victim].queue.first
		delete(c.holds, victim)
	}
	if c.holds == nil {
		c.holds = make(map[uint64]*hold)
	}
	c.holds[key] = h
	return h, evicted
}

// victim returns the scope whose hold is missed least, of the holds that are not
// running; c.mu is held. A hold without waiters goes first, and of these the hold
// that ended first. Waiters of an evicted hold are no longer spread by its ramp. For an
// own hold, a running hold that a fleet brought and for which nobody waits may go as well.
func (c *Cooldown) victim(now time.Duration, own bool) (victim uint64, found bool) {
	var best *hold
	for key, h := range c.holds {
		over := now >= h.open || own && !h.own && h.queue.n == 0
		if over && (best == nil || h.before(best)) {
			victim, best, found = key, h, true
		}
	}
	return victim, found
}

// before reports whether h is missed less than t.
func (h *hold) before(t *hold) bool {
	if waits, others := h.queue.n > 0, t.queue.n > 0; waits != others {
		return others
	}
	return h.open < t.open
}

// tidy drops the holds that are over, once a second at most; c.mu is held. Without
// tidy the hold of a scope that sends no further request would stay, and the host
// would never be Quiet.
func (c *Cooldown) tidy(now time.Duration) {
	if c.Quiet() || now < c.sweep {
		return
	}
	c.sweep = after(now, sweepEvery)
	for key, h := range c.holds {
		if h.over(now) && h.queue.n == 0 {
			c.drop(key, h)
		}
	}
	if c.shared != nil && c.shared.over(now) && c.shared.queue.n == 0 {
		c.drop(0, c.shared)
	}
}

// drop forgets a hold, either the own hold of a scope or the shared hold; c.mu is
// held.
func (c *Cooldown) drop(key uint64, h *hold) {
	if h == c.shared {
		c.shared = nil
	} else {
		delete(c.holds, key)
	}
	if len(c.holds) == 0 {
		c.holds = nil
	}
	c.count()
}

// count updates the number of holds for Quiet; c.mu is held.
func (c *Cooldown) count() {
	n := len(c.holds)
	if c.shared != nil {
		n++
	}
	c.n.Store(int32(n))
}

// extend makes the hold longer by the wait that a response asked for; c.mu is held.
func (h *hold) extend(now time.Duration, code Code, wait time.Duration, conf CooldownConfig, u float64, own bool) {
	d := &h.demands[code]
	d.at = now
	end := after(now, min(wait, conf.Max))
	if now >= d.refuse {
		d.named = 0
	}
	if conf.Stop && wait > conf.Max {
		d.refuse = max(d.refuse, end)
		d.named = max(d.named, after(now, wait))
	}
	// A run of holds has a single jitter. If the jitter were drawn per response and
	// the largest were kept, a process with many requests in flight would end at
	// the upper end of the jitter, and so would all other processes.
	if now >= h.named() {
		h.probes, h.own = 0, false
	}
	h.own = h.own || own
	if own || now >= h.named() {
		h.freeAt = 0
	}
	h.probing = false
	h.doubt = max(0, h.doubt-refusalCost)
	if now >= h.open {
		h.saved = ramp{now, h.open, h.next, h.credits}
		h.jitter = time.Duration(u * float64(conf.spread(end-now)))
	}
	d.end = max(d.end, end)
	h.reopen()
}

// answered takes note of a response that is no refusal; c.mu is held.
func (h *hold) answered(now, sent time.Duration, success bool) {
	if success {
		h.doubt = min(h.doubt+1, maxDoubt)
	}
	switch {
	case success && h.probes > 0 && sent >= h.probed && now < h.named():
		h.disprove(now)
	case success && h.recovers(now), now >= h.open && sent >= h.open:
		h.credits += rampGrowth
	}
}

// disprove ends the hold and begins the ramp; c.mu is held. The ramp is needed
// because a quota that is refilled steadily has room for a request now and
// then, but not for all waiters at once.
func (h *hold) disprove(now time.Duration) {
	h.demands = [codes]demand{}
	h.probes, h.probing = 0, false
	h.open, h.next, h.credits = now, after(now, rampStep), rampGrowth
}

// probe reports whether a request may be let go before the time that the server
// named, and counts it as a probe.
func (h *hold) probe(now time.Duration) bool {
	if !h.doubted() {
		return false
	}
	if h.probes == 0 {
		h.probed = now
	}
	h.probing = true
	h.probes++
	return true
}

// doubted reports whether another probe is allowed.
func (h *hold) doubted() bool {
	return h.own && !h.probing && h.probes < maxProbes && h.doubt >= minDoubt
}

// named returns the last time that the server named.
func (h *hold) named() time.Duration {
	return max(h.demands[TooMany].end, h.demands[Unavailable].end)
}

// opens returns when the hold is over for w. The jitter takes at most half of the
// time from the named end to the deadline of w. If a success has ended the hold,
// there is no named end and no jitter.
func (h *hold) opens(w *Waiter) time.Duration {
	named := h.named()
	if w == nil || named == 0 || w.By <= named {
		return h.open
	}
	return min(h.open, named+(w.By-named)/2)
}

// settle ends a hold at the time to which Free has put it off.
func (h *hold) settle(now time.Duration) {
	if h.freeAt > 0 && now >= h.freeAt {
		h.freeAt = 0
		h.free(now)
	}
}

// free ends a hold because of a success in another process; see Cooldown.Free.
func (h *hold) free(now time.Duration) {
	if now < h.demands[Unavailable].end {
		h.recovered(now)
	}
	if d := &h.demands[TooMany]; now < d.end && !h.own {
		d.end, d.refuse, d.named = now, 0, 0
		h.reopen()
	}
}

// recovers ends the demand of a 503 if a success arrives after it, and reports
// whether the hold is over then; c.mu is held.
func (h *hold) recovers(now time.Duration) bool {
	d := &h.demands[Unavailable]
	return now < d.end && now > d.at && h.recovered(now)
}

// recovered ends the demand of a 503, and reports whether the hold is over then; c.mu is
// held.
func (h *hold) recovered(now time.Duration) bool {
	h.demands[Unavailable] = demand{}
	if h.demands[TooMany].end > h.saved.at {
		h.reopen() // the demand of a 429 in the same run stands
		return now >= h.open
	}
	// The 503 was about one request and not about the host, so the ramp goes on
	// where it was interrupted. A new ramp would keep nearly all requests waiting
	// after each refusal, and a large server that sheds a little load would lose
	// most of its requests.
	h.open, h.next, h.credits = h.saved.open, h.saved.next, h.saved.credits
	return true
}

// reopen computes when the hold ends, and begins its ramp anew.
func (h *hold) reopen() {
	h.open = after(max(h.demands[TooMany].end, h.demands[Unavailable].end), h.jitter)
	h.credits = 0
	h.next = h.open
}

// refusing returns the time that the server named if requests are refused now,
// else zero.
func (h *hold) refusing(now time.Duration) (named time.Duration) {
	for i := range h.demands {
		if now < h.demands[i].refuse {
			named = max(named, h.demands[i].named)
		}
	}
	return named
}

// over reports whether the ramp has ended.
func (h *hold) over(now time.Duration) bool { return now >= after(h.open, rampTime) }

// passes reports whether w may go now, and uses up its turn in the ramp.
func (h *hold) passes(now time.Duration, w *Waiter) bool {
	switch {
	case now < h.named():
		return w != nil && h.queue.turn(w) && h.probe(now)
	case now < h.open:
		return now >= h.opens(w)
	case h.over(now):
		return true
	case h.opens(w) < h.open:
		return true // its deadline leaves no time to wait for the ramp
	case !h.queue.turn(w):
		return false
	case now >= h.next:
		// Turns that nobody used are not saved up. A turn that was used a little
		// late does not delay the next turn.
		if h.next += rampStep; h.next <= now {
			h.next = now + rampStep
		}
		return true
	case h.credits > 0:
		h.credits--
		return true
	}
	return false
}

// wait puts w in the queue and tells it when to ask again.
func (h *hold) wait(now time.Duration, w *Waiter) Answer {
	h.join(w)
	// A waiter that is not first is woken when its turn comes. The end of the
	// ramp is for the case that a waiter before it neither asks nor leaves.
	a := Answer{Verb: Wait, Ask: after(h.open, rampTime), Until: h.named()}
	if now < h.open {
		a.Open = h.open
	}
	if h.queue.turn(w) {
		a.Ask = max(h.open, min(h.next, a.Ask))
		if now >= h.open {
			a.Until = a.Ask
		}
	}
	if own := h.opens(w); own < h.open {
		a.Ask = own
	}
	if h.freeAt > 0 && h.freeAt < a.Until {
		a.Until, a.Open = h.freeAt, h.freeAt
	}
	if h.freeAt > 0 && h.queue.turn(w) {
		a.Ask = min(a.Ask, h.freeAt)
	}
	if w != nil {
		w.told = a.Ask
	}
	return a
}

// join puts w in the queue. If w is nil or in the queue already, join does nothing.
func (h *hold) join(w *Waiter) {
	if w == nil || w.in == &h.queue {
		return
	}
	h.queue.join(w)
	if w.By <= 0 {
		return
	}
	if h.dated == nil {
		h.dated = new(byDeadline)
	}
	heap.Push(h.dated, w)
}

// leave takes w out of the queue. If w was first, leave returns the new first
// waiter.
func (h *hold) leave(w *Waiter) (next *Waiter) {
	if w != nil && w.in == &h.queue && w.By > 0 {
		heap.Remove(h.dated, w.place)
	}
	return h.queue.leave(w)
}

// hurried returns the waiter with the nearest deadline if it has to ask before the
// time that it was told. Either the hold has become longer, and the server now lets
// it go only after its deadline, or the hold has become shorter. All other waiters
// have later deadlines. So they need no news before this waiter goes or leaves.
func (h *hold) hurried() *Waiter {
	if h.dated == nil || len(*h.dated) == 0 {
		return nil
	}
	w := (*h.dated)[0]
	if own := h.opens(w); w.By <= h.named() || own < h.open && own < w.told {
		return w
	}
	return nil
}

func (c CooldownConfig) withDefaults() CooldownConfig {
	switch {
	case c.Max == 0:
		c.Max = time.Minute
	case c.Max < 0:
		c.Max = Never
	}
	return c
}

// memberGap is the mean time between two processes of a fleet that come back after a hold.
const memberGap = 20 * time.Millisecond

// Part returns the config for a hold in each of so many processes of a fleet. The jitter
// spreads them 20 ms apart, over at most the time of the wait.
func (c CooldownConfig) Part(processes int, wait time.Duration) CooldownConfig {
	if processes > 1 && c.Spread == 0 {
		c.Spread = min(max(time.Duration(processes)*memberGap, c.spread(wait)), wait)
	}
	return c
}

// ReturnTime returns the time within which so many processes of a fleet come back when a
// hold is over before its time: 20 ms apart, but 5 s at most.
func ReturnTime(processes int) time.Duration {
	return min(time.Duration(processes-1)*memberGap, 5*time.Second)
}

// spread returns the width of the jitter after a wait.
func (c CooldownConfig) spread(wait time.Duration) time.Duration {
	if c.Spread == 0 {
		return min(wait/2, time.Second)
	}
	return max(0, c.Spread)
}
