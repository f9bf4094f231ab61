// Package gate limits how many requests are in flight to a host at the same time.
package gate

import (
	"math"
	"sync"
	"time"

	"github.com/aplomb-go/aplomb/internal/host/instant"
	"github.com/aplomb-go/aplomb/internal/host/queue"
	"github.com/aplomb-go/aplomb/internal/host/rate"
)

// The constants of the slots. Those of the limit are in limit.go.
const (
	// Lost requests keep their slots. A few requests that were lost must not
	// fill the limit for ever, and a bad route must not keep out the good
	// requests that would show that the host works. So lost slots come back by
	// time, slotsPerGap times per usual gap between successes, within these
	// bounds.
	slotsPerGap = 4
	soonestSlot = 200 * time.Millisecond
	latestSlot  = time.Second

	// probeTime is how long a probe may be under way without a response before
	// the next probe may go. A probe that hangs for ever must not keep the gate
	// closed. The probe still opens the gate if it succeeds later, because the
	// host may take longer than probeTime to respond.
	probeTime = 10 * time.Second

	// bodyTime is how long a body that nobody reads keeps its slot.
	bodyTime = time.Minute

	// streamTime is how long a Read of a body without a length waits before the
	// body counts as a stream and loses its slot.
	streamTime = 500 * time.Millisecond

	// callerTime is how long an attempt waits for the caller's body before its slot
	// stops counting.
	callerTime = 100 * time.Millisecond
)

// A Config bounds a gate. Zero fields take the defaults.
type Config struct {
	// Start is the first limit. The limit also returns to Start when it is not
	// used up. The default is 10.
	Start int
	// Max is the highest limit. By default there is none.
	Max int
	// Rate also limits the sends per second. A request waits until there is a
	// token, then until there is a slot, and takes both at the same moment.
	// Tokens that were taken before the slot would pile up behind a closed gate
	// and all be used when it opens. A slot that waits for a token would look
	// like an overloaded host. As long as the first request waits for a token,
	// no request counts as a waiter of the gate. If Rate is nil, there is no such
	// limit.
	Rate *rate.Rate
	// Fleet makes a closed gate ask the fleet before it lets a probe through.
	Fleet bool
}

// Part returns the config for each of so many processes of a fleet. Start is for all of them
// together, so that a host that freezes has no more in its queue than it has from a single
// process. A process starts with 2, because with 1 every second request of a small burst
// would wait.
func (c Config) Part(processes int) Config {
	if c.Start <= 0 {
		c.Start = start
	}
	if processes > 1 {
		c.Start = max(min(c.Start, 2), (c.Start+processes-1)/processes)
	}
	return c
}

// A Result tells how a request that had a slot ended, as a sign of the host.
type Result uint8

const (
	// Neutral tells nothing. The caller cancelled, a hedge lost, or the server
	// responded that this client sends too much (429), which does not concern
	// the gate.
	Neutral Result = iota
	// Success is any response of a server that works, 404 included.
	Success
	// Failed is a response or an error that says that the host does not work,
	// and that the host is done with the request: 5xx, or a refused or reset
	// connection.
	Failed
	// Lost is a request that timed out without a response. The server may still
	// be working on the request, or find it in its socket later.
	Lost
)

