// The server said "try later": who has to wait, and how do they come back?

package host

import (
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
//   - A hold is only ever made longer. The exception: a success that arrives
//     after a 503 ends the hold of the 503, whenever it was sent. A server that
//     sheds load answers many and refuses some; were it only what is sent later
//     that counts, each refusal would hold everybody (nothing is sent during a
//     hold), and the storm experiment ends at a tenth of the load. Whoever was
//     told to wait itself still waits as long as it was told.
//   - An answer holds for Max at most. In stop mode requests are refused while
//     such an answer's hold lasts, with the time that the server named.
//   - After a hold requests come back in a ramp: one, then two more for each
//     one that was answered, which doubles them per round trip as in a slow
//     start (RFC 5681 §3.1); and one per 100 ms whatever is answered, so that
//     a slow first request holds up nobody. 10 s after the hold the ramp is
//     gone.
//   - They come back in the order in which they came, never before the time
//     that was named.
//
// At most 256 scopes are kept: those that are over go first, then those in a
// ramp, the running holds last, soonest end first.
//
// The zero Cooldown is ready. All methods are safe for concurrent use.
type Cooldown struct {
	n atomic.Int32 // len(scopes), to be read without the lock

	mu     sync.Mutex // guards what follows and every waiter in a scope's line
	scopes map[uint64]*scope
	sweep  time.Duration // no search for scopes that are over before this time
}

// A hold is what answers of one code asked for.
type hold struct {
	end    time.Duration // no request before this time
	refuse time.Duration // requests are turned away until this time
	named  time.Duration // what the server said, where it was more than the end
	at     time.Duration // when the last such answer came
}

// A scope is held until open; then its ramp begins.
type scope struct {
	holds   [codes]hold
	open    time.Duration
	jitter  time.Duration // part of open, drawn once per run of holds
	slot    time.Duration // when the ramp lets one more go, whatever is answered
	credits int           // how many more the answers let go
	saved   ramp          // what this run of holds began in
	line    line
}

// A ramp is how far a scope's return had come at a time.
type ramp struct {
	at, open, slot time.Duration
	credits        int
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
	s, evicted := c.scopeFor(now, key, after(now, min(wait, conf.Max)))
	if s == nil {
		c.mu.Unlock()
		return now
	}
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
	a, next := c.enter(now, key, w)
	c.mu.Unlock()
	next.wake()
	return a
}

// Leave gives up the place of w.
func (c *Cooldown) Leave(key uint64, w *Waiter) {
	c.mu.Lock()
	var next *Waiter
	if s := c.scopes[key]; s != nil && w != nil && w.in == &s.line {
		behind := w.next
		if next = s.line.leave(w); w.told != s.open {
			next = behind // w may have been woken, and not yet told those behind it what for
		}
	}
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
	if s := c.scopes[key]; s != nil {
		if success && s.recovers(now) || now >= s.open && sent >= s.open {
			s.credits += rampGrowth
		}
		next = s.line.first // may go, or has less to wait for than it was told
	}
	c.mu.Unlock()
	next.wake()
}

// Held returns until when a scope is held, and whether requests are refused
// meanwhile and then with which time; zero where nothing is held. It takes
// nothing: it is the question before a hedge, before a sleep, and after a wait
// elsewhere.
func (c *Cooldown) Held(now time.Duration, key uint64) (until time.Duration, refused bool) {
	if c.Quiet() {
		return 0, false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.scopes[key]
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
	for _, s := range c.scopes {
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
	for _, s := range c.scopes {
		if now < s.open {
			return true
		}
	}
	return false
}

// enter answers w and returns who has to be woken; c.mu is held.
func (c *Cooldown) enter(now time.Duration, key uint64, w *Waiter) (a Answer, next *Waiter) {
	s := c.scopes[key]
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
			c.drop(key)
			return Answer{}, nil
		}
		return Answer{}, s.line.first
	}
	return s.wait(w)
}

// scopeFor returns the scope of a key, made where there is none, and those who
// waited for one that had to go for it; c.mu is held. It returns nil where all there
// are hold for longer than this one would.
func (c *Cooldown) scopeFor(now time.Duration, key uint64, end time.Duration) (s *scope, evicted []*Waiter) {
	c.tidy(now)
	if s = c.scopes[key]; s != nil {
		return s, nil
	}
	if len(c.scopes) >= maxScopes {
		victim := c.victim(now)
		v := c.scopes[victim]
		if v.open > end {
			return nil, nil
		}
		evicted = v.line.disband()
		c.drop(victim)
	}
	if c.scopes == nil {
		c.scopes = make(map[uint64]*scope)
	}
	s = &scope{open: -rampTime} // its ramp, had there been one, would be over
	c.scopes[key] = s
	c.n.Store(int32(len(c.scopes)))
	return s, evicted
}

// victim returns the scope that is missed least: the one that opened longest
// ago, or will open soonest; c.mu is held. Of scopes that are open, one that
// nobody waits for.
func (c *Cooldown) victim(now time.Duration) (victim uint64) {
	var best *scope
	for key, s := range c.scopes {
		if best == nil || s.before(best, now) {
			victim, best = key, s
		}
	}
	return victim
}

func (s *scope) before(t *scope, now time.Duration) bool {
	sRuns, tRuns := now < s.open, now < t.open
	sWaits, tWaits := s.line.n > 0, t.line.n > 0
	switch {
	case sRuns != tRuns:
		return tRuns
	case !sRuns && sWaits != tWaits:
		return tWaits
	}
	return s.open < t.open
}

// tidy drops, once a second at most, the scopes that are over; c.mu is held.
// Without it a scope that nobody asks for again would stay, and the host would
// never be Quiet.
func (c *Cooldown) tidy(now time.Duration) {
	if len(c.scopes) == 0 || now < c.sweep {
		return
	}
	c.sweep = after(now, sweepEvery)
	for key, s := range c.scopes {
		if s.over(now) && s.line.n == 0 {
			c.drop(key)
		}
	}
}

func (c *Cooldown) drop(key uint64) {
	delete(c.scopes, key)
	if len(c.scopes) == 0 {
		c.scopes = nil
	}
	c.n.Store(int32(len(c.scopes)))
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
	if now >= s.open {
		s.saved = ramp{now, s.open, s.slot, s.credits}
		s.jitter = time.Duration(u * float64(conf.spread(end-now)))
	}
	h.end = max(h.end, end)
	s.reopen()
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
	case now < s.open:
		return false
	case s.over(now):
		return true
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
func (s *scope) wait(w *Waiter) (a Answer, next *Waiter) {
	if w != nil {
		s.line.join(w)
		if w.told != s.open {
			w.told, next = s.open, w.next
		}
	}
	if s.line.turn(w) {
		at := max(s.open, min(s.slot, after(s.open, rampTime)))
		return Answer{Verb: Wait, Ask: at, Until: at}, next
	}
	// Its turn comes by a wake-up. The end of the ramp is for the case that
	// somebody before it neither asks nor leaves.
	return Answer{Verb: Wait, Ask: after(s.open, rampTime), Until: s.open}, next
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
