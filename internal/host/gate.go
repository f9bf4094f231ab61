// How many requests may be in flight to a host at the same time?

package host

import (
	"math"
	"sync"
	"time"
)

// The gate's constants were chosen by the storm simulation in this package's
// tests: a server with a limit of 30 that is frozen for 20 s under 1000
// clients.
const (
	gateStart = 10

	// gateRoom is how many times the start the slow start of a new gate may
	// reach, and gateDouble how many times the present limit that of a gate
	// which has been open for a window. Without such a bound, the queue that
	// forms while a server hangs would double the limit until the server falls
	// over when it wakes.
	gateRoom   = 10
	gateDouble = 2

	// gateRounds is how many whole flights must succeed for the limit to grow
	// by one beyond the threshold. With one, as in TCP, a queue that formed
	// during an outage drives the limit past what the server can take before
	// the queue is worked off.
	gateRounds = 2

	// pressTime is for how long the limit of a healthy gate must have been used up
	// before it grows: what is sent after that and succeeds makes it grow. A client
	// that was not scheduled for some time sends at once all that came due
	// meanwhile. Those bursts are over in a few flights, and growing for each of
	// them would take the limit to the longest pause of the client.
	pressTime = 2 * time.Second

	// gateShare is the part of the limit, one in so many, by which it grows
	// where that is more than one: with steps of one a host that takes
	// thousands of requests at a time would be minutes on its way back.
	gateShare = 32

	// probeGap is the time from the end of one failed probe to the next.
	probeGap = 500 * time.Millisecond

	// A host fails wholesale after failRun failures in a row that took failGaps
	// times as long as successes usually are apart, and failTime: were it only
	// bad luck, then at random times one success in e^20 would be so late,
	// whatever the share of requests that fail. The time keeps one event apart
	// from an outage: when an HTTP/2 connection breaks, a whole flight fails at
	// once and the next succeeds; failMany that are failRounds times the limit
	// are no such event.
	failRun    = 10
	failGaps   = 20
	failTime   = time.Second
	failMany   = 100
	failRounds = 4

	// longestGap is what a longer time between two successes counts as: that
	// may have been a pause.
	longestGap = 5 * time.Second

	// Of the places that are kept for lost requests one is given to another
	// four times per usual gap between successes, within these bounds. Without
	// it a few requests that hang for ever and a few that were lost could fill
	// the limit, or a bad route keep out the good ones that would show that the
	// host works.
	slotsPerGap = 4
	soonestSlot = 200 * time.Millisecond
	latestSlot  = time.Second

	// probeTime is how long a probe may be under way without an answer before
	// the next one may go. A probe that hangs for ever must not keep the gate
	// shut. It still opens the gate if it succeeds after that: a host that takes
	// longer than this for an answer comes back, too.
	probeTime = 10 * time.Second

	// bodyTime is for how long a body that nobody reads keeps its place.
	bodyTime = time.Minute

	// An estimate of how long an answer takes falls at once to what the fastest
	// one took, and rises with each slower one by one in so many of itself, or by
	// quickStep if that is more. It is there to refuse a request that cannot
	// succeed any more, so it has to be true of the fast answers among slow ones.
	quickShare = 8
	quickStep  = 10 * time.Millisecond

	// useWindow is the time over which a limit that nobody uses up goes back.
	useWindow = 10 * time.Second
)

// A GateConfig bounds a gate. Zero fields take the defaults.
type GateConfig struct {
	// Start is the limit at first, and where it goes back to when it is not
	// used up. Default 10.
	Start int
	// Max is the highest limit. Default none.
	Max int
}

// A Result is what a request that passed the gate says about the host.
type Result uint8