// A Gate limits the requests in flight to a host. A request is in flight from
// the send to the end of the response's body, and has a slot for that time. The
// gate is circuit breaker, bulkhead and slow start together. Its rules:
//
// Slots:
//
//   - Requests that wait get slots in the order in which they came.
//   - If all requests in flight have their responses, and only the bodies are
//     being read, another request may go beside the limit. Max holds for these
//     requests as well.
//   - A response body that nobody has read from for a minute no longer counts.
//     The caller may have forgotten to close it.
//   - A response body without a length no longer counts when a Read of it has waited
//     for 500 ms. It is a stream, and the server does not work on it.
//   - While an attempt waits for the caller's body, the slot does not count. This begins
//     after 100 ms, or at once if the attempt has spent most of its time so. When
//     the Read returns, the slot counts again, also if the limit is used up by then.
//   - A Lost request keeps its slot. All lost slots come back when a success
//     shows that the server works off its queue, or when the gate closes. Until
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
//     start, and the threshold becomes twice the limit. So the limit of a healthy
//     host stays near its real concurrency. When the host freezes, no more than
//     that many requests are in its queue.
//   - After the first such 10 s the limit has to be used up for 2 s before it
//     grows. A burst is no reason to grow, and neither is a queue that is slow to
//     take free slots.
//
// Closing:
//
//   - The gate closes when the host fails wholesale. That means at least 10
//     failures in a row, for 20 times as long as successes are usually apart.
//     The failures must also last for a second, unless there are 100 of them.
//     A bad route among good routes has successes in between.
//   - A success of a request that was sent before the first of the failures does not end
//     the row. A host that goes may still finish the requests that it has.
//   - When the gate closes, the limit becomes 1 and the threshold half of the
//     former limit. This is a cut. Only requests that are sent after the cut
//     count from then on, so requests that were sent together cause a single cut at
//     most.
//   - While the gate is closed, a single probe is under way at a time. The next probe
//     may go 0.5 s after the end of a failed probe, or when a probe has had no
//     response for 10 s.
//   - The first success of a request that was sent after the cut opens the gate,
//     however late it comes.
//
// What the gate hears from a fleet and tells it is in fleet.go.
//
// The zero Gate is ready. All methods are safe for concurrent use.
type Gate struct {
	mu    sync.Mutex // guards everything below and every waiter in the queue
	queue queue.Queue

	conf      Config
	limit     int
	threshold int   // the limit grows by slow start below it, and linearly from it on
	grown     int32 // successes towards the next step of the linear growth

	// A cut begins a new epoch. Requests of older epochs no longer count, because
	// a few streams from before the cut could keep the probes out.
	epoch    uint32
	shut     uint32          // the epoch that the last cut began; a success of this or a later epoch opens the gate
	away     int32           // requests of this epoch that do not count, because they wait for their callers
	inFlight int             // the other requests of this epoch
	answered int32           // requests in flight whose body is being read
	beside   int32           // answered requests that do not count against the limit
	idle     slotList        // answered requests whose body nobody reads at the moment
	streams  slotList        // answered requests that wait for a body without a length
	uploads  slotList        // requests that wait for their callers, and count still
	full     bool            // the limit was reached, and each slot that came free was taken again
	fullAt   instant.Instant // since when the gate is full
	freeAt   instant.Instant // when the first of the free slots came free
	lost     int32           // slots that are kept for Lost requests
	old      int32           // requests in flight from older epochs; only the snapshot needs them
	lostAt   instant.Instant // when the last request was lost or the last lost slot came back
	told     instant.Instant // when the first waiter asks again

	rated   time.Duration   // how long the queue has waited for the rate; if it does, less the time from the epoch to now
	forRate bool            // the first waiter has no token, so the queue waits for the rate
	late    bool            // a request that was sent before the present run of failures succeeded during it
	hasty   bool            // while closed: a probe was sent early because an old request succeeded
	mixed   bool            // the waiters have different rules, because of an Update
	closed  bool            // only probes may go
	probe   instant.Instant // while closed: no probe goes before this time
	run     int32           // failures since the last success
	since   instant.Instant // when the run of failures began
	success instant.Instant // the time of the last success
	proof   instant.Instant // when the last request that succeeded was sent
	gap     time.Duration   // time between two successes, smoothed
	trip    time.Duration   // time from a send to its success, smoothed
	quick   time.Duration   // time from a send to its success for the fastest requests

	peak   int             // the most slots in use in this window
	window instant.Instant // when this window began
	cut    bool            // the gate was cut in this window
	calm   bool            // there was no cut in the last whole window

	fleet *fleet // nil: there is no fleet
}

// A Slot is a request's right to be in flight. Enter fills it. The zero Slot is
// empty, and Result, Done and End do nothing with it. The gate's lock guards it. Its
// owner may move a slot to another address before Result.
type Slot struct {
	sent     instant.Instant
	epoch    uint32
	held     bool // the request is in flight
	answered bool // the response has arrived
	away     bool // it does not count, because it waits for the caller

	slow time.Duration // how long it has waited for the caller, less the time that it has not

	in         *slotList       // a list of the gate, or nil
	since      instant.Instant // when it came into the list, or when a Read of the caller's body began or ended
	prev, next *Slot
}

// A State is a snapshot of a gate.
type State struct {
	Limit, InFlight, Waiting int
	Closed                   bool
}

// Enter asks for a slot, and for a token if c has a rate. With Go the
// slot s is filled, and Until is when the host's response is to be expected.
// With Wait the request joins the queue. It asks again with the same w, or calls
// Leave. A request with a nil w does not wait and joins no queue. Enter never
// answers Refuse.
func (g *Gate) Enter(now instant.Instant, s *Slot, w *queue.Waiter, c Config) queue.Answer {
	g.mu.Lock()
	a, next := g.enter(now, s, w, c)
	g.mu.Unlock()
	next.Wake()
	return a
}

