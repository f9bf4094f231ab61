// The slots of a concurrency limit, and which of them count.

package concurrency

import (
	"math"
	"time"

	"github.com/aplomb-go/aplomb/internal/host/instant"
	"github.com/aplomb-go/aplomb/internal/host/queue"
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
	// the next probe may go. A probe that hangs for ever must not keep the circuit
	// open. The probe still closes the circuit if it succeeds later, because the
	// host may take longer than probeTime to respond.
	probeTime = 10 * time.Second

	// bodyTime is how long a body that nobody reads keeps its slot.
	bodyTime = 10 * time.Second

	// streamTime is how long a Read of a body without a length waits before the
	// body counts as a stream and loses its slot.
	streamTime = 500 * time.Millisecond

	// callerTime is how long an attempt waits for the caller's body before its slot
	// stops counting.
	callerTime = 100 * time.Millisecond
)

// A Result tells how a request that had a slot ended, as a sign of the host.
type Result uint8

const (
	// Neutral tells nothing. The caller cancelled, a hedge lost, or the server
	// responded that this client sends too much (429), which does not concern
	// the limiter.
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

// A Slot is a request's right to be in flight. Enter fills it. The zero Slot is
// empty, and Result, Done and End do nothing with it. The limiter's lock guards it. Its
// owner may move a slot to another address before Result.
type Slot struct {
	sent     instant.Instant
	epoch    uint32
	held     bool // the request is in flight
	answered bool // the response has arrived
	away     bool // it does not count, because it waits for the caller

	slow time.Duration // how long it has waited for the caller, less the time that it has not

	in         *slotList       // a list of the limiter, or nil
	since      instant.Instant // when it came into the list, or when a Read of the caller's body began or ended
	prev, next *Slot
}

// Await reports that the attempt waits for the caller's body. From the first Await on
// the limiter knows the address of the slot. news is as for Leave.
func (g *Limiter) Await(now instant.Instant, s *Slot) (news bool) {
	g.mu.Lock()
	var next *queue.Waiter
	if s.held && !s.answered && !s.away && s.epoch == g.slots.epoch {
		s.slow = max(0, s.slow-max(0, now.Sub(s.since)))
		next = g.list(now, s, &g.slots.uploads, callerTime)
		if s.slow >= callerTime {
			g.leave(now, s)
			next = g.head(now)
		}
	}
	return g.unlock(next)
}

// Resume reports that the attempt has got a part of the caller's body, or its end.
func (g *Limiter) Resume(now instant.Instant, s *Slot) {
	g.mu.Lock()
	if s.in == &g.slots.uploads || s.away {
		s.slow = min(s.slow+max(0, now.Sub(s.since)), 2*callerTime)
		g.back(s)
		s.since = now
	}
	g.mu.Unlock()
}

// leave makes a slot that waits for its caller not count.
func (g *locked) leave(now instant.Instant, s *Slot) {
	s.unlist()
	g.slots.inFlight--
	g.slots.away++
	s.away = true
	g.growth.free(now, g.slots.used(), g.queue.Len() > 0)
	if g.outage.open {
		g.outage.probe = min(g.outage.probe, now) // another probe may go instead
		g.fleet.passOn(g.queue.Len())
	}
}

// back ends the wait of a slot for its caller.
func (g *locked) back(s *Slot) {
	if s.in == &g.slots.uploads {
		s.unlist()
	}
	if s.away && s.epoch == g.slots.epoch {
		g.slots.away--
		g.slots.inFlight++
		g.growth.peak = max(g.growth.peak, g.slots.within())
	}
	s.away = false
}

// Reading reports that the caller began to read from the response's body. The
// slot counts for as long as that takes. If the body has no length, the slot no longer
// counts from 500 ms on. For any other body now does not matter.
func (g *Limiter) Reading(now instant.Instant, s *Slot, noLength bool) {
	g.mu.Lock()
	var next *queue.Waiter
	s.unlist()
	if noLength && s.held && s.answered && s.epoch == g.slots.epoch {
		next = g.list(now, s, &g.slots.streams, streamTime)
	}
	g.unlock(next)
}

// Idle reports that the caller does not read from the body for now. If there is
// no Reading within ten seconds, the slot no longer counts.
func (g *Limiter) Idle(now instant.Instant, s *Slot) {
	g.mu.Lock()
	var next *queue.Waiter
	if s.held && s.answered && s.epoch == g.slots.epoch {
		next = g.list(now, s, &g.slots.idle, bodyTime)
	}
	g.unlock(next)
}

// list puts s into a list, in which it counts until lapse is over. It returns the first waiter if
// that one does not know yet that a slot may come free then.
func (g *locked) list(now instant.Instant, s *Slot, l *slotList, lapse time.Duration) *queue.Waiter {
	l.push(s, now)
	if g.front.told > instant.After(now, lapse) {
		return g.queue.First()
	}
	return nil
}

// take fills s for a request that is sent now.
func (g *locked) take(now instant.Instant, s *Slot) {
	if !g.outage.open && g.slots.used() >= g.growth.limit {
		g.slots.beside++ // see admits
	}
	g.slots.inFlight++
	g.growth.use(now, g.slots.within(), g.slots.used(), g.pulse.trip)
	*s = Slot{sent: now, epoch: g.slots.epoch, held: true}
	if g.outage.open {
		g.outage.probe = instant.After(now, probeTime)
		g.fleet.probing(now)
	}
}

// free takes the slot s away.
func (g *locked) free(now instant.Instant, s *Slot) {
	g.back(s)
	if s.epoch != g.slots.epoch {
		g.slots.old--
	} else {
		g.slots.uncount(s)
		g.growth.free(now, g.slots.used(), g.queue.Len() > 0)
	}
	s.held = false
}

// settle frees the slots whose time is over, and reports whether it freed any. The outcome
// depends on the time alone and not on how often somebody asks.
func (g *locked) settle(now instant.Instant) (freed bool) {
	freed = g.slots.settle(now)
	for g.slots.uploads.first != nil && now >= g.slots.uploads.lapse(callerTime) {
		g.leave(g.slots.uploads.lapse(callerTime), g.slots.uploads.first)
		freed = true
	}
	freed = g.slots.returnLost(now, g.pulse.lostSlotTime()) || freed
	if g.outage.open && g.slots.inFlight > 0 && now >= g.outage.probe {
		g.slots.renew() // the probe hangs
		freed = true
	}
	if g.outage.open && now >= g.fleet.closing() {
		g.closeCircuit()
		g.fleet.byOthers = true
		g.slots.renew() // a probe that hangs must not fill the limit
		freed = true
	}
	return freed
}

// A slots counts the requests that have a slot. A cut begins a new epoch. Requests of older
// epochs no longer count, because a few streams from before the cut could keep the probes
// out. The limiter's lock guards it.
type slots struct {
	epoch    uint32
	away     int32           // requests of this epoch that do not count, because they wait for their callers
	inFlight int             // the other requests of this epoch
	answered int32           // requests in flight whose body is being read
	beside   int32           // answered requests that do not count against the limit
	idle     slotList        // answered requests whose body nobody reads at the moment
	streams  slotList        // answered requests that wait for a body without a length
	uploads  slotList        // requests that wait for their callers, and count still
	lost     int32           // slots that are kept for Lost requests
	old      int32           // requests in flight from older epochs; only the snapshot needs them
	lostAt   instant.Instant // when the last request was lost or the last lost slot came back
}

// used returns how much of the limit is used up.
func (l *slots) used() int { return l.inFlight + int(l.lost-l.beside) }

// within returns how many requests in flight count against the limit.
func (l *slots) within() int { return l.inFlight - int(l.beside) }

// streaming reports whether every request in flight has its response.
func (l *slots) streaming() bool { return l.lost == 0 && l.inFlight == int(l.answered) }

// respond notes that a response has arrived, unless the request no longer counts. Then
// it returns false.
func (l *slots) respond(s *Slot) bool {
	if s.epoch != l.epoch {
		return false // a probe that took long
	}
	if !s.answered {
		s.answered = true
		l.answered++
	}
	return true
}

// settle frees the slots of bodies that nobody has read from for long, and of streams. It
// reports whether it freed any.
func (l *slots) settle(now instant.Instant) (freed bool) {
	for l.idle.first != nil && now >= l.idle.lapse(bodyTime) {
		l.retire(l.idle.first)
		freed = true
	}
	for l.streams.first != nil && now >= l.streams.lapse(streamTime) {
		l.retire(l.streams.first)
		freed = true
	}
	return freed
}

// returnLost gives back a lost slot every so often, and reports whether it gave back any.
func (l *slots) returnLost(now instant.Instant, every time.Duration) bool {
	if l.lost == 0 {
		return false
	}
	n := max(0, now.Sub(l.lostAt)) / every
	l.lost = max(0, l.lost-int32(min(n, math.MaxInt32)))
	l.lostAt = l.lostAt.Add(n * every)
	return n > 0
}

// retire makes s a slot of an older epoch, so that it no longer counts.
func (l *slots) retire(s *Slot) {
	l.uncount(s)
	l.old++
	s.epoch = l.epoch - 1
}

// renew begins an epoch, so that no request in flight counts any more.
func (l *slots) renew() {
	for _, list := range [...]*slotList{&l.idle, &l.streams, &l.uploads} {
		for list.first != nil {
			list.first.unlist()
		}
	}
	l.epoch++
	l.old += int32(l.inFlight) + l.away
	l.inFlight, l.answered, l.beside, l.away = 0, 0, 0, 0
}

// uncount takes a slot of this epoch out of the numbers in flight.
func (l *slots) uncount(s *Slot) {
	s.unlist()
	l.inFlight--
	if s.answered {
		l.answered--
		l.beside = max(0, l.beside-1)
	}
}

// A slotList holds slots of the present epoch in the order in which they came. The
// limiter's lock guards it. A slot is in a single list at a time.
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
