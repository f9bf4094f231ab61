// Late hedges: rules that have them, callers who teach a Transport the times of a host, and a
// scene in which attempts hang.

package simulate

import (
	"net/http"
	"time"

	"github.com/aplomb-go/aplomb/policy"
)

// addLate gives some rules a late hedge. It has dice of its own, so it does not change other plans.
// A Transport around another would send a request beside one of the inner Transport.
func (p *plan) addLate() {
	d := roll(p.seed, ofLate)
	switch {
	case p.nested:
	case d.chance(8):
		if p.fleet == nil {
			newLateScene(d).add(p, d)
		}
	case d.chance(35):
		for _, h := range p.hosts {
			if h.scene == nil && d.chance(70) {
				p.drawLate(d, h)
			}
		}
	}
}

// drawLate gives the rules of a host a late hedge, and most hosts forerunners.
func (p *plan) drawLate(d dice, h *host) {
	for _, r := range p.rulesOf(h) {
		if d.chance(70) { // otherwise Late does nothing in some rules
			r.Hedge = policy.Hedge{}
		}
		switch preset := one(d, policy.Rule{Hedge: policy.Hedge{Late: policy.On}}, policy.API(), policy.Service()); {
		case d.chance(85):
			*r = r.Or(preset)
		default:
			r.Hedge.Late = policy.Off
		}
		r.Budget = h.rule.Budget // of the first rule, as newUpdate keeps it
	}
	if !d.chance(70) {
		return
	}
	every, takes := d.between(100*time.Microsecond, 20*time.Millisecond), d.between(time.Millisecond, 200*time.Millisecond)
	for _, r := range p.rulesOf(h) {
		if r.AttemptTimeout > 0 {
			takes = min(takes, r.AttemptTimeout/2) // otherwise they would fail for ever
		}
	}
	for i := range 100 + d.IntN(30) {
		c := &callPlan{
			id: len(p.calls), at: (time.Duration(i) * every).Truncate(time.Microsecond), host: h.id,
			method: http.MethodGet, path: "/doc/0", role: forerunner, takes: d.between(takes/2, takes),
		}
		if p.fleet != nil { // member 0 lives to the end
			c.at = p.fleet.members[0].resumes(c.at)
		}
		p.calls = append(p.calls, c)
	}
}

// firstScript is the script of every attempt of a forerunner, unless a quota is used up.
func (c *callPlan) firstScript() *script {
	return &script{outcome: responds, status: 200, takes: c.takes, piece: 1 << 10, length: true, quota: -1}
}

// lateWarm is how many callers come before the first trouble of a scene.
const lateWarm = 120

// newLateScene draws a scene in which attempts hang, after the Transport has learned the times of
// the host. Either connections die, or the server loses requests, or some requests take long.
func newLateScene(d dice) *scene {
	s := &scene{kind: hanging, warm: time.Second, every: d.between(50*time.Millisecond, 200*time.Millisecond)}
	s.trip = d.between(2*time.Millisecond, 150*time.Millisecond)
	s.preset = one(d, policy.Rule{Hedge: policy.Hedge{Late: policy.On}}, policy.API(), policy.Service())
	s.begin = s.warm + lateWarm*s.every + time.Second
	s.end = s.begin + 2*strikeEach
	switch d.IntN(3) {
	case 0:
		s.percent = one(d, 100, 100, 50)
	case 1:
		s.lost = one(d, 1, 5)
	default:
		s.slowly, s.slow = one(d, 1, 5), d.between(4*s.trip, 900*time.Millisecond)
	}
	return s
}

// lateWires returns the connections of the scene's host.
func (s *scene) lateWires(d dice) *wiring {
	w := &wiring{untold: d.chance(20), streams: 100, percent: s.percent, fate: dies}
	for at := s.begin; s.percent > 0 && at < s.end; at += strikeEach {
		w.strikes = append(w.strikes, at)
	}
	return w
}

// lateCast adds the callers to the plan. Some of them send a POST, which gets no hedge.
func (s *scene) lateCast(add func(time.Duration, callPlan)) {
	for at := s.warm; at < s.end; at += s.every {
		c := callPlan{method: http.MethodGet}
		if n := (at - s.warm) / s.every; n%9 == 4 {
			c.method, c.deadline = http.MethodPost, 5*time.Second
		}
		add(at, c)
	}
}

// lateScript changes the script of an attempt in the scene. first says that it is the first of its
// request.
func (s *scene) lateScript(d dice, sc *script, first, on bool) {
	lost, slow := d.chance(s.lost), d.chance(s.slowly)
	switch {
	case !first || !on:
	case lost:
		sc.outcome, sc.acts = hangs, false
	case slow:
		sc.takes = s.slow
	}
}

// hedges reports whether a rule has hedges, and whether they are late hedges alone.
func hedges(r policy.Rule) (has, late bool) {
	h := r.Hedge
	timed := h.After > 0 || h.After == 0 && h.Percentile > 0
	late = !timed && h.Late == policy.On && r.Attempts > 1
	return timed || late, late
}
