package policy_test

import (
	"fmt"
	"time"

	"github.com/aplomb-go/aplomb/policy"
)

// The defaults are a rule, too, so a program can print them beside its own.
func ExampleDefaults() {
	defaults := policy.Defaults()
	fmt.Println(defaults.Attempts, "attempts, at most", defaults.RetryAfter.Max, "as the server asks")
	// Output: 6 attempts, at most 1m0s as the server asks
}

// stairs is a back-off of the program itself: three quick retries, and then a long wait
// before each.
type stairs struct{}

func (stairs) Delay(n int, _ time.Duration) time.Duration {
	if n < 3 {
		return 200 * time.Millisecond
	}
	return 10 * time.Second
}

// Every type with this method is a Backoff. Clients that all wait for the same time come
// back together, so most back-offs add a random part.
func ExampleBackoff() {
	var backoff policy.Backoff = stairs{}
	for n := range 4 {
		fmt.Println(backoff.Delay(n, 0))
	}
	// Output:
	// 200ms
	// 200ms
	// 200ms
	// 10s
}

// A batch job may wait for long. If the server asks for more than ten minutes, the job
// comes back after ten minutes.
func ExampleRetryAfter() {
	rule := policy.Rule{RetryAfter: policy.RetryAfter{Max: 10 * time.Minute, Beyond: policy.BeyondCap}}
	fmt.Println(rule, rule.Validate())
	// Output: {RetryAfter: RetryAfter{Max: 10m0s, Beyond: cap}} <nil>
}

// A connection counts as lost if nothing arrives for 30 s.
func ExampleStall() {
	rule := policy.Rule{Stall: policy.Stall{Timeout: 30 * time.Second}}
	fmt.Println(rule, rule.Validate())
	// Output: {Stall: Stall{Timeout: 30s}} <nil>
}

// Bodies that come from a pipe can be sent again up to 4 MiB.
func ExampleUpload() {
	rule := policy.Rule{Upload: policy.Upload{Memory: 4 << 20}}
	fmt.Println(rule, rule.Validate())
	// Output: {Upload: Upload{Memory: 4194304}} <nil>
}

// A player would rather skip than wait, so it does not continue a cut body.
func ExampleResume() {
	rule := policy.Rule{Resume: policy.Resume{Max: policy.Off}}
	fmt.Println(rule, rule.Validate())
	// Output: {Resume: Resume{Max: off}} <nil>
}