// Leave takes w out of the queue. news reports that the owner has to tell the fleet
// something; see Gate.News.
func (g *Gate) Leave(w *queue.Waiter) (news bool) {
	g.mu.Lock()
	next := g.queue.Leave(w)
	if g.queue.Len() == 0 {
		g.byRate(0, false) // nobody is left who looks at the time
		g.fleet.unused()
	}
	news = g.hasNews()
	g.mu.Unlock()
	next.Wake()
	return news
}

// Release gives back the slot of a request that was not sent. news is as for Leave.
func (g *Gate) Release(now instant.Instant, s *Slot) (news bool) {
	g.mu.Lock()
	var next *queue.Waiter
	if s.held {
		if g.closed && s.epoch == g.epoch {
			g.probe = now // another probe may go instead
			g.fleet.passOn(g.queue.Len())
		}
		g.free(now, s)
		g.full = false
		next = g.head(now)
	}
	news = g.hasNews()
	g.mu.Unlock()
	next.Wake()
	return news
}

// Result reports how a request ended, if its slot is kept for the body of the
// response. It is called at most once per slot, before Done. From then on the gate
// knows the address of the slot. news is as for Leave.
func (g *Gate) Result(now instant.Instant, s *Slot, r Result) (news bool) {
	g.mu.Lock()
	var next *queue.Waiter
	if s.held {
		g.note(now, s, r)
		if s.answered && s.epoch == g.epoch {
			g.idle.push(s, now)
		}
		next = g.head(now)
	}
	news = g.hasNews()
	g.mu.Unlock()
	next.Wake()
	return news
}

// Await reports that the attempt waits for the caller's body. From the first Await on
// the gate knows the address of the slot. news is as for Leave.
func (g *Gate) Await(now instant.Instant, s *Slot) (news bool) {
	g.mu.Lock()
	var next *queue.Waiter
	if s.held && !s.answered && !s.away && s.epoch == g.epoch {
		s.slow = max(0, s.slow-max(0, now.Sub(s.since)))
		g.uploads.push(s, now)
		if s.slow >= callerTime {
			g.leave(now, s)
			next = g.head(now)
		} else if g.told > instant.After(now, callerTime) {
			next = g.queue.First() // does not know yet that a slot may come free then
		}
	}
	news = g.hasNews()
	g.mu.Unlock()
	next.Wake()
	return news
}

// Resume reports that the attempt has got a part of the caller's body, or its end.
func (g *Gate) Resume(now instant.Instant, s *Slot) {
	g.mu.Lock()
	if s.in == &g.uploads || s.away {
		s.slow = min(s.slow+max(0, now.Sub(s.since)), 2*callerTime)
		g.back(s)
		s.since = now
	}
	g.mu.Unlock()
}

// leave makes a slot that waits for its caller not count; g.mu is held.
func (g *Gate) leave(now instant.Instant, s *Slot) {
	s.unlist()
	g.inFlight--
	g.away++
	s.away = true
	g.full = g.full && g.queue.Len() > 0
	if g.used() == g.limit-1 {
		g.freeAt = now
	}
	if g.closed {
		g.probe = min(g.probe, now) // another probe may go instead
		g.fleet.passOn(g.queue.Len())
	}
}

// back ends the wait of a slot for its caller; g.mu is held.
func (g *Gate) back(s *Slot) {
	if s.in == &g.uploads {
		s.unlist()
	}
	if s.away && s.epoch == g.epoch {
		g.away--
		g.inFlight++
		g.peak = max(g.peak, g.inFlight-int(g.beside))
	}
	s.away = false
}

// Done gives back the slot of a request that has ended. It may be called more
// than once and from several goroutines. Only the first call counts.
func (g *Gate) Done(now instant.Instant, s *Slot) (news bool) { return g.End(now, s, Neutral) }

// End is Result and Done in one.
func (g *Gate) End(now instant.Instant, s *Slot, r Result) (news bool) {
	g.mu.Lock()
	var next *queue.Waiter
	if s.held {
		g.note(now, s, r)
		if g.closed && s.epoch == g.epoch && g.inFlight == 1 { // else another probe went while this one waited for its caller
			g.probeEnded(now)
		}
		g.free(now, s)
		next = g.head(now)
	}
	news = g.hasNews()
	g.mu.Unlock()
	next.Wake()
	return news
}

