// The rule of a request.

package transport

import (
	"cmp"
	"net/http"
	"net/url"

	"github.com/aplomb-go/aplomb/fleetmsg"
	"github.com/aplomb-go/aplomb/internal/host"
	"github.com/aplomb-go/aplomb/internal/rules"
	"github.com/aplomb-go/aplomb/policy"
)

// ruleFor returns the rule for a host. It searches for the rule at the first request
// and at the first request after an Update. Otherwise it costs one atomic load.
func (t *Transport) ruleFor(s *host.State[rules.Resolved], set *rules.Ruleset) *rules.Resolved {
	if r := s.Resolved.Load(); r != nil && r.Set == set {
		return r
	}
	r, _ := set.ForHost(s.Key())
	if r.Rate {
		// Used tokens of the rate stay used. An Update must not allow another burst.
		m := s.Machines()
		rate := m.Rate(r.Settings.Rate)
		rate.Set(t.now(), r.Settings.Rate)
		if t.fleet != nil {
			rate.Share(t.now(), t.members())
		}
		if gate, _ := m.Made(); gate != nil {
			gate.WakeFirst() // the first request in that queue may wait for the rate
		}
	}
	if t.fleet != nil && r.ObeysMore(s.Resolved.Load()) {
		// A Fleet may answer at once. So no request goes before it, and that includes one that
		// comes meanwhile and asks as well.
		t.fleet.Tell(fleetmsg.Message{Kind: fleetmsg.Meet, Host: s.Name()})
	}
	s.Resolved.Store(r)
	return r
}

// ruled finds the rule of the request, if its path or its context has one besides that of
// the host.
func (c *call) ruled() error {
	if c.rule.Paths != nil {
		if p := c.rule.Paths.Find(method(c.req), c.req.URL); p != nil {
			c.rule = p.Rule
		}
	}
	if c.options == nil || c.options.rule == nil {
		return nil
	}
	r, err := c.options.rule.Over(c.rule)
	c.rule = r
	return err
}

// RuleOf returns the complete rule for requests with a method to a URL, and the key of
// Config.Hosts that chose it. The key is "" if no pattern matches, so that Config.Rule
// applies. An empty method means GET. In the complete rule a zero field is off, or has the
// default that its comment names. RuleOf does not see the rules of [WithRule]. A CONNECT without
// a path has the rule of the host, because no path matches it.
func (t *Transport) RuleOf(method string, u *url.URL) (rule policy.Rule, pattern string) {
	r, patterns := t.ruleOf(method, u)
	if r == nil {
		return policy.Defaults(), ""
	}
	if len(patterns) > 0 {
		pattern = patterns[0]
	}
	return r.Policy, pattern
}

// PatternsOf returns the keys of Config.Hosts whose rules apply to a method and a URL. The
// key of the path comes first, and then that of the host. Each is left out if there is none.
func (t *Transport) PatternsOf(method string, u *url.URL) []string {
	_, patterns := t.ruleOf(method, u)
	return patterns
}

// ruleOf is RuleOf and PatternsOf. The rule is nil if there is none.
func (t *Transport) ruleOf(method string, u *url.URL) (r *rules.Resolved, patterns []string) {
	set := t.rules.Load()
	if set == nil || u == nil {
		return nil, nil
	}
	r, key := set.ForHost(host.KeyOf(u))
	if r.Paths != nil {
		if p := r.Paths.Find(cmp.Or(method, http.MethodGet), u); p != nil {
			r, patterns = p.Rule, append(patterns, p.Key)
		}
	}
	if key != "" {
		patterns = append(patterns, key)
	}
	return r, patterns
}
