package classify

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

type hintTest struct {
	name string
	o    Outcome
	want time.Duration
	ok   bool
}

func runHints(t *testing.T, h RetryAfterFunc, tests []hintTest) {
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			wait, ok := h(tt.o)
			assert.Equal(t, tt.ok, ok)
			assert.Equal(t, tt.want, wait)
		})
	}
}

func TestRetryInfo(t *testing.T) {
	info := func(delay string) string {
		return `{"error":{"code":429,"details":[{"@type":"type.googleapis.com/google.rpc.ErrorInfo","retryDelay":{"x":1}},` +
			`{"@type":"type.googleapis.com/google.rpc.RetryInfo","retryDelay":` + delay + `}]}}`
	}
	runHints(t, RetryInfo, []hintTest{
		{"a delay", withBody(429, info(`"3.5s"`)), 3500 * time.Millisecond, true},
		{"whole seconds", withBody(503, info(`"3s"`)), 3 * time.Second, true},
		{"nanoseconds", withBody(503, info(`"0.000000001s"`)), 1, true},
		{"a list", withBody(429, "\n["+info(`"3s"`)+"]"), 3 * time.Second, true},
		{"pitfall 1: overflow", withBody(429, info(`"99999999999999999999s"`)), longestWait, true},
		{"pitfall 2: negative", withBody(429, info(`"-3s"`)), 0, false},
		{"no unit", withBody(429, info(`"3"`)), 0, false},
		{"a number", withBody(429, info(`3`)), 0, false},
		{"another detail", withBody(429, `{"error":{"details":[{"@type":"x/google.rpc.QuotaFailure","retryDelay":"3s"}]}}`), 0, false},
		{"not JSON", withBody(429, "google.rpc.RetryInfo"), 0, false},
		{"not JSON, a list", withBody(429, "[google.rpc.RetryInfo"), 0, false},
		{"cut off", withBody(429, `{"pad":"`+strings.Repeat("x", bodyLimit)+`",`+info(`"3s"`)[1:]), 0, false},
		{"empty", withBody(429, ""), 0, false},
	})
}

func TestDiscord(t *testing.T) {
	runHints(t, ResetAfter, []hintTest{
		{"a decimal", response(429, "X-RateLimit-Reset-After", "0.25"), 250 * time.Millisecond, true},
		{"nothing left", response(429, "X-RateLimit-Remaining", "0", "X-RateLimit-Reset-After", "1"), time.Second, true},
		{"something left of this limit", response(429, "X-RateLimit-Remaining", "3", "X-RateLimit-Reset-After", "1"), 0, false},
		{"pitfall 2: negative", response(429, "X-RateLimit-Reset-After", "-1"), 0, false},
		{"pitfall 2: an exponent", response(429, "X-RateLimit-Reset-After", "1e300"), 0, false},
		{"another status", response(503, "X-RateLimit-Reset-After", "1"), 0, false},
	})
	runHints(t, BodyRetryAfter, []hintTest{
		{"a decimal", withBody(429, `{"message":"You are being rate limited.","retry_after":64.57,"global":false}`), 64570 * time.Millisecond, true},
		{"zero", withBody(429, `{"retry_after":0}`), 0, true},
		{"pitfall 2: negative", withBody(429, `{"retry_after":-1}`), 0, false},
		{"pitfall 2: an exponent", withBody(429, `{"retry_after":1e300}`), 0, false},
		{"a string", withBody(429, `{"retry_after":"1"}`), 0, false},
		{"null", withBody(429, `{"retry_after":null}`), 0, false},
		{"none", withBody(429, `{}`), 0, false},
		{"a list", withBody(429, `[1]`), 0, false},
		{"another status", withBody(503, `{"retry_after":1}`), 0, false},
	})
}

func TestResetDurations(t *testing.T) {
	both := func(requests, tokens string) Outcome {
		return response(429, "X-RateLimit-Remaining-Requests", requests, "X-RateLimit-Reset-Requests", "20ms",
			"X-RateLimit-Remaining-Tokens", tokens, "X-RateLimit-Reset-Tokens", "6m0s")
	}
	runHints(t, ResetDurations, []hintTest{
		{"requests used up", both("0", "5"), 20 * time.Millisecond, true},
		{"tokens used up", both("5", "0"), 6 * time.Minute, true},
		{"both used up", both("0", "0"), 6 * time.Minute, true},
		{"both used up, the longer first", response(429, "X-RateLimit-Remaining-Requests", "0", "X-RateLimit-Reset-Requests", "6m0s",
			"X-RateLimit-Remaining-Tokens", "0", "X-RateLimit-Reset-Tokens", "20ms"), 6 * time.Minute, true},
		{"none used up", both("1", "1"), 0, false},
		{"without a unit", response(429, "X-RateLimit-Remaining-Tokens", "0", "X-RateLimit-Reset-Tokens", "6"), 6 * time.Second, true},
		{"more than a day", response(429, "X-RateLimit-Remaining-Tokens", "0", "X-RateLimit-Reset-Tokens", "50h"), 24 * time.Hour, true},
		{"malformed", response(429, "X-RateLimit-Remaining-Tokens", "0", "X-RateLimit-Reset-Tokens", "soon"), 0, false},
		{"pitfall 2: negative", response(429, "X-RateLimit-Remaining-Tokens", "0", "X-RateLimit-Reset-Tokens", "-6s"), 0, false},
		{"pitfall 2: a plus sign", response(429, "X-RateLimit-Remaining-Tokens", "0", "X-RateLimit-Reset-Tokens", "+6s"), 0, false},
		{"another status", Outcome{Response: response(503, "X-RateLimit-Remaining-Tokens", "0", "X-RateLimit-Reset-Tokens", "6s").Response}, 0, false},
	})
}

