// Package concurrency limits how many requests are in flight to a host at the same time.
//
//	limiter.go  which request goes, and when the others ask again
//	slot.go     slots, and which of them count
package concurrency

import (
	"math"
	"sync"
	"time"

	"github.com/aplomb-go/aplomb/internal/host/instant"
	"github.com/aplomb-go/aplomb/internal/host/queue"
	"github.com/aplomb-go/aplomb/internal/host/rate"
)

// A Config is the rule of a request at a Limiter.
type Config struct {
	// Max is how many requests may be in flight at the same time. It must be positive. [NoMax] is no bound.
	Max int
	// Rate also limits the sends per second. A request waits until there is a
	// token and a slot, and takes both at the same moment.
	// Tokens that were taken before the slot would pile up behind slow responses
	// and all be used at once. A slot that waits for a token would keep others out. As long as the
	// first request waits for a token, no request counts as a waiter of the limiter. If Rate is nil,
	// there is no such limit.
	Rate *rate.Rate
	// Cost is how many tokens the request needs. Below 1 counts as 1. It is also that of its Waiter.
	Cost int
}

// NoMax is the Max of a rule that has a Rate only.
const NoMax = math.MaxInt

// A Limiter is a bulkhead: it limits the requests in flight to a host. A request is in flight from
// the send to the end of the response's body, and has a slot for that time. Its rules:
//
//   - As many requests as Max go at once, from the first request on.
//   - Requests that wait get slots in the order in which they came.
//   - A response body that nobody has read from for ten seconds no longer counts.
//     The caller may have forgotten to close it.
//   - A response body without a length no longer counts when a Read of it has waited
//     for 500 ms. It is a stream, and the server does not work on it.
//   - While an attempt waits for the caller's body, the slot does not count. This begins
//     after 100 ms, or at once if the attempt has spent most of its time so. When
//     the Read returns, the slot counts again, also if Max requests are in flight by then.
//
// The zero Limiter is ready. All methods are safe for concurrent use.
type Limiter struct {
	mu sync.Mutex // guards everything below and every waiter in the queue; taken before the locks of a Rate
	locked
}

// A locked is a Limiter whose lock is held.
type locked struct {
	queue queue.Queue
	front front // how the first of them waits
	max   int   // of the request that asked last, because requests under way take the Max of the newest rule
	slots
}

// A front is how the first waiter waits, and with it all others.
type front struct {
	told    instant.Instant // when it asks again
	forRate bool            // it has no token, so the queue waits for the rate
	from    instant.Instant // since when it waits for the rate
	rated   time.Duration   // how long the queue has waited for the rate, until from
	full    bool            // there was no slot for it
}

// waits notes when the first waiter asks again, and whether the queue waits for the rate.
func (f *front) waits(now, told instant.Instant, forRate bool) {
	f.rated = f.rateTime(now)
	f.told, f.forRate, f.from = told, forRate, now
}

// rateTime returns for how long in all the queue has waited for the rate.
func (f *front) rateTime(now instant.Instant) time.Duration {
	if f.forRate {
		return f.rated + now.Sub(f.from)
	}
	return f.rated
}

// A State is a snapshot of a concurrency limit.
type State struct {
	Limit, InFlight, Waiting int
	ForRate                  int // requests in the queue while its first waits for the rate
	Cost                     int // of all requests in the queue
}

// Enter asks for a slot, and for a token if c has a rate. With Go the slot s is filled, unless it is nil.
// With Wait the request joins the queue. It asks again with the same w, or calls
// Leave. A request with a nil w does not wait and joins no queue.
func (g *Limiter) Enter(now instant.Instant, s *Slot, w *queue.Waiter, c Config) queue.Answer {
	g.mu.Lock()
	a, next := g.enter(now, s, w, c)
	g.unlock(next)
	return a
}

// enter answers w and returns the waiter to wake next.
func (g *locked) enter(now instant.Instant, s *Slot, w *queue.Waiter, c Config) (a queue.Answer, next *queue.Waiter) {
	if g.settle(now); c.Max > g.max {
		next = g.queue.First() // does not know yet that there is room
	}
	g.max = c.Max
	turn, room := g.queue.Turn(w), g.used < g.max
	if turn && room && (c.Rate == nil || c.Rate.Take(now, c.Cost, w.Waits() && !g.front.full)) {
		g.queue.Leave(w)
		g.front.waits(now, instant.Never, false) // the next waiter was told nothing
		if s != nil {
			g.take(s)
		}
		g.front.full = g.used >= g.max
		if next = g.hearer(); next != nil && c.Rate != nil {
			g.front.forRate = c.Rate.ReadyIn(now, next.Costs()) > 0 // as it finds out when it asks
		}
		return queue.Answer{}, next
	}
	a = queue.Answer{Verb: queue.Wait, Ask: instant.Never, Room: room, NoToken: g.front.forRate && c.Rate != nil}
	switch {
	case turn:
		g.front.full = g.front.full || !room
		a.Ask, a.NoToken = g.lapse(), false
		if c.Rate != nil {
			if wait := c.Rate.ReadyIn(now, c.Cost); room || wait > 0 {
				a.Ask, a.NoToken = instant.After(now, wait), true
				a.Until = a.Ask
			}
		}
		if w != nil {
			g.front.waits(now, a.Ask, a.NoToken)
		}
	case c.Rate != nil && !w.Waits():
		a.Until = instant.After(now, c.Rate.Peek(now, c.Cost, g.queue.Cost()))
	}
	if w != nil {
		g.queue.Join(w)
	}
	return a, next
}

// hearer returns the first waiter if there is news for it: room, or a time before it asks again at which
// there may be room. If it waits for the rate, it asks when there is a token.
func (g *locked) hearer() *queue.Waiter {
	if g.front.forRate || g.used >= g.max && g.front.told <= g.lapse() {
		return nil
	}
	return g.queue.First()
}

// Leave takes w out of the queue.
func (g *Limiter) Leave(w *queue.Waiter) {
	g.mu.Lock()
	next := g.queue.Leave(w)
	if g.queue.Len() == 0 {
		g.front.forRate = false // nobody is left who looks at the time
	}
	g.unlock(next)
}

// WakeFirst wakes the first waiter, which may have less to wait for after a
// change of the rate or of Max.
func (g *Limiter) WakeFirst() {
	g.mu.Lock()
	g.unlock(g.queue.First())
}

// RateTime returns for how long in all the queue has waited for the rate and not for a
// slot. The difference of two calls is the part of a wait that is due to the rate.
func (g *Limiter) RateTime(now instant.Instant) time.Duration {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.front.rateTime(now)
}

// State returns a snapshot. That of a nil Limiter is zero.
func (g *Limiter) State() State {
	if g == nil {
		return State{}
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	s := State{Limit: g.max, InFlight: g.held, Cost: g.queue.Cost()}
	if g.front.forRate {
		s.ForRate = g.queue.Len()
	} else {
		s.Waiting = g.queue.Len()
	}
	return s
}

// unlock unlocks the limiter, and wakes a waiter.
func (g *Limiter) unlock(next *queue.Waiter) {
	g.mu.Unlock()
	next.Wake()
}
