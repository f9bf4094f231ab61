// Fleets. The members of a fleet are Transports of several processes, which die, stop for
// a while, and lose their network.

package simulate

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/aplomb-go/aplomb/lab/internal/dice"
)

// A fleetPlan describes the fleet of a story.
type fleetPlan struct {
	processes []*process
	members   []*process      // the process of each member
	direct    bool            // a message that takes no time arrives before Tell returns
	forgets   []time.Duration // when the backend loses all that it knows
	lies      []lieTold       // what nobody should say
	calm      bool            // no message takes longer than a few milliseconds, and nothing else goes wrong
}

// A process has some of the members.
type process struct {
	id     int
	born   time.Duration
	dies   time.Duration // never: it lives until the end
	closes bool          // it tells the fleet that it goes
	stops  []span        // when it stands still
	net    []air         // its network to the backend
}

// Air is the state of a network until a time. After the last one all is well.
type air struct {
	until  time.Duration
	delay  time.Duration // a message takes up to that long, each way
	lost   int           // percent of the messages
	double int           // percent of the messages come twice, the second later
}

// A lieTold is a time at which a member hears something that is not so.
type lieTold struct {
	at     time.Duration
	member int
}

// deadTime is how long it takes until the backend notices that a process has died.
const deadTime = 6 * time.Second

// addFleet makes the callers of some plans belong to several Transports, which are a fleet.
// It has dice of its own, so it does not change other plans.
func (p *plan) addFleet() {
	d := dice.Roll(p.seed, ofFleet)
	if !d.Chance(30) || p.nested {
		return
	}
	f := &fleetPlan{calm: d.Chance(30), direct: d.Chance(50)}
	p.fleet = f
	for i := range 2 + d.IntN(dice.One(d, 2, 4, 8)) {
		f.add(newProcess(d, i, f.calm), 1+d.IntN(dice.One(d, 1, 1, 3)))
	}
	if !f.calm {
		f.trouble(d)
	}
	for _, c := range p.calls {
		f.hire(d, c)
	}
	if d.Chance(60) {
		newScene(d, f).add(p, d)
	}
}

// add adds a process with so many members.
func (f *fleetPlan) add(p *process, members int) {
	f.processes = append(f.processes, p)
	for range members {
		f.members = append(f.members, p)
	}
}

// newProcess draws what happens to a process.
func newProcess(d dice.Dice, id int, calm bool) *process {
	p := &process{id: id, dies: never}
	if calm {
		p.net = []air{{until: never, delay: dice.One(d, 0, time.Millisecond, 2*time.Millisecond)}}
		return p
	}
	if id > 0 && d.Chance(25) { // so that there is always a member
		p.dies, p.closes = d.Between(time.Second, time.Minute), d.Chance(50)
	}
	if id > 0 && d.Chance(15) {
		p.born = d.Between(time.Second, 20*time.Second)
		p.dies += p.born
	}
	for range d.IntN(dice.One(d, 1, 1, 3)) {
		from := d.Between(time.Second, time.Minute)
		p.stops = append(p.stops, span{from, from + d.Between(50*time.Millisecond, 20*time.Second)})
	}
	p.stops = merged(p.stops)
	for at := time.Duration(0); at < 10*time.Minute; {
		at += d.Between(500*time.Millisecond, time.Minute)
		p.net = append(p.net, newAir(d, at))
	}
	if d.Chance(15) { // it never reaches the fleet
		p.net = []air{{until: 10 * time.Minute, lost: 100}}
	}
	return p
}

func newAir(d dice.Dice, until time.Duration) air {
	a := air{until: until, delay: dice.One(d, 0, time.Millisecond, 3*time.Millisecond, 20*time.Millisecond, 400*time.Millisecond, 5*time.Second)}
	a.lost, a.double = dice.One(d, 0, 0, 0, 10, 60, 100), dice.One(d, 0, 0, 10, 50)
	return a
}

// trouble draws what happens to all members together.
func (f *fleetPlan) trouble(d dice.Dice) {
	if d.Chance(20) { // half of the members are cut off together
		from := d.Between(time.Second, 30*time.Second)
		until := from + d.Between(time.Second, 30*time.Second)
		for _, p := range f.processes[len(f.processes)/2:] {
			p.cutOff(from, until)
		}
	}
	if d.Chance(20) {
		for range 1 + d.IntN(3) {
			f.forgets = append(f.forgets, d.Between(time.Second, time.Minute))
		}
		slices.Sort(f.forgets)
	}
	if d.Chance(25) {
		for range 1 + d.IntN(dice.One(d, 3, 100)) {
			f.lies = append(f.lies, lieTold{d.Between(time.Second, 2*time.Minute), d.IntN(len(f.members))})
		}
		slices.SortFunc(f.lies, func(a, b lieTold) int { return int(a.at - b.at) })
	}
}

// cutOff takes the network away for a time.
func (p *process) cutOff(from, until time.Duration) {
	var net []air
	for _, a := range p.net {
		if a.until <= from {
			net = append(net, a)
		}
	}
	net = append(net, air{until: from}, air{until: until, lost: 100})
	for _, a := range p.net {
		if a.until > until {
			net = append(net, a)
		}
	}
	p.net = net
}

