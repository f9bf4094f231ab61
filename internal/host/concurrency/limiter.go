// Package concurrency limits how many requests are in flight to a host at the same time.
//
//	limiter.go  the rules, and what the owner of a concurrency limit calls
//	enter.go    which request goes, and when the others ask again
//	slot.go     slots, and which of them count
//	limit.go    how the limit grows, goes back and is cut
//	fleet.go    what the limiter hears from a fleet and tells it
//	permit.go   the permit of a fleet to send a probe
package concurrency

import (
	"sync"
	"time"

	"github.com/aplomb-go/aplomb/internal/host/instant"
	"github.com/aplomb-go/aplomb/internal/host/queue"
	"github.com/aplomb-go/aplomb/internal/host/rate"
)

// A Config bounds a concurrency limit. Zero fields take the defaults.
type Config struct {
	// Start is the first limit. The limit also returns to Start when it is not
	// used up. The default is 10.
	Start int
	// Max is the highest limit. By default there is none.
	Max int
	// Rate also limits the sends per second. A request waits until there is a
	// token, then until there is a slot, and takes both at the same moment.
	// Tokens that were taken before the slot would pile up behind an open circuit
	// and all be used when it opens. A slot that waits for a token would look
	// like an overloaded host. As long as the first request waits for a token,
	// no request counts as a waiter of the limiter. If Rate is nil, there is no such
	// limit.
	Rate *rate.Rate
	// Fleet makes an open circuit ask the fleet before it lets a probe through.
	Fleet bool
	// Refuses says that the request does not wait at an open circuit. Then the limiter keeps its
	// permit to probe for the next request, although nobody waits.
	Refuses bool
}

// ForMember returns the config for each of so many members of a fleet. Start is for all of them
// together, so that a host that freezes has no more in its queue than it has from a single
// member. A member starts with 2, because with 1 every second request of a small burst
// would wait.
func (c Config) ForMember(members int) Config {
	if c.Start <= 0 {
		c.Start = start
	}
	if members > 1 {
		c.Start = max(min(c.Start, 2), (c.Start+members-1)/members)
	}
	return c
}

// A Limiter limits the requests in flight to a host. A request is in flight from
// the send to the end of the response's body, and has a slot for that time. The
// limiter is circuit breaker, bulkhead and slow start together. Its rules:
//
// Slots:
//
//   - Requests that wait get slots in the order in which they came.
//   - If all requests in flight have their responses, and only the bodies are
//     being read, another request may go beside the limit. Max holds for these
//     requests as well.
//   - A response body that nobody has read from for ten seconds no longer counts.
//     The caller may have forgotten to close it.
//   - A response body without a length no longer counts when a Read of it has waited
//     for 500 ms. It is a stream, and the server does not work on it.
//   - While an attempt waits for the caller's body, the slot does not count. This begins
//     after 100 ms, or at once if the attempt has spent most of its time so. When
//     the Read returns, the slot counts again, also if the limit is used up by then.
//   - A Lost request keeps its slot. All lost slots come back when a success
//     shows that the server works off its queue, or when the circuit opens. Until
//     then a lost slot comes back every 0.2 s to 1 s, whether or not anybody asks. If
//     they all came back at once, a frozen server would be sent a full limit of
//     requests per timeout. The exception is a request that was lost although
//     another request that was sent later succeeded more than two round trips after
//     its send. Its route is bad and not the host, so its slot comes back at once.
//
// The limit:
//
//   - The limit always holds. It starts at 10.
//   - The limit grows only while it is used up (RFC 7661). Below the threshold
//     it grows by 1 per success, which is a slow start. Above the threshold it
//     grows by a step of 1, or of a 32nd of the limit if that is more, each
//     time twice as many requests as the limit have succeeded (compare RFC 5681).
//   - The first threshold is 100. After every 10 s without a cut the limit moves
//     halfway towards the number of slots that were in use, but not below the
//     start, and becomes the threshold. After a cut the threshold stays as long as the
//     limit is used up, because the server failed not far above it. So
//     the limit of a healthy host stays near its real concurrency. When the host
//     freezes, no more than that many requests are in its queue.
//   - After the first such 10 s a success counts as 16, as long as the mean time of responses
//     is at most a 16th above that before the limit was used up. So the limit grows by a fifth
//     per round, up to twice the threshold. A server that gets slower may soon collapse, and
//     failures would show that too late. After a cut this begins when the limit is no longer
//     used up.
//   - After the first such 10 s the limit has to be used up for 2 s before it
//     grows. A burst is no reason to grow, and neither is a queue that is slow to
//     take free slots.
//
// The circuit:
//
//   - The circuit opens when the host fails wholesale. That means at least 10
//     failures in a row, for 20 times as long as successes are usually apart.
//     The failures must also last for a second, unless there are 100 of them.
//     A bad route among good routes has successes in between.
//   - A success of a request that was sent before the first of the failures does not end
//     the row. A host that goes may still finish the requests that it has.
//   - When the circuit opens, the limit becomes 1 and the threshold half of the
//     former limit. This is a cut. Only requests that are sent after the cut
//     count from then on, so requests that were sent together cause a single cut at
//     most.
//   - While the circuit is open, a single probe is under way at a time. The next probe
//     may go 0.5 s after the end of a failed probe, or when a probe has had no
//     response for 10 s.
//   - The first success of a request that was sent after the cut closes the circuit,
//     however late it comes.
//
// What the limiter hears from a fleet and tells it is in fleet.go.
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
	conf  Config

	slots  slots  // which requests are in flight
	growth growth // how the limit grows and goes back
	pulse  pulse  // how the host succeeds
	outage outage // how it fails

	fleet *fleet // nil: there is no fleet
}

