// Package line has the line in which requests wait if their next attempt may not go to a host yet. It withholds attempts, and
// not requests. A request may wait for as long as its own schedule would have taken.
package line

import (
	"cmp"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"github.com/aplomb-go/aplomb/internal/host/budget"
	"github.com/aplomb-go/aplomb/internal/host/instant"
	"github.com/aplomb-go/aplomb/internal/host/outage"
	"github.com/aplomb-go/aplomb/internal/host/queue"
)

// A Config has the settings of a request's rule.
type Config struct {
	Budget   budget.Config
	Breaker  bool // first attempts wait for the end of an outage, too
	FailFast bool // first attempts do not come back gradually, because none waited
	Probers  int  // how many members of a fleet share the probes, or 1
}

// passes reports whether the line does not concern a request.
func (c *Config) passes(s *scope, p *Place) bool {
	if !c.Breaker {
		return p.Sent == 0 || c.Budget.Off() // a first attempt is here if an Update has turned the breaker off
	}
	return p.Sent == 0 && c.FailFast && !s.Down
}

// A Place is a request that asks for its next attempt. The owner fills in the first fields, and keeps the Place until the attempt
// is over.
type Place struct {
	Sent   int             // attempts so far; 0: the first asks, because of a circuit breaker
	Failed instant.Instant // when the last of them failed
	Scope  uint64          // of this failure; see Failure

	in     *scope       // whose line it is in, or was
	leaves bool         // it has left a line, and is under way
	token  budget.Token // of its retry, which has not gone yet
}

// A Line decides which attempt to a host may go, and when those who wait ask again. Its rules:
//
//   - A retry takes a token of the budget. If there is none, the retry waits.
//   - While the host is down, a retry waits, and goes as a probe if no other attempt was made for a gap (package outage).
//     With a circuit breaker, first attempts do the same.
//   - When the outage is over, the requests that failed before its end come back even if there is no token, but gradually (see
//     scope).
//   - A request that has failed twice or more stands behind the others. Otherwise a request that fails each time would use up
//     the retries of those that fail once.
//   - Requests that are told 429 have an outage and a line for their credentials, so that no key waits behind another. Requests
//     to a path that fails have an outage and a line for the path, so that a broken path takes no retries from others.
//   - A hedge takes a token and never waits. While requests wait, none goes.
//
// The zero Line is ready. All methods are safe for concurrent use.
type Line struct {
	some, told atomic.Bool // a success changes something, and something of the scopes of a 429; they are read without the lock

	mu      sync.Mutex // guards everything below, and every waiter in the queues
	budget  budget.Budget
	host    scope
	scopes  map[uint64]*scope // those that fail
	spare   *scope
	waiting int
}

// Enter asks whether an attempt may go. A request with a nil w does not wait. If the answer is Wait, a request with a w has joined
// the line. It asks again with the same w, or calls Leave. If the host is down, Until is the time of the next probe.
func (l *Line) Enter(now instant.Instant, p *Place, w *queue.Waiter, c *Config) queue.Answer {
	l.mu.Lock()
	l.budget.Settle(now, l.waiting > 0, &c.Budget)
	s := cmp.Or(p.in, l.scopeOf(p))
	if at := l.goesAt(now, s, p, w, c); at > now {
		if w != nil && !w.Waits() {
			p.in = s
			s.join(now, p, w)
			l.waiting++
			l.note()
		}
		a := queue.Answer{Verb: queue.Wait, Ask: at, Down: s.Down}
		if a.Down {
			a.Until = s.NextProbe(s.patience(w), c.Probers)
		}
		l.mu.Unlock()
		return a
	}
	if s.Down {
		s.Probe(now)
	} else if p.Sent > 0 {
		p.token = l.budget.Take(&c.Budget)
	}
	if !s.Down && !c.passes(s, p) { // a probe may hang for longer than the outage
		if s.leftAt = now; s.waits() {
			p.in, p.leaves = s, true
			s.away++
		}
	}
	next := l.leave(p, w)
	l.mu.Unlock()
	next.Wake()
	return queue.Answer{}
}

// scopeOf returns the scope in which a request waits: that of its failure, if that has an outage or a line or had an outage then, or
// the host. The lock is held.
func (l *Line) scopeOf(p *Place) *scope {
	if s := l.scopes[p.Scope]; s != nil && p.Sent > 0 && (s.Down || s.waits() || s.isFree(p)) {
		return s
	}
	return &l.host
}

// goesAt returns when a request may go, or has to ask again. If that is [instant.Never], somebody wakes it. The lock is held.
func (l *Line) goesAt(now instant.Instant, s *scope, p *Place, w *queue.Waiter, c *Config) instant.Instant {
	switch {
	case c.passes(s, p):
		return now
	case !s.isTurn(p, w):
		return instant.Never
	case s.Down:
		return s.NextProbe(s.patience(w), c.Probers)
	case s.isFree(p):
		return max(s.room(now), s.due(now, p, l.budget.Rate(), c))
	}
	return max(s.room(now), l.budget.Next(now, &c.Budget))
}

// leave takes a request out of its line, and returns the waiter to wake. The lock is held.
func (l *Line) leave(p *Place, w *queue.Waiter) (next *queue.Waiter) {
	if w.Waits() {
		w.Leave()
		l.waiting--
		p.in.emptied()
		l.note()
		return p.in.first()
	}
	return nil
}