// Reading reports that the caller began to read from the response's body. The
// slot counts for as long as that takes. If the body has no length, the slot no longer
// counts from 500 ms on.
func (g *Gate) Reading(now instant.Instant, s *Slot, noLength bool) {
	g.mu.Lock()
	var next *queue.Waiter
	s.unlist()
	if noLength && s.held && s.answered && s.epoch == g.epoch {
		g.streams.push(s, now)
		if g.told > instant.After(now, streamTime) {
			next = g.queue.First() // does not know yet that a slot may come free then
		}
	}
	g.mu.Unlock()
	next.Wake()
}

// Idle reports that the caller does not read from the body for now. If there is
// no Reading within a minute, the slot no longer counts.
func (g *Gate) Idle(now instant.Instant, s *Slot) {
	g.mu.Lock()
	var next *queue.Waiter
	if s.held && s.answered && s.epoch == g.epoch {
		g.idle.push(s, now)
		if g.told > instant.After(now, bodyTime) {
			next = g.queue.First() // does not know yet that a slot may come free then
		}
	}
	g.mu.Unlock()
	next.Wake()
}

// WakeFirst wakes the first waiter, which may have less to wait for after a
// change of the rate.
func (g *Gate) WakeFirst() {
	g.mu.Lock()
	next := g.queue.First()
	g.mu.Unlock()
	next.Wake()
}

// RateTime returns for how long in all the queue has waited for the rate and not for a
// slot. The difference of two calls is the part of a wait that is due to the rate.
func (g *Gate) RateTime(now instant.Instant) time.Duration {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.forRate {
		return g.rated + now.Since()
	}
	return g.rated
}

// Wants returns how many tokens of the rate the waiters can use now. Tokens of a fleet
// that wait with them for a slot would be lost to the other processes.
func (g *Gate) Wants() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	room := 1
	if !g.closed {
		room = max(1, g.limit-g.used())
	}
	return min(room, g.queue.Len())
}

// State returns a snapshot.
func (g *Gate) State() State {
	g.mu.Lock()
	defer g.mu.Unlock()
	return State{
		Limit:    g.limit,
		InFlight: g.inFlight + int(g.old+g.away),
		Waiting:  g.waiting(),
		Closed:   g.closed,
	}
}

// waiting returns how many requests wait for a slot. If the first waiter waits for the
// rate, none does; g.mu is held.
func (g *Gate) waiting() int {
	if g.forRate {
		return 0
	}
	return g.queue.Len()
}

// enter answers w and returns the waiter to wake next; g.mu is held.
func (g *Gate) enter(now instant.Instant, s *Slot, w *queue.Waiter, c Config) (a queue.Answer, next *queue.Waiter) {
	g.configure(now, c)
	freed, before := g.settle(now), g.limit
	if g.review(now) > before || freed {
		next = g.queue.First() // does not know yet that there is room
	}
	if g.wholesale(now) {
		// The outage may have been complete long ago, while nobody asked. The
		// first probe counts its wait from that time and not from now.
		g.fleet.fails(g.run, g.since)
		g.close(g.outage())
		next = g.queue.First() // does not know yet when the first probe may go
	}
	turn := g.queue.Turn(w)
	noToken := turn && c.Rate != nil && c.Rate.WaitFor(now, 1) > 0
	admits := turn && g.admits(now)
	if admits && !noToken {
		if c.Rate == nil || c.Rate.Take(now) {
			g.byRate(now, false)
			g.queue.Leave(w)
			g.told = instant.Never // the next waiter was told nothing
			g.take(now, s)
			if next = g.head(now); next != nil && c.Rate != nil {
				g.byRate(now, c.Rate.WaitFor(now, 1) > 0) // the next waiter finds out as soon as it runs
			}
			return queue.Answer{Until: instant.After(now, g.quick), Probe: g.closed && c.Fleet}, next
		}
		noToken = true
	}
	if w != nil {
		g.queue.Join(w)
	}
	if turn && g.queue.Len() > 0 {
		g.byRate(now, noToken)
	}
	if noToken {
		g.full = false
		g.told = instant.After(now, c.Rate.WaitFor(now, 1))
		return queue.Answer{Verb: queue.Wait, Ask: g.told, Until: g.told, ForRate: admits, NoToken: true}, next
	}
	return g.wait(now, w, c.Rate), next
}

