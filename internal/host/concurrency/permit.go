// The permit of a fleet to send a probe.

package concurrency

import (
	"time"

	"github.com/aplomb-go/aplomb/internal/host/instant"
	"github.com/aplomb-go/aplomb/internal/host/queue"
	"github.com/aplomb-go/aplomb/internal/host/rate"
)

const (
	// permitTime is how long an open circuit waits for a permit, and how long before the
	// time of a probe it asks for one. So a concurrency limit that has waiters loses no time. A concurrency limit
	// without waiters asks when a request comes. Then a wait that is too short would let
	// every member of a fleet probe by itself as soon as its first request comes.
	permitTime = 250 * time.Millisecond

	// If a permit is still refused refusalTime after the first refusal, it is not needed any
	// more. longestNo bounds the wait after each refusal. A fleet of 10,000
	// members needs nearly that long until each of them has asked. So a probe that hangs
	// elsewhere, or a fleet that is confused, keeps no circuit open for longer.
	refusalTime = 30 * time.Second
	longestNo   = 2 * time.Minute

	// permitLife is how long after the question a permit counts. The fleet lends it for a
	// second, so the rest is for the first renewal. A concurrency limit whose requests do not wait may
	// use a permit later, because its next request may come late. But others may probe at
	// the same time then.
	permitLife = 600 * time.Millisecond

	// RenewTime is how often the permit of a probe under way is renewed. If the member
	// dies, the fleet soon lets another member send a probe.
	RenewTime = 300 * time.Millisecond
)

// A permit says how far the limiter is with a permit for its next probe. The table in
// permit_test.go has all transitions.
type permit uint8

const (
	none     permit = iota // nothing was asked for, or the fleet said no
	asked                  // the fleet was asked, and has not answered
	orphaned               // as asked, but the requests that waited for the answer have left
	ready                  // it was granted, and the probe may go
	lent                   // the probe is under way, and the permit still counted when it went
	unsure                 // the probe is under way, and nobody knows whether the permit counted
)

// asking reports whether an answer may come.
func (f *fleet) asking() bool { return f.permit == asked || f.permit == orphaned }

// owes reports whether the fleet may wait for the end of the probe under way.
func (f *fleet) owes() bool { return f.permit == lent || f.permit == unsure }

// AskPermit reports whether the owner has to ask the fleet for a permit now. It reports
// true once for each question.
func (g *Limiter) AskPermit(now instant.Instant) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	f := g.fleet
	probes := g.outage.open && g.conf.Fleet && g.slots.inFlight == 0 && !g.front.forRate
	if !probes || f.asking() || f.permit == ready || f.returns || now < f.question(g.outage.probe) {
		return false
	}
	f.permit, f.asked = asked, now
	return true
}

// Permit is the fleet's answer. If the permit is not granted, the limiter asks again after
// wait. Permit returns false if the limiter has no use for a permit that was granted, so
// that the owner gives it back.
func (g *Limiter) Permit(now instant.Instant, granted bool, wait time.Duration) (used bool) {
	g.mu.Lock()
	f := g.inFleet()
	waited, unwanted := f.asking(), f.permit == orphaned && g.queue.Len() == 0
	if f.silent = false; waited {
		f.permit = none
	}
	var next *queue.Waiter
	switch {
	case granted && g.outage.open && g.slots.inFlight > 0:
		f.permit, used = lent, true // the probe went before the answer came
	case granted && f.permit == ready:
		used = true // the limiter has heard of it already
	case granted && (!waited || unwanted):
		// If the limiter does not wait for an answer any more, the fleet was told that the
		// probe has ended.
	case granted:
		f.permit, f.lapses, used = ready, instant.After(f.asked, permitLife), true
		next = g.queue.First()
	case waited && g.slots.inFlight == 0 && f.refused > 0 && now >= instant.After(f.refused, refusalTime):
		f.permit, f.lapses = ready, now // the fleet does not wait for this probe
		next = g.queue.First()
	case g.outage.open && (waited || g.slots.inFlight > 0):
		if f.refused == 0 {
			f.refused = now
		}
		f.next = instant.After(now, min(max(wait, rate.AnswerTime), longestNo))
		if g.slots.inFlight == 0 {
			g.outage.probe = max(g.outage.probe, f.next)
		}
		next = g.queue.First()
	}
	g.unlock(next)
	return used
}

// Renew reports whether a probe is under way whose permit the owner has to renew. It does
// so by asking for the permit again.
func (g *Limiter) Renew() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.outage.open && g.slots.inFlight > 0 && g.fleet != nil && g.fleet.owes()
}

// question returns when the limiter asks for a permit for a probe that is due at a time.
func (f *fleet) question(probe instant.Instant) instant.Instant {
	return max(f.next, probe.Add(-permitTime))
}

// permits reports whether a probe may go as far as the fleet is concerned.
func (f *fleet) permits(now instant.Instant) bool {
	return f.permit == ready || !f.returns && f.asking() && now >= instant.After(f.asked, f.patience())
}

// nextProbe returns when an open circuit without a probe under way should be asked again.
func (g *locked) nextProbe(now instant.Instant) instant.Instant {
	f := g.fleet
	switch {
	case !g.conf.Fleet || f.permit == ready:
		return min(g.outage.probe, f.closing())
	case f.returns:
		return f.at
	case f.asking():
		return max(g.outage.probe, instant.After(f.asked, f.patience()))
	case now >= f.question(g.outage.probe): // the owner asks now
		return max(g.outage.probe, instant.After(now, f.patience()))
	}
	return f.question(g.outage.probe)
}

// patience returns how long the limiter waits for an answer.
func (f *fleet) patience() time.Duration {
	if f.silent {
		return rate.AnswerTime
	}
	return permitTime
}

// probing notes that a probe goes. If the answer of the fleet is not there yet, it may
// still come. The fleet hears of the end in any case, because its answer may be lost.
func (f *fleet) probing(now instant.Instant) {
	if f == nil {
		return
	}
	f.refused, f.silent = 0, f.asking()
	switch {
	case f.permit == ready && now < f.lapses:
		f.permit = lent
	case f.permit == ready || f.asking():
		f.permit = unsure
	default:
		f.permit = none
	}
}

// unsent notes that the fleet need not wait for the probe under way any longer.
func (f *fleet) unsent() {
	if f != nil && f.owes() {
		f.permit, f.news.ProbeFailed = none, true
	}
}

// passOn lets the next request use the permit of a probe that did not go.
func (f *fleet) passOn(waiters int) {
	switch {
	case f == nil || !f.owes():
		return
	case waiters == 0:
		f.unsent()
		return
	case f.permit == unsure: // its answer may still come
		f.lapses = instant.After(f.asked, permitLife)
	}
	f.permit = ready
}

// unused gives a permit back that nobody will use.
func (f *fleet) unused() {
	switch {
	case f == nil:
		return
	case f.permit == ready:
		f.permit, f.news.ProbeFailed = none, true
	case f.permit == asked:
		f.permit = orphaned
	}
	f.refused = 0
}

// wanted notes that a request waits for the probe.
func (f *fleet) wanted() {
	if f != nil && f.permit == orphaned {
		f.permit = asked
	}
}

// withdraw gives up the permit of the next probe, because the circuit closes soon. If the fleet changes its
// mind before that, its refusals count on.
func (f *fleet) withdraw() {
	switch {
	case f.permit == ready:
		f.permit, f.news.ProbeFailed = none, true
	case f.asking():
		f.permit = none
	}
}
