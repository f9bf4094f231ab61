package policy_test

import (
	"fmt"
	"time"

	"github.com/aplomb-go/aplomb/policy"
)

// A stricter budget: a tenth of the requests, and one retry per second.
func ExampleBudget() {
	rule := policy.Rule{Budget: policy.Budget{Ratio: 0.1, PerSecond: 1}}
	fmt.Println(rule, rule.Validate())
	// Output: {Budget: Budget{Ratio: 0.1, PerSecond: 1}} <nil>
}

// This gate refuses requests instead of letting them wait. An attempt that hangs
// would keep its slot for ever, so AttemptTimeout bounds the attempts.
func ExampleGate() {
	rule := policy.Rule{
		Gate:           policy.Gate{Mode: policy.GateRefuse, Max: 100},
		AttemptTimeout: 5 * time.Second,
	}
	fmt.Println(rule, rule.Validate())
	// Output: {AttemptTimeout: 5s, Gate: Gate{Mode: refuse, Max: 100}} <nil>
}

// A request that takes longer than 98 % of the host's recent responses is sent a
// second time. Until enough responses were seen, the limit is 200 ms.
func ExampleHedge() {
	rule := policy.Rule{Hedge: policy.Hedge{Percentile: 98, After: 200 * time.Millisecond}}
	fmt.Println(rule, rule.Validate())
	// Output: {Hedge: Hedge{After: 200ms, Percentile: 98}} <nil>
}

// At most 10 requests per second, of which 5 may go at once.
func ExampleRate() {
	rule := policy.Rule{Rate: policy.Rate{PerSecond: 10, Burst: 5}}
	fmt.Println(rule, rule.Validate())
	// Output: {Rate: Rate{PerSecond: 10, Burst: 5}} <nil>
}