const (
	// Neutral says nothing: the caller cancelled, a hedge lost, or the server
	// answered that this client sends too much (429), which is not for the
	// gate.
	Neutral Result = iota
	// Success is any answer of a server that works, 404 included.
	Success
	// Failed is an answer or error that says that the host does not work and
	// that the request is over for it: 5xx, refused or reset connections.
	Failed
	// Lost is a request that was given up without an answer, by a timeout: the
	// server may be busy with it still, or find it in its socket later.
	Lost
)

// A Gate limits the requests in flight to a host, from the send to the end of
// the answer's body. It is circuit breaker, bulkhead and slow start in one. The
// rules:
//
//   - The limit always holds. It starts at 10 and grows only while it is used
//     up (RFC 7661): in a slow start, by one per success, up to a threshold;
//     beyond it by one, or a 32nd if that is more, per two flights (as in
//     RFC 5681). The threshold is 100 at first. After every 10 s without a cut
//     the limit goes halfway back to what was used of it, not below where it
//     started, and the threshold is twice the limit. So in health the limit
//     stays near the real concurrency, and when a host freezes no more than
//     that is in its queue.
//   - From then on the limit has to be used up for 2 s before it grows: a burst
//     is no reason, and neither is a line that is slow to take free places.
//   - If all that is in flight is answered and only being read, one more may go
//     beside the limit. Max holds for those as well.
//   - When the host fails wholesale the gate closes: the limit is 1, the
//     threshold half of what the limit was. Only what was sent since counts
//     from then on, so there is one cut per flight at most. While the gate is
//     closed one probe at a time is under way, the next 0.5 s after the end of
//     one that failed. The first success opens it.
//   - Wholesale means at least 10 failures in a row, for 20 times as long as
//     successes usually are apart, and for a second unless they are 100. A bad
//     route among good ones has successes in between.
//   - While the gate is closed, a probe that has no answer after 10 s makes
//     room for another one. It opens the gate if it succeeds later.
//   - A request that was Lost and has seen no success since its first round
//     trip keeps its place until a success shows that the server works off its
//     queue, or the gate closes. Giving all places away at once would send a
//     frozen server one flight per timeout, so they come back one by one, the
//     next after 0.2 s to 1 s, whether or not anybody asks.
//   - An answer whose body nobody has read from for a minute no longer counts:
//     the caller may have forgotten to close it.
//
// Those who wait pass in the order in which they came. The zero Gate is ready.
// All methods are safe for concurrent use.
type Gate struct {
	mu    sync.Mutex // guards what follows and every waiter in the queue
	queue queue

	conf      GateConfig
	limit     int
	threshold int   // slow start below, linear growth from here on
	grown     int32 // successes towards the next step of the linear growth

	// A cut begins a new epoch. Requests of older ones are no longer counted,
	// or a few streams left over from before could keep the probes out.
	epoch    uint32
	shut     uint32        // the epoch that the last cut began; a success that was sent since opens the gate
	inFlight int           // of this epoch
	answered int32         // of these, those whose body is being read
	beside   int32         // of the answered, how many do not count against the limit
	idle     idleList      // of the answered, those that nobody reads at the moment
	full     bool          // the limit is used up: reached, and every place since taken again
	fullAt   time.Duration // since when
	freeAt   time.Duration // when the first of the places that are free now became so
	lost     int32         // places that are kept for requests that were Lost
	old      int32         // in flight from older epochs, for the snapshot only
	lostAt   time.Duration // when the last of the lost was, or gave its place back
	told     time.Duration // when the first in queue asks again

	mixed   bool // those in queue have different rules, after an Update
	closed  bool
	probe   time.Duration // while closed: no probe before this time, and with one under way, no other
	run     int32         // failures since the last success
	since   time.Duration // when the run began
	success time.Duration // the last one
	gap     time.Duration // from one success to the next, smoothed
	trip    time.Duration // from a send to its success, smoothed
	quick   time.Duration // the same for the fastest, as far as is known

	peak   int           // the most in flight in this window
	window time.Duration // when it began
	cut    bool          // whether the gate closed in it
	calm   bool          // there was no cut in the last whole window
}

