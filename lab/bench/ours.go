// The set-ups of aplomb. No other file of this program uses its API.

package main

import (
	"net/http"
	"time"

	"github.com/aplomb-go/aplomb/classify"
	"github.com/aplomb-go/aplomb/policy"
	"github.com/aplomb-go/aplomb/policy/backoff"
	"github.com/aplomb-go/aplomb/policy/profile"
	"github.com/aplomb-go/aplomb/transport"
)

// ours are the settings that are compared. The first is the default.
var ours = []library{
	setting("aplomb", "default rule", policy.Rule{}),
	setting("aplomb, API", "profile.API", profile.API()),
	setting("aplomb, timeout", "AttemptTimeout of 5 s and Classify: Refusals", withTimeout()),
	setting("aplomb, everything", "each timeout and each limit is on, with values that hold nothing back; "+
		"hedging is off, because it sends more requests", everything()),
}

// withTimeout is the rule that most users set first.
func withTimeout() policy.Rule {
	return policy.Rule{AttemptTimeout: 5 * time.Second, Classify: classify.Refusals}
}

// everything turns on every limit. The rate is higher than any rate reached
// here, so the cost of the limit is measured and not a wait.
func everything() policy.Rule {
	return policy.Rule{
		AttemptTimeout: 10 * time.Second,
		StallTimeout:   30 * time.Second,

		MaxElapsedTime: time.Minute,
		Classify:       classify.Refusals,
		ReplayBuffer:   16 << 20,
		RateLimit:      policy.RateLimit{PerSecond: 1e6, Burst: 1e6},

		ShareRetryAfter: policy.On,
		QuotaPacing:     policy.On,
		Concurrency:     policy.Concurrency{Enabled: policy.On, Max: 100},
	}
}

// setting makes a library of a rule.
func setting(name, text string, rule policy.Rule) library {
	return library{
		name:  name,
		setup: text + "; Backoff: Constant",
		wrap:  func(t terms) http.RoundTripper { return newTransport(t, transport.Config{Rule: rule}) },
	}
}

// newTransport makes a Transport on terms.
func newTransport(t terms, c transport.Config) *transport.Transport {
	c.Base = t.base
	if !t.usual {
		c.Rule.Backoff = backoff.Constant(t.delay)
	}
	if t.unbounded {
		c.Rule.RetryBudget = policy.RetryBudget{Enabled: policy.Off}
	}
	return transport.MustNew(c)
}
