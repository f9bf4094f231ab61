// What a gate hears from a fleet and tells it. A fleet is the processes that share what
// they know of a host.

package gate

import (
	"time"

	"github.com/aplomb-go/aplomb/internal/host/instant"
	"github.com/aplomb-go/aplomb/internal/host/queue"
	"github.com/aplomb-go/aplomb/internal/host/rate"
)

const (
	// permitTime is how long a closed gate waits for a permit, and how long before the
	// time of a probe it asks for one. So a gate that has waiters loses no time. A gate
	// without waiters asks when a request comes. Then a wait that is too short would let
	// every process of a fleet probe by itself as soon as its first request comes.
	permitTime = 250 * time.Millisecond

	// failingEvery is the least time between two reports that the host fails, and
	// silentTime is how long a host is without a success before it is reported. A host
	// that fails now and then is not reported.
	failingEvery = 250 * time.Millisecond
	silentTime   = time.Second

	// If a permit is still refused holdTime after the first refusal, it is not needed any
	// more. longestNo bounds the wait after each refusal. A fleet of 10,000
	// processes needs nearly that long until each of them has asked. So a probe that hangs
	// elsewhere, or a fleet that is confused, keeps no gate closed for longer.
	holdTime  = 30 * time.Second
	longestNo = 2 * time.Minute

	// permitLife is how long after the question a permit counts. The fleet lends it for a
	// second, so the rest is for the first renewal. A gate whose requests do not wait may
	// use a permit later, because its next request may come late. But others may probe at
	// the same time then.
	permitLife = 600 * time.Millisecond

	// RenewTime is how often the permit of a probe under way is renewed. If the process
	// dies, the fleet soon lets another process send a probe.
	RenewTime = 300 * time.Millisecond

	// latestReturn bounds the time from Up to the return.
	latestReturn = 10 * time.Second
)

// A fleet is the part of a gate that a fleet knows of or has told it. The gate's
// lock guards it. The rules:
//
//   - The first limit is for all processes together (see Config.Part). The limit grows
//     only while requests wait. Otherwise it would grow in each process as soon as the few
//     slots are in use for a moment. If the host froze, all processes together would send
//     it ten times as much as a single process.
//   - The fleet says that the host is down, and since when. If a request succeeded that was
//     sent later, the gate stays as it is, and tells the fleet that the host works. Any other
//     gate closes. Later means two round trips, but from 100 ms to 1 s. A host that froze
//     may have lost requests that were sent a little before the last request that it answered.
//   - While the gate is closed, a probe needs a permit of the fleet. The gate asks 250 ms
//     before the probe may go. If the fleet does not answer within 250 ms, the probe goes
//     all the same. From then on the gate waits for 10 ms only, until the fleet answers.
//   - If the fleet still refuses a permit 30 s after the first refusal, a probe goes without
//     one.
//   - A permit that no request waits for is given back. If the first request cannot go
//     after all, the next request uses its permit.
//   - The fleet says that the host works, and when this process may return. Then the gate
//     opens with a limit of 1, and sends no probe before that. A success of its own opens
//     the gate at once.
//   - If others closed the gate, a request that was sent after the host went down and that
//     succeeds opens it as well. Later means the same as above.
//   - A success of a request that was sent before the failures began is not reported. It
//     would end the outage for all, although the host may only finish old requests.
//   - A failure is reported if there was no success for a second, every 250 ms at most. A
//     failed probe is reported as another failure of the row that closed the gate. The next
//     success is reported, too.
type fleet struct {
	down     bool            // the fleet says that the host is down
	since    instant.Instant // since then
	byOthers bool            // the fleet's word closed the gate

	asking   bool            // a permit was asked for, and no probe has gone since
	asked    instant.Instant // when
	silent   bool            // the fleet did not answer in time
	orphaned bool            // the requests that waited for the answer have left
	next     instant.Instant // no question before this time
	refused  instant.Instant // when the fleet first refused a permit to the requests that wait; 0: it did not

	permit bool            // a probe may go
	lapses instant.Instant // the permit counts until this time
	leased bool            // the probe under way has a permit that still counted
	owed   bool            // the fleet may wait for the end of the probe under way

	returns bool            // the gate opens at a time
	at      instant.Instant // that time

	row      int32           // failures in the row that closed the gate, and failed probes since
	began    instant.Instant // when the row began
	reported bool            // the host was reported as failing, and not as working since then
	report   instant.Instant // no report before this time
	news     News            // to be told; see Gate.News
}

// News is what the owner of a gate has to tell the fleet.
type News struct {
	Working     bool
	ProbeFailed bool
	Failures    int             // in a row; 0: nothing to report
	Since       instant.Instant // when the first of them was sent or failed
}