// A Slot is one request's place in flight. It is filled by Enter; the zero Slot
// is none, for which Result and Done do nothing. The gate's lock guards it.
type Slot struct {
	sent     time.Duration
	epoch    uint32
	held     bool
	answered bool

	// While the body is not being read, the pass is in the gate's list.
	idle       bool
	idleSince  time.Duration // since when
	prev, next *Slot
}

// A GateState is a snapshot of a gate.
type GateState struct {
	Limit, InFlight, Waiting int
	Closed                   bool
}

// Enter asks for a request to pass, and fills p when it may go. A nil w is for
// a request that will not wait its turn: it takes no place in the line. One that
// has to wait asks again with the same w, or leaves. The answer is never
// Refuse; with Go, Until is when the host's answer is to be expected.
func (g *Gate) Enter(now time.Duration, p *Slot, w *Waiter, c GateConfig) Answer {
	g.mu.Lock()
	a, next := g.enter(now, p, w, c)
	g.mu.Unlock()
	next.wake()
	return a
}

// Leave gives up the place of w in the line.
func (g *Gate) Leave(w *Waiter) {
	g.mu.Lock()
	next := g.queue.leave(w)
	g.mu.Unlock()
	next.wake()
}

// Return undoes an Enter that let a request go which has to wait for something
// else first: w stands first in the line again, a nil w gives its place up.
func (g *Gate) Release(now time.Duration, p *Slot, w *Waiter) {
	g.mu.Lock()
	var next *Waiter
	if p.held {
		if g.closed && p.epoch == g.epoch {
			g.probe = now // for another one
		}
		g.free(now, p)
		g.full = false
		if w != nil {
			g.queue.rejoin(w)
		} else {
			next = g.head()
		}
	}
	g.mu.Unlock()
	next.wake()
}

// Result says what became of a request, as soon as it is known; at most once.
func (g *Gate) Result(now time.Duration, p *Slot, r Result) {
	if r == Neutral {
		return
	}
	g.mu.Lock()
	switch {
	case !p.held:
	case r == Success:
		g.succeed(now, p)
	default:
		g.fail(now, p, r)
	}
	next := g.head()
	g.mu.Unlock()
	next.wake()
}

// Done says that a request is no longer in flight. It may be called more than
// once, and from several goroutines: only the first call counts.
func (g *Gate) Done(now time.Duration, p *Slot) {
	g.mu.Lock()
	var next *Waiter
	if p.held {
		if g.closed && p.epoch == g.epoch {
			g.probe = after(now, probeGap)
		}
		g.free(now, p)
		next = g.head()
	}
	g.mu.Unlock()
	next.wake()
}

// Read says that the body of a request's answer is being read, so that its
// place counts for however long that takes.
func (g *Gate) Reading(p *Slot) {
	g.mu.Lock()
	g.idle.remove(p)
	g.mu.Unlock()
}

// Rest says that the body is not being read any more, from now on until the next
// Read or Done. If that takes longer than a minute, the place no longer counts.
func (g *Gate) Idle(now time.Duration, p *Slot) {
	g.mu.Lock()
	var next *Waiter
	if p.held && p.answered && p.epoch == g.epoch {
		g.idle.push(p, now)
		if g.told > after(now, bodyTime) {
			next = g.queue.first // knows of no such time yet
		}
	}
	g.mu.Unlock()
	next.wake()
}

// Tell wakes the first in line, after a change in what it waits for elsewhere.
func (g *Gate) WakeFirst() {
	g.mu.Lock()
	next := g.queue.first
	g.mu.Unlock()
	next.wake()
}

// Room reports whether there is a place in flight, so that those in line wait
// for something else.
func (g *Gate) Room() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return !g.closed && g.used() < g.limit
}

// used returns how many places of the limit are taken; g.mu is held.
func (g *Gate) used() int { return g.inFlight + int(g.lost-g.beside) }

