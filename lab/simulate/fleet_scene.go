// Scenes of fleets. Each member has callers who come at regular times.

package simulate

import (
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/aplomb-go/aplomb/lab/internal/dice"
	"github.com/aplomb-go/aplomb/policy"
	"github.com/aplomb-go/aplomb/policy/backoff"
)

// newFleetScene draws a scene of a fleet. All callers together send some tens of requests
// per second.
func newFleetScene(d dice.Dice, f *fleetPlan) *scene {
	n := len(f.members)
	s := &scene{kind: peace + sceneKind(d.IntN(int(fleetKinds-peace))), warm: time.Second, fleet: f}
	s.trip, s.every = d.Between(5*time.Millisecond, 100*time.Millisecond), time.Duration(n)*50*time.Millisecond
	s.begin = d.Between(5*time.Second, 10*time.Second).Truncate(time.Second)
	s.end = s.begin + 15*time.Second
	switch s.kind {
	case rated:
		s.perSecond, s.burst = float64(dice.One(d, 5, 10, 20)), dice.One(d, 1, 5, 20)
		s.every = time.Duration(float64(n) / s.perSecond / 2 * float64(time.Second))
	case blackout:
		s.every = time.Duration(n) * 100 * time.Millisecond
		s.status, s.fails = dice.One(d, 0, 503), d.Between(time.Millisecond, 2*time.Second)
		s.end += 10 * time.Second
	case neighbour:
		s.status, s.wait = dice.One(d, 0, 429, 429, 503), dice.One(d, time.Second, 5*time.Second, 15*time.Second, time.Minute)
		s.sick = d.Perm(n)[:1+d.IntN(n-1)]
	case refusedAll:
		s.status = dice.One(d, 429, 503)
		s.end = s.begin + d.Between(2*time.Second, 20*time.Second).Truncate(time.Second)
	}
	return s
}

// describe describes the scene for the printed story.
func (s *scene) describe() string {
	return fmt.Sprintf(", rate %v, burst %d, status %d, wait %v, sick %v, failures after %v", s.perSecond, s.burst, s.status, s.wait, s.sick, s.fails)
}

// fleetRule returns the rule of the scene's host.
func (s *scene) fleetRule(d dice.Dice) policy.Rule {
	switch s.kind {
	case peace:
		return policy.Rule{QuotaPacing: policy.On, Concurrency: policy.Concurrency{Mode: dice.One(d, policy.GateWait, policy.GateRefuse)}}
	case plenty:
		return policy.Rule{RateLimit: policy.RateLimit{PerSecond: 10000}}
	case rated:
		return policy.Rule{RateLimit: policy.RateLimit{PerSecond: s.perSecond, Burst: s.burst}}
	case blackout:
		return policy.Rule{Backoff: backoff.FullJitter{Base: 100 * time.Millisecond, Max: 2 * time.Second}, Concurrency: policy.Concurrency{Mode: policy.GateWait}}
	}
	r := policy.Rule{}
	switch {
	case s.kind == refusedAll:
		r.ShareRetryAfter = policy.On
	case s.kind == neighbour && d.Chance(50):
		r.Concurrency = policy.Concurrency{Mode: policy.GateWait, Initial: 50 * len(s.fleet.members)}
	}
	return r
}

// fleetCast adds the callers of all members to the plan.
func (s *scene) fleetCast(d dice.Dice, add func(time.Duration, callPlan)) {
	last := s.end
	if s.kind == blackout || s.kind == refusedAll {
		last += 15 * time.Second
	}
	for i, p := range s.fleet.members {
		phase := time.Duration(d.Int64N(int64(s.every)))
		for at := s.warm + phase; at < last; at += s.every {
			if !p.alive(at) || p.resumes(at) > at {
				continue
			}
			c := callPlan{method: http.MethodGet, member: i, appetite: closesAtOnce} // bodies cost time, and say nothing here
			switch {
			case s.kind == blackout, s.kind == rated:
				c.deadline = 5 * time.Second // so that the queue does not grow for ever
			case s.kind >= neighbour && d.Chance(30):
				c.deadline = d.Between(500*time.Millisecond, 10*time.Second)
			}
			c.at = at
			c.die(p)
			add(at, c)
		}
	}
}

// fleetScript changes the script of an attempt in a scene of a fleet.
func (s *scene) fleetScript(sc *script, c *callPlan, began time.Duration) {
	switch on := s.begin <= began && began < s.end; {
	case s.kind == blackout && on, s.kind == neighbour && began < s.end && slices.Contains(s.sick, c.member):
		switch {
		case s.kind == blackout && s.status == 0:
			sc.outcome, sc.takes = resets, s.fails
		case s.kind == blackout:
			sc.status, sc.takes = s.status, s.fails
		case s.status == 0:
			sc.outcome = resets
		default:
			sc.status, sc.told = s.status, told{wait: s.wait, form: plainSeconds}
		}
	case s.kind == refusedAll && on:
		// The wait ends when the scene does, or less than a second later.
		sc.status, sc.told = s.status, told{wait: (s.end - began - sc.takes + time.Second - 1).Truncate(time.Second), form: plainSeconds}
	}
}