// byRate notes whether the first waiter waits for the rate, and with it all others;
// g.mu is held.
func (g *Gate) byRate(now instant.Instant, waits bool) {
	switch {
	case waits && !g.forRate:
		g.rated -= now.Since()
	case !waits && g.forRate:
		g.rated += now.Since()
	}
	g.forRate = waits
}

// note takes note of how the request of s ended; g.mu is held.
func (g *Gate) note(now instant.Instant, s *Slot, r Result) {
	g.back(s) // a server may respond before it has the whole body
	switch r {
	case Neutral:
	case Success:
		g.succeed(now, s)
	default:
		g.fail(now, s, r)
	}
}

// take fills s for a request that is sent now; g.mu is held.
func (g *Gate) take(now instant.Instant, s *Slot) {
	if !g.closed && g.used() >= g.limit {
		g.beside++ // see admits
	}
	g.inFlight++
	g.peak = max(g.peak, g.inFlight-int(g.beside))
	if !g.full && g.used() >= g.limit {
		g.full, g.fullAt = true, now
	}
	*s = Slot{sent: now, epoch: g.epoch, held: true}
	if g.closed {
		g.probe = instant.After(now, probeTime)
		g.fleet.probing(now)
	}
}

// free takes the slot s away; g.mu is held.
func (g *Gate) free(now instant.Instant, s *Slot) {
	g.back(s)
	if s.epoch != g.epoch {
		g.old--
	} else {
		g.uncount(s)
		g.full = g.full && g.queue.Len() > 0
		if g.used() == g.limit-1 {
			g.freeAt = now
		}
	}
	s.held = false
}

// admits reports whether another request may go; g.mu is held.
func (g *Gate) admits(now instant.Instant) bool {
	if g.closed {
		return g.inFlight == 0 && now >= g.probe && g.permitted(now)
	}
	if g.used() < g.limit {
		return true
	}
	// If every request in flight is answered, no further success will come for
	// the limit to grow by, and streams may last for ever. So another request
	// goes beside the limit. The limit itself stays, because responses that wait
	// a moment for their reader look the same and say nothing about how much the
	// host can take.
	return g.streaming() && g.inFlight < g.conf.Max
}

// used returns how much of the limit is used up; g.mu is held.
func (g *Gate) used() int { return g.inFlight + int(g.lost-g.beside) }

// streaming reports whether every request in flight has its response; g.mu is
// held.
func (g *Gate) streaming() bool { return g.lost == 0 && g.inFlight == int(g.answered) }

// wait tells w when to ask again for a slot; g.mu is held.
func (g *Gate) wait(now instant.Instant, w *queue.Waiter, r *rate.Rate) queue.Answer {
	a := queue.Answer{Verb: queue.Wait, Ask: instant.Never}
	if g.closed && g.inFlight == 0 {
		a.Until = g.probe
		if f := g.fleet; f != nil && f.returns {
			a.Until = f.at
		}
	}
	if g.closed {
		g.fleet.wanted()
	}
	if g.queue.Turn(w) {
		a.Ask = g.nextChange(now)
		g.told = a.Ask
	}
	if r != nil {
		a.NoToken = g.forRate
		a.ForRate = !g.closed && g.used() < g.limit
		if w == nil {
			a.Until = max(a.Until, instant.After(now, r.WaitFor(now, g.queue.Len()+1)))
		}
	}
	return a
}

// nextChange returns when the gate may admit another request although nothing
// happens until then; g.mu is held.
func (g *Gate) nextChange(now instant.Instant) instant.Instant {
	if g.closed && g.inFlight == 0 {
		return g.nextProbe(now)
	}
	if g.closed {
		// If the probe under way ends before this time, that wakes the first waiter.
		return min(g.probe, g.opening(), g.uploads.lapse(callerTime))
	}
	at := instant.Never
	if g.lost > 0 {
		at = instant.After(g.lostAt, g.lostSlotTime())
	}
	at = min(at, g.idle.lapse(bodyTime), g.streams.lapse(streamTime), g.uploads.lapse(callerTime))
	if g.limit < g.conf.Start {
		at = min(at, instant.After(g.window, useWindow))
	}
	if g.run >= failRun {
		at = min(at, g.outage())
	}
	return at
}

