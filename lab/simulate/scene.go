// Scenes are crowds of callers at a host of their own, for promises about figures.

package simulate

import (
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/aplomb-go/aplomb/lab/internal/dice"
	"github.com/aplomb-go/aplomb/policy"
	"github.com/aplomb-go/aplomb/policy/backoff"
)

// A sceneKind says what happens in a scene.
type sceneKind uint8

const (
	noScene     sceneKind = iota
	refusals              // the host refuses requests at random, although no quota is used up
	outage                // the host is down for a while, and responses to old requests still arrive
	slowUploads           // some callers are slow to supply their requests' bodies
	streaming             // some callers listen to event streams, or to bodies without a length
	sceneKinds

	// These are drawn with a fleet.
	peace      // the host is well
	plenty     // there is a rate that is far away
	rated      // the callers want twice the rate
	blackout   // the host is down for a while
	neighbour  // the host refuses some members only
	refusedAll // the host refuses all members for a while
	fleetKinds
)

func (k sceneKind) String() string {
	return [...]string{"no scene", "scattered refusals", "an outage with late successes", "slow uploads", "streams",
		"", "peace", "a rate that is far away", "a shared rate", "an outage for a fleet", "sick members", "a wait for all members"}[k]
}

// A role is the part of a caller in a scene.
type role uint8

const (
	ordinary  role = iota // a GET that gets its response after a round trip
	latecomer             // a GET of before the outage that gets its response in it
	uploader              // a PUT with a slow body
	listener              // a GET that gets a body without an end
)

// A scene describes the crowd of a host. The ordinary callers come at regular times from
// warm on. The promises are judged from begin on.
type scene struct {
	kind    sceneKind
	trip    time.Duration // from an ordinary request to its response
	every   time.Duration // between two ordinary callers
	warm    time.Duration
	begin   time.Duration // of the refusals, the outage, or the crowd beside the slow callers
	end     time.Duration
	percent int           // of the requests are refused
	resets  bool          // the outage resets connections; otherwise it responds with 503
	tick    time.Duration // between two pieces of a slow body
	typed   bool          // the streams have the type of event streams

	fleet     *fleetPlan // of a scene of a fleet; the fields below are of such scenes, too
	perSecond float64    // the rate
	burst     int
	status    int           // of the failures; 0: the connection is reset
	wait      time.Duration // that a refusal asks for
	sick      []int         // the members that are refused
	fails     time.Duration // how long a failure takes
}

func (s *scene) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%v from %v to %v, a request each %v from %v on, responses after %v", s.kind, s.begin, s.end, s.every, s.warm, s.trip)
	switch s.kind {
	case refusals:
		fmt.Fprintf(&b, ", %d %% refused", s.percent)
	case outage:
		fmt.Fprintf(&b, ", resets %v", s.resets)
	default:
		fmt.Fprintf(&b, ", a piece each %v, typed %v", s.tick, s.typed)
	}
	if s.fleet != nil {
		b.WriteString(s.describe())
	}
	return b.String()
}

// addScene adds a scene to some plans. The scene has a host and callers of its own, so it
// does not change the rest of the plan.
func (p *plan) addScene() {
	d := dice.Roll(p.seed, ofScene)
	if p.nested || !d.Chance(8) { // two gates would count every request twice
		return
	}
	newScene(d).add(p, d)
}

// add adds the host and the callers of the scene to the plan.
func (s *scene) add(p *plan, d dice.Dice) {
	id := len(p.hosts)
	name := fmt.Sprintf("h%d.sim", id)
	h := &host{id: id, name: name, origin: "http://" + name, http2: true, scene: s, rule: s.rule(d)}
	p.hosts = append(p.hosts, h)
	for i := range p.updates {
		p.updates[i].rules = append(p.updates[i].rules, h.rule)
	}
	h.scene.cast(d, p, h)
}

