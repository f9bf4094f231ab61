// Checks of alternates and of costs.

package simulate

import (
	"cmp"
	"math"
	"net/url"
	"slices"
	"time"

	"github.com/aplomb-go/aplomb/classify"
	"github.com/aplomb-go/aplomb/policy"
	"github.com/aplomb-go/aplomb/transport"
)

// checkPlace judges to which host an attempt goes; the lock is held, here and in all functions
// below that do not take it.
func (w *world) checkPlace(s *attempt) {
	c, path := s.call, s.call.plan.path
	if s.away() {
		if why := c.mayVisit(s.host); why != "" {
			w.complain(Strayed, c, "attempt %d went to %s, which %s", s.number, s.host.name, why)
		}
		if s.host.mirror != nil {
			path = s.host.mirror.path + path
		}
	}
	if u := s.req.URL; u.Path != path || u.RawQuery != c.req.URL.RawQuery || s.req.Host != "" && s.req.Host != u.Host {
		w.complain(Request, c, "attempt %d asks for %s of %q, the caller wants %s", s.number, u.Path, s.req.Host, path)
	}
}

// away reports whether an attempt goes to another host than its request names.
func (s *attempt) away() bool { return s.host.id != s.call.plan.host }

// checkSettled judges what the response of an attempt says to a caller who knows nothing of
// alternates.
func (c *call) checkSettled(s *attempt) {
	if !c.world.plan.mirrored() {
		return
	}
	if kept := c.resp.Header.Get("Set-Cookie") != ""; kept == s.away() {
		c.complain(Strayed, "the response of %s has a cookie: %v", s.host.name, kept)
	}
	want := s.location
	if s.away() && want != "" {
		want = s.host.origin + want
	}
	got := c.resp.Header.Get("Location")
	if u, err := url.Parse(got); err == nil && u.User != nil && u.User.String() == c.req.URL.User.String() {
		u.User = nil // the caller's own, as after a redirect without alternates
		got = u.String()
	}
	if got != want {
		c.complain(Outcome, "the response leads to %q instead of %q", got, want)
	}
	if u := c.resp.Request.URL; c.world.plan.hostOf(u) != s.host {
		c.complain(Outcome, "the response of %s says that it came from %s", s.host.name, u.Host)
	}
}

// countsAtLast reports whether the outcome of an attempt counts although others followed: it was
// the last at the request's own host, and the last of all was no answer of an alternate.
func (c *call) countsAtLast(s *attempt) bool {
	last := c.attempts[len(c.attempts)-1]
	return !s.away() && last.away() && last.isNoAnswer() &&
		!c.anyAttempt(func(later *attempt) bool { return !later.away() && later.began > s.ended })
}

// isNoAnswer reports whether an attempt at an alternate says nothing about the request.
func (s *attempt) isNoAnswer() bool {
	switch classify.KindOf(s.err) {
	case classify.DNS, classify.Dial, classify.TLS:
		return true
	}
	return isForeign(s.status)
}

// isForeign reports whether an alternate says with a status that it does not serve what its host serves.
func isForeign(status int) bool { return slices.Contains([]int{401, 403, 404, 405, 410, 501}, status) }

// checkApart checks that no two hosts act on a request that is idempotent by its key only.
// They need not know each other's keys.
func (w *world) checkApart(c *call) {
	if !c.plan.key || c.bare() {
		return
	}
	for _, s := range c.acts {
		if s.host != c.acts[0].host {
			w.complain(ActedOnce, c, "%s and %s acted on a %s with a key", c.acts[0].host.name, s.host.name, c.plan.method)
		}
	}
}

// bare reports whether the request may be sent twice without a key.
func (c *call) bare() bool {
	plan := *c.plan
	plan.key = false
	return (&call{plan: &plan}).idempotent()
}

