// The limiter's limit follows the results of the requests: it grows, goes back and
// is cut.

package concurrency

import (
	"sync/atomic"
	"time"

	"github.com/aplomb-go/aplomb/internal/host/instant"
)

// The experiment of lab/storm gave these constants. It has a server with a limit of 30
// that is frozen for 20 s under 1000 clients.
const (
	start = 10

	// room is how many times the start the slow start of a new limiter may
	// reach. Without this bound the queue that forms while a server hangs would
	// double the limit until the server falls over when it wakes up.
	room = 10

	// rounds times the limit is how many requests must succeed for a step of growth
	// above the threshold. TCP needs one round. One round is too few here. While
	// the queue of an outage is worked off, the limit would grow past what the
	// server can take.
	rounds = 2

	// The limit divided by share is the step by which it grows, if
	// that is more than 1. With steps of 1 a host that takes thousands of
	// requests at a time would need minutes to come back.
	share = 32

	// A success counts as swift ones while responses take no longer than usual, a swift-th part more
	// at most. With that the limit grows by a fifth per round, to double the threshold at most.
	swift  = 16
	double = 2

	// pressTime is how long the limit of a healthy host must have been used up
	// before it grows. The successes of requests that are sent after that time
	// make the limit grow. A client that was not scheduled for some time sends
	// at once all requests that came due meanwhile. Such a burst is over after a
	// few round trips. If each burst made the limit grow, the limit would reach
	// the size of the client's longest pause.
	pressTime = 2 * time.Second

	// probeGap is the time from the end of a failed probe to the next probe.
	probeGap = 500 * time.Millisecond

	// The host fails wholesale after failRun failures in a row that lasted for
	// failGaps usual gaps between successes and for failTime. If successes came
	// at random times, only 1 in e^20 would be that late by chance, whatever
	// the share of failures is. The failTime tells an event from an outage: when
	// an HTTP/2 connection breaks, all its requests fail at once and the next
	// requests succeed. A run of failMany failures that is failRounds times the limit
	// is no such event, so failTime does not apply to it.
	failRun    = 10
	failGaps   = 20
	failTime   = time.Second
	failMany   = 100
	failRounds = 4

	// A time between two successes that is longer than longestGap counts as
	// longestGap, because the client may have paused.
	longestGap = 5 * time.Second

	// The estimate of how long a response takes falls at once to the time of the
	// fastest response. With each slower response it rises by 1 in quickShare
	// of itself, or by quickStep if that is more. The estimate serves to refuse
	// a request that cannot succeed any more, so it has to be true of the fast
	// responses among slow ones.
	quickShare = 8
	quickStep  = 10 * time.Millisecond

	// useWindow is the time after which a limit that is not used up goes back.
	useWindow = 10 * time.Second
)

// A growth is how the limit grows and goes back.
type growth struct {
	limit     int
	threshold int             // the limit grows by slow start below it, and linearly from it on
	grown     int32           // successes towards the next step of the linear growth
	full      bool            // the limit was reached, and each slot that came free was taken again
	cut       bool            // the limiter was cut in this window
	wary      bool            // the limiter was cut, and the limit was used up in each window since
	calm      bool            // there was no cut in the last whole window
	fullAt    instant.Instant // since when the limiter is full
	usual     time.Duration   // from a send to its success before that
	freeAt    instant.Instant // when the first of the free slots came free
	window    instant.Instant // when this window began
	peak      int             // the most slots in use in this window
}

// grow raises the limit for a success, to most at the most. trip is the present mean of the time from a
// send to its success. That of a single one says nothing if some responses are always fast.
func (l *growth) grow(most int, trip time.Duration) {
	if !l.calm { // the limit may have been used up from the first request on
		l.usual = trip
	}
	step := 1
	if l.limit >= l.threshold {
		if l.grown++; l.calm && !l.wary && l.limit < double*l.threshold && trip <= l.usual+l.usual/swift {
			l.grown += swift - 1
		}
		if int(l.grown) < rounds*l.limit {
			return
		}
		l.grown = 0
		step = max(1, l.limit/share)
	}
	l.limit = min(l.limit+step, most)
}

