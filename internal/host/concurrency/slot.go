// The slots of a concurrency limit, and which of them count.

package concurrency

import (
	"time"

	"github.com/aplomb-go/aplomb/internal/host/instant"
)

const (
	// bodyTime is how long a body that nobody reads keeps its slot.
	bodyTime = 10 * time.Second

	// streamTime is how long a Read of a body without a length waits before the
	// body counts as a stream and loses its slot.
	streamTime = 500 * time.Millisecond

	// callerTime is how long an attempt waits for the caller's body before its slot
	// stops counting.
	callerTime = 100 * time.Millisecond
)

// A Slot is a request's right to be in flight. Enter fills it. The zero Slot is
// empty, and all methods do nothing with it. The limiter's lock guards it. Its
// owner may move a slot to another address before Await and Respond.
type Slot struct {
	state state
	slow  time.Duration // how long it has waited for the caller, less the time that it has not

	in         *slotList       // a list of the limiter, or nil
	since      instant.Instant // when it came into the list, or when a Read of the caller's body began or ended
	prev, next *Slot
}

// A state is how far the request of a slot is.
type state uint8

const (
	empty     state = iota
	sent            // it has no response yet
	waiting         // it waits for its caller, and does not count
	answered        // the response has arrived, and its body is not over
	forgotten       // nobody reads the body, or it is a stream, and it does not count
)

// counts reports whether a slot counts against Max.
func (s state) counts() bool { return s == sent || s == answered }

// A slots has the requests in flight. The limiter's lock guards it.
type slots struct {
	held    int      // slots that are not empty
	used    int      // of them those that count
	idle    slotList // answered requests whose body nobody reads at the moment
	streams slotList // answered requests that wait for a body without a length
	uploads slotList // requests that wait for their callers, and count still
}

// take fills s for a request that is sent now.
func (l *slots) take(s *Slot) {
	*s = Slot{}
	l.become(s, sent)
}

// become moves s to a state, and out of its list.
func (l *slots) become(s *Slot, to state) {
	s.unlist()
	if s.state == empty {
		l.held++
	}
	if s.state.counts() {
		l.used--
	}
	if s.state = to; to.counts() {
		l.used++
	}
	if to == empty {
		l.held--
	}
}

// settle makes the slots not count whose time is over. The first waiter asks at that time by itself.
func (l *slots) settle(now instant.Instant) {
	for _, x := range [...]struct {
		list *slotList
		time time.Duration
		to   state
	}{{&l.idle, bodyTime, forgotten}, {&l.streams, streamTime, forgotten}, {&l.uploads, callerTime, waiting}} {
		for x.list.first != nil && now >= x.list.lapse(x.time) {
			l.become(x.list.first, x.to)
		}
	}
}

// lapse returns when the next slot no longer counts although nothing happens until then.
func (l *slots) lapse() instant.Instant {
	return min(l.idle.lapse(bodyTime), l.streams.lapse(streamTime), l.uploads.lapse(callerTime))
}

// End gives back the slot of a request that has ended or was not sent. It may be called
// more than once and from several goroutines. Only the first call counts.
func (g *Limiter) End(s *Slot) {
	g.mu.Lock()
	if s.state != empty {
		g.become(s, empty)
	}
	g.unlock(g.hearer())
}

// Respond reports that the response has arrived, whose body keeps the slot. From then on the limiter
// knows the address of the slot.
func (g *Limiter) Respond(now instant.Instant, s *Slot) {
	g.mu.Lock()
	if s.state == sent || s.state == waiting { // a server may respond before it has the whole body
		g.become(s, answered)
		g.idle.push(s, now)
	}
	g.unlock(g.hearer())
}

// Await reports that the attempt waits for the caller's body. From the first Await on
// the limiter knows the address of the slot.
func (g *Limiter) Await(now instant.Instant, s *Slot) {
	g.mu.Lock()
	if s.state == sent {
		s.slow = max(0, s.slow-max(0, now.Sub(s.since)))
		if g.uploads.push(s, now); s.slow >= callerTime {
			g.become(s, waiting)
		}
	}
	g.unlock(g.hearer())
}

// Resume reports that the attempt has got a part of the caller's body, or its end.
func (g *Limiter) Resume(now instant.Instant, s *Slot) {
	g.mu.Lock()
	if s.in == &g.uploads || s.state == waiting {
		s.slow = min(s.slow+max(0, now.Sub(s.since)), 2*callerTime)
		g.become(s, sent)
		s.since = now
	}
	g.mu.Unlock()
}

// Reading reports that the caller began to read from the response's body. The
// slot counts for as long as that takes. If the body has no length, the slot no longer
// counts from 500 ms on. For any other body now does not matter.
func (g *Limiter) Reading(now instant.Instant, s *Slot, noLength bool) {
	g.mu.Lock()
	if s.unlist(); noLength && s.state == answered {
		g.streams.push(s, now)
	}
	g.unlock(g.hearer())
}

// Idle reports that the caller does not read from the body for now. If there is
// no Reading within ten seconds, the slot no longer counts.
func (g *Limiter) Idle(now instant.Instant, s *Slot) {
	g.mu.Lock()
	if s.state == answered {
		g.idle.push(s, now)
	}
	g.unlock(g.hearer())
}

// A slotList holds slots in the order in which they came. The
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
