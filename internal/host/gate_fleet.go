// What a gate hears from a fleet and tells it. A fleet is the processes that share what
// they know of a host.

package host

import "time"

const (
	// AnswerTime is how long a process waits for an answer of the fleet. Then it goes on
	// by its own knowledge. So a fleet that does not answer stops nobody.
	AnswerTime = 10 * time.Millisecond

	// failingEvery is the least time between two reports that the host fails, and
	// silentTime is how long a host is without a success before it is reported. A host
	// that fails now and then is not reported.
	failingEvery = 250 * time.Millisecond
	silentTime   = time.Second

	// permitTime is how long a closed gate waits for a permit, and how long before the
	// time of a probe it asks for one. So a gate that has waiters loses no time. A gate
	// without waiters asks when a request comes. Then a wait that is too short would let
	// every process of a fleet probe by itself as soon as its first request comes.
	permitTime = 250 * time.Millisecond
)

// A gateFleet is the part of a gate that a fleet knows of or has told it. The gate's
// lock guards it. The rules:
//
//   - The fleet says that the host is down, and since when. A gate that had a success more
//     than a second after that time stays as it is, and tells the fleet that the host
//     works. Any other gate closes. The second is there because others may have sent their
//     first lost request before the last response of a host that then froze.
//   - While the gate is closed, a probe needs a permit of the fleet. The gate asks 250 ms
//     before the probe may go. If the fleet does not answer within 250 ms, the probe goes
//     all the same.
//   - The fleet says that the host works, and when this process may return. Then the gate
//     opens with a limit of 1. A success of its own opens the gate at once.
//   - If others closed the gate, a request that was sent after the host went down and that
//     succeeds opens it as well.
//   - A failure is reported if there was no success for a second, every 250 ms at most. The
//     next success is reported, too.
type gateFleet struct {
	down     bool          // the fleet says that the host is down
	since    time.Duration // since then
	byOthers bool          // the fleet's word closed the gate

	asking  bool          // a permit was asked for
	asked   time.Duration // when
	permit  bool          // a permit was given and not used
	granted bool          // the probe under way has a permit, so the fleet waits for its end

	returns bool          // the gate opens at a time
	at      time.Duration // that time

	reported bool          // the host was reported as failing, and not as working since then
	last     time.Duration // when it was reported last
	news     GateNews      // to be told; see Gate.News
}

// GateNews is what the owner of a gate has to tell the fleet.
type GateNews struct {
	Working     bool
	ProbeFailed bool
	Failures    int           // in a row; 0: nothing to report
	Since       time.Duration // when the first of them was sent or failed
}

// Down is told that the host has been down for the fleet since then. If the gate's own
// last success is more than a second later, Down changes nothing and returns true: the
// host works.
func (g *Gate) Down(now, since time.Duration) (works bool) {
	g.mu.Lock()
	f := g.inFleet()
	var next *Waiter
	if works = g.success > 0 && g.success > after(since, silentTime); works {
		f.down, f.reported = false, false // the owner tells the fleet
	} else {
		f.down, f.since, f.returns = true, since, false
		if !g.closed {
			g.close(now)
			f.byOthers = true
		}
		next = g.queue.first // does not know yet when the first probe may go
	}
	g.mu.Unlock()
	next.wake()
	return works
}

// Up is told that the host works again for the fleet. A closed gate opens at the time at.
func (g *Gate) Up(now, at time.Duration) {
	g.mu.Lock()
	f := g.inFleet()
	f.down = false
	var next *Waiter
	if g.closed {
		f.returns, f.at = true, max(now, at)
		next = g.queue.first
	}
	g.mu.Unlock()
	next.wake()
}

// AskPermit reports whether the owner has to ask the fleet for a permit now. It reports
// true once for each permit.
func (g *Gate) AskPermit(now time.Duration) bool {
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
func (g *Gate) Permit(now time.Duration, granted bool, wait time.Duration) (used bool) {
	g.mu.Lock()
	f := g.inFleet()
	asked := f.asking
	f.asking = false
	var next *Waiter
	switch {
	case granted && g.closed && g.inFlight > 0:
		f.granted = true // the probe went before the answer came
	case granted && g.closed:
		f.permit = true
		next = g.queue.first
	case granted:
		granted = false
	case asked && g.closed && g.inFlight == 0:
		g.probe = max(g.probe, after(now, wait+permitTime))
		next = g.queue.first
	}
	g.mu.Unlock()
	next.wake()
	return granted
}

// News returns what the owner has to tell the fleet. Each piece of news is returned once.
func (g *Gate) News() (n GateNews) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if f := g.fleet; f != nil {
		n, f.news = f.news, n
	}
	return n
}

