// The server said "try later": who has to wait, and how do they come back?

package host

import (
	"iter"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// maxScopes bounds the scopes that are kept per host. With credentials
	// that change with every request each answer brings a new one.
	maxScopes = 256

	// rampStep, rampGrowth and rampTime shape the return after a hold: see
	// Cooldown.
	rampStep   = 100 * time.Millisecond
	rampGrowth = 2
	rampTime   = 10 * time.Second

	// These shape the probes during a hold: see Cooldown.
	maxProbes   = 2 // in one run of holds
	minDoubt    = 2 // successes that allow a probe
	maxDoubt    = 8 // successes that count
	refusalCost = 2 // successes that one refusal outweighs

	// sweepEvery is how often at most scopes that are over are looked for.
	sweepEvery = time.Second
)

// A CooldownConfig bounds holds. Zero fields take the defaults.
type CooldownConfig struct {
	// Max is the longest time for which one answer can hold a scope. Default
	// 1 min; negative: no bound.
	Max time.Duration
	// Stop makes a scope that was told to wait for longer than Max refuse
	// requests while the hold lasts, instead of letting them wait.
	Stop bool
	// Spread is the width of the jitter at a hold's end, so that processes that
	// were told the same time do not come back in the same instant. It only
	// ever makes a hold longer. Default half the wait, at most 1 s; negative:
	// none.
	Spread time.Duration
}

// A Code tells apart the two answers that hold a scope.
type Code uint8

const (
	// TooMany is 429 and everything else that says "you send too much": it
	// stands until its time is over.
	TooMany Code = iota
	// Unavailable is 503: its hold is over when the server shows that it is
	// back.
	Unavailable
	codes
)

// A Cooldown is what a host's requests know of each other's 429 and 503. One
// answer that names a wait (RFC 9110 §10.2.3, RFC 6585 §4) holds every request
// of its scope, not only its own. The rules:
//
//   - A hold is only ever made longer, with two exceptions. A success that
//     arrives after a 503 ends the hold of the 503, whenever it was sent. A
//     server that sheds load answers many and refuses some; were it only what is
//     sent later that counts, each refusal would hold everybody (nothing is sent
//     during a hold), and the storm experiment ends at a tenth of the load. And
//     a probe that succeeds ends every hold. Whoever was told to wait itself
//     still waits as long as it was told.
//   - Some servers refuse at random, not because a quota is used up. So a hold
//     is doubted if most answers of the scope are successes: each adds one to
//     the doubt, up to 8, and each refusal takes two away. While the doubt is at
//     least 2, the request that stands first in line is let go as a probe. If it
//     is refused, and the doubt is still that large, a second one follows. There
//     are no more than two in a run of holds, so a quota that really is used up
//     sees at most two requests before the time that was named. The answers of a
//     scope count from its first hold on: a first refusal holds until two
//     successes arrive of what was in flight.
//   - An answer holds for Max at most. In stop mode requests are refused while
//     such an answer's hold lasts, with the time that the server named.
//   - Requests that were held back are spread. A jitter follows the time that
//     was named, by at most half of what a request's deadline leaves. Then they
//     come back in a ramp: one, then two more for each one that was answered,
//     which doubles them per round trip as in a slow start (RFC 5681 §3.1); and
//     one per 100 ms whatever is answered, so that a slow first request holds up
//     nobody. 10 s after the hold the ramp is gone. They come back in the order
//     in which they came.
//   - A request that comes for the first time after the time that was named goes
//     at once (Arrive). Callers that obey the server by themselves do not wait
//     twice.
//
// At most 256 scopes are kept: those that are over go first, then those in a
// ramp. If all of them are held, the others of the host share one scope: an
// answer that names a wait then holds all that have no scope of their own.
//
// The zero Cooldown is ready. All methods are safe for concurrent use.
type Cooldown struct {
	n atomic.Int32 // how many scopes there are, to be read without the lock

	mu     sync.Mutex // guards what follows and every waiter in a scope'h line
	holds  map[uint64]*hold
	shared *hold         // of all keys that are not in scopes; nil: not needed
	sweep  time.Duration // no search for scopes that are over before this time
}

