// The choices of a seed before time begins.

package simulate

import (
	"cmp"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/aplomb-go/aplomb/lab/internal/dice"
	"github.com/aplomb-go/aplomb/policy"
)

// Each part of a story has its own dice. So a story without one of its callers
// is otherwise the same.
const (
	ofPlan uint64 = iota
	ofHost
	ofCall
	ofAttempt
	ofUpdate
	ofManner
	ofFleet
	ofMessage
	ofCost
)

// A plan describes a story. It has the hosts with their rules and moods, the
// callers, and the times at which the rules change.
type plan struct {
	seed    uint64
	hosts   []*host
	calls   []*callPlan
	updates []update
	nested  bool       // one Transport around another
	traced  bool       // a Trace listens to every request
	logged  bool       // a Logger does
	fleet   *fleetPlan // nil: one Transport sends everything
	horizon time.Duration
}

// An update puts new rules in force for all hosts.
type update struct {
	at    time.Duration
	rules []policy.Rule // by host
}

// A host is a server with its moods and its rule.
type host struct {
	id      int
	origin  string // scheme and authority
	name    string // as Config.Hosts has it
	rule    policy.Rule
	http2   bool
	weather []phase
	changes []time.Duration // when the representations change
	wild    bool            // its base misbehaves: panics, ends its goroutine, responds twice or not at all
	streams bool            // some of its bodies are streams
	lingers bool            // some of its responses arrive in a later phase
	scene   *scene          // nil: none
}

// A mood is how a host mostly behaves.
type mood uint8

const (
	fine mood = iota
	flaky
	failing
	throttling
	exhausted // a quota is used up until the end of the phase
	frozen
	scattered // some requests are refused at random
)

func (m mood) String() string {
	return [...]string{"fine", "flaky", "failing", "throttling", "exhausted", "frozen", "scattered"}[m]
}

// A phase is a mood that lasts until a time.
type phase struct {
	until time.Duration
	mood  mood
}

// A bodyShape is a kind of request body.
type bodyShape uint8

const (
	noBody    bodyShape = iota
	inMemory            // as http.NewRequest makes it of a bytes.Reader
	seekable            // an io.Seeker without GetBody
	stream              // neither GetBody nor io.Seeker
	fresh               // GetBody returns a new reader each time
	same                // GetBody seeks the only reader back and returns it again
	noGetBody           // GetBody fails from its second call on
	piped               // an io.Pipe with a slow writer
	shapes
)

func (s bodyShape) String() string {
	return [...]string{"no body", "in memory", "seekable", "stream", "fresh", "same reader", "failing GetBody", "pipe"}[s]
}

// A bodyFault is a defect of a request body.
type bodyFault uint8

const (
	sound bodyFault = iota
	fails
	panics
	blocks // until it is closed or the caller's context ends
)

// An appetite is how a caller treats a response's body.
type appetite uint8

const (
	readsAll appetite = iota
	dawdles           // with pauses between the reads
	readsPart
	closesAtOnce
	closesMeanwhile // from another goroutine
	forgets         // forgets to close the body
	appetites
)

// A callPlan is one caller with its one request.
type callPlan struct {
	id       int
	at       time.Duration
	host     int
	method   string
	path     string
	rng      string // the caller's own Range
	user     int    // whose credentials
	key      bool   // with an Idempotency-Key
	upgrade  bool
	deadline time.Duration // counted from at; 0: none
	cancel   time.Duration // counted from at; 0: never
	oldStyle bool          // cancelled by Request.Cancel
	sending  int           // 0: by method, 1: Repeatable, 2: Once
	shape    bodyShape
	fault    bodyFault
	size     int64
	faultAt  int64
	slow     time.Duration // per Read of the request's body
	chunked  bool          // the length is not announced
	appetite appetite
	part     int64
	pause    time.Duration
	hook     string // in which callback it panics
	hookAt   int    // in which call of that callback, from 1
	member   int    // of the fleet
	cost     int
}

// newPlan returns the plan of a seed.
func newPlan(seed uint64) *plan {
	d := dice.Roll(seed, ofPlan)
	p := &plan{seed: seed, nested: d.Chance(8), traced: d.Chance(75), logged: d.Chance(50)}
	span := d.Between(time.Second, 5*time.Minute)
	for i := range 1 + d.IntN(3) {
		p.hosts = append(p.hosts, newHost(seed, i, span, p.nested))
	}
	n := 3 + d.IntN(30)
	if d.Chance(10) {
		n += 100
	}
	for i := range n {
		p.calls = append(p.calls, newCall(seed, i, p.hosts, span))
	}
	if !p.nested && d.Chance(30) { // two Transports would hear of it at different times of a request
		for i := range 1 + d.IntN(3) {
			p.updates = append(p.updates, newUpdate(seed, i, p, span))
		}
		slices.SortFunc(p.updates, func(a, b update) int { return int(a.at - b.at) })
	}
	p.horizon = 3*span + 5*time.Minute
	p.addManners()
	p.addFleet()
	p.addCosts()
	return p
}

