package policy_test

import (
	"fmt"
	"math"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/aplomb-go/aplomb/classify"
	"github.com/aplomb-go/aplomb/policy"
	"github.com/aplomb-go/aplomb/policy/backoff"
)

// A rule says only what differs; the rest is inherited.
func ExampleRule_Or() {
	house := policy.Rule{Attempts: 4, AttemptTimeout: 10 * time.Second}
	uploads := policy.Rule{AttemptTimeout: -1} // off: uploads take as long as they take

	fmt.Println(uploads.Or(house))
	// Output:
	// {Attempts: 4, AttemptTimeout: off}
}

// All faults are reported at once.
func ExampleRule_Validate() {
	rule := policy.Rule{
		Attempts:      1_000_000,
		Backoff:       backoff.Exponential{Max: 500 * time.Millisecond, Jitter: -1},
		Rate:          policy.Rate{PerSecond: math.NaN()},
		AttemptHeader: "Content-Length",
	}
	fmt.Println(rule.Validate())
	// Output:
	// Attempts: 1000000 is more than 1000 attempts
	// Backoff.Max: 500ms is less than Base (1s)
	// Rate.PerSecond: NaN is not a number of requests per second
	// AttemptHeader: "Content-Length" has a meaning of its own; a resend's number must not replace it
}

// A default rule, two hosts, and a classifier that the file knows by name.
func ExampleLoad() {
	file := strings.NewReader(`{
	  "rule": {
	    "attempts": 4,
	    "backoff": {"type": "exponential", "max": "64s"},
	    "classify": ["teapots", {"body": "queue capacity", "verdict": "refused"}]
	  },
	  "hosts": {
	    "api.example.com": {"attempt_timeout": "5s", "rate": {"per_second": 10, "burst": 5}},
	    "*.example.com": {"retry_after": {"max": "2m", "beyond": "cap"}}
	  }
	}`)
	rule, hosts, err := policy.Load(file, policy.Names{
		Classify: map[string]classify.Func{"teapots": classify.OnStatus(classify.Final, http.StatusTeapot)},
	})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return
	}
	fmt.Println(rule)
	fmt.Println(hosts["api.example.com"])
	fmt.Println(hosts["*.example.com"])
	// Output:
	// {Attempts: 4, Backoff: backoff.Exponential{Max: 1m4s}, Classify: func}
	// {AttemptTimeout: 5s, Rate: Rate{PerSecond: 10, Burst: 5}}
	// {RetryAfter: RetryAfter{Max: 2m0s, Beyond: cap}}
}

// Each fault has its line, its column and, where it can be told, the remedy.
func ExampleLoad_faults() {
	_, _, err := policy.Load(strings.NewReader(`{
  "rule": {"attemps": 4},
  "hosts": {
    "*.example.com": {"attempt_timeout": 5, "hint": "kap"}
  }
}`), policy.Names{})
	fmt.Println(err)
	// Output:
	// line 2, column 12: rule.attemps: unknown field; did you mean "attempts"?
	// line 4, column 42: hosts["*.example.com"].attempt_timeout: the number 5 has no unit; write "5s" for seconds or "5ms" for milliseconds
	// line 4, column 53: hosts["*.example.com"].hint: "kap" is not the name of a hint; known are body_retry_after, default, none, pushback, rate_limit_reset, reset_after, reset_durations, reset_times, retry_after, retry_after_millis, retry_info, secondary_limit
}
