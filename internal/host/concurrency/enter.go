// Which request the limiter lets go, and when the others ask again.

package concurrency

import (
	"math"
	"time"

	"github.com/aplomb-go/aplomb/internal/host/instant"
	"github.com/aplomb-go/aplomb/internal/host/queue"
	"github.com/aplomb-go/aplomb/internal/host/rate"
)

// waiting returns how many requests wait for a slot. If the first waiter waits for the
// rate, none does.
func (g *locked) waiting() int {
	if g.front.forRate {
		return 0
	}
	return g.queue.Len()
}

// enter answers w and returns the waiter to wake next.
func (g *locked) enter(now instant.Instant, s *Slot, w *queue.Waiter, c Config) (a queue.Answer, next *queue.Waiter) {
	g.configure(now, c)
	freed, before := g.settle(now), g.growth.limit
	if g.growth.review(now, g.outage.open, g.conf.Start, g.slots.within()) > before || freed {
		next = g.queue.First() // does not know yet that there is room
	}
	if g.wholesale(now) {
		// The outage may have been complete long ago, while nobody asked. The
		// first probe counts its wait from that time and not from now.
		g.fleet.fails(g.outage.run, g.outage.since)
		g.openCircuit(g.outage.due(g.growth.limit, &g.pulse))
		next = g.queue.First() // does not know yet when the first probe may go
	}
	turn, behind := g.queue.Turn(w), 0
	if !w.Waits() {
		behind = w.Costs() + g.queue.Cost()
	}
	admits := turn && g.admits(now)
	noToken := turn && !admits && c.Rate != nil && c.Rate.ReadyIn(now, w.Costs()) > 0
	if admits {
		if c.Rate == nil || c.Rate.Take(now, w.Costs()) {
			g.front.waitForRate(now, false)
			g.queue.Leave(w)
			g.front.told = instant.Never // the next waiter was told nothing
			g.take(now, s)
			if next = g.head(now); next != nil && c.Rate != nil {
				g.front.waitForRate(now, c.Rate.ReadyIn(now, next.Costs()) > 0) // as it finds out when it asks
			}
			return queue.Answer{Until: instant.After(now, g.pulse.quick), Probe: g.outage.open && c.Fleet}, next
		}
		noToken = true
	}
	if w != nil {
		g.queue.Join(w)
		if turn {
			g.front.waitForRate(now, noToken)
		}
	}
	if noToken {
		g.growth.full = false
		at := instant.After(now, c.Rate.ReadyIn(now, w.Costs()))
		g.front.told = at
		return queue.Answer{Verb: queue.Wait, Ask: at, Until: at, ForRate: admits, NoToken: true}, next
	}
	return g.wait(now, turn, behind, c.Rate), next
}

// A front is how the first waiter waits, and with it all others.
type front struct {
	told    instant.Instant // when it asks again
	mixed   bool            // the waiters have different rules, because of an Update
	forRate bool            // it has no token, so the queue waits for the rate
	from    instant.Instant // since when it waits for the rate
	rated   time.Duration   // how long the queue has waited for the rate, until from
}

// waitForRate notes whether the queue waits for the rate.
func (f *front) waitForRate(now instant.Instant, waits bool) {
	f.rated = f.rateTime(now)
	f.forRate, f.from = waits, now
}

// rateTime returns for how long in all the queue has waited for the rate.
func (f *front) rateTime(now instant.Instant) time.Duration {
	if f.forRate {
		return f.rated + now.Sub(f.from)
	}
	return f.rated
}

// admits reports whether the request whose turn it is may go.
func (g *locked) admits(now instant.Instant) bool {
	if g.outage.open {
		return g.slots.inFlight == 0 && now >= g.outage.probe && (!g.conf.Fleet || g.fleet.permits(now))
	}
	if g.slots.used() < g.growth.limit {
		return true
	}
	// If every request in flight is answered, no further success will come for
	// the limit to grow by, and streams may last for ever. So another request
	// goes beside the limit. The limit itself stays, because responses that wait
	// a moment for their reader look the same and say nothing about how much the
	// host can take.
	return g.slots.streaming() && g.slots.inFlight < g.conf.Max
}

// wait tells a request when to ask again for a slot. turn says that no other
// is before it. behind is how many tokens a newcomer and those before it need. For others it is 0.
func (g *locked) wait(now instant.Instant, turn bool, behind int, r *rate.Rate) queue.Answer {
	a := queue.Answer{Verb: queue.Wait, Ask: instant.Never}
	if g.outage.open && g.slots.inFlight == 0 {
		a.Until = g.outage.probe
		if f := g.fleet; f != nil && f.returns {
			a.Until = f.at
		}
	}
	g.fleet.wanted()
	if turn {
		a.Ask = g.nextChange(now)
		g.front.told = a.Ask
	}
	if r != nil {
		a.NoToken = g.front.forRate
		a.ForRate = !g.outage.open && g.slots.used() < g.growth.limit
		if behind > 0 {
			a.Until = max(a.Until, instant.After(now, r.WaitFor(now, behind)))
		}
	}
	return a
}

// nextChange returns when the limiter may admit another request although nothing
// happens until then.
func (g *locked) nextChange(now instant.Instant) instant.Instant {
	if g.outage.open && g.slots.inFlight == 0 {
		return g.nextProbe(now)
	}
	if g.outage.open {
		// If the probe under way ends before this time, that wakes the first waiter.
		return min(g.outage.probe, g.fleet.closing(), g.slots.uploads.lapse(callerTime))
	}
	at := instant.Never
	if g.slots.lost > 0 {
		at = instant.After(g.slots.lostAt, g.pulse.lostSlotTime())
	}
	at = min(at, g.slots.idle.lapse(bodyTime), g.slots.streams.lapse(streamTime), g.slots.uploads.lapse(callerTime))
	if g.growth.limit < g.conf.Start {
		at = min(at, instant.After(g.growth.window, useWindow))
	}
	if g.outage.run >= failRun {
		at = min(at, g.outage.due(g.growth.limit, &g.pulse))
	}
	return at
}

// head returns the first waiter if there is news for it: room, or a time at which there
// may be room. Only the waiter itself knows whether its rule's Max
// lets it go beside the streams, because an Update may have raised Max. For the same
// reason the first waiter hears of everything if the waiters have different rules.
func (g *locked) head(now instant.Instant) *queue.Waiter {
	if g.front.forRate && !g.front.mixed {
		return nil // if the first waiter waits for the rate, it asks when there is a token
	}
	room := !g.outage.open && (g.slots.used() < g.growth.limit || g.slots.streaming())
	if !room && !g.front.mixed && g.nextChange(now) == instant.Never {
		return nil
	}
	return g.queue.First()
}

// configure takes over the configuration of the request that asks.
func (g *locked) configure(now instant.Instant, c Config) {
	if c.Start <= 0 {
		c.Start = start
	}
	if c.Max <= 0 {
		c.Max = math.MaxInt32
	}
	c.Start = min(c.Start, c.Max)
	g.front.mixed = g.queue.Len() > 0 && (g.front.mixed || c != g.conf)
	g.conf = c
	if g.growth.limit == 0 {
		g.growth.limit, g.growth.threshold, g.growth.window = c.Start, room*c.Start, now
	}
	if c.Fleet {
		g.inFleet()
	}
	g.growth.limit = min(g.growth.limit, c.Max)
}