func newHost(seed uint64, id int, span time.Duration, nested bool) *host {
	d := dice.Roll(seed, ofHost, uint64(id))
	name := fmt.Sprintf("h%d.sim", id)
	h := &host{
		id:     id,
		name:   name,
		origin: dice.One(d, "http://", "https://") + name + dice.One(d, "", ":8080"),
		http2:  d.Chance(50),
		wild:   d.Chance(15),
	}
	h.rule = newRule(d, nested)
	for at := time.Duration(0); at < 2*span; {
		at += d.Between(span/20, span).Truncate(time.Millisecond)
		h.weather = append(h.weather, phase{at, dice.One(d, fine, flaky, flaky, failing, throttling, exhausted, frozen)})
	}
	if d.Chance(40) {
		for range 1 + d.IntN(4) {
			h.changes = append(h.changes, time.Duration(d.Int64N(int64(span))))
		}
		slices.Sort(h.changes)
	}
	return h
}

// newUpdate draws new rules. The budget does not change, because its limit is
// checked over the whole story.
func newUpdate(seed uint64, id int, p *plan, span time.Duration) update {
	d := dice.Roll(seed, ofUpdate, uint64(id))
	// No call begins in the second half of a microsecond (see newCall), so the
	// rules change between two calls.
	u := update{at: time.Duration(d.Int64N(int64(span))).Truncate(time.Microsecond) + 700}
	for _, h := range p.hosts {
		r := newRule(d, p.nested)
		r.RetryBudget = h.rule.RetryBudget
		u.rules = append(u.rules, r)
	}
	return u
}

func newCall(seed uint64, id int, hosts []*host, span time.Duration) *callPlan {
	d := dice.Roll(seed, ofCall, uint64(id))
	c := &callPlan{
		id:     id,
		at:     time.Duration(d.Int64N(int64(span))).Truncate(time.Microsecond),
		host:   d.IntN(len(hosts)),
		method: dice.One(d, "GET", "GET", "GET", "GET", "HEAD", "POST", "POST", "PUT", "PUT", "DELETE", ""),
		path:   fmt.Sprintf("/doc/%d", d.IntN(4)),
		user:   d.IntN(3),
		key:    d.Chance(5),
	}
	if d.Chance(30) { // in step with others
		c.at = c.at.Truncate(span / 4)
	}
	if d.Chance(40) {
		c.deadline = d.Between(time.Millisecond, 2*time.Minute)
	}
	if d.Chance(25) {
		c.cancel, c.oldStyle = d.Between(time.Microsecond, time.Minute), d.Chance(10)
	}
	c.sending = dice.One(d, 0, 0, 0, 0, 0, 0, 0, 0, 1, 2)
	c.drawBody(d)
	c.drawReading(d)
	if c.shape == noBody && c.method == "GET" {
		switch {
		case d.Chance(10):
			c.rng = dice.One(d, "bytes=100-", "bytes=0-499", "bytes=10-")
		case d.Chance(3):
			c.upgrade = true
		}
	}
	if d.Chance(4) {
		c.hook, c.hookAt = dice.One(d, hooks[:]...), 1+d.IntN(3)
	}
	return c
}

// addManners makes some callers slow, some hosts stream or linger, and some phases a time
// of scattered refusals. It has dice of its own, so it does not change the rest of the plan.
func (p *plan) addManners() {
	d := dice.Roll(p.seed, ofManner)
	if d.Chance(50) {
		return
	}
	for _, h := range p.hosts {
		h.streams, h.lingers = d.Chance(30), d.Chance(30)
		for i := range h.weather {
			if d.Chance(15) {
				h.weather[i].mood = scattered
			}
		}
	}
	for _, c := range p.calls {
		if c.shape > inMemory && d.Chance(20) {
			c.slow = d.Between(10*time.Millisecond, 20*time.Second)
		}
		if d.Chance(10) {
			c.appetite, c.pause = dawdles, d.Between(time.Second, 5*time.Minute)
		}
	}
}

