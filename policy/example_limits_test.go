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

// A gate that turns requests away instead of letting them wait. Attempts that
// hang would keep their places for ever, so they are bounded.
func ExampleGate() {
	rule := policy.Rule{
		Gate:           policy.Gate{Mode: policy.GateRefuse, Max: 100},
		AttemptTimeout: 5 * time.Second,
	}
	fmt.Println(rule, rule.Validate())
	// Output: {AttemptTimeout: 5s, Gate: Gate{Mode: refuse, Max: 100}} <nil>
}

// What takes longer than 98 % of the host's answers is sent a second time; until
// enough of them were seen, what takes longer than 200 ms.
func ExampleHedge() {
	rule := policy.Rule{Hedge: policy.Hedge{Percentile: 98, After: 200 * time.Millisecond}}
	fmt.Println(rule, rule.Validate())
	// Output: {Hedge: Hedge{After: 200ms, Percentile: 98}} <nil>
}
