// The gate's limit follows the results of the requests: it grows, goes back and
// is cut.

package gate

import (
	"time"

	"github.com/aplomb-go/aplomb/internal/host/instant"
)

// The storm simulation in this package's tests gave these constants. It has a
// server with a limit of 30 that is frozen for 20 s under 1000 clients.
const (
	start = 10

	// room is how many times the start the slow start of a new gate may
	// reach. double is how many times the present limit the slow start may
	// reach when the gate has been open for a window. Without these bounds the
	// queue that forms while a server hangs would double the limit until the
	// server falls over when it wakes up.
	room   = 10
	double = 2

	// rounds times the limit is how many requests must succeed for a step of
	// growth above the threshold. TCP needs one round. One round is too few here,
	// because the queue of an outage would drive the limit past what the server can
	// take before the queue is worked off.
	rounds = 2

	// The limit divided by share is the step by which it grows, if
	// that is more than 1. With steps of 1 a host that takes thousands of
	// requests at a time would need minutes to come back.
	share = 32

	// pressTime is how long the limit of a healthy gate must have been used up
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

// succeed takes note of a success; the lock is held.
func (g *Gate) succeed(now instant.Instant, s *Slot) {
	if !g.closed && g.run > 0 && s.sent < g.since {
		// The host was working on the request when the failures began, and may only
		// finish such requests. So the success says nothing about the failures.
		g.late = true
		g.respond(s)
		return
	}
	took := max(0, now.Sub(s.sent))
	g.gap += (min(max(0, now.Sub(g.lastSuccess)), longestGap) - g.gap) / 8
	g.trip += (took - g.trip) / 8
	g.quick = min(took, g.quick+max(g.quick/quickShare, quickStep))
	g.lastSuccess, g.run, g.lost, g.late = now, 0, 0, false
	g.lastGoodSent = max(g.lastGoodSent, s.sent)
	if int32(s.epoch-g.cutEpoch) < 0 {
		g.beforeCut(now, s)
		return
	}
	g.fleet.works(g.closed)
	if g.closed {
		g.open()
	}
	if g.respond(s) && g.pressed(now, s) {
		if g.used() >= g.limit {
			g.freeAt = now
		}
		g.grow()
	}
}

// respond notes that the response has arrived, unless the request no longer counts. Then
// it returns false; the lock is held.
func (g *Gate) respond(s *Slot) bool {
	if s.epoch != g.epoch {
		return false // a probe that took long
	}
	if !s.answered {
		s.answered = true
		g.answered++
	}
	return true
}

// beforeCut takes note of a success of a request that was sent before the cut; the lock is
// held. It says nothing to the fleet, because the host may have failed since the send.
func (g *Gate) beforeCut(now instant.Instant, s *Slot) {
	switch {
	case g.contradicts(s):
		g.open() // others closed the gate, but the host works for this process
		g.fleet.works(true)
	case g.closed && g.inFlight == 0 && !g.hasty:
		// The server responds again, but that is no reason to send it more than the
		// next probe. If that probe fails, the server only finishes old requests.
		g.hasty = true
		g.probe = min(g.probe, now)
		g.fleet.asksNow(now)
	}
}

// pressed reports whether a success shows that the host takes more than the
// limit lets through, and that the client has more to send; the lock is held.
func (g *Gate) pressed(now instant.Instant, s *Slot) bool {
	if g.conf.Fleet && g.waiting() == 0 {
		return false // see fleet
	}
	if g.used() < g.limit && now > instant.After(g.freeAt, g.trip/4) {
		g.full = false // the waiters are slow to take the free slots, so they do not wait for the limit
	}
	return g.full && (!g.calm || s.sent >= instant.After(g.fullAt, pressTime))
}

// grow raises the limit for a success; the lock is held.
func (g *Gate) grow() {
	step := 1
	if g.limit >= g.threshold {
		if g.grown++; int(g.grown) < rounds*g.limit {
			return
		}
		g.grown = 0
		step = max(1, g.limit/share)
	}
	g.limit = min(g.limit+step, g.conf.Max)
}

// review moves the limit, once per window, halfway to the number of slots that
// were in use, and returns the limit; the lock is held. The limit returns to the
// start if a gate was left open at a low limit because nobody used it up. After
// a pause the limit takes a single step, because a host that served many
// requests once may soon be asked to do so again.
func (g *Gate) review(now instant.Instant) (limit int) {
	passed := now.Sub(g.window)
	if passed < useWindow {
		return g.limit
	}
	if !g.closed {
		g.limit = min(g.limit, max(g.conf.Start, (g.limit+g.peak+1)/2))
	}
	if !g.closed && !g.cut {
		g.limit = max(g.limit, g.conf.Start)
		g.threshold = double * g.limit
	}
	g.calm = !g.cut
	g.peak, g.window, g.cut = g.inFlight-int(g.beside), now, g.closed
	return g.limit
}

// fail takes note of a failure, and closes the gate if the host now fails
// wholesale; the lock is held. A failure of a request that was sent before the last
// cut does not count, because it belongs to the outage that caused the cut.
func (g *Gate) fail(now instant.Instant, s *Slot, r Result) {
	if s.epoch != g.epoch {
		return
	}
	if g.closed {
		g.fleet.probeFails()
		return
	}
	if r == Lost && g.lastSuccess > instant.After(s.sent, 2*g.trip) && g.lastGoodSent > s.sent {
		// Another request was sent later, and succeeded after this request should
		// have succeeded. So the host works and the route of this request does not.
		// If the host were frozen, the last success would have come from before the
		// freeze.
		return
	}
	began := now
	if r == Lost { // the host has been silent since the send
		began = s.sent
		g.lost++
		g.lostAt = now
	}
	if g.run++; g.run == 1 {
		g.since = began
	}
	g.reportFailure(now)
	if g.wholesale(now) {
		g.fleet.fails(g.run, g.since)
		g.close(now)
	}
}

// wholesale reports whether the failures since the last success are an outage;
// the lock is held.
func (g *Gate) wholesale(now instant.Instant) bool {
	return !g.closed && g.run >= failRun && now >= g.outage()
}

// outage returns the time from which on the failures are an outage, if there are
// enough of them; the lock is held.
func (g *Gate) outage() instant.Instant {
	least := failTime
	if g.run >= failMany && int(g.run) >= failRounds*g.limit {
		least = 0
	}
	gaps := failGaps * g.gap
	if g.late { // the successes of requests that were sent since then take a round trip longer
		gaps += 2 * g.trip
	}
	return instant.After(g.since, max(least, gaps))
}

// close closes the gate as of now, which may be a time in the past; the lock is held.
func (g *Gate) close(now instant.Instant) {
	g.threshold = max(g.limit/2, 2)
	g.limit = 1
	g.renew()
	g.cutEpoch = g.epoch
	g.fleet.closing(now, g.run, g.since)
	g.turns.Add(1)
	g.lost, g.grown, g.run, g.late, g.hasty = 0, 0, 0, false, false
	g.closed, g.cut, g.full, g.calm = true, true, false, false
	g.probe = instant.After(now, probeGap)
}