// hire gives a call to a member that lives when the call begins. A call ends with its
// process, and does not begin while the process stands still.
func (f *fleetPlan) hire(d dice.Dice, c *callPlan) {
	for {
		c.member = d.IntN(len(f.members))
		p := f.members[c.member]
		at := p.resumes(c.at)
		if p.alive(at) {
			c.at = at
			c.die(p)
			return
		}
	}
}

// die cancels the call when its process dies.
func (c *callPlan) die(p *process) {
	if p.dies == never {
		return
	}
	if left := p.dies - c.at; c.cancel == 0 || left < c.cancel {
		c.cancel, c.oldStyle = left, false
	}
}

// alive reports whether the process exists at a time.
func (p *process) alive(at time.Duration) bool { return p.born <= at && at < p.dies }

// resumes returns when a process that does something at a time can do it.
func (p *process) resumes(at time.Duration) time.Duration {
	for _, s := range p.stops {
		if s.from <= at && at < s.until {
			return s.until
		}
	}
	return at
}

// air returns the state of the process's network.
func (p *process) air(now time.Duration) air {
	for _, a := range p.net {
		if now < a.until {
			return a
		}
	}
	return air{}
}

// awake reports whether a process did not stand still and was there between two times.
func (p *process) awake(from, until time.Duration) bool {
	return p.born < from && !slices.ContainsFunc(p.stops, func(s span) bool { return s.from < until && from < s.until })
}

// steady reports whether a process is there for a span and hears everything soon.
func (p *process) steady(s span) bool {
	if p.born > 0 && s.from < p.born+time.Second || s.until > p.dies {
		return false
	}
	for _, stop := range p.stops {
		if stop.from < s.until && s.from < stop.until {
			return false
		}
	}
	return !p.meets(s, func(a air) bool { return a.delay > 4*time.Millisecond || a.lost > 0 })
}

// meets reports whether a state of the network that is of a kind lies within a span.
func (p *process) meets(s span, kind func(air) bool) bool {
	from := time.Duration(0)
	return slices.ContainsFunc(p.net, func(a air) bool {
		within := from < s.until && s.from < a.until
		from = a.until
		return within && kind(a)
	})
}

// steady reports whether all members are there for a span and hear everything soon, and
// nobody lies.
func (f *fleetPlan) steady(s span) bool {
	return f.unsteady(s) == 0 && !f.lied() && !slices.ContainsFunc(f.forgets, func(at time.Duration) bool { return at < s.until })
}

// doubled reports whether messages come twice within a span.
func (f *fleetPlan) doubled(s span) bool {
	return slices.ContainsFunc(f.members, func(p *process) bool {
		return p.meets(s, func(a air) bool { return a.double > 0 })
	})
}

// unheard reports whether a member hears nothing from its begin on.
func (f *fleetPlan) unheard() bool {
	return slices.ContainsFunc(f.members, func(p *process) bool { return p.air(p.born).lost == 100 })
}

// unsteady returns how many members do not hear everything soon.
func (f *fleetPlan) unsteady(s span) (n int) {
	for _, p := range f.members {
		if !p.steady(s) {
			n++
		}
	}
	return n
}

// lied reports whether a member hears something that is not so.
func (f *fleetPlan) lied() bool { return f != nil && len(f.lies) > 0 }

// lateness returns how late news may be.
func (f *fleetPlan) lateness() (late time.Duration) {
	for _, p := range f.processes {
		stop, delay := time.Duration(0), time.Duration(0)
		for _, s := range p.stops {
			stop += s.until - s.from
		}
		for _, a := range p.net {
			delay = max(delay, a.delay)
		}
		late = max(late, stop+2*delay)
	}
	return 2 * late // from one process to another
}

// String describes the fleet for the printed story.
func (f *fleetPlan) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "a fleet of %d members, direct %v, calm %v, forgets at %v, %d lies\n", len(f.members), f.direct, f.calm, f.forgets, len(f.lies))
	for _, p := range f.processes {
		fmt.Fprintf(&b, "    process %d with the members", p.id)
		for i, own := range f.members {
			if own == p {
				fmt.Fprintf(&b, " %d", i)
			}
		}
		if p.born > 0 {
			fmt.Fprintf(&b, ", born at %v", p.born)
		}
		if p.dies < never {
			fmt.Fprintf(&b, ", dies at %v, tells of it %v", p.dies, p.closes)
		}
		for _, s := range p.stops {
			fmt.Fprintf(&b, ", stands still from %v to %v", s.from, s.until)
		}
		for i, a := range p.net {
			if a.delay+time.Duration(a.lost+a.double) > 0 && i < 20 {
				fmt.Fprintf(&b, "\n        until %v messages take up to %v, %d %% are lost, %d %% come twice", a.until, a.delay, a.lost, a.double)
			}
		}
		b.WriteString("\n")
	}
	return b.String()
}