// settle frees the slots whose time is over, and reports whether it freed any;
// g.mu is held. The outcome depends on the time alone and not on how often
// somebody asks.
func (g *Gate) settle(now instant.Instant) (freed bool) {
	for g.idle.first != nil && now >= g.idle.lapse(bodyTime) {
		g.retire(g.idle.first)
		freed = true
	}
	for g.streams.first != nil && now >= g.streams.lapse(streamTime) {
		g.retire(g.streams.first)
		freed = true
	}
	for g.uploads.first != nil && now >= g.uploads.lapse(callerTime) {
		g.leave(g.uploads.lapse(callerTime), g.uploads.first)
		freed = true
	}
	if g.lost > 0 {
		every := g.lostSlotTime()
		n := max(0, now.Sub(g.lostAt)) / every
		g.lost = max(0, g.lost-int32(min(n, math.MaxInt32)))
		g.lostAt = g.lostAt.Add(n * every)
		freed = freed || n > 0
	}
	if g.closed && g.inFlight > 0 && now >= g.probe {
		g.renew() // the probe hangs
		freed = true
	}
	if g.closed && now >= g.opening() {
		g.open()
		g.renew() // a probe that hangs must not fill the limit
		freed = true
	}
	return freed
}

// lostSlotTime returns the time between the returns of two lost slots;
// g.mu is held.
func (g *Gate) lostSlotTime() time.Duration {
	return min(max(g.gap/slotsPerGap, soonestSlot), latestSlot)
}

// retire makes s a slot of an older epoch, so that it no longer counts; g.mu is
// held.
func (g *Gate) retire(s *Slot) {
	g.uncount(s)
	g.old++
	s.epoch = g.epoch - 1
}

// renew begins an epoch, so that no request in flight counts any more; g.mu is
// held.
func (g *Gate) renew() {
	for _, l := range [...]*slotList{&g.idle, &g.streams, &g.uploads} {
		for l.first != nil {
			l.first.unlist()
		}
	}
	g.epoch++
	g.old += int32(g.inFlight) + g.away
	g.inFlight, g.answered, g.beside, g.away = 0, 0, 0, 0
}

// uncount takes a slot of this epoch out of the numbers in flight; g.mu is held.
func (g *Gate) uncount(s *Slot) {
	s.unlist()
	g.inFlight--
	if s.answered {
		g.answered--
		g.beside = max(0, g.beside-1)
	}
}

// head returns the first waiter if there is news for it: room, or a time at
// which there may be room. g.mu is held. Only the waiter itself knows whether
// its rule's Max lets it go beside the streams, because an Update may have
// raised Max. For the same reason the first waiter hears of everything if the
// waiters have different rules.
func (g *Gate) head(now instant.Instant) *queue.Waiter {
	if g.queue.First() == nil || g.forRate && !g.mixed {
		return nil // if the first waiter waits for the rate, it asks when there is a token
	}
	room := !g.closed && (g.used() < g.limit || g.streaming())
	if !room && !g.mixed && g.nextChange(now) == instant.Never {
		return nil
	}
	return g.queue.First()
}

// configure takes over the configuration of the request that asks; g.mu is held.
func (g *Gate) configure(now instant.Instant, c Config) {
	if c.Start <= 0 {
		c.Start = start
	}
	if c.Max <= 0 {
		c.Max = math.MaxInt32
	}
	c.Start = min(c.Start, c.Max)
	g.mixed = g.queue.Len() > 0 && (g.mixed || c != g.conf)
	g.conf = c
	if g.limit == 0 {
		g.limit, g.threshold, g.window = c.Start, room*c.Start, now
	}
	if c.Fleet && g.fleet == nil {
		g.fleet = new(fleet)
	}
	g.limit = min(g.limit, c.Max)
}

// A slotList holds slots of the present epoch in the order in which they came. The
// gate's lock guards it. A slot is in a single list at a time.
type slotList struct{ first, last *Slot }

// lapse returns when the first slot has been in the list for so long, or [instant.Never].
func (l *slotList) lapse(d time.Duration) instant.Instant {
	if l.first == nil {
		return instant.Never
	}
	return instant.After(l.first.since, d)
}

// push puts s at the end.
func (l *slotList) push(s *Slot, now instant.Instant) {
	s.unlist()
	s.in, s.since, s.prev = l, now, l.last
	if l.last != nil {
		l.last.next = s
	} else {
		l.first = s
	}
	l.last = s
}

// unlist takes s out of its list.
func (s *Slot) unlist() {
	l := s.in
	if l == nil {
		return
	}
	if s.prev != nil {
		s.prev.next = s.next
	} else {
		l.first = s.next
	}
	if s.next != nil {
		s.next.prev = s.prev
	} else {
		l.last = s.prev
	}
	s.in, s.prev, s.next = nil, nil, nil
}