// hooks are the callbacks in which the caller's code may panic.
var hooks = [...]string{"classify", "hint", "idempotent", "scope", "trace", "getbody"}

func (c *callPlan) drawBody(d dice.Dice) {
	if c.method != http.MethodPost && c.method != http.MethodPut {
		return
	}
	c.shape = bodyShape(d.IntN(int(shapes)))
	c.size = int64(d.Between(1, 40<<10))
	if d.Chance(5) {
		c.size = int64(d.Between(64<<10, 1<<20))
	}
	c.chunked = d.Chance(25)
	if c.shape > inMemory && d.Chance(10) {
		c.fault, c.faultAt = dice.One(d, fails, panics, blocks), d.Int64N(c.size)
	}
	if c.shape > inMemory && d.Chance(30) {
		c.slow = d.Between(time.Microsecond, 50*time.Millisecond)
	}
}

func (c *callPlan) drawReading(d dice.Dice) {
	c.appetite = readsAll
	if d.Chance(40) {
		c.appetite = appetite(d.IntN(int(appetites)))
	}
	c.part = int64(d.Between(1, 100<<10)) - 1
	c.pause = d.Between(time.Millisecond, 2*time.Second)
}

// ruleOf returns the complete rule that is in force for a host at a time.
func (p *plan) ruleOf(hostID int, at time.Duration) policy.Rule {
	return p.rawRuleOf(hostID, at).Or(policy.Defaults())
}

// rawRuleOf is ruleOf without the defaults.
func (p *plan) rawRuleOf(hostID int, at time.Duration) policy.Rule {
	r := p.hosts[hostID].rule
	for _, u := range p.updates {
		if u.at <= at {
			r = u.rules[hostID]
		}
	}
	return r
}

// rulesOf returns all rules of a host.
func (p *plan) rulesOf(h *host) []*policy.Rule {
	rules := []*policy.Rule{&h.rule}
	for i := range p.updates {
		rules = append(rules, &p.updates[i].rules[h.id])
	}
	return rules
}

// rules returns the rules of all hosts in the form of Config.Hosts.
func (p *plan) rules(of func(*host) policy.Rule) map[string]policy.Rule {
	m := make(map[string]policy.Rule)
	for _, h := range p.hosts {
		m[h.name] = of(h)
	}
	return m
}

// String describes the hosts and callers.
func (p *plan) String() string {
	var b strings.Builder
	for _, h := range p.hosts {
		fmt.Fprintf(&b, "%s %v\n", h.origin, h.rule)
		for _, phase := range h.weather {
			fmt.Fprintf(&b, "    %v until %v\n", phase.mood, phase.until)
		}
		if h.scene != nil {
			fmt.Fprintf(&b, "    %v\n", h.scene)
		}
	}
	for _, u := range p.updates {
		fmt.Fprintf(&b, "from %v on: %v\n", u.at, u.rules)
	}
	if p.nested {
		b.WriteString("one Transport around another\n")
	}
	if p.fleet != nil {
		b.WriteString(p.fleet.String())
	}
	return b.String()
}

// String describes the call for the printed story.
func (c *callPlan) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s h%d%s", cmp.Or(c.method, "GET"), c.host, c.path)
	if c.shape != noBody {
		fmt.Fprintf(&b, " of %d bytes (%v, %v at %d, %v per Read)", c.size, c.shape, c.fault, c.faultAt, c.slow)
	}
	for _, row := range []struct {
		said bool
		text string
	}{
		{c.rng != "", "for " + c.rng},
		{c.upgrade, "to upgrade"},
		{c.key, "with a key"},
		{c.deadline > 0, "within " + c.deadline.String()},
		{c.cancel > 0 && !c.oldStyle, "cancelled after " + c.cancel.String()},
		{c.cancel > 0 && c.oldStyle, "cancelled by its channel after " + c.cancel.String()},
		{c.member > 0, "by member " + strconv.Itoa(c.member)},
		{c.sending == 1, "repeatable"},
		{c.sending == 2, "once"},
		{c.cost > 0, "at a cost of " + strconv.Itoa(c.cost)},
		{c.hook != "", "panics in " + c.hook},
	} {
		if row.said {
			b.WriteString(", " + row.text)
		}
	}
	fmt.Fprintf(&b, "; reading: %v", c.appetite)
	return b.String()
}

func (f bodyFault) String() string {
	return [...]string{"sound", "fails", "panics", "blocks"}[f]
}

func (a appetite) String() string {
	return [...]string{"all", "slowly", "a part", "nothing", "until another goroutine closes", "never closes"}[a]
}
