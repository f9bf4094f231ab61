package policy_test

import (
	"fmt"
	"math"
	"net/http"
	"time"

	"github.com/aplomb-go/aplomb/policy"
	"github.com/aplomb-go/aplomb/policy/backoff"
)

// A rule for one service. Fields that are not set have the values of Defaults.
func ExampleRule() {
	rule := policy.Rule{
		MaxAttempts:     4,
		Backoff:         backoff.Exponential{Base: 200 * time.Millisecond, Jitter: backoff.JitterFull},
		AttemptTimeout:  5 * time.Second,
		ShareRetryAfter: policy.Off,
	}
	fmt.Println(rule)
	// Output: {MaxAttempts: 4, Backoff: backoff.Exponential{Base: 200ms, Jitter: "full"}, AttemptTimeout: 5s, ShareRetryAfter: off}
}

// A rule names only the settings that differ. It inherits the others.
func ExampleRule_Or() {
	house := policy.Rule{MaxAttempts: 4, AttemptTimeout: 10 * time.Second}
	uploads := policy.Rule{AttemptTimeout: policy.Off} // an upload may take long

	fmt.Println(uploads.Or(house))
	// Output:
	// {MaxAttempts: 4, AttemptTimeout: off}
}

// Validate reports all faults at once.
func ExampleRule_Validate() {
	rule := policy.Rule{
		MaxAttempts: 1_000_000,
		Backoff:     backoff.Exponential{Max: 500 * time.Millisecond},
		RateLimit:   policy.RateLimit{PerSecond: math.NaN()},
	}
	fmt.Println(rule.Validate())
	// Output:
	// MaxAttempts: 1000000 is more than 1000 attempts
	// Backoff.Max: 500ms is less than Base (1s)
	// RateLimit.PerSecond: NaN is not a number of requests per second
}

// The defaults are a rule, too, so a program can print them beside its own.
func ExampleDefaults() {
	defaults := policy.Defaults()
	fmt.Println(defaults.MaxAttempts, "attempts, at most", defaults.MaxRetryAfter, "as the server asks")
	// Output: 6 attempts, at most 1m0s as the server asks
}

// A stricter budget: a tenth of the requests, and one retry per second.
func ExampleRetryBudget() {
	rule := policy.Rule{RetryBudget: policy.RetryBudget{Ratio: 0.1, MinPerSecond: 1}}
	fmt.Println(rule, rule.Validate())
	// Output: {RetryBudget: RetryBudget{Ratio: 0.1, MinPerSecond: 1}} <nil>
}

// While the host is down, requests fail at once instead of waiting until it is back.
func ExampleCircuitBreaker() {
	rule := policy.Rule{CircuitBreaker: policy.CircuitBreaker{Enabled: policy.On, FailFast: policy.On}}
	fmt.Println(rule, rule.Validate())
	// Output: {CircuitBreaker: CircuitBreaker{Enabled: on, FailFast: on}} <nil>
}

// This limiter refuses requests instead of letting them wait. An attempt that hangs
// would keep its slot for ever, so AttemptTimeout bounds the attempts.
func ExampleConcurrency() {
	rule := policy.Rule{
		Concurrency:    policy.Concurrency{FailFast: policy.On, Max: 100},
		AttemptTimeout: 5 * time.Second,
	}
	fmt.Println(rule, rule.Validate())
	// Output: {AttemptTimeout: 5s, Concurrency: Concurrency{Max: 100, FailFast: on}} <nil>
}

// A request that takes longer than 98 % of the host's recent responses is sent a
// second time. Until enough responses were seen, the limit is 200 ms.
func ExampleHedge() {
	rule := policy.Rule{Hedge: policy.Hedge{Percentile: 98, Delay: 200 * time.Millisecond}}
	fmt.Println(rule, rule.Validate())
	// Output: {Hedge: Hedge{Delay: 200ms, Percentile: 98}} <nil>
}

// At most 10 requests per second, of which 5 may go at once.
func ExampleRateLimit() {
	rule := policy.Rule{RateLimit: policy.RateLimit{PerSecond: 10, Burst: 5}}
	fmt.Println(rule, rule.Validate())
	// Output: {RateLimit: RateLimit{PerSecond: 10, Burst: 5}} <nil>
}

// A language model that counts tokens: four bytes are about a token, and the answer has up to
// 500. The rate is 1000 tokens per second, and pacing obeys what the provider says is left.
func ExampleRule_cost() {
	rule := policy.Rule{
		QuotaPacing: policy.On,
		RateLimit:   policy.RateLimit{PerSecond: 1000, Burst: 10_000},
		Cost:        func(req *http.Request) int { return int(req.ContentLength/4) + 500 },
	}
	fmt.Println(rule.Validate())
	fmt.Println(rule.Cost(&http.Request{ContentLength: 2000}))
	// Output:
	// <nil>
	// 1000
}

// If a server counts the requests of each route, a 429 holds the requests of the same route.
func ExampleKeyByRoute() {
	rule := policy.Rule{ShareRetryAfter: policy.On, ThrottleKey: policy.KeyByRoute}
	req, _ := http.NewRequest(http.MethodGet, "https://api.example.com/v1/users/17/orders?page=2", nil)
	fmt.Printf("%q\n", rule.ThrottleKey(req))
	// Output: "\nGET /v1/users/*/orders"
}

// Unlike routes, credentials and the host tell no paths apart.
func ExampleKeyByCredentials() {
	req, _ := http.NewRequest(http.MethodGet, "https://api.example.com/v1/users/17", nil)
	req.Header.Set("X-Api-Key", "k1")
	fmt.Printf("%q %q\n", policy.KeyByCredentials(req), policy.KeyByHost(req))
	// Output: "x-api-key\x00k1" ""
}