// newScene draws a scene.
func newScene(d dice.Dice) *scene {
	s := &scene{kind: 1 + sceneKind(d.IntN(int(sceneKinds-1))), trip: 20 * time.Millisecond, warm: time.Second}
	switch s.kind {
	case refusals:
		s.every = time.Second / time.Duration(dice.One(d, 5, 40, 100, 200))
		s.percent = dice.One(d, 2, 5, 10)
		s.begin = s.warm + max(20*s.every, time.Second)
		s.end = s.begin + 250*s.every
	case outage:
		s.every = 100 * time.Millisecond
		s.resets = d.Chance(50)
		s.begin = s.warm + 8*time.Second
		s.end = s.begin + 20*time.Second
	default:
		s.every = 200 * time.Millisecond
		s.tick = d.Between(time.Second, time.Minute)
		s.typed = d.Chance(50)
		s.begin = s.warm + 5*time.Second
		s.end = s.begin + 15*time.Second
	}
	return s
}

// latecomers is how many requests of before an outage get their responses in it, one each
// lateEach. They are fewer than the slots of a gate.
const (
	latecomers = 5
	lateEach   = 3 * time.Second
)

// slowCallers is how many callers of a scene are slow or listen, and the gate's Max.
const slowCallers = 5

// rule returns the rule of the scene's host.
func (s *scene) rule(d dice.Dice) policy.Rule {
	if s.fleet != nil {
		return s.fleetRule(d)
	}
	switch s.kind {
	case refusals:
		return policy.Rule{Cooldown: policy.On}
	case outage:
		return policy.Rule{Backoff: backoff.FullJitter{Base: 100 * time.Millisecond, Max: 2 * time.Second}, Gate: policy.Gate{Mode: policy.GateWait}}
	}
	r := policy.Rule{Gate: policy.Gate{Mode: policy.GateWait, Start: slowCallers, Max: slowCallers}}
	if d.Chance(50) {
		r.AttemptTimeout = 5 * time.Second
	}
	if d.Chance(50) && s.kind == slowUploads {
		r.Stall.Timeout = 5 * time.Second
	}
	return r
}

// cast adds the callers of the scene to the plan.
func (s *scene) cast(d dice.Dice, p *plan, h *host) {
	add := func(at time.Duration, c callPlan) {
		c.id, c.at, c.host, c.path = len(p.calls), at, h.id, "/doc/0"
		p.calls = append(p.calls, &c)
	}
	if s.fleet != nil {
		s.fleetCast(d, add)
		return
	}
	ordinaryFrom := s.warm
	switch s.kind {
	case outage:
		for i := range latecomers {
			add(s.begin-time.Second+time.Duration(i)*7*time.Millisecond, callPlan{method: http.MethodGet, role: latecomer, part: int64(i)})
		}
	case slowUploads:
		for i := range slowCallers {
			add(s.warm+time.Duration(i)*time.Millisecond, callPlan{
				method: http.MethodPut, role: uploader, shape: piped, size: 100 << 10, slow: s.tick, cancel: 2 * time.Minute,
			})
		}
		ordinaryFrom = s.begin
	case streaming:
		for i := range slowCallers {
			add(s.warm+time.Duration(i)*time.Millisecond, callPlan{method: http.MethodGet, role: listener, cancel: 2 * time.Minute})
		}
		ordinaryFrom = s.begin
	}
	deadline := time.Duration(0)
	if s.kind == outage {
		deadline = 5 * time.Second // so that the queue does not grow for ever
	}
	for at := ordinaryFrom; at < s.end; at += s.every {
		add(at, callPlan{method: http.MethodGet, deadline: deadline})
	}
}

// script returns the script of an attempt of a scene. began is when the attempt arrives.
func (s *scene) script(d dice.Dice, c *callPlan, began time.Duration) *script {
	sc := &script{outcome: responds, status: 200, takes: s.trip, piece: 1 << 10, length: true, tagged: 2, page: 100, quota: -1}
	on := s.begin <= began && began < s.end
	if s.fleet != nil {
		s.fleetScript(sc, c, began)
		return sc
	}
	switch {
	case s.kind == refusals && on && d.Chance(s.percent):
		sc.status, sc.told = 429, told{wait: time.Second, form: plainSeconds}
	case c.role == latecomer && began < s.begin:
		sc.takes = s.begin + time.Second + time.Duration(c.part)*lateEach - began
	case s.kind == outage && on:
		if sc.takes = time.Millisecond; s.resets {
			sc.outcome = resets
		} else {
			sc.status = 503
		}
	case c.role == listener:
		sc.stream, sc.endless, sc.typed, sc.length, sc.piece, sc.pause = true, true, s.typed, false, 10, s.tick
	}
	return sc
}