// A hold is what answers of one code asked for.
type demand struct {
	end    time.Duration // no request before this time
	refuse time.Duration // requests are turned away until this time
	named  time.Duration // what the server said, where it was more than the end
	at     time.Duration // when the last such answer came
}

// A scope is held until the time that the server named, and with the jitter
// until open; then its ramp begins.
type hold struct {
	demands [codes]demand
	open    time.Duration
	jitter  time.Duration // part of open, drawn once per run of holds
	next    time.Duration // when the ramp lets one more go, whatever is answered
	credits int32         // how many more the answers let go
	doubt   int8          // how much speaks against holds: see probe
	probes  int8          // how many were sent in this run of holds
	probing bool          // nothing was refused since the last of them
	probed  time.Duration // when the first of them was let go
	saved   ramp          // what this run of holds began in
	queue   queue
}

// A ramp is how far a scope's return had come at a time.
type ramp struct {
	at, open, next time.Duration
	credits        int32
}

// Quiet reports whether nothing is held on the host: then there is nothing to
// ask, to tell and to hash. It is one atomic load.
func (c *Cooldown) Quiet() bool { return c.n.Load() == 0 }

// Hold is told that an answer of this code asked to wait. It returns when the
// scope's hold ends, jitter included. u in [0,1) draws the jitter. A wait of
// zero or less asks for nothing.
func (c *Cooldown) Hold(now time.Duration, key uint64, code Code, wait time.Duration, conf CooldownConfig, u float64) time.Duration {
	if wait <= 0 {
		return now
	}
	conf = conf.withDefaults()
	c.mu.Lock()
	h, evicted := c.holdFor(now, key)
	h.extend(now, code, wait, conf, u)
	open, next := h.open, h.queue.first
	c.mu.Unlock()
	next.wake()
	for _, w := range evicted {
		w.wake()
	}
	return open
}

// Enter asks for a request to pass. A nil w is for a request that will not wait
// its turn: it takes no place. One that has to wait asks again with the same w,
// or leaves.
func (c *Cooldown) Enter(now time.Duration, key uint64, w *Waiter) Answer {
	c.mu.Lock()
	c.tidy(now)
	h := c.find(key)
	moved := c.claim(key, h, w)
	a, next := c.enter(now, key, h, w)
	c.mu.Unlock()
	moved.wake()
	next.wake()
	return a
}

// Leave gives up the place of w.
func (c *Cooldown) Leave(key uint64, w *Waiter) {
	c.mu.Lock()
	next := c.leave(key, w)
	c.mu.Unlock()
	next.wake()
}

// Answered is told of each answer of a Final verdict while the host is not
// Quiet. sent is when Enter let the request pass, zero where Enter was not
// asked because the host was Quiet then; success says that the answer is no
// failure of the server's.
func (c *Cooldown) Answered(now time.Duration, key uint64, sent time.Duration, success bool) {
	c.mu.Lock()
	var next *Waiter
	if h := c.find(key); h != nil {
		h.answered(now, sent, success)
		next = h.queue.first // may go, or has less to wait for than it was told
	}
	c.mu.Unlock()
	next.wake()
}

// Arrive reports whether a request that comes now, and that nobody held back
// before, goes at once: nothing is held, or the time that the server named is
// over. Such a request does not stand in line. The jitter and the ramp spread
// out those that were held back; a caller that obeyed the server by itself is
// not made to wait again.
func (c *Cooldown) Arrive(now time.Duration, key uint64) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.tidy(now)
	h := c.find(key)
	return h == nil || now >= h.named()
}

// Named returns the time before which nothing of a scope is sent, as the server
// named it and without jitter; zero where it is over.
func (c *Cooldown) Named(now time.Duration, key uint64) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	if h := c.find(key); h != nil && now < h.named() {
		return h.named()
	}
	return 0
}