// Leave takes a request out of the line that does not wait any more.
func (l *Line) Leave(p *Place, w *queue.Waiter) {
	l.mu.Lock()
	next := l.leave(p, w)
	l.mu.Unlock()
	next.Wake()
}

// Goes notes that the attempt goes now. Its token is used up.
func (p *Place) Goes() { p.token = 0 }

// Leaves reports whether the attempt has left a line and is under way.
func (p *Place) Leaves() bool { return p.leaves }

// Over notes that the attempt of a place is over. If the attempt does not go, its token is given back. Only the first call counts.
func (l *Line) Over(p *Place) {
	if !p.leaves && p.token == 0 {
		return
	}
	l.mu.Lock()
	l.budget.GiveBack(p.token)
	var next *queue.Waiter
	if p.leaves {
		p.in.away--
		next = p.in.first()
	}
	p.leaves, p.token = false, 0
	l.mu.Unlock()
	next.Wake()
}

// Quiet reports whether a success changes nothing. It is a single atomic load.
func (l *Line) Quiet() bool { return !l.some.Load() }

// Told reports whether there was a 429 of late, so that a success counts in the scope of its credentials, too. It is a single
// atomic load.
func (l *Line) Told() bool { return l.told.Load() }

// A Success is an attempt that a server has answered well.
type Success struct {
	Scopes [2]uint64 // in which it counts
	Retry  bool
	Left   bool            // it had left a line; with a circuit breaker first attempts do
	Began  instant.Instant // of a retry, or of an attempt that had left a line
}

// Succeeded notes a success, and reports whether it ends an outage of the host.
func (l *Line) Succeeded(now instant.Instant, v Success) (ends bool) {
	l.mu.Lock()
	l.budget.Succeeded(v.Retry && l.waiting > 0)
	ends = l.host.succeeded(now, v)
	wake := [3]*queue.Waiter{l.host.first()}
	for i, key := range v.Scopes {
		if s := l.scopes[key]; s != nil {
			s.succeeded(now, v)
			if wake[i+1] = s.first(); !s.waits() && now.Sub(s.Ended) >= budget.Window { // else more come who were told the same time
				l.forget(key, s)
			}
		}
	}
	l.note()
	l.mu.Unlock()
	for _, w := range wake {
		w.Wake()
	}
	return ends
}

// A Failure is an attempt that has failed.
type Failure struct {
	Began instant.Instant
	Scope uint64        // of the credentials after a 429, else of the path
	Wait  time.Duration // that the server asked for
	Told  bool          // it was a 429, which is no failure of the host
	Late  bool          // it took too long, though not for its caller: a sign of overload
}

// Failed notes a failure.
func (l *Line) Failed(now instant.Instant, f Failure) {
	var ofHost, ofScope *queue.Waiter // who may have been told a later time than that of its probe
	l.mu.Lock()
	l.budget.Failed()
	if !f.Told && l.host.failed(now, f) {
		ofHost = l.host.first()
	}
	if f.Told {
		l.told.Store(true)
	}
	if s := l.failing(f.Scope); s.failed(now, f) {
		ofScope = s.first()
	}
	l.note()
	l.mu.Unlock()
	ofHost.Wake()
	ofScope.Wake()
}

// failing returns the scope of a failure. If there are too many, those are forgotten in which nobody waits. The lock is held.
func (l *Line) failing(key uint64) *scope {
	s := l.scopes[key]
	if s != nil {
		return s
	}
	if len(l.scopes) >= queue.MaxScopes {
		maps.DeleteFunc(l.scopes, func(_ uint64, s *scope) bool { return !s.waits() })
	}
	if s, l.spare = l.spare, nil; s == nil {
		s = new(scope)
	}
	if l.scopes == nil {
		l.scopes = map[uint64]*scope{}
	}
	l.scopes[key] = s
	return s
}

// forget forgets a scope in which nobody waits. The next to fail has its memory, unless somebody who left it is under way. The
// lock is held.
func (l *Line) forget(key uint64, s *scope) {
	delete(l.scopes, key)
	if s.away == 0 {
		*s = scope{}
		l.spare = s
	}
}

// note notes whether a success changes something. The lock is held.
func (l *Line) note() {
	l.some.Store(l.host.Down || l.waiting > 0 || l.budget.Failing() || len(l.scopes) > 0)
	if len(l.scopes) == 0 {
		l.told.Store(false)
	}
}

// A State is a snapshot of a line.
type State struct {
	outage.State // of the host
	Waiting      int
}

// State returns a snapshot.
func (l *Line) State() (v State) {
	if l.Quiet() {
		return v
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return State{l.host.State, l.waiting}
}

// Left returns how many retries could go at once. It is +Inf if the budget is off.
func (l *Line) Left(now instant.Instant, c *Config) float64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.budget.Settle(now, l.waiting > 0, &c.Budget)
	if !c.Budget.Off() && (l.host.Down || l.host.waits()) {
		return 0
	}
	return l.budget.Left(&c.Budget)
}

// Hear lets the fleet change the outage of the host.
func (l *Line) Hear(change func(*outage.Outage)) {
	l.mu.Lock()
	change(&l.host.Outage)
	l.note()
	next := l.host.first()
	l.mu.Unlock()
	next.Wake()
}