// State returns a snapshot.
func (g *Gate) State() GateState {
	g.mu.Lock()
	defer g.mu.Unlock()
	return GateState{
		Limit:    g.limit,
		InFlight: g.inFlight + int(g.old),
		Waiting:  g.queue.n,
		Closed:   g.closed,
	}
}

// enter answers w and returns who has to be woken; g.mu is held.
func (g *Gate) enter(now time.Duration, p *Slot, w *Waiter, c GateConfig) (a Answer, next *Waiter) {
	g.configure(now, c)
	gave, before := g.settle(now), g.limit
	if g.review(now) > before || gave {
		next = g.queue.first // knows of no room yet
	}
	if g.wholesale(now) {
		// The time has passed, perhaps long ago, and nobody asked then. So the
		// first probe does not wait from now on.
		g.close(g.outage())
		next = g.queue.first // knows of no probe yet
	}
	if g.queue.turn(w) && g.admits(now) {
		g.queue.leave(w)
		g.inFlight++
		g.peak = max(g.peak, g.inFlight-int(g.beside))
		if !g.full && g.used() >= g.limit {
			g.full, g.fullAt = true, now
		}
		*p = Slot{sent: now, epoch: g.epoch, held: true}
		if g.closed {
			g.probe = after(now, probeTime)
		}
		return Answer{Until: after(now, g.quick)}, g.head()
	}
	if w != nil {
		g.queue.join(w)
	}
	return g.wait(w), next
}

// wait tells w when to ask again; g.mu is held.
func (g *Gate) wait(w *Waiter) Answer {
	a := Answer{Verb: Wait, Ask: Never}
	if g.closed && g.inFlight == 0 {
		a.Until = g.probe
	}
	if g.queue.turn(w) {
		a.Ask = g.nextChange()
		g.told = a.Ask
	}
	return a
}

// nextChange returns when the gate may let one more go though nothing happens
// until then; g.mu is held.
func (g *Gate) nextChange() time.Duration {
	if g.closed {
		return g.probe // or the end of the one under way, which wakes
	}
	at := Never
	if g.lost > 0 {
		at = g.nextLostSlot()
	}
	if p := g.idle.first; p != nil {
		at = min(at, after(p.idleSince, bodyTime))
	}
	if g.limit < g.conf.Start {
		at = min(at, after(g.window, useWindow))
	}
	if g.run >= failRun {
		at = min(at, g.outage())
	}
	return at
}

// settle gives back the places whose time is over, and reports whether there were
// any; g.mu is held. It depends on the time alone, not on how often somebody asks.
func (g *Gate) settle(now time.Duration) (gave bool) {
	for p := g.idle.first; p != nil && now >= after(p.idleSince, bodyTime); p = g.idle.first {
		g.retire(p)
		gave = true
	}
	if every := g.lostSlotTime(); g.lost > 0 && now >= after(g.lostAt, every) {
		n := (now - g.lostAt) / every
		g.lost = max(0, g.lost-int32(min(n, math.MaxInt32)))
		g.lostAt += n * every
		gave = true
	}
	if g.closed && g.inFlight > 0 && now >= g.probe {
		g.renew() // the probe hangs
		gave = true
	}
	return gave
}

// retire makes a request in flight one of an older epoch, so that its place no
// longer counts; g.mu is held.
func (g *Gate) retire(p *Slot) {
	g.leave(p)
	g.old++
	p.epoch = g.epoch - 1
}

// renew begins an epoch: nothing that is in flight counts any more; g.mu is held.
func (g *Gate) renew() {
	for g.idle.first != nil {
		g.idle.remove(g.idle.first)
	}
	g.epoch++
	g.old += int32(g.inFlight)
	g.inFlight, g.answered, g.beside = 0, 0, 0
}

// leave takes a request of this epoch out of what is in flight; g.mu is held.
func (g *Gate) leave(p *Slot) {
	g.idle.remove(p)
	g.inFlight--
	if p.answered {
		g.answered--
		g.beside = max(0, g.beside-1)
	}
}