func TestResetTimes(t *testing.T) {
	in := func(d time.Duration) string { return sent.Add(d).Format(time.RFC3339) }
	runHints(t, ResetTimes, []hintTest{
		{"requests", dated(429, "Anthropic-RateLimit-Requests-Remaining", "0", "Anthropic-RateLimit-Requests-Reset", in(time.Minute)), time.Minute, true},
		{
			"the latest of several",
			dated(429, "Anthropic-RateLimit-Input-Tokens-Remaining", "0", "Anthropic-RateLimit-Input-Tokens-Reset", in(time.Minute),
				"Anthropic-RateLimit-Output-Tokens-Remaining", "0", "Anthropic-RateLimit-Output-Tokens-Reset", in(time.Hour),
				"Anthropic-RateLimit-Tokens-Remaining", "1", "Anthropic-RateLimit-Tokens-Reset", in(24*time.Hour)),
			time.Hour, true,
		},
		{"past", dated(429, "Anthropic-RateLimit-Tokens-Remaining", "0", "Anthropic-RateLimit-Tokens-Reset", in(-time.Minute)), 0, true},
		{"malformed", dated(429, "Anthropic-RateLimit-Tokens-Remaining", "0", "Anthropic-RateLimit-Tokens-Reset", "60"), 0, false},
		{"529", dated(529, "Anthropic-RateLimit-Tokens-Remaining", "0", "Anthropic-RateLimit-Tokens-Reset", in(time.Minute)), 0, false},
	})
}

func TestPushback(t *testing.T) {
	runHints(t, Pushback, []hintTest{
		{"a wait", response(503, "Grpc-Retry-Pushback-Ms", "250"), 250 * time.Millisecond, true},
		{"at once", response(503, "Grpc-Retry-Pushback-Ms", "0"), 0, true},
		{"pitfall 2: negative", response(503, "Grpc-Retry-Pushback-Ms", "-1"), 0, false},
		{"malformed beside a wait", response(503, "Grpc-Retry-Pushback-Ms", "5", "Grpc-Retry-Pushback-Ms", "x"), 0, false},
		{"none", response(503), 0, false},
	})
}

func TestSecondaryLimit(t *testing.T) {
	const body = `{"message":"You have exceeded a secondary rate limit. Please wait a few minutes before you try again."}`
	runHints(t, SecondaryLimit, []hintTest{
		{"403", withBody(403, body, "X-GitHub-Request-Id", "1"), time.Minute, true},
		{"429", withBody(429, body, "X-GitHub-Request-Id", "1"), time.Minute, true},
		{"a wait is named", withBody(403, body, "X-GitHub-Request-Id", "1", "Retry-After", "5"), 0, false},
		{"not GitHub", withBody(403, body), 0, false},
		{"forbidden, plainly", withBody(403, `{"message":"Must have admin rights"}`, "X-GitHub-Request-Id", "1"), 0, false},
		{"another status", withBody(503, body, "X-GitHub-Request-Id", "1"), 0, false},
	})
}

// FuzzProviders: whatever a server sends, no panic and nothing negative.
func FuzzProviders(f *testing.F) {
	f.Add("0.25", `{"retry_after":64.57}`)
	f.Add("6m0s", `{"error":{"details":[{"@type":"x/google.rpc.RetryInfo","retryDelay":"3.5s"}]}}`)
	f.Add("2031-05-06T08:49:37Z", `[{"error":{"details":[{"@type":"x/google.rpc.RetryInfo"}]}}]`)
	f.Fuzz(func(t *testing.T, value, body string) {
		o := withBody(429, body)
		for _, key := range []string{
			"X-Ratelimit-Reset-After", "X-Ratelimit-Reset-Requests", "X-Ratelimit-Reset-Tokens",
			"Anthropic-Ratelimit-Tokens-Reset", "Grpc-Retry-Pushback-Ms", "Retry-After-Ms",
		} {
			o.Response.Header[key] = []string{value}
		}
		for _, key := range []string{
			"X-Ratelimit-Remaining-Requests", "X-Ratelimit-Remaining-Tokens", "Anthropic-Ratelimit-Tokens-Remaining",
		} {
			o.Response.Header[key] = []string{"0"}
		}
		for _, h := range []RetryAfterFunc{RetryInfo, ResetAfter, BodyRetryAfter, ResetDurations, ResetTimes, Pushback, RetryAfterMillis} {
			wait, ok := h(o)
			require.GreaterOrEqual(t, wait, time.Duration(0))
			if !ok {
				require.Zero(t, wait)
			}
		}
		if _, ok := RetryInfo(o); ok {
			require.True(t, json.Valid([]byte(body)) || len(body) > bodyLimit)
		}
		Signals(o)
	})
}
