package model

import (
	"math/rand/v2"
	"time"

	"github.com/aplomb-go/aplomb/classify"
	"github.com/aplomb-go/aplomb/policy"
	"github.com/aplomb-go/aplomb/policy/backoff"
)

// A Strategy is how the clients retry.
type Strategy struct {
	Key   string // for flags
	Name  string
	Words string // the rule as a person would say it
	Rule  policy.Rule
	// Shared gives all clients the same Transport. Otherwise each process has its own.
	Shared bool
	// Fleet lists the parts of their knowledge that the processes share.
	Fleet Fleet
	// FromThink makes a request's back-off begin with the time that its client
	// thought before the request.
	FromThink bool
}

// A Fleet lists the parts that the members of a fleet share.
type Fleet struct {
	Probe  bool // that the host is down, and the number of processes
	Spread bool // the members return spread over a while
}

// Processes returns how many Transports the clients have.
func (s Strategy) Processes(sc Scenario) int {
	switch {
	case s.Shared:
		return 1
	case sc.Processes > 0:
		return sc.Processes
	}
	return sc.Clients
}

// Coordinated reports whether all clients know of each other's failures.
func (s Strategy) Coordinated() bool { return s.Shared || s.Fleet.Probe }

// The limits of the clients that share a Transport.
var (
	breaker = policy.CircuitBreaker{Enabled: policy.On}
	most    = policy.Concurrency{Enabled: policy.On, Max: 100}
)

// Strategies returns the strategies that are compared. An attempt ends after the
// timeout of the scenario. The first strategies have no limit besides their
// back-off and do not give up before the end of the run. Those of aplomb are the
// default rule with its six attempts, plus the named settings.
//
// The article's exponential back-off is there twice. As the article prints it, it
// waits 0.1, 0.27, 0.74, 2.0, 5.5 s … The article's program keeps the think time
// before a request in the variable of the last wait. So it begins with e times the
// think time, which is 27 s on average. The article's result is that of its
// program.
func Strategies(timeout time.Duration) []Strategy {
	plain := func(b backoff.Backoff) policy.Rule { return plain(timeout, b) }
	return []Strategy{
		{Key: "fixed", Name: "retry every 0.1 s", Rule: plain(backoff.Constant(100 * time.Millisecond)),
			Words: "waits 0.1 s before every retry, and never gives up"},
		{Key: "short", Name: "exponential from 0.1 s", Rule: plain(DefaultArticle()),
			Words: "waits 0.1 s, then 2.7 times as long each time, and never gives up"},
		{Key: "long", Name: "exponential from 27 s", Rule: plain(DefaultArticle()), FromThink: true,
			Words: "the same, but begins with 2.7 times the time from the client's last response to this request, which is 27 s on average"},
		{Key: "google", Name: "exponential from 1 s (Google's)", Rule: plain(backoff.Google{}),
			Words: "waits 1, 2, 4 to 32 s, plus up to 1 s at random, and never gives up"},
		{Key: "own", Name: "aplomb, each on its own", Rule: policy.Rule{AttemptTimeout: timeout},
			Words: "aplomb's default: six attempts, Google's waits, and a retry budget; no Transport is shared"},
		{Key: "shared", Name: "aplomb, circuit breaker", Shared: true, Rule: policy.Rule{AttemptTimeout: timeout, CircuitBreaker: breaker},
			Words: "aplomb's default with the circuit breaker, in one Transport that all clients share"},
		{Key: "max", Name: "aplomb, Max", Shared: true, Rule: policy.Rule{AttemptTimeout: timeout, Concurrency: most},
			Words: "the same with a concurrency limit of 100 instead of the circuit breaker"},
		{Key: "both", Name: "aplomb, breaker and Max", Shared: true, Rule: policy.Rule{AttemptTimeout: timeout, CircuitBreaker: breaker, Concurrency: most},
			Words: "the same with both"},
	}
}

// Fleets returns the strategies of many processes. They differ in the parts that the
// processes share.
func Fleets(timeout time.Duration) []Strategy {
	rule := policy.Rule{AttemptTimeout: timeout, CircuitBreaker: breaker}
	return []Strategy{
		{Key: "alone", Name: "nothing shared", Rule: rule,
			Words: "aplomb with the circuit breaker, a Transport for each process"},
		{Key: "probe", Name: "probe", Rule: rule, Fleet: Fleet{Probe: true},
			Words: "the processes share that the server is down, and the probes"},
		{Key: "fleet", Name: "probe and spread return", Rule: rule, Fleet: Fleet{Probe: true, Spread: true},
			Words: "they share all that, and return one after the other"},
		{Key: "shared", Name: "one Transport", Shared: true, Rule: rule,
			Words: "all clients are in one process, for comparison"},
	}
}

// Find returns the strategy with a key. If the clients are spread over processes, it looks
// among Fleets first.
func Find(timeout time.Duration, key string, processes bool) (st Strategy, ok bool) {
	all := Strategies(timeout)
	if processes {
		all = append(Fleets(timeout), all...)
	}
	for _, st := range all {
		if st.Key == key {
			return st, true
		}
	}
	return Strategy{}, false
}

// plain is a rule with a back-off and no other limit. Its failures count as refusals, so that a
// Transport waits no longer after silence.
func plain(timeout time.Duration, b backoff.Backoff) policy.Rule {
	refused := func(o classify.Outcome) classify.Class {
		if v := classify.Default(o); v != classify.Ambiguous {
			return v
		}
		return classify.Refused
	}
	return policy.Rule{
		MaxAttempts: 1000, AttemptTimeout: timeout, Backoff: b, Classify: refused,
		RetryBudget: policy.RetryBudget{Enabled: policy.Off},
	}
}

// An Article is the back-off of the article's program. It is like backoff.Normal,
// but its jitter is a time and not a share of the wait. The first wait is MinDelay.
// Each further wait is the wait before it times Factor, at most MaxDelay. A normally
// distributed time with the standard deviation Jitter is added.
type Article struct {
	MinDelay, MaxDelay, Jitter time.Duration
	Factor                     float64
}

// DefaultArticle returns the program's parameters.
func DefaultArticle() Article {
	return Article{MinDelay: 100 * time.Millisecond, Factor: 2.71828, Jitter: 100 * time.Millisecond, MaxDelay: 5 * time.Minute}
}

// Delay returns the wait before retry n.
func (a Article) Delay(n int, prev time.Duration) time.Duration {
	if n == 0 && prev == 0 {
		return a.MinDelay
	}
	wait := min(float64(prev)*a.Factor, float64(a.MaxDelay))
	return max(0, time.Duration(wait+rand.NormFloat64()*float64(a.Jitter)))
}

// Aplomb reports whether the clients use aplomb's default rule, and not only a back-off.
func (s Strategy) Aplomb() bool { return s.Rule.MaxAttempts == 0 }