// checkNamed checks that the Trace was told of the alternates.
func (w *world) checkNamed(c *call) {
	if !w.plan.traced || w.plan.nested {
		return
	}
	var went []string
	for _, s := range c.attempts {
		name := ""
		if s.away() {
			name = s.host.origin
		}
		went = append(went, name)
	}
	told := slices.Clone(c.alternates)
	slices.Sort(went)
	slices.Sort(told)
	if len(went) == len(told) && !slices.Equal(went, told) { // if one is missing, another check says so
		w.complain(Told, c, "attempts went to %q, and the Trace was told %q", went, told)
	}
}

// checkHome checks that a request goes to its own host when that is well.
func (w *world) checkHome(h *host, c *call) {
	if len(c.attempts) > 0 && c.attempts[0].host != h {
		w.complain(Home, c, "%s has been well for two hours, and the first attempt went to %s", h.name, c.attempts[0].host.name)
	}
}

// tokens returns what an attempt takes from the rate of a host with this burst.
func (s *attempt) tokens(burst int) int {
	if s.call.rule.Cost == nil {
		return 1
	}
	return min(max(s.call.plan.cost, 1), burst)
}

// checkAsked checks that Cost is asked once for a request.
func (w *world) checkAsked(c *call) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if n := c.hooked["cost"]; n > 1 && !w.plan.nested {
		w.complain(Costs, c, "Cost was asked %d times", n)
	}
}

// tokenLate is for how long an attempt may keep its token, while a lane finds out whether it is
// of use.
const tokenLate = time.Millisecond

// checkCosts checks that the costs of all attempts at a host keep to its rate. It judges only hosts that keep their rule.
func (w *world) checkCosts(h *host) {
	rate := h.rule.Rate
	if rate.PerSecond <= 0 || w.plan.fleet != nil || len(w.plan.updates) > 0 || h.wires != nil {
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
		if last = s.began; level < -0.01-rate.PerSecond*tokenLate.Seconds() {
			w.complain(Costs, s.call, "attempt %d at a cost of %d came when %.2f tokens were missing", s.number, s.tokens(burst), -level)
			return
		}
	}
}

// takenAt returns the times at which retries and hedges of a call were taken from the budget of
// a host. The event of a retry may come later, because the attempt before it may still read the
// caller's body. That of a hedge comes when it has waited for its connection.
func (c *call) takenAt(h *host) (all []time.Duration) {
	for _, e := range c.events {
		if e.Offset > 0 || e.Reason != transport.ReasonHedged && e.Reason != transport.ReasonRetry {
			continue
		}
		i := slices.IndexFunc(c.attempts, func(s *attempt) bool { return s.began >= e.at && s.number > e.Number && s.began <= c.returned })
		hedge := e.Reason == transport.ReasonHedged
		if !(i >= 0 && c.attempts[i].counts(h) || i < 0 && hedge && len(c.places()) == 1 && c.plan.host == h.id) {
			continue
		}
		at := min(e.at, c.world.timeOf(e.Time))
		switch delay := c.rule.Hedge; {
		case !hedge || h.wires == nil:
		case delay.Percentile > 0:
			continue // it may have waited for its connection since nobody knows when
		default:
			at = min(at, c.attempts[0].set+delay.After)
		}
		all = append(all, at)
	}
	return all
}

// counts reports whether an attempt counts as a retry at a host. The first of its call there is a request.
func (s *attempt) counts(h *host) bool {
	return s.host == h && slices.ContainsFunc(s.call.attempts[:s.number-1], func(earlier *attempt) bool { return earlier.host == h })
}

// limitedBy reports whether a rule has limits other than holds that make a request wait.
func limitedBy(r policy.Rule) bool {
	return r.Gate.Enabled() || r.Rate.PerSecond > 0 || r.Pacing == policy.On
}

// forgottenAt returns the hosts whose slots a body may hold that its caller forgot to close.
func (c *call) forgottenAt() map[string]bool {
	all := make(map[string]bool)
	for _, s := range c.attempts {
		if s == c.served || s.began >= c.returned {
			all[s.host.origin] = true
		}
	}
	return all
}
