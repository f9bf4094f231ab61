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

	mu     sync.Mutex // guards what follows and every waiter in a scope's line
	scopes map[uint64]*scope
	rest   *scope        // of all keys that are not in scopes; nil: not needed
	sweep  time.Duration // no search for scopes that are over before this time
}

// A hold is what answers of one code asked for.
type hold struct {
	end    time.Duration // no request before this time
	refuse time.Duration // requests are turned away until this time
	named  time.Duration // what the server said, where it was more than the end
	at     time.Duration // when the last such answer came
}

// A scope is held until the time that the server named, and with the jitter
// until open; then its ramp begins.
type scope struct {
	holds   [codes]hold
	open    time.Duration
	jitter  time.Duration // part of open, drawn once per run of holds
	slot    time.Duration // when the ramp lets one more go, whatever is answered
	credits int32         // how many more the answers let go
	doubt   int8          // how much speaks against holds: see probe
	probes  int8          // how many were sent in this run of holds
	probing bool          // nothing was refused since the last of them
	probed  time.Duration // when the first of them was let go
	saved   ramp          // what this run of holds began in
	line    line
}

// A ramp is how far a scope's return had come at a time.
type ramp struct {
	at, open, slot time.Duration
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
	s, evicted := c.scopeFor(now, key)
	s.extend(now, code, wait, conf, u)
	open, next := s.open, s.line.first
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
	s := c.find(key)
	moved := c.claim(key, s, w)
	a, next := c.enter(now, key, s, w)
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
	if s := c.find(key); s != nil {
		s.answered(now, sent, success)
		next = s.line.first // may go, or has less to wait for than it was told
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
	s := c.find(key)
	return s == nil || now >= s.named()
}

// Named returns the time before which nothing of a scope is sent, as the server
// named it and without jitter; zero where it is over.
func (c *Cooldown) Named(now time.Duration, key uint64) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	if s := c.find(key); s != nil && now < s.named() {
		return s.named()
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
	s := c.find(key)
	if s == nil || now >= s.open {
		return 0, false
	}
	if named := s.refusing(now); named > 0 {
		return named, true
	}
	return s.open, false
}

// Holds returns for a snapshot how many scopes are held and until when the
// longest of them is.
func (c *Cooldown) Holds(now time.Duration) (n int, until time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for s := range c.all() {
		if s.open > now {
			n++
			until = max(until, s.open)
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
	for s := range c.all() {
		if now < s.open {
			return true
		}
	}
	return false
}

// enter answers w and returns who has to be woken; c.mu is held.
func (c *Cooldown) enter(now time.Duration, key uint64, s *scope, w *Waiter) (a Answer, next *Waiter) {
	if s == nil {
		return Answer{}, nil
	}
	if named := s.refusing(now); named > 0 {
		next = s.behind(w) // all who stand in line are to hear of it
		s.line.leave(w)
		return Answer{Verb: Refuse, Until: named}, next
	}
	if s.passes(now, w) {
		s.line.leave(w)
		if s.over(now) && s.line.n == 0 {
			c.drop(key, s)
			return Answer{}, nil
		}
		return Answer{}, s.line.first
	}
	return s.wait(now, w)
}

// claim takes w out of any line but that of s, and returns who has to be woken
// for it; c.mu is held. A waiter that shared the scope of the rest may have got
// a scope of its own meanwhile.
func (c *Cooldown) claim(key uint64, s *scope, w *Waiter) (next *Waiter) {
	if w == nil || w.in == nil || s != nil && w.in == &s.line {
		return nil
	}
	return c.leave(key, w)
}

// leave gives up the place of w and returns who has to be woken; c.mu is held.
func (c *Cooldown) leave(key uint64, w *Waiter) (next *Waiter) {
	for _, s := range [...]*scope{c.scopes[key], c.rest} {
		if s == nil || w == nil || w.in != &s.line {
			continue
		}
		behind := w.next
		if next = s.line.leave(w); w.told != s.open {
			next = behind // w may have been woken, and not yet told those behind it what for
		}
	}
	return next
}

// find returns the scope of a key, nil where nothing is known of it; c.mu is
// held.
func (c *Cooldown) find(key uint64) *scope {
	if s := c.scopes[key]; s != nil {
		return s
	}
	return c.rest
}

// all yields every scope; c.mu is held.
func (c *Cooldown) all() iter.Seq[*scope] {
	return func(yield func(*scope) bool) {
		if c.rest != nil && !yield(c.rest) {
			return
		}
		for _, s := range c.scopes {
			if !yield(s) {
				return
			}
		}
	}
}

// scopeFor returns the scope of a key, made where there is none, and those who
// waited for one that had to go for it; c.mu is held. If all there are hold, it
// is the scope of the rest.
func (c *Cooldown) scopeFor(now time.Duration, key uint64) (s *scope, evicted []*Waiter) {
	c.tidy(now)
	if s = c.scopes[key]; s != nil {
		return s, nil
	}
	defer c.count()
	s = &scope{open: -rampTime} // its ramp, had there been one, would be over
	if len(c.scopes) >= maxScopes-1 {
		victim, found := c.victim(now)
		if !found {
			if c.rest == nil {
				c.rest = s
			}
			return c.rest, nil
		}
		evicted = c.scopes[victim].line.disband()
		delete(c.scopes, victim)
	}
	if c.scopes == nil {
		c.scopes = make(map[uint64]*scope)
	}
	c.scopes[key] = s
	return s, evicted
}

// victim returns the scope that is missed least, of those that are open: one
// that nobody waits for, and of these the one that opened longest ago; c.mu is
// held.
func (c *Cooldown) victim(now time.Duration) (victim uint64, found bool) {
	var best *scope
	for key, s := range c.scopes {
		if now >= s.open && (best == nil || s.before(best)) {
			victim, best, found = key, s, true
		}
	}
	return victim, found
}

func (s *scope) before(t *scope) bool {
	if sWaits, tWaits := s.line.n > 0, t.line.n > 0; sWaits != tWaits {
		return tWaits
	}
	return s.open < t.open
}

// tidy drops, once a second at most, the scopes that are over; c.mu is held.
// Without it a scope that nobody asks for again would stay, and the host would
// never be Quiet.
func (c *Cooldown) tidy(now time.Duration) {
	if c.Quiet() || now < c.sweep {
		return
	}
	c.sweep = after(now, sweepEvery)
	for key, s := range c.scopes {
		if s.over(now) && s.line.n == 0 {
			c.drop(key, s)
		}
	}
	if c.rest != nil && c.rest.over(now) && c.rest.line.n == 0 {
		c.drop(0, c.rest)
	}
}

// drop forgets a scope, which is the key's own or that of the rest; c.mu is held.
func (c *Cooldown) drop(key uint64, s *scope) {
	if s == c.rest {
		c.rest = nil
	} else {
		delete(c.scopes, key)
	}
	if len(c.scopes) == 0 {
		c.scopes = nil
	}
	c.count()
}

// count tells Quiet how many scopes there are; c.mu is held.
func (c *Cooldown) count() {
	n := len(c.scopes)
	if c.rest != nil {
		n++
	}
	c.n.Store(int32(n))
}

// extend makes the hold longer by what an answer asked; c.mu is held.
func (s *scope) extend(now time.Duration, code Code, wait time.Duration, conf CooldownConfig, u float64) {
	h := &s.holds[code]
	h.at = now
	end := after(now, min(wait, conf.Max))
	if now >= h.refuse {
		h.named = 0
	}
	if conf.Stop && wait > conf.Max {
		h.refuse = max(h.refuse, end)
		h.named = max(h.named, after(now, wait))
	}
	// A run of holds has one jitter. Were it drawn per answer and the largest
	// kept, then every process with many requests in flight would end up at
	// the jitter's upper end, and all of them together.
	if now >= s.named() {
		s.probes = 0
	}
	s.probing = false
	s.doubt = max(0, s.doubt-refusalCost)
	if now >= s.open {
		s.saved = ramp{now, s.open, s.slot, s.credits}
		s.jitter = time.Duration(u * float64(conf.spread(end-now)))
	}
	h.end = max(h.end, end)
	s.reopen()
}

// answered takes in an answer that is no refusal; c.mu is held.
func (s *scope) answered(now, sent time.Duration, success bool) {
	if success {
		s.doubt = min(s.doubt+1, maxDoubt)
	}
	switch {
	case success && s.probes > 0 && sent >= s.probed && now < s.named():
		s.disprove(now)
	case success && s.recovers(now), now >= s.open && sent >= s.open:
		s.credits += rampGrowth
	}
}

// disprove ends all holds and begins the ramp; c.mu is held. A quota that is
// refilled steadily has room for one request now and then, so that those who
// wait are not let go all at once.
func (s *scope) disprove(now time.Duration) {
	s.holds = [codes]hold{}
	s.probes, s.probing = 0, false
	s.open, s.slot, s.credits = now, after(now, rampStep), rampGrowth
}

// probe reports whether a request may be let go before the time that the server
// named, and counts it.
func (s *scope) probe(now time.Duration) bool {
	if s.probing || s.probes >= maxProbes || s.doubt < minDoubt {
		return false
	}
	if s.probes == 0 {
		s.probed = now
	}
	s.probing = true
	s.probes++
	return true
}

// named returns the time that the server named last.
func (s *scope) named() time.Duration {
	return max(s.holds[TooMany].end, s.holds[Unavailable].end)
}

// opens returns when the hold is over for w: the jitter takes at most half of
// the time from the end that was named to the deadline of w.
func (s *scope) opens(w *Waiter) time.Duration {
	named := s.named()
	if w == nil || w.By <= named {
		return s.open
	}
	return min(s.open, named+(w.By-named)/2)
}

// recovers ends the hold of a 503 where a success arrives after it, and reports
// whether the scope is open by that; c.mu is held.
func (s *scope) recovers(now time.Duration) bool {
	h := &s.holds[Unavailable]
	if now >= h.end || now <= h.at {
		return false
	}
	*h = hold{}
	if s.holds[TooMany].end > s.saved.at {
		s.reopen() // what a 429 asked in the same run stands
		return now >= s.open
	}
	// The 503 was about one request and not about the host: the return goes on
	// where it was. Begun anew, it would keep all but a few waiting after each
	// refusal, and a large server that sheds a little load would lose most.
	s.open, s.slot, s.credits = s.saved.open, s.saved.slot, s.saved.credits
	return true
}

// reopen computes when the scope opens and begins its ramp anew.
func (s *scope) reopen() {
	s.open = after(max(s.holds[TooMany].end, s.holds[Unavailable].end), s.jitter)
	s.credits = 0
	s.slot = s.open
}

// refusing returns the time that the server named where requests are refused
// now, else zero.
func (s *scope) refusing(now time.Duration) (named time.Duration) {
	for i := range s.holds {
		if now < s.holds[i].refuse {
			named = max(named, s.holds[i].named)
		}
	}
	return named
}

// over reports whether the scope's ramp is gone.
func (s *scope) over(now time.Duration) bool { return now >= after(s.open, rampTime) }

// passes reports whether w may go now, and takes its place in the ramp.
func (s *scope) passes(now time.Duration, w *Waiter) bool {
	switch {
	case now < s.named():
		return w != nil && s.line.turn(w) && s.probe(now)
	case now < s.open:
		return now >= s.opens(w)
	case s.over(now):
		return true
	case s.opens(w) < s.open:
		return true // its deadline did not leave it the time to wait for the ramp
	case !s.line.turn(w):
		return false
	case now >= s.slot:
		// Slots that nobody used are not saved up; one that was used a little
		// late does not move the next.
		if s.slot += rampStep; s.slot <= now {
			s.slot = now + rampStep
		}
		return true
	case s.credits > 0:
		s.credits--
		return true
	}
	return false
}

// wait gives w its place and tells it when to ask again. A hold that was made
// longer is passed on down the line, one waking the next: somebody's deadline
// may now come first.
func (s *scope) wait(now time.Duration, w *Waiter) (a Answer, next *Waiter) {
	if w != nil {
		s.line.join(w)
		if w.told != s.open {
			w.told, next = s.open, w.next
		}
	}
	// Its turn comes by a wake-up. The end of the ramp is for the case that
	// somebody before it neither asks nor leaves.
	a = Answer{Verb: Wait, Ask: after(s.open, rampTime), Until: s.named()}
	if now < s.open {
		a.Open = s.open
	}
	if s.line.turn(w) {
		a.Ask = max(s.open, min(s.slot, a.Ask))
		if now >= s.open {
			a.Until = a.Ask
		}
	}
	if own := s.opens(w); own < s.open {
		a.Ask = own
	}
	return a, next
}

// behind returns who stands after w: the first where w is a newcomer.
func (s *scope) behind(w *Waiter) *Waiter {
	if w != nil && w.in == &s.line {
		return w.next
	}
	return s.line.first
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