// use notes that a request goes. within are the requests that count against the limit, and used is
// how much of the limit is used up.
func (l *growth) use(now instant.Instant, within, used int, trip time.Duration) {
	l.peak = max(l.peak, within)
	if !l.full && used >= l.limit {
		l.full, l.fullAt, l.usual = true, now, trip
	}
}

// free notes that a slot came free, and whether requests wait for it.
func (l *growth) free(now instant.Instant, used int, wanted bool) {
	l.full = l.full && wanted
	if used == l.limit-1 {
		l.freeAt = now
	}
}

// review moves the limit, once per window, halfway to the number of slots that
// were in use, and returns the limit. The limit returns to the
// start if a limit was left low because nobody used it up. After
// a pause the limit takes a single step, because a host that served many
// requests once may soon be asked to do so again.
func (l *growth) review(now instant.Instant, open bool, start, within int) (limit int) {
	if now.Sub(l.window) < useWindow {
		return l.limit
	}
	if !open {
		l.limit = min(l.limit, max(start, (l.limit+l.peak+1)/2))
	}
	if !open && !l.cut {
		l.limit = max(l.limit, start)
		if l.wary = l.wary && l.full; !l.wary {
			l.threshold = l.limit
		}
	}
	l.calm = !l.cut
	l.peak, l.window, l.cut = within, now, open
	return l.limit
}

// cutDown lowers the limit to that of an open circuit.
func (l *growth) cutDown() {
	l.threshold = max(l.limit/2, 2)
	l.limit, l.grown = 1, 0
	l.cut, l.full, l.calm, l.wary = true, false, false, true
}

// A pulse is how a host succeeds.
type pulse struct {
	last  instant.Instant // the time of the last success
	sent  instant.Instant // when the last request that succeeded was sent
	gap   time.Duration   // between two successes, smoothed
	trip  time.Duration   // from a send to its success, smoothed
	quick time.Duration   // from a send to its success for the fastest requests
}

// beat notes the success of a request.
func (p *pulse) beat(now, sent instant.Instant) {
	took := max(0, now.Sub(sent))
	p.gap += (min(max(0, now.Sub(p.last)), longestGap) - p.gap) / 8
	p.trip += (took - p.trip) / 8
	p.quick = min(took, p.quick+max(p.quick/quickShare, quickStep))
	p.last, p.sent = now, max(p.sent, sent)
}

// passed reports whether a request that was sent later succeeded when a request of this time
// should have succeeded already.
func (p *pulse) passed(sent instant.Instant) bool {
	return p.last > instant.After(sent, 2*p.trip) && p.sent > sent
}

// overlap returns how much later than a lost request an answered request may have been sent,
// when a host freezes.
func (p *pulse) overlap() time.Duration { return min(max(2*p.trip, 100*time.Millisecond), silentTime) }

// lostSlotTime returns the time between the returns of two lost slots.
func (p *pulse) lostSlotTime() time.Duration {
	return min(max(p.gap/slotsPerGap, soonestSlot), latestSlot)
}

// An outage is the failures since the last success, and the closure that may come of them.
type outage struct {
	run   int32           // failures since the last success
	late  bool            // a request that was sent before the run succeeded during it
	open  bool            // only probes may go
	hasty bool            // while open: a probe was sent early because an old request succeeded
	epoch uint32          // the epoch that the last cut began; a success of this or a later epoch closes the circuit
	turns atomic.Uint32   // how often the circuit opened and closed, to be read without the lock
	since instant.Instant // when the run began
	probe instant.Instant // while open: no probe goes before this time
}

// succeed takes note of a success.
func (g *locked) succeed(now instant.Instant, s *Slot) {
	if !g.outage.open && g.outage.run > 0 && s.sent < g.outage.since {
		// The host was working on the request when the failures began, and may only
		// finish such requests. So the success says nothing about the failures.
		g.outage.late = true
		g.slots.respond(s)
		return
	}
	g.pulse.beat(now, s.sent)
	g.outage.run, g.outage.late, g.slots.lost = 0, false, 0
	if int32(s.epoch-g.outage.epoch) < 0 {
		g.beforeCut(now, s)
		return
	}
	g.fleet.works(g.outage.open)
	if g.outage.open {
		g.closeCircuit()
	}
	if g.slots.respond(s) && g.pressed(now, s) {
		if g.slots.used() >= g.growth.limit {
			g.growth.freeAt = now
		}
		g.growth.grow(g.conf.Max, g.pulse.trip)
	}
}