// admits reports whether one more may go, and makes room where streams take up
// the whole limit; g.mu is held.
func (g *Gate) admits(now time.Duration) bool {
	if g.closed {
		return g.inFlight == 0 && now >= g.probe
	}
	if g.used() < g.limit {
		return true
	}
	// Nobody waits for the server: all it has to do is answered and being
	// read. No further success will come for the limit to grow by, and streams
	// may last for ever. So one more goes beside the limit. The limit itself
	// stays: answers that wait a moment for their reader look the same, and say
	// nothing of what the host can take.
	if g.streaming() && g.inFlight < g.conf.Max {
		g.beside++
		return true
	}
	return false
}

func (g *Gate) streaming() bool { return g.lost == 0 && g.inFlight == int(g.answered) }

// nextLostSlot returns when a place that is kept for a lost request is given away.
func (g *Gate) nextLostSlot() time.Duration { return after(g.lostAt, g.lostSlotTime()) }

// lostSlotTime returns how long it takes from one of these places to the next.
func (g *Gate) lostSlotTime() time.Duration {
	return min(max(g.gap/slotsPerGap, soonestSlot), latestSlot)
}

// head returns the first in line where there is something for it to hear: room,
// or a time at which there may be some. It knows best whether its rule's Max
// lets it stand beside streams: an Update may have raised it. For the same reason
// it hears of everything if not all in line have the same rule.
func (g *Gate) head() *Waiter {
	room := !g.closed && (g.used() < g.limit || g.streaming())
	if !room && !g.mixed && g.nextChange() == Never {
		return nil
	}
	return g.queue.first
}

// succeed takes note of a success; g.mu is held.
func (g *Gate) succeed(now time.Duration, p *Slot) {
	took := max(0, now-p.sent)
	g.gap += (min(max(0, now-g.success), longestGap) - g.gap) / 8
	g.trip += (took - g.trip) / 8
	g.quick = min(took, g.quick+max(g.quick/quickShare, quickStep))
	g.success, g.run, g.lost = now, 0, 0
	switch {
	case int32(p.epoch-g.shut) < 0 && g.inFlight == 0:
		// Sent before the cut: the server answers again, but that is no reason
		// to send it more than the next probe.
		g.probe = min(g.probe, now)
		return
	case int32(p.epoch-g.shut) < 0:
		return
	}
	g.closed = false
	if p.epoch != g.epoch {
		return // a probe that took long
	}
	if !p.answered {
		p.answered = true
		g.answered++
		g.idle.push(p, now)
	}
	if g.pressed(now, p) {
		if g.used() >= g.limit {
			g.freeAt = now
		}
		g.grow()
	}
}

// pressed reports whether a success says that the host takes more than the limit
// lets through, and that more is wanted; g.mu is held.
func (g *Gate) pressed(now time.Duration, p *Slot) bool {
	if g.used() < g.limit && now > after(g.freeAt, g.trip/4) {
		g.full = false // those in queue are slow to come: it is not the limit that they wait for
	}
	return g.full && (!g.calm || p.sent >= after(g.fullAt, pressTime))
}

// grow raises the limit for one success; g.mu is held.
func (g *Gate) grow() {
	if g.limit >= g.threshold {
		if g.grown++; int(g.grown) < gateRounds*g.limit {
			return
		}
		g.grown = 0
	}
	step := 1
	if g.limit >= g.threshold {
		step = max(1, g.limit/gateShare)
	}
	g.limit = min(g.limit+step, g.conf.Max)
}