// A State is a snapshot of a concurrency limit.
type State struct {
	Limit, InFlight, Waiting int
	ForRate                  int // requests in the queue while its first waits for the rate
	CircuitOpen              bool
	Since                    instant.Instant // while open: when the failures began
	Fleet                    bool            // others said that it is open, or closed
}

// Turns returns how often the circuit has opened and closed. It is odd while the circuit is
// open. It is a single atomic load.
func (g *Limiter) Turns() uint32 { return g.outage.turns.Load() }

// CircuitOpen reports whether the circuit is open.
func (g *Limiter) CircuitOpen() bool { return g.Turns()%2 == 1 }

// Enter asks for a slot, and for a token if c has a rate. With Go the
// slot s is filled, and Until is when the host's response is to be expected.
// With Wait the request joins the queue. It asks again with the same w, or calls
// Leave. A request with a nil w does not wait and joins no queue. Enter never
// answers Refuse.
func (g *Limiter) Enter(now instant.Instant, s *Slot, w *queue.Waiter, c Config) queue.Answer {
	g.mu.Lock()
	a, next := g.enter(now, s, w, c)
	g.unlock(next)
	return a
}

// Leave takes w out of the queue. news reports that the owner has to tell the fleet
// something; see Limiter.News.
func (g *Limiter) Leave(w *queue.Waiter) (news bool) {
	g.mu.Lock()
	next := g.queue.Leave(w)
	if g.queue.Len() == 0 {
		g.front.forRate = false // nobody is left who looks at the time
		if !g.conf.Refuses {    // else the permit is for the next request
			g.fleet.unused()
		}
	}
	return g.unlock(next)
}

// Release gives back the slot of a request that was not sent. news is as for Leave.
func (g *Limiter) Release(now instant.Instant, s *Slot) (news bool) {
	g.mu.Lock()
	var next *queue.Waiter
	if s.held {
		if g.outage.open && s.epoch == g.slots.epoch {
			g.outage.probe = now // another probe may go instead
			g.fleet.passOn(g.queue.Len())
		}
		g.free(now, s)
		g.growth.full = false
		next = g.head(now)
	}
	return g.unlock(next)
}

// Result reports how a request ended, if its slot is kept for the body of the
// response. It is called at most once per slot, before Done. From then on the limiter
// knows the address of the slot. news is as for Leave.
func (g *Limiter) Result(now instant.Instant, s *Slot, r Result) (news bool) {
	g.mu.Lock()
	var next *queue.Waiter
	if s.held {
		g.note(now, s, r)
		if s.answered && s.epoch == g.slots.epoch {
			g.slots.idle.push(s, now)
		}
		next = g.head(now)
	}
	return g.unlock(next)
}

// End reports how a request ended, unless Result has done so, and gives back its slot. It may be called
// more than once and from several goroutines. Only the first call counts.
func (g *Limiter) End(now instant.Instant, s *Slot, r Result) (news bool) {
	g.mu.Lock()
	var next *queue.Waiter
	if s.held {
		g.note(now, s, r)
		if g.outage.open && s.epoch == g.slots.epoch && g.slots.inFlight == 1 { // else another probe went while this one waited for its caller
			g.probeEnded(now)
		}
		g.free(now, s)
		next = g.head(now)
	}
	return g.unlock(next)
}

// WakeFirst wakes the first waiter, which may have less to wait for after a
// change of the rate.
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

// Wants returns how many tokens of the rate the waiters can use now. Tokens of a fleet
// that wait with them for a slot would be lost to the other members.
func (g *Limiter) Wants() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	room, waiters := 1, g.queue.Len()
	if waiters == 0 {
		return 0
	}
	if !g.outage.open {
		room = max(1, g.growth.limit-g.slots.used())
	}
	return max(g.queue.First().Costs(), int(int64(g.queue.Cost())*int64(min(room, waiters))/int64(waiters)))
}

// State returns a snapshot.
func (g *Limiter) State() State {
	g.mu.Lock()
	defer g.mu.Unlock()
	since, fleet := g.outage.since, g.fleet != nil && g.fleet.byOthers
	if fleet && g.outage.open {
		since = g.fleet.since
	}
	return State{
		Limit:       g.growth.limit,
		InFlight:    g.slots.inFlight + int(g.slots.old+g.slots.away),
		Waiting:     g.waiting(),
		ForRate:     g.queue.Len() - g.waiting(),
		CircuitOpen: g.CircuitOpen(),
		Since:       since,
		Fleet:       fleet,
	}
}

// unlock unlocks the limiter, and wakes a waiter. news reports that the owner has to tell the fleet
// something; see Limiter.News.
func (g *Limiter) unlock(next *queue.Waiter) (news bool) {
	news = g.fleet != nil && g.fleet.news != News{}
	g.mu.Unlock()
	next.Wake()
	return news
}

// note takes note of how the request of s ended.
func (g *locked) note(now instant.Instant, s *Slot, r Result) {
	g.back(s) // a server may respond before it has the whole body
	switch r {
	case Neutral:
	case Success:
		g.succeed(now, s)
	default:
		g.fail(now, s, r)
	}
}