// Held returns until when a scope is held, jitter included, or zero if nothing is
// held. If requests are refused meanwhile, it is the time that the server named.
// It takes nothing.
func (c *Cooldown) Held(now time.Duration, key uint64) (until time.Duration, refused bool) {
	if c.Quiet() {
		return 0, false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	h := c.find(key)
	if h == nil || now >= h.open {
		return 0, false
	}
	if named := h.refusing(now); named > 0 {
		return named, true
	}
	return h.open, false
}

// Holds returns for a snapshot how many scopes are held and until when the
// longest of them is.
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

// enter answers w and returns who has to be woken; c.mu is held.
func (c *Cooldown) enter(now time.Duration, key uint64, h *hold, w *Waiter) (a Answer, next *Waiter) {
	if h == nil {
		return Answer{}, nil
	}
	if named := h.refusing(now); named > 0 {
		next = h.behind(w) // all who stand in line are to hear of it
		h.queue.leave(w)
		return Answer{Verb: Refuse, Until: named}, next
	}
	if h.passes(now, w) {
		h.queue.leave(w)
		if h.over(now) && h.queue.n == 0 {
			c.drop(key, h)
			return Answer{}, nil
		}
		return Answer{}, h.queue.first
	}
	return h.wait(now, w)
}

// claim takes w out of any line but that of s, and returns who has to be woken
// for it; c.mu is held. A waiter that shared the scope of the rest may have got
// a scope of its own meanwhile.
func (c *Cooldown) claim(key uint64, h *hold, w *Waiter) (next *Waiter) {
	if w == nil || w.in == nil || h != nil && w.in == &h.queue {
		return nil
	}
	return c.leave(key, w)
}

// leave gives up the place of w and returns who has to be woken; c.mu is held.
func (c *Cooldown) leave(key uint64, w *Waiter) (next *Waiter) {
	for _, h := range [...]*hold{c.holds[key], c.shared} {
		if h == nil || w == nil || w.in != &h.queue {
			continue
		}
		behind := w.next
		if next = h.queue.leave(w); w.told != h.open {
			next = behind // w may have been woken, and not yet told those behind it what for
		}
	}
	return next
}

// find returns the scope of a key, nil where nothing is known of it; c.mu is
// held.
func (c *Cooldown) find(key uint64) *hold {
	if h := c.holds[key]; h != nil {
		return h
	}
	return c.shared
}

// all yields every scope; c.mu is held.
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

// scopeFor returns the scope of a key, made where there is none, and those who
// waited for one that had to go for it; c.mu is held. If all there are hold, it
// is the scope of the rest.
func (c *Cooldown) holdFor(now time.Duration, key uint64) (h *hold, evicted []*Waiter) {
	c.tidy(now)
	if h = c.holds[key]; h != nil {
		return h, nil
	}
	defer c.count()
	h = &hold{open: -rampTime} // its ramp, had there been one, would be over
	if len(c.holds) >= maxScopes-1 {
		victim, found := c.victim(now)
		if !found {
			if c.shared == nil {
				c.shared = h
			}
			return c.shared, nil
		}
		evicted = c.holds[victim].queue.disband()
		delete(c.holds, victim)
	}
	if c.holds == nil {
		c.holds = make(map[uint64]*hold)
	}
	c.holds[key] = h
	return h, evicted
}

// victim returns the scope that is missed least, of those that are open: one
// that nobody waits for, and of these the one that opened longest ago; c.mu is
// held.
func (c *Cooldown) victim(now time.Duration) (victim uint64, found bool) {
	var best *hold
	for key, h := range c.holds {
		if now >= h.open && (best == nil || h.before(best)) {
			victim, best, found = key, h, true
		}
	}
	return victim, found
}

func (h *hold) before(t *hold) bool {
	if sWaits, tWaits := h.queue.n > 0, t.queue.n > 0; sWaits != tWaits {
		return tWaits
	}
	return h.open < t.open
}

// tidy drops, once a second at most, the scopes that are over; c.mu is held.
// Without it a scope that nobody asks for again would stay, and the host would
// never be Quiet.
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

// drop forgets a scope, which is the key's own or that of the rest; c.mu is held.
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

// count tells Quiet how many scopes there are; c.mu is held.
func (c *Cooldown) count() {
	n := len(c.holds)
	if c.shared != nil {
		n++
	}
	c.n.Store(int32(n))
}

// extend makes the hold longer by what an answer asked; c.mu is held.
func (h *hold) extend(now time.Duration, code Code, wait time.Duration, conf CooldownConfig, u float64) {
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
	// A run of holds has one jitter. Were it drawn per answer and the largest
	// kept, then every process with many requests in flight would end up at
	// the jitter's upper end, and all of them together.
	if now >= h.named() {
		h.probes = 0
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

// answered takes in an answer that is no refusal; c.mu is held.
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

// disprove ends all holds and begins the ramp; c.mu is held. A quota that is
// refilled steadily has room for one request now and then, so that those who
// wait are not let go all at once.
func (h *hold) disprove(now time.Duration) {
	h.demands = [codes]demand{}
	h.probes, h.probing = 0, false
	h.open, h.next, h.credits = now, after(now, rampStep), rampGrowth
}

// probe reports whether a request may be let go before the time that the server
// named, and counts it.
func (h *hold) probe(now time.Duration) bool {
	if h.probing || h.probes >= maxProbes || h.doubt < minDoubt {
		return false
	}
	if h.probes == 0 {
		h.probed = now
	}
	h.probing = true
	h.probes++
	return true
}

// named returns the time that the server named last.
func (h *hold) named() time.Duration {
	return max(h.demands[TooMany].end, h.demands[Unavailable].end)
}

// opens returns when the hold is over for w: the jitter takes at most half of
// the time from the end that was named to the deadline of w.
func (h *hold) opens(w *Waiter) time.Duration {
	named := h.named()
	if w == nil || w.By <= named {
		return h.open
	}
	return min(h.open, named+(w.By-named)/2)
}

// recovers ends the hold of a 503 where a success arrives after it, and reports
// whether the scope is open by that; c.mu is held.
func (h *hold) recovers(now time.Duration) bool {
	d := &h.demands[Unavailable]
	if now >= d.end || now <= d.at {
		return false
	}
	*d = demand{}
	if h.demands[TooMany].end > h.saved.at {
		h.reopen() // what a 429 asked in the same run stands
		return now >= h.open
	}
	// The 503 was about one request and not about the host: the return goes on
	// where it was. Begun anew, it would keep all but a few waiting after each
	// refusal, and a large server that sheds a little load would lose most.
	h.open, h.next, h.credits = h.saved.open, h.saved.next, h.saved.credits
	return true
}

// reopen computes when the scope opens and begins its ramp anew.
func (h *hold) reopen() {
	h.open = after(max(h.demands[TooMany].end, h.demands[Unavailable].end), h.jitter)
	h.credits = 0
	h.next = h.open
}

// refusing returns the time that the server named where requests are refused
// now, else zero.
func (h *hold) refusing(now time.Duration) (named time.Duration) {
	for i := range h.demands {
		if now < h.demands[i].refuse {
			named = max(named, h.demands[i].named)
		}
	}
	return named
}

// over reports whether the scope's ramp is gone.
func (h *hold) over(now time.Duration) bool { return now >= after(h.open, rampTime) }

// passes reports whether w may go now, and takes its place in the ramp.
func (h *hold) passes(now time.Duration, w *Waiter) bool {
	switch {
	case now < h.named():
		return w != nil && h.queue.turn(w) && h.probe(now)
	case now < h.open:
		return now >= h.opens(w)
	case h.over(now):
		return true
	case h.opens(w) < h.open:
		return true // its deadline did not leave it the time to wait for the ramp
	case !h.queue.turn(w):
		return false
	case now >= h.next:
		// Slots that nobody used are not saved up; one that was used a little
		// late does not move the next.
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

// wait gives w its place and tells it when to ask again. A hold that was made
// longer is passed on down the line, one waking the next: somebody's deadline
// may now come first.
func (h *hold) wait(now time.Duration, w *Waiter) (a Answer, next *Waiter) {
	if w != nil {
		h.queue.join(w)
		if w.told != h.open {
			w.told, next = h.open, w.next
		}
	}
	// Its turn comes by a wake-up. The end of the ramp is for the case that
	// somebody before it neither asks nor leaves.
	a = Answer{Verb: Wait, Ask: after(h.open, rampTime), Until: h.named()}
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
	return a, next
}

// behind returns who stands after w: the first where w is a newcomer.
func (h *hold) behind(w *Waiter) *Waiter {
	if w != nil && w.in == &h.queue {
		return w.next
	}
	return h.queue.first
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

// spread returns the jitter's width after a wait.
func (c CooldownConfig) spread(wait time.Duration) time.Duration {
	if c.Spread == 0 {
		return min(wait/2, time.Second)
	}
	return max(0, c.Spread)
}
