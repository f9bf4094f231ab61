// Costs: rates that count more for some requests than for others, and their checks.

package simulate

import (
	"cmp"
	"math"
	"net/http"
	"slices"
	"time"

	"github.com/aplomb-go/aplomb/lab/internal/dice"
	"github.com/aplomb-go/aplomb/policy"
)

// addCosts gives some hosts of some plans a rate that counts costs, and their callers costs. It
// has dice of its own, so it does not change other plans.
func (p *plan) addCosts() {
	d := dice.Roll(p.seed, ofCost)
	if !d.Chance(20) || p.nested || p.fleet != nil {
		return
	}
	for _, h := range p.hosts {
		if h.scene == nil {
			p.drawCosts(d, h)
		}
	}
	for _, c := range p.calls {
		if p.hosts[c.host].scene != nil {
			continue
		}
		if c.cost = dice.One(d, 0, 1, d.IntN(10), d.IntN(100)); d.Chance(2) {
			c.hook, c.hookAt = "cost", 1
		}
	}
}

// drawCosts gives some rules of a host a rate that counts costs.
func (p *plan) drawCosts(d dice.Dice, h *host) {
	for _, r := range p.rulesOf(h) {
		if d.Chance(30) {
			r.RateLimit = policy.RateLimit{PerSecond: float64(d.Between(1, 200)), Burst: dice.One(d, 0, 1, 5, 50)}
		}
		if d.Chance(40) {
			r.Cost = func(req *http.Request) int {
				c := callOf(req.Context())
				c.hook("cost")
				return c.plan.cost
			}
		}
	}
}

// tokens returns what an attempt takes from the rate of a host with this burst.
func (s *attempt) tokens(burst int) int {
	if s.call.rule.Cost == nil {
		return 1
	}
	return min(max(s.call.plan.cost, 1), burst)
}

// checkAsked checks that Cost is asked once for a request; the lock is held, here and below.
func (w *world) checkAsked(c *call) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if n := c.hooked["cost"]; n > 1 && !w.plan.nested {
		w.complain(Costs, c, "Cost was asked %d times", n)
	}
}

// checkCosts checks that the costs of all attempts at a host keep to its rate. It judges only hosts that keep their rule.
func (w *world) checkCosts(h *host) {
	rate := h.rule.RateLimit
	if rate.PerSecond <= 0 || w.plan.fleet != nil || len(w.plan.updates) > 0 {
		return
	}
	burst := cmp.Or(rate.Burst, max(1, int(math.Ceil(rate.PerSecond))))
	level, last := float64(burst), time.Duration(0)
	all := slices.Clone(w.attempts)
	slices.SortStableFunc(all, func(a, b *attempt) int { return cmp.Compare(a.began, b.began) })
	for _, s := range all {
		if s.host != h {
			continue
		}
		level = min(level+rate.PerSecond*(s.began-last).Seconds(), float64(burst)) - float64(s.tokens(burst))
		if last = s.began; level < -0.01 {
			w.complain(Costs, s.call, "attempt %d at a cost of %d came when %.2f tokens were missing", s.number, s.tokens(burst), -level)
			return
		}
	}
}