// Down is told that the host has been down for the fleet since then. If a request succeeded
// that was sent later, by the time of two round trips, Down changes nothing and returns true: the
// host works.
func (g *Gate) Down(now, since instant.Instant) (works bool) {
	g.mu.Lock()
	f := g.inFleet()
	var next *queue.Waiter
	if works = g.success > 0 && g.proof > instant.After(since, g.overlap()); works {
		f.down, f.reported = false, false // the owner tells the fleet
	} else {
		f.down, f.since, f.returns = true, since, false
		if !g.closed {
			g.close(now)
			f.byOthers = true
		}
		next = g.queue.First() // does not know yet when the first probe may go
	}
	g.mu.Unlock()
	next.Wake()
	return works
}

// overlap returns how much later than a lost request an answered request may have been sent,
// when a host freezes; g.mu is held.
func (g *Gate) overlap() time.Duration { return min(max(2*g.trip, 100*time.Millisecond), silentTime) }

// Up is told that the host works again for the fleet. A closed gate opens at the time at.
func (g *Gate) Up(now, at instant.Instant) {
	g.mu.Lock()
	f := g.inFleet()
	f.down = false
	var next *queue.Waiter
	if g.closed {
		at = min(max(now, at), instant.After(now, latestReturn))
		if f.returns {
			at = min(at, f.at) // so that no number of calls puts off the return
		}
		f.returns, f.at = true, at
		f.unused()
		f.asking = false
		next = g.queue.First()
	}
	g.mu.Unlock()
	next.Wake()
}

// AskPermit reports whether the owner has to ask the fleet for a permit now. It reports
// true once for each question.
func (g *Gate) AskPermit(now instant.Instant) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.wantsPermit(now) {
		return false
	}
	g.fleet.asking, g.fleet.asked = true, now
	return true
}

// Permit is the fleet's answer. If the permit is not granted, the gate asks again after
// wait. Permit returns false if the gate has no use for a permit that was granted, so
// that the owner gives it back.
func (g *Gate) Permit(now instant.Instant, granted bool, wait time.Duration) (used bool) {
	g.mu.Lock()
	f := g.inFleet()
	asked, unwanted := f.asking, f.orphaned && g.queue.Len() == 0
	f.asking, f.orphaned, f.silent = false, false, false
	var next *queue.Waiter
	switch {
	case granted && g.closed && g.inFlight > 0:
		f.owed, f.leased, used = true, true, true // the probe went before the answer came
	case granted && f.permit:
		used = true // the gate has heard of it already
	case granted && (!asked || !g.closed || f.returns || unwanted):
		// If the gate does not wait for an answer any more, the fleet was told that the
		// probe has ended.
	case granted:
		f.permit, f.lapses, used = true, instant.After(f.asked, permitLife), true
		next = g.queue.First()
	case asked && g.closed && g.inFlight == 0 && f.refused > 0 && now >= instant.After(f.refused, holdTime):
		f.permit, f.lapses = true, now // the fleet does not wait for this probe
		next = g.queue.First()
	case g.closed && (asked || g.inFlight > 0):
		if f.refused == 0 {
			f.refused = now
		}
		f.next = instant.After(now, min(max(wait, rate.AnswerTime), longestNo))
		if g.inFlight == 0 {
			g.probe = max(g.probe, f.next)
		}
		next = g.queue.First()
	}
	g.mu.Unlock()
	next.Wake()
	return used
}

// Renew reports whether a probe is under way whose permit the owner has to renew. It does
// so by asking for the permit again.
func (g *Gate) Renew() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.closed && g.inFlight > 0 && g.fleet != nil && g.fleet.owed
}

// News returns what the owner has to tell the fleet. Each piece of news is returned once.
func (g *Gate) News() (n News) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if f := g.fleet; f != nil {
		n, f.news = f.news, n
	}
	return n
}

// hasNews reports whether News would return something; g.mu is held.
func (g *Gate) hasNews() bool { return g.fleet != nil && g.fleet.news != News{} }

// inFleet returns the part of the gate that belongs to the fleet; g.mu is held.
func (g *Gate) inFleet() *fleet {
	if g.fleet == nil {
		g.fleet = new(fleet)
	}
	return g.fleet
}

// wantsPermit reports whether the fleet has to be asked for a permit now; g.mu is held.
func (g *Gate) wantsPermit(now instant.Instant) bool {
	f := g.fleet
	return g.closed && g.conf.Fleet && g.inFlight == 0 && !g.forRate && !f.asking && !f.permit && !f.returns && now >= g.question()
}

// question returns when the gate asks for a permit for its next probe; g.mu is held.
func (g *Gate) question() instant.Instant { return max(g.fleet.next, g.probe.Add(-permitTime)) }

// permitted reports whether a probe may go as far as the fleet is concerned; g.mu is held.
func (g *Gate) permitted(now instant.Instant) bool {
	f := g.fleet
	return !g.conf.Fleet || f.permit || !f.returns && f.asking && now >= instant.After(f.asked, f.patience())
}

