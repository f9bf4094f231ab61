// Scenes are crowds of callers at a host of their own, for promises about figures.

package simulate

import (
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/aplomb-go/aplomb/lab/internal/dice"
	"github.com/aplomb-go/aplomb/policy"
)

// A sceneKind says what happens in a scene.
type sceneKind uint8

const (
	noScene  sceneKind = iota
	refusals           // the host refuses requests at random, although no quota is used up

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
	return [...]string{"no scene", "scattered refusals", "peace", "a rate that is far away", "a shared rate", "an outage for a fleet", "sick members", "a wait for all members"}[k]
}

// A scene describes the crowd of a host. The ordinary callers come at regular times from
// warm on. The promises are judged from begin on.
type scene struct {
	kind    sceneKind
	trip    time.Duration // from an ordinary request to its response
	every   time.Duration // between two ordinary callers
	warm    time.Duration
	begin   time.Duration // of the refusals or the outage
	end     time.Duration
	percent int // of the requests are refused

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
	if s.kind == refusals {
		fmt.Fprintf(&b, ", %d %% refused", s.percent)
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

// newScene draws a scene without a fleet.
func newScene(d dice.Dice) *scene {
	s := &scene{kind: refusals, trip: 20 * time.Millisecond, warm: time.Second}
	s.every = time.Second / time.Duration(dice.One(d, 5, 40, 100, 200))
	s.percent = dice.One(d, 2, 5, 10)
	s.begin = s.warm + max(20*s.every, time.Second)
	s.end = s.begin + 250*s.every
	return s
}

// rule returns the rule of the scene's host.
func (s *scene) rule(d dice.Dice) policy.Rule {
	if s.fleet != nil {
		return s.fleetRule(d)
	}
	return policy.Rule{}
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
	for at := s.warm; at < s.end; at += s.every {
		add(at, callPlan{method: http.MethodGet})
	}
}

// script returns the script of an attempt of a scene. began is when the attempt arrives.
func (s *scene) script(d dice.Dice, c *callPlan, began time.Duration) *script {
	sc := &script{outcome: responds, status: 200, takes: s.trip, piece: 1 << 10, length: true, tagged: 2, page: 100, quota: -1}
	switch {
	case s.fleet != nil:
		s.fleetScript(sc, c, began)
	case s.begin <= began && began < s.end && d.Chance(s.percent):
		sc.status, sc.told = 429, told{wait: time.Second, form: plainSeconds}
	}
	return sc
}