// beforeCut takes note of a success of a request that was sent before the cut. It says nothing
// to the fleet, because the host may have failed since the send.
func (g *locked) beforeCut(now instant.Instant, s *Slot) {
	f := g.fleet
	switch {
	case g.outage.open && f != nil && f.byOthers && s.sent > instant.After(f.since, g.pulse.overlap()):
		// Others opened the circuit, but the host works for this process. If this member opened the circuit
		// by itself, or if the request was sent before the host went down, it may be a response from the
		// pile that a frozen host works off.
		g.closeCircuit()
		f.works(true)
	case g.outage.open && g.slots.inFlight == 0 && !g.outage.hasty:
		// The server responds again, but that is no reason to send it more than the
		// next probe. If that probe fails, the server only finishes old requests.
		g.outage.hasty = true
		g.outage.probe = min(g.outage.probe, now)
		if f != nil {
			f.next = min(f.next, now) // the limiter may ask for a permit now
		}
	}
}

// pressed reports whether a success shows that the host takes more than the
// limit lets through, and that the client has more to send.
func (g *locked) pressed(now instant.Instant, s *Slot) bool {
	if g.conf.Fleet && g.waiting() == 0 {
		return false // see fleet
	}
	if g.slots.used() < g.growth.limit && now > instant.After(g.growth.freeAt, g.pulse.trip/4) {
		g.growth.full = false // the waiters are slow to take the free slots, so they do not wait for the limit
	}
	return g.growth.full && (!g.growth.calm || s.sent >= instant.After(g.growth.fullAt, pressTime))
}

// fail takes note of a failure, and opens the circuit if the host now fails
// wholesale. A failure of a request that was sent before the last
// cut does not count, because it belongs to the outage that caused the cut.
func (g *locked) fail(now instant.Instant, s *Slot, r Result) {
	if s.epoch != g.slots.epoch {
		return
	}
	if g.outage.open {
		g.fleet.probeFails()
		return
	}
	if r == Lost && g.pulse.passed(s.sent) {
		// Another request was sent later, and succeeded after this request should
		// have succeeded. So the host works and the route of this request does not.
		// If the host were frozen, the last success would have come from before the
		// freeze.
		return
	}
	began := now
	if r == Lost { // the host has been silent since the send
		began = s.sent
		g.slots.lost++
		g.slots.lostAt = now
	}
	if g.outage.run++; g.outage.run == 1 {
		g.outage.since = began
	}
	g.fleet.reportFailure(now, &g.outage, &g.pulse)
	if g.wholesale(now) {
		g.fleet.fails(g.outage.run, g.outage.since)
		g.openCircuit(now)
	}
}

// wholesale reports whether the failures since the last success are an outage.
func (g *locked) wholesale(now instant.Instant) bool {
	return !g.outage.open && g.outage.run >= failRun && now >= g.outage.due(g.growth.limit, &g.pulse)
}

// due returns the time from which on the failures are an outage, if there are
// enough of them.
func (o *outage) due(limit int, p *pulse) instant.Instant {
	least := failTime
	if o.run >= failMany && int(o.run) >= failRounds*limit {
		least = 0
	}
	gaps := failGaps * p.gap
	if o.late { // the successes of requests that were sent since then take a round trip longer
		gaps += 2 * p.trip
	}
	return instant.After(o.since, max(least, gaps))
}

// openCircuit opens the circuit as of now, which may be a time in the past.
func (g *locked) openCircuit(now instant.Instant) {
	g.growth.cutDown()
	g.slots.renew()
	g.slots.lost = 0
	g.fleet.opening(now, g.outage.run, g.outage.since)
	o := &g.outage
	o.turns.Add(1)
	o.run, o.late, o.hasty, o.open = 0, false, false, true
	o.epoch, o.probe = g.slots.epoch, instant.After(now, probeGap)
}