// fail takes note of a failure and closes the gate where it was one too many;
// g.mu is held. What was sent before the last cut is part of what it was for.
func (g *Gate) fail(now time.Duration, p *Slot, r Result) {
	if p.epoch != g.epoch || g.closed {
		return
	}
	if r == Lost && g.success > after(p.sent, 2*g.trip) {
		// A success came later than its own could have been expected: the host
		// works and the request's route does not. Those in flight when a host
		// freezes have only seen the last successes before it.
		return
	}
	began := now
	if r == Lost { // the host has been silent for as long as it was given
		began = p.sent
		g.lost++
		g.lostAt = now
	}
	if g.run++; g.run == 1 {
		g.since = began
	}
	if g.wholesale(now) {
		g.close(now)
	}
}

// wholesale reports whether the failures since the last success are an outage;
// g.mu is held.
func (g *Gate) wholesale(now time.Duration) bool {
	return !g.closed && g.run >= failRun && now >= g.outage()
}

// outage returns from when on the failures are one, if there are enough.
func (g *Gate) outage() time.Duration {
	least := failTime
	if g.run >= failMany && int(g.run) >= failRounds*g.limit {
		least = 0
	}
	return after(g.since, max(least, failGaps*g.gap))
}

// close closes the gate, as of a time that may have passed; g.mu is held.
func (g *Gate) close(now time.Duration) {
	g.threshold = max(g.limit/2, 2)
	g.limit = 1
	g.renew()
	g.shut = g.epoch
	g.lost, g.grown, g.run = 0, 0, 0
	g.closed, g.cut, g.full, g.calm = true, true, false, false
	g.probe = after(now, probeGap)
}

// release takes p out of what is in flight; g.mu is held.
func (g *Gate) free(now time.Duration, p *Slot) {
	if p.epoch != g.epoch {
		g.old--
	} else {
		g.leave(p)
		g.full = g.full && g.queue.n > 0
		if g.used() == g.limit-1 {
			g.freeAt = now
		}
	}
	p.held = false
}

func (g *Gate) configure(now time.Duration, c GateConfig) {
	if c.Start <= 0 {
		c.Start = gateStart
	}
	if c.Max <= 0 {
		c.Max = math.MaxInt32
	}
	c.Start = min(c.Start, c.Max)
	g.mixed = g.queue.n > 0 && (g.mixed || c != g.conf)
	g.conf = c
	if g.limit == 0 {
		g.limit, g.threshold, g.window = c.Start, gateRoom*c.Start, now
	}
	g.limit = min(g.limit, c.Max)
}

// review moves the limit, once per window, halfway to what was used of it, and
// returns it; g.mu is held. A gate that was left open at a low limit because nobody pressed goes
// back to where it started. After a pause the limit takes one step only: a host
// that served many once may be asked to again.
func (g *Gate) review(now time.Duration) (limit int) {
	passed := now - g.window
	if passed < useWindow {
		return g.limit
	}
	if !g.closed {
		g.limit = min(g.limit, max(g.conf.Start, (g.limit+g.peak+1)/2))
	}
	if !g.closed && !g.cut {
		g.limit = max(g.limit, g.conf.Start)
		g.threshold = gateDouble * g.limit
	}
	g.calm = !g.cut
	g.peak, g.window, g.cut = g.inFlight-int(g.beside), now, g.closed
	return g.limit
}

// An idleList holds the passes of the present epoch whose bodies nobody reads, in
// the order in which they were put down. The gate's lock guards it.
type idleList struct{ first, last *Slot }

// push puts p at the end.
func (l *idleList) push(p *Slot, now time.Duration) {
	l.remove(p)
	p.idle, p.idleSince, p.prev = true, now, l.last
	if l.last != nil {
		l.last.next = p
	} else {
		l.first = p
	}
	l.last = p
}

// remove takes p out, if it is in the list.
func (l *idleList) remove(p *Slot) {
	if !p.idle {
		return
	}
	if p.prev != nil {
		p.prev.next = p.next
	} else {
		l.first = p.next
	}
	if p.next != nil {
		p.next.prev = p.prev
	} else {
		l.last = p.prev
	}
	p.idle, p.prev, p.next = false, nil, nil
}
