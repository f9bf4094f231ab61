package policy_test

import (
	"fmt"
	"math"
	"time"

	"github.com/aplomb-go/aplomb/policy"
	"github.com/aplomb-go/aplomb/policy/backoff"
)

// A rule for one service. Fields that are not set have the values of Defaults.
func ExampleRule() {
	rule := policy.Rule{
		Attempts:       4,
		Backoff:        backoff.FullJitter{Base: 200 * time.Millisecond},
		AttemptTimeout: 5 * time.Second,
		Cooldown:       policy.Off,
	}
	fmt.Println(rule)
	// Output: {Attempts: 4, Backoff: backoff.FullJitter{Base: 200ms}, AttemptTimeout: 5s, Cooldown: off}
}

// A rule names only the settings that differ. It inherits the others.
func ExampleRule_Or() {
	house := policy.Rule{Attempts: 4, AttemptTimeout: 10 * time.Second}
	uploads := policy.Rule{AttemptTimeout: policy.Off} // an upload may take long

	fmt.Println(uploads.Or(house))
	// Output:
	// {Attempts: 4, AttemptTimeout: off}
}

// Validate reports all faults at once.
func ExampleRule_Validate() {
	rule := policy.Rule{
		Attempts: 1_000_000,
		Backoff:  backoff.Exponential{Max: 500 * time.Millisecond, Jitter: -1},
		Rate:     policy.Rate{PerSecond: math.NaN()},
	}
	fmt.Println(rule.Validate())
	// Output:
	// Attempts: 1000000 is more than 1000 attempts
	// Backoff.Max: 500ms is less than Base (1s)
	// Rate.PerSecond: NaN is not a number of requests per second
}

// The rule of a path or of a request has no limits that all requests to the host share.
func ExampleRule_ValidateRequest() {
	reports := policy.Rule{AttemptTimeout: 30 * time.Second, Rate: policy.Rate{PerSecond: 5}}
	fmt.Println(reports.Validate())
	fmt.Println(reports.ValidateRequest())
	// Output:
	// <nil>
	// Rate: Rate{PerSecond: 5} is a limit of the host, which all its requests share; set it in the rule of the host or in the rule for all hosts
}
