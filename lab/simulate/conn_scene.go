// Scenes about connections.

package simulate

import (
	"net/http"
	"time"

	"github.com/aplomb-go/aplomb/lab/internal/dice"
	"github.com/aplomb-go/aplomb/policy"
	"github.com/aplomb-go/aplomb/policy/backoff"
)

const (
	// dialTime is how long a dial takes in a scene.
	dialTime = 10 * time.Millisecond
	// strikeEach is the time between two strikes of a scene.
	strikeEach = 15 * time.Second
)

// newWireScene draws a scene about connections.
func newWireScene(d dice.Dice) *scene {
	s := &scene{kind: sceneKinds + 1 + sceneKind(d.IntN(int(wireKinds-sceneKinds-1))), warm: time.Second, begin: 10 * time.Second}
	s.timeout = d.Between(200*time.Millisecond, 2*time.Second)
	s.trip = d.Between(5*time.Millisecond, s.timeout/5)
	s.every = max(s.timeout/time.Duration(dice.One(d, 1, 2, 5, 10)), 20*time.Millisecond)
	s.percent = dice.One(d, 100, 100, 50)
	s.deadline = s.kind == deaths && d.Chance(20)
	s.tick = d.Between(time.Second, 10*time.Second)
	if s.end = s.begin + 3*strikeEach; s.kind == overload {
		s.end = s.begin + 4*time.Second
	}
	return s
}

// wires returns the connections of the scene's host.
func (s *scene) wires(d dice.Dice) *wiring {
	if s.kind == oneOfMany {
		return s.oneWires(d)
	}
	w := &wiring{untold: d.Chance(20), streams: 100, percent: s.percent, fate: dies}
	if s.kind == overload {
		return w
	}
	if s.kind == sickness {
		w.fate = sick
	}
	for at := s.begin; at < s.end; at += strikeEach {
		w.strikes = append(w.strikes, at)
	}
	return w
}

// wireRule returns the rule of the scene's host.
func (s *scene) wireRule() policy.Rule {
	r := policy.Rule{Attempts: 4, Backoff: backoff.Constant(10 * time.Millisecond)}
	if !s.deadline {
		r.AttemptTimeout = s.timeout
	}
	return r
}

// wireCast adds the callers to the plan. Some of them listen to streams.
func (s *scene) wireCast(add func(time.Duration, callPlan)) {
	for i := range 2 {
		add(s.warm+time.Duration(i)*time.Millisecond, callPlan{method: http.MethodGet, role: listener, cancel: 2 * time.Minute})
	}
	deadline := time.Duration(0)
	if s.deadline {
		deadline = s.timeout
	}
	for at := s.warm; at < s.end+5*time.Second; at += s.every {
		c := callPlan{method: http.MethodGet, deadline: deadline}
		if n := (at - s.warm) / s.every; n%7 == 3 {
			c.method = http.MethodPost
		}
		add(at, c)
	}
}

// wireScript changes the script of an attempt in a scene about connections.
func (s *scene) wireScript(d dice.Dice, sc *script, on bool) {
	if s.kind == overload && on {
		sc.takes = time.Minute
	}
	sc.acts = d.Chance(50)
}