// hasNews reports whether News would return something; g.mu is held.
func (g *Gate) hasNews() bool { return g.fleet != nil && g.fleet.news != GateNews{} }

// inFleet returns the part of the gate that belongs to the fleet; g.mu is held.
func (g *Gate) inFleet() *gateFleet {
	if g.fleet == nil {
		g.fleet = new(gateFleet)
	}
	return g.fleet
}

// wantsPermit reports whether it is time to ask for a permit; g.mu is held.
func (g *Gate) wantsPermit(now time.Duration) bool {
	return g.needsPermit() && now >= g.probe-permitTime
}

// needsPermit reports whether a permit is still to be asked for before the next probe;
// g.mu is held.
func (g *Gate) needsPermit() bool {
	return g.closed && g.conf.Fleet && g.inFlight == 0 && !g.fleet.asking && !g.fleet.permit
}

// nextProbe returns when the first waiter has something to do for the next probe: when it
// asks for a permit, or when the probe may go; g.mu is held.
func (g *Gate) nextProbe() time.Duration {
	switch {
	case g.needsPermit():
		return g.probe - permitTime
	case g.conf.Fleet && g.fleet.asking:
		return max(g.probe, after(g.fleet.asked, permitTime))
	}
	return g.probe // if the probe under way ends before this time, that wakes the first waiter
}

// permitted reports whether a probe may go as far as the fleet is concerned; g.mu is held.
func (g *Gate) permitted(now time.Duration) bool {
	f := g.fleet
	return !g.conf.Fleet || f.permit || f.asking && now >= after(f.asked, permitTime)
}

// opening returns when the gate opens because the fleet said so; g.mu is held.
func (g *Gate) opening() time.Duration {
	if f := g.fleet; f != nil && f.returns {
		return f.at
	}
	return Never
}

// open opens the gate; g.mu is held.
func (g *Gate) open() {
	g.closed = false
	if f := g.fleet; f != nil {
		f.unused()
		f.byOthers, f.returns, f.asking, f.granted = false, false, false, false
	}
}

// gapAfterProbe returns the time to the next probe after the end of a probe, and notes
// that the fleet has to hear of the end; g.mu is held. With a fleet the gate waits twice
// as long, so that other processes have their turn.
func (g *Gate) gapAfterProbe() time.Duration {
	if !g.conf.Fleet {
		return probeGap
	}
	g.fleet.unsent()
	return 2 * probeGap
}

// contradicts reports whether the success of a request from before the cut shows that the
// host works, although others say that it is down; g.mu is held. If this process closed the
// gate by itself, or if the request was sent before the host went down, it may be a
// response from the pile that a frozen host works off.
func (g *Gate) contradicts(s *Slot) bool {
	return g.closed && g.fleet != nil && g.fleet.byOthers && s.sent > g.fleet.since
}

// reportFailure reports a failure, if there was no success for some time and the last
// report is old enough; g.mu is held.
func (g *Gate) reportFailure(now time.Duration) {
	f := g.fleet
	if f == nil || f.reported && now < after(f.last, failingEvery) {
		return
	}
	if now-max(g.since, g.success) < silentTime && g.run < failRun {
		return
	}
	f.last = now
	f.fails(g.run, g.since)
}

// fails notes that so many requests in a row failed since then.
func (f *gateFleet) fails(n int32, since time.Duration) {
	if f != nil && !f.down {
		f.reported = true
		f.news.Failures, f.news.Since, f.news.Working = int(n), since, false
	}
}

// works notes a success. opens says that it opens the gate.
func (f *gateFleet) works(opens bool) {
	if f != nil && (f.down || f.reported || opens) {
		f.news = GateNews{Working: true}
		f.down, f.reported, f.granted = false, false, false
	}
}

// probing notes that a probe goes. If the answer of the fleet is not there yet, it may
// still come.
func (f *gateFleet) probing() {
	if f != nil {
		f.granted, f.permit = f.permit, false
		f.asking = f.asking && !f.granted
	}
}

// unsent notes that the fleet need not wait for the probe under way any longer.
func (f *gateFleet) unsent() {
	if f != nil && f.granted {
		f.granted, f.news.ProbeFailed = false, true
	}
}

// unused gives a permit back that nobody will use.
func (f *gateFleet) unused() {
	if f != nil && f.permit {
		f.permit, f.news.ProbeFailed = false, true
	}
}
