// The check of hedges.

package simulate

import (
	"net/http"

	"github.com/aplomb-go/aplomb/policy"
)

// checkHedge judges an attempt that arrives while another of its call is under way; the lock is held.
func (w *world) checkHedge(s *attempt) {
	c := s.call
	beside := false
	for _, other := range c.attempts[:s.number-1] {
		beside = beside || other.ended == never && other.req.Context().Err() == nil
	}
	if !beside || w.plan.nested {
		return
	}
	switch {
	case s.number != 2 && c.returned == never: // a request for the rest of a body has hedges of its own
		w.complain(Beside, c, "attempt %d began beside another; a hedge is the second attempt", s.number)
	case !hedges(c.rule) && !hedges(w.plan.ruleOf(s.host.id, c.plan.at)):
		w.complain(Beside, c, "a hedge, and no rule has hedges")
	case c.plan.sending == 2, c.plan.upgrade, c.plan.shape > inMemory:
		w.complain(Beside, c, "a hedge of a request that cannot be sent twice at once")
	case c.plan.method != "" && c.plan.method != http.MethodGet && c.plan.method != http.MethodHead && c.plan.sending != 1 && c.written().Idempotent == nil, !c.idempotent():
		w.complain(Beside, c, "a hedge of a %s for which nobody vouches", c.plan.method)
	}
}

// hedges reports whether a rule has hedges. A Percentile is drawn only with an After.
func hedges(r policy.Rule) bool { return r.Hedge.After > 0 }
