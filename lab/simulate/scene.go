// Scenes are crowds of callers of a fleet at a host of their own.

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

// A sceneKind says what happens in a scene.
type sceneKind uint8

const (
	noScene    sceneKind = iota
	peace                // the host is well
	plenty               // there is a rate that is far away
	rated                // the callers want twice the rate
	blackout             // the host is down for a while
	neighbour            // the host refuses some members only
	refusedAll           // the host refuses all members for a while
	fleetKinds
)

func (k sceneKind) String() string {
	return [...]string{"no scene", "peace", "a rate that is far away", "a shared rate", "an outage for a fleet", "sick members", "a wait for all members"}[k]
}

// A scene describes the crowd of a host. The ordinary callers come at regular times from
// warm on. The promises are judged from begin on.
type scene struct {
	kind  sceneKind
	trip  time.Duration // from an ordinary request to its response
	every time.Duration // between two ordinary callers
	warm  time.Duration
	begin time.Duration // of the refusals or the outage
	end   time.Duration

	fleet     *fleetPlan
	perSecond float64 // the rate
	burst     int
	status    int           // of the failures; 0: the connection is reset
	wait      time.Duration // that a refusal asks for
	sick      []int         // the members that are refused
	fails     time.Duration // how long a failure takes
}

// String describes the scene for the printed story.
func (s *scene) String() string {
	return fmt.Sprintf("%v from %v to %v, a request each %v from %v on, responses after %v, rate %v, burst %d, status %d, wait %v, sick %v, failures after %v",
		s.kind, s.begin, s.end, s.every, s.warm, s.trip, s.perSecond, s.burst, s.status, s.wait, s.sick, s.fails)
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
	s.cast(d, p, h)
}

// newScene draws a scene of a fleet. All callers together send some tens of requests
// per second.
func newScene(d dice.Dice, f *fleetPlan) *scene {
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

// rule returns the rule of the scene's host.
func (s *scene) rule(d dice.Dice) policy.Rule {
	switch s.kind {
	case peace:
		return policy.Rule{QuotaPacing: policy.On, CircuitBreaker: policy.CircuitBreaker{Enabled: policy.On}, Concurrency: policy.Concurrency{Enabled: policy.On, Max: 100, FailFast: dice.One[policy.Switch](d, policy.Off, policy.On)}}
	case plenty:
		return policy.Rule{RateLimit: policy.RateLimit{PerSecond: plentyPerSecond}}
	case rated:
		return policy.Rule{RateLimit: policy.RateLimit{PerSecond: s.perSecond, Burst: s.burst}}
	case blackout:
		return policy.Rule{Backoff: backoff.Exponential{Base: 100 * time.Millisecond, Max: 2 * time.Second, Jitter: backoff.JitterFull}, CircuitBreaker: policy.CircuitBreaker{Enabled: policy.On}}
	}
	if s.kind == refusedAll {
		return policy.Rule{ShareRetryAfter: policy.On}
	} else if d.Chance(50) {
		return policy.Rule{CircuitBreaker: policy.CircuitBreaker{Enabled: policy.On}}
	}
	return policy.Rule{}
}

// cast adds the callers of all members to the plan.
func (s *scene) cast(d dice.Dice, p *plan, h *host) {
	last := s.end
	if s.kind == blackout || s.kind == refusedAll {
		last += 15 * time.Second
	}
	for i, m := range s.fleet.members {
		phase := time.Duration(d.Int64N(int64(s.every)))
		for at := s.warm + phase; at < last; at += s.every {
			if !m.alive(at) || m.resumes(at) > at {
				continue
			}
			// Bodies cost time, and say nothing here.
			c := &callPlan{id: len(p.calls), at: at, host: h.id, path: "/doc/0", method: http.MethodGet, member: i, appetite: closesAtOnce}
			switch {
			case s.kind == blackout, s.kind == rated:
				c.deadline = 5 * time.Second // so that the queue does not grow for ever
			case s.kind >= neighbour && d.Chance(30):
				c.deadline = d.Between(500*time.Millisecond, 10*time.Second)
			}
			c.die(m)
			p.calls = append(p.calls, c)
		}
	}
}

// script returns the script of an attempt of a scene. began is when the attempt arrives.
func (s *scene) script(c *callPlan, began time.Duration) *script {
	sc := &script{outcome: responds, status: 200, takes: s.trip, piece: 1 << 10, length: true, tagged: 2, page: 100, quota: -1}
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
	return sc
}
