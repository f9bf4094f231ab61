package simulate

import (
	"context"
	"net/http"
	"strings"
	"sync"
	"syscall"

	"github.com/aplomb-go/aplomb/policy"
	"github.com/aplomb-go/aplomb/transport"
)

// changesRules breaks the rules of all hosts.
func changesRules(f func(*policy.Rule)) maker {
	return func(p *plan, c transport.Config) (Client, error) {
		for name, rule := range c.Hosts {
			f(&rule)
			c.Hosts[name] = rule
		}
		return aTransport(p, c)
	}
}

// elsewhere gives each failure that f chooses to the host's first alternate, below the Transport.
func elsewhere(f func(c *call) bool) maker {
	return func(p *plan, c transport.Config) (Client, error) {
		base := c.Base
		c.Base = rt(func(req *http.Request) (*http.Response, error) {
			resp, err := base.RoundTrip(req)
			h := p.hostOf(req.URL)
			if resp != nil && resp.StatusCode < 500 || h == nil || h.mirror != nil || !h.rule.Alternates.Enabled() || req.Body != nil && req.GetBody == nil || !f(callOf(req.Context())) {
				return resp, err
			}
			again, to := req.Clone(req.Context()), p.hosts[len(p.hosts)-1]
			_, again.URL.Host, _ = strings.Cut(to.origin, "://")
			again.URL.Path = to.mirror.path + again.URL.Path
			if resp != nil {
				_ = resp.Body.Close()
			}
			if req.Body != nil {
				again.Body, _ = req.GetBody()
			}
			return base.RoundTrip(again)
		})
		return aTransport(p, c)
	}
}

// sabotageElsewhere breaks the promises about alternates, in stories of these.
var sabotageElsewhere = []defect{
	{"alternates get all credentials", Strayed, changesRules(func(r *policy.Rule) { r.Alternates.Credentials = policy.On })},
	{"alternates get all conditions", Strayed, changesRules(func(r *policy.Rule) { r.Alternates.Validators = policy.On })},
	{"cookies of alternates are kept", Strayed, breaksResponses(func(resp *http.Response) { resp.Header.Set("Set-Cookie", "a=b") })},
	{"equal tags are believed", Spliced, changesRules(func(r *policy.Rule) { r.Alternates.Validators = policy.On })},
	{"failures are repeated elsewhere", ActedOnce, elsewhere(func(*call) bool { return true })},
	{"a key counts everywhere", ActedOnce, elsewhere(func(c *call) bool { return c.plan.key })},
	{"attempts at an alternate are tripled", Budget, func(p *plan, c transport.Config) (Client, error) {
		base := c.Base
		c.Base = rt(func(req *http.Request) (*http.Response, error) {
			if h := p.hostOf(req.URL); h.id != callOf(req.Context()).plan.host && req.Body == nil {
				for range 2 {
					if resp, _ := base.RoundTrip(req.Clone(req.Context())); resp != nil {
						_ = resp.Body.Close()
					}
				}
			}
			return base.RoundTrip(req)
		})
		return aTransport(p, c)
	}},
	{"the Trace hears of no alternate", Told, func(p *plan, c transport.Config) (Client, error) {
		if c.Trace != nil {
			start := c.Trace.AttemptStart
			c.Trace.AttemptStart = func(ctx context.Context, a transport.AttemptStart) context.Context {
				a.Alternate = ""
				return start(ctx, a)
			}
		}
		return aTransport(p, c)
	}},
	{"requests never come back", Home, func(p *plan, c transport.Config) (Client, error) {
		base := c.Base
		var mu sync.Mutex // guards failed
		failed := make(map[string]int)
		c.Base = rt(func(req *http.Request) (*http.Response, error) {
			mu.Lock()
			down := failed[req.URL.Host] > 5
			mu.Unlock()
			if down {
				return nil, syscall.ECONNREFUSED
			}
			resp, err := base.RoundTrip(req)
			if err != nil {
				mu.Lock()
				defer mu.Unlock()
				failed[req.URL.Host]++
			}
			return resp, err
		})
		return aTransport(p, c)
	}},
	{"each request costs the same", Costs, changesRules(func(r *policy.Rule) { r.Cost = nil })},
	{"Cost is asked again", Costs, changesRules(func(r *policy.Rule) {
		if own := r.Cost; own != nil {
			r.Cost = func(req *http.Request) int { return max(own(req), own(req)) }
		}
	})},
}