// nextProbe returns when a closed gate without a probe under way should be asked again;
// g.mu is held.
func (g *Gate) nextProbe(now instant.Instant) instant.Instant {
	f := g.fleet
	switch {
	case f == nil || !g.conf.Fleet || f.permit:
		return g.probe
	case f.returns:
		return f.at
	case f.asking:
		return max(g.probe, instant.After(f.asked, f.patience()))
	case now >= g.question(): // the owner asks now
		return max(g.probe, instant.After(now, f.patience()))
	}
	return g.question()
}

// patience returns how long the gate waits for an answer.
func (f *fleet) patience() time.Duration {
	if f.silent {
		return rate.AnswerTime
	}
	return permitTime
}

// opening returns when the gate opens because the fleet said so; g.mu is held.
func (g *Gate) opening() instant.Instant {
	if f := g.fleet; f != nil && f.returns {
		return f.at
	}
	return instant.Never
}

// open opens the gate; g.mu is held.
func (g *Gate) open() {
	g.closed = false
	if f := g.fleet; f != nil {
		f.unused()
		f.byOthers, f.returns, f.asking, f.orphaned, f.owed = false, false, false, false, false
	}
}

// probeEnded plans the next probe after a failed probe, and notes that the fleet has to
// hear of it; g.mu is held. After a permit the gate waits twice as long, so that other
// processes have their turn.
func (g *Gate) probeEnded(now instant.Instant) {
	f := g.fleet
	g.probe = instant.After(now, probeGap)
	if f == nil || !g.conf.Fleet {
		return
	}
	if f.leased {
		f.next = max(f.next, instant.After(now, 2*probeGap))
	}
	g.probe = max(g.probe, f.next)
	f.unsent()
}

// contradicts reports whether the success of a request from before the cut shows that the
// host works, although others say that it is down; g.mu is held. If this process closed the
// gate by itself, or if the request was sent before the host went down, it may be a
// response from the pile that a frozen host works off.
func (g *Gate) contradicts(s *Slot) bool {
	return g.closed && g.fleet != nil && g.fleet.byOthers && s.sent > instant.After(g.fleet.since, g.overlap())
}

// reportFailure reports a failure, if there was no success for some time and the last
// report is old enough; g.mu is held.
func (g *Gate) reportFailure(now instant.Instant) {
	f := g.fleet
	if f == nil || now < f.report || now.Sub(max(g.since, g.success)) < silentTime && g.run < failRun {
		return
	}
	f.report = instant.After(now, failingEvery)
	f.fails(g.run, g.since)
}

// fails notes that so many requests in a row failed since then.
func (f *fleet) fails(n int32, since instant.Instant) {
	if f != nil && !f.down {
		f.reported = true
		f.news.Failures, f.news.Since, f.news.Working = int(n), since, false
	}
}

// works notes a success. opens says that it opens the gate.
func (f *fleet) works(opens bool) {
	if f != nil && (f.down || f.reported || opens) {
		f.news = News{Working: true}
		f.down, f.reported, f.owed = false, false, false
	}
}

// closing notes that the gate closes at that time, after so many failures since then.
func (f *fleet) closing(at instant.Instant, n int32, since instant.Instant) {
	if f == nil {
		return
	}
	f.next, f.refused = at, 0
	f.permit, f.owed, f.leased = false, false, false
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

// asksNow lets the gate ask for a permit now.
func (f *fleet) asksNow(now instant.Instant) {
	if f != nil {
		f.next = min(f.next, now)
	}
}

// probing notes that a probe goes. If the answer of the fleet is not there yet, it may
// still come. The fleet hears of the end in any case, because its answer may be lost.
func (f *fleet) probing(now instant.Instant) {
	if f == nil {
		return
	}
	f.refused = 0
	f.leased = f.permit && now < f.lapses
	f.owed = f.permit || f.asking
	f.silent = f.asking
	f.permit, f.asking = false, false
}

// unsent notes that the fleet need not wait for the probe under way any longer.
func (f *fleet) unsent() {
	if f != nil && f.owed {
		f.owed, f.leased, f.news.ProbeFailed = false, false, true
	}
}

// passOn lets the next request use the permit of a probe that did not go.
func (f *fleet) passOn(waiters int) {
	if f == nil || !f.owed {
		return
	}
	if waiters == 0 {
		f.unsent()
		return
	}
	if !f.leased { // its answer may still come
		f.lapses = instant.After(f.asked, permitLife)
	}
	f.permit, f.owed, f.leased = true, false, false
}

// unused gives a permit back that nobody will use.
func (f *fleet) unused() {
	if f == nil {
		return
	}
	if f.permit {
		f.permit, f.news.ProbeFailed = false, true
	}
	f.orphaned, f.refused = f.asking, 0
}
