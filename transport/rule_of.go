// The rule of a request.

package transport

import (
	"net/http"

	"github.com/aplomb-go/aplomb/internal/attempt"
	"github.com/aplomb-go/aplomb/internal/host"
	"github.com/aplomb-go/aplomb/internal/rules"
	"github.com/aplomb-go/aplomb/policy"
)

// findRule finds the rule of the request, if its path or its context has one besides that of
// the host.
func (c *call) findRule() error {
	if c.Rule.Paths != nil {
		if p := c.Rule.Paths.Find(method(c.Req), c.Req.URL); p != nil {
			c.Rule = p.Rule
		}
	}
	if c.options == nil || c.options.rule == nil {
		return nil
	}
	r, err := c.options.rule.CompleteOver(c.Rule)
	c.Rule = r
	return err
}

// addKey gives the request the Idempotency-Key of its rule, unless the caller set one. The
// request becomes a copy, with which all attempts are made.
func (c *call) addKey() {
	if rules.HasKey(c.Req.Header) {
		return
	}
	asked := false
	defer attempt.CloseBodyUnless(&asked, c.Req)
	key := c.Rule.Policy.IdempotencyKey(c.Req)
	if asked = true; key != "" {
		c.Req, c.keyed = rules.WithKey(c.Req, key), true
	}
}

// RuleFor returns the complete rule of a request by its method and its URL, and the keys of
// Config.Hosts whose rules are in it. The key of the path comes first, and then those of the
// host, the most specific first. Without a key, Config.Rule applies alone. In the complete rule
// a zero field is off, or has the default that its comment names. RuleFor does not see the rules
// of [WithRule]. A CONNECT without a path has the rule of the host, because no path matches it.
// A request without a URL has that of policy.Defaults.
func (t *Transport) RuleFor(req *http.Request) (rule policy.Rule, patterns []string) {
	set := t.registry.Rules.Load()
	if set == nil || req == nil || req.URL == nil {
		return policy.Defaults(), nil
	}
	r, keys := set.ForHost(host.KeyOf(req.URL))
	if r.Paths != nil {
		if p := r.Paths.Find(method(req), req.URL); p != nil {
			r, patterns = p.Rule, append(patterns, p.Key)
		}
	}
	return r.Policy, append(patterns, keys...)
}
