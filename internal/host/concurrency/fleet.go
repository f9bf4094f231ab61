// What a concurrency limit hears from a fleet and tells it. A fleet is the processes that share what
// they know of a host.

package concurrency

import (
	"time"

	"github.com/aplomb-go/aplomb/internal/host/instant"
	"github.com/aplomb-go/aplomb/internal/host/queue"
)

const (
	// failingEvery is the least time between two reports that the host fails, and
	// silentTime is how long a host is without a success before it is reported. A host
	// that fails now and then is not reported.
	failingEvery = 250 * time.Millisecond
	silentTime   = time.Second

	// latestReturn bounds the time from Up to the return.
	latestReturn = 10 * time.Second
)

// A fleet is the part of a concurrency limit that a fleet knows of or has told it. The limiter's
// lock guards it. The rules:
//
//   - The first limit is for all members together (see Config.ForMember). The limit grows
//     only while requests wait. Otherwise it would grow in each member as soon as the few
//     slots are in use for a moment. If the host froze, all members together would send
//     it ten times as much as a single member.
//   - The fleet says that the host is down, and since when. If a request succeeded that was
//     sent later, the limiter stays as it is, and tells the fleet that the host works. Any other
//     circuit opens. Later means two round trips, but from 100 ms to 1 s. A host that froze
//     may have lost requests that were sent a little before the last request that it answered.
//   - While the circuit is open, a probe needs a permit of the fleet. The limiter asks 250 ms
//     before the probe may go. If the fleet does not answer within 250 ms, the probe goes
//     all the same. From then on the limiter waits for 10 ms only, until the fleet answers.
//   - If the fleet still refuses a permit 30 s after the first refusal, a probe goes without
//     one.
//   - A permit that no request waits for is given back. If the first request cannot go
//     after all, the next request uses its permit.
//   - The fleet says that the host works, and when this member may return. Then the limiter
//     closes the circuit with a limit of 1, and sends no probe before that. A success of its own closes
//     it at once.
//   - If others opened the circuit, a request that was sent after the host went down and that
//     succeeds closes it as well. Later means the same as above.
//   - A success of a request that was sent before the failures began is not reported. It
//     would end the outage for all, although the host may only finish old requests.
//   - A failure is reported if there was no success for a second, every 250 ms at most. A
//     failed probe is reported as another failure of the row that opened the circuit. The next
//     success is reported, too.
type fleet struct {
	down     bool            // the fleet says that the host is down
	since    instant.Instant // since then
	byOthers bool            // the fleet's word opened the circuit, or closed it

	permit  permit          // to send a probe
	asked   instant.Instant // when the fleet was asked for it last
	lapses  instant.Instant // a granted permit counts until this time
	silent  bool            // the fleet did not answer in time
	next    instant.Instant // no question before this time
	refused instant.Instant // when the fleet first refused a permit to the requests that wait; 0: it did not

	returns bool            // the circuit closes at a time
	at      instant.Instant // that time

	row      int32           // failures in the row that opened the circuit, and failed probes since
	began    instant.Instant // when the row began
	reported bool            // the host was reported as failing, and not as working since then
	report   instant.Instant // no report before this time
	news     News            // to be told; see Limiter.News
}

// News is what the owner of a concurrency limit has to tell the fleet.
type News struct {
	Working     bool
	ProbeFailed bool
	Failures    int             // in a row; 0: nothing to report
	Since       instant.Instant // when the first of them was sent or failed
}

// Down is told that the host has been down for the fleet since then. If a request succeeded
// that was sent later, by the time of two round trips, Down changes nothing and returns true: the
// host works.
func (g *Limiter) Down(now, since instant.Instant) (works bool) {
	g.mu.Lock()
	f := g.inFleet()
	var next *queue.Waiter
	if works = g.pulse.last > 0 && g.pulse.sent > instant.After(since, g.pulse.overlap()); works {
		f.down, f.reported = false, false // the owner tells the fleet
	} else {
		f.down, f.since, f.returns = true, since, false
		if !g.outage.open {
			g.openCircuit(now)
			f.byOthers = true
		}
		next = g.queue.First() // does not know yet when the first probe may go
	}
	g.unlock(next)
	return works
}

// Up is told that the host works again for the fleet. An open circuit closes at the time at.
func (g *Limiter) Up(now, at instant.Instant) {
	g.mu.Lock()
	f := g.inFleet()
	f.down = false
	var next *queue.Waiter
	if g.outage.open {
		at = min(max(now, at), instant.After(now, latestReturn))
		if f.returns {
			at = min(at, f.at) // so that no number of calls puts off the return
		}
		f.returns, f.at = true, at
		f.withdraw()
		next = g.queue.First()
	}
	g.unlock(next)
}

// News returns what the owner has to tell the fleet. Each piece of news is returned once.
func (g *Limiter) News() (n News) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if f := g.fleet; f != nil {
		n, f.news = f.news, n
	}
	return n
}

// inFleet returns the part of the limiter that belongs to the fleet.
func (g *locked) inFleet() *fleet {
	if g.fleet == nil {
		g.fleet = new(fleet)
	}
	return g.fleet
}

// closing returns when the circuit closes because the fleet said so.
func (f *fleet) closing() instant.Instant {
	if f != nil && f.returns {
		return f.at
	}
	return instant.Never
}

// closeCircuit closes the circuit.
func (g *locked) closeCircuit() {
	g.outage.open = false
	g.outage.turns.Add(1)
	if f := g.fleet; f != nil {
		f.unused()
		f.byOthers, f.returns, f.permit = false, false, none
	}
}

// probeEnded plans the next probe after a failed probe, and notes that the fleet has to
// hear of it. After a permit the limiter waits twice as long, so that other
// members have their turn.
func (g *locked) probeEnded(now instant.Instant) {
	f := g.fleet
	g.outage.probe = instant.After(now, probeGap)
	if f == nil {
		return
	}
	if f.permit == lent {
		f.next = max(f.next, instant.After(now, 2*probeGap))
	}
	g.outage.probe = max(g.outage.probe, f.next)
	f.unsent()
}

// reportFailure reports a failure, if there was no success for some time and the last
// report is old enough.
func (f *fleet) reportFailure(now instant.Instant, o *outage, p *pulse) {
	if f == nil || now < f.report || now.Sub(max(o.since, p.last)) < silentTime && o.run < failRun {
		return
	}
	f.report = instant.After(now, failingEvery)
	f.fails(o.run, o.since)
}

// fails notes that so many requests in a row failed since then.
func (f *fleet) fails(n int32, since instant.Instant) {
	if f != nil && !f.down {
		f.reported = true
		f.news.Failures, f.news.Since, f.news.Working = int(n), since, false
	}
}

// works notes a success. closes says that it closes the circuit.
func (f *fleet) works(closes bool) {
	if f != nil && (f.down || f.reported || closes) {
		f.news = News{Working: true}
		f.down, f.reported = false, false
	}
}

// opening notes that the circuit opens at that time, after so many failures since then.
func (f *fleet) opening(at instant.Instant, n int32, since instant.Instant) {
	if f == nil {
		return
	}
	f.next, f.refused, f.permit, f.byOthers = at, 0, none, false
	if f.row, f.began = n, since; n == 0 {
		f.began = at
	}
}

// probeFails reports a failed probe.
func (f *fleet) probeFails() {
	if f != nil {
		f.row++
		f.fails(f.row, f.began)
	}
}
