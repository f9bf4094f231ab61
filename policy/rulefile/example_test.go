package rulefile_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/aplomb-go/aplomb/classify"
	"github.com/aplomb-go/aplomb/policy"
	"github.com/aplomb-go/aplomb/policy/profile"
	"github.com/aplomb-go/aplomb/policy/rulefile"
)

// A default rule and the rules of two hosts. The program supplies the classifier
// to which the file refers by name.
func ExampleLoad() {
	file := strings.NewReader(`{
	  "rule": {
	    "max_attempts": 4,
	    "backoff": {"type": "exponential", "max": "64s"},
	    "classify": ["teapots", {"body": "queue capacity", "class": "refused"}]
	  },
	  "hosts": {
	    "api.example.com": {"attempt_timeout": "5s", "rate_limit": {"per_second": 10, "burst": 5}},
	    "*.example.com": {"max_retry_after": "2m", "retry_budget": "off"}
	  }
	}`)
	rule, hosts, err := rulefile.Load(file, rulefile.Names{
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
	// {MaxAttempts: 4, Backoff: backoff.Exponential{Max: 1m4s}, Classify: func}
	// {AttemptTimeout: 5s, RateLimit: RateLimit{PerSecond: 10, Burst: 5}}
	// {MaxRetryAfter: 2m0s, RetryBudget: RetryBudget{Enabled: off}}
}

// Load reports all faults at once. Each fault has its line and column, and says
// what to write instead.
func ExampleError() {
	_, _, err := rulefile.Load(strings.NewReader(`{
  "rule": {"retries": 4},
  "hosts": {
    "*.example.com": {"attempt_timeout": 5, "idempotent": "post"}
  }
}`), rulefile.Names{})
	if first, ok := errors.AsType[*rulefile.Error](err); ok {
		fmt.Println("the first is in line", first.Line)
	}
	fmt.Println(err)
	// Output:
	// the first is in line 2
	// line 2, column 12: rule.retries: unknown key; write "max_attempts", which counts the first attempt, too
	// line 4, column 42: hosts["*.example.com"].attempt_timeout: the number 5 has no unit; write "5s" for seconds or "5ms" for milliseconds
	// line 4, column 59: hosts["*.example.com"].idempotent: methods are in capitals; write "POST"
}

// A rule can start from a profile. Its other keys override the profile. A value that
// contradicts the profile is a fault.
func ExampleLoad_profile() {
	_, hosts, err := rulefile.Load(strings.NewReader(`{"hosts": {
		"api.github.com": {"profile": "github", "max_attempts": 4},
		"discord.com":    {"profile": "discord", "quota_pacing": "off"}
	}}`), rulefile.Names{})
	fmt.Println(hosts["api.github.com"], err)
	fmt.Println(hosts["discord.com"])

	_, _, err = rulefile.Load(strings.NewReader(`{"hosts": {
		"api.github.com": {"profile": "github", "idempotent": "all"},
		"api.gitlab.com": {"profile": "gitlab"}
	}}`), rulefile.Names{})
	fmt.Println(err)
	// Output:
	// {MaxAttempts: 4, Classify: func, RetryAfter: func, MaxRetryAfter: 2m0s, ShareRetryAfter: on, ThrottleKey: func} <nil>
	// {Classify: func, RetryAfter: func, RateLimit: RateLimit{PerSecond: 50, Burst: 1}, ShareRetryAfter: on, ThrottleKey: func, QuotaPacing: off}
	// line 2, column 57: hosts["api.github.com"].idempotent: "all" contradicts the profile "github", which knows when a POST may be sent again; leave "idempotent" out, or write methods, as in ["default", "POST"]
	// line 3, column 33: hosts["api.gitlab.com"].profile: "gitlab" is not the name of a profile; known are anthropic, api, aws, azure, cloudflare, discord, docker_hub, github, google_cloud, openai, registry, service, slack, stripe
}

// A file refers to functions and profiles of the program by their names.
func ExampleNames() {
	names := rulefile.Names{
		ThrottleKey: map[string]func(*http.Request) string{
			"tenant": func(req *http.Request) string { return req.Header.Get("X-Tenant") },
		},
		Profile: map[string]policy.Rule{"internal": profile.Service()},
	}
	_, hosts, err := rulefile.Load(strings.NewReader(`{"hosts": {
		"*.internal": {"profile": "internal", "throttle_key": "tenant", "max_attempts": 2}
	}}`), names)
	fmt.Println(hosts["*.internal"].MaxAttempts, hosts["*.internal"].ThrottleKey != nil, err)
	// Output: 2 true <nil>
}

// A program sets Apply to the method Update of its Transport, and calls Check when it gets
// SIGHUP.
func ExampleWatcher() {
	dir, err := os.MkdirTemp("", "")
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	path := filepath.Join(dir, "rules.json")
	write := func(text string) {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			log.Fatal(err)
		}
	}
	write(`{"rule": {"max_attempts": 4}}`)

	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	w := &rulefile.Watcher{
		Path:     path,
		Interval: time.Hour,
		Apply: func(rule policy.Rule, hosts map[string]policy.Rule) error {
			fmt.Println("in force:", rule)
			return nil
		},
		Report: func(err error) {
			if err == nil {
				fmt.Println("the file is good again")
				return
			}
			fmt.Println("not in force:", err)
		},
	}
	if err := w.Start(ctx); err != nil {
		log.Fatal(err)
	}
	write(`{"rule": {"max_attempts": "many"}}`)
	_ = w.Check() // Report has told the error
	write(`{"rule": {"max_attempts": 2}}`)
	if err := w.Check(); err != nil {
		log.Fatal(err)
	}
	// Output:
	// in force: {MaxAttempts: 4}
	// not in force: line 1, column 27: rule.max_attempts: the string "many" where a whole number is wanted
	// in force: {MaxAttempts: 2}
	// the file is good again
}
