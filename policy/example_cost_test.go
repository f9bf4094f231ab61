package policy_test

import (
	"fmt"
	"net/http"

	"github.com/aplomb-go/aplomb/policy"
)

// A language model that counts tokens: four bytes are about a token, and the answer has up to
// 500. The rate is 1000 tokens per second, and pacing obeys what the provider says is left.
func ExampleRule_cost() {
	rule := policy.Rule{
		Pacing: policy.On,
		Rate:   policy.Rate{PerSecond: 1000, Burst: 10_000},
		Cost:   func(req *http.Request) int { return int(req.ContentLength/4) + 500 },
	}
	fmt.Println(rule.Validate())
	fmt.Println(rule.Cost(&http.Request{ContentLength: 2000}))
	// Output:
	// <nil>
	// 1000
}
