package classify_test

import (
	"fmt"

	"github.com/aplomb-go/aplomb/classify"
)

// Retry-After is a number of seconds or a date. A date is measured from the server's own
// clock.
func ExampleRetryAfter() {
	fmt.Println(classify.RetryAfter(response(503, "", "Retry-After", "120")))
	fmt.Println(classify.RetryAfter(response(503, "",
		"Date", "Sun, 22 Nov 2026 08:00:00 GMT",
		"Retry-After", "Sun, 22 Nov 2026 08:00:30 GMT")))
	fmt.Println(classify.RetryAfter(response(503, "")))
	// Output:
	// 2m0s true
	// 30s true
	// 0s false
}

// Azure and OpenAI name their waits in milliseconds.
func ExampleRetryAfterMillis() {
	fmt.Println(classify.RetryAfterMillis(response(429, "", "Retry-After-Ms", "1500")))
	// Output: 1.5s true
}

// The quota is used up, and it is full again in half a minute.
func ExampleRateLimitReset() {
	fmt.Println(classify.RateLimitReset(response(429, "", "RateLimit", `"minute";r=0;t=30`)))
	fmt.Println(classify.RateLimitReset(response(429, "", "RateLimit", `"minute";r=7;t=30`)))
	// Output:
	// 30s true
	// 0s false
}

// The default rule reads milliseconds, then seconds, then what is left of a quota.
func ExampleDefaultHint() {
	fmt.Println(classify.DefaultHint(response(429, "", "Retry-After", "2", "Retry-After-Ms", "1500")))
	// Output: 1.5s true
}

// This server sends a Retry-After that means nothing. With NoHint in its rule the
// back-off counts alone.
func ExampleNoHint() {
	fmt.Println(classify.NoHint(response(503, "", "Retry-After", "86400")))
	// Output: 0s false
}

// Discord names the wait in the body.
func ExampleBodyRetryAfter() {
	fmt.Println(classify.BodyRetryAfter(response(429, `{"message": "You are being rate limited.", "retry_after": 64.57}`)))
	// Output: 1m4.57s true
}

// Discord names the wait in a header field, too.
func ExampleResetAfter() {
	fmt.Println(classify.ResetAfter(response(429, "", "X-RateLimit-Remaining", "0", "X-RateLimit-Reset-After", "1.25")))
	// Output: 1.25s true
}

// Of OpenAI's quotas only the tokens are used up.
func ExampleResetDurations() {
	fmt.Println(classify.ResetDurations(response(429, "",
		"X-Ratelimit-Remaining-Requests", "59", "X-Ratelimit-Reset-Requests", "1h",
		"X-Ratelimit-Remaining-Tokens", "0", "X-Ratelimit-Reset-Tokens", "20ms")))
	// Output: 20ms true
}

// Anthropic names the instant at which a quota is full again.
func ExampleResetTimes() {
	fmt.Println(classify.ResetTimes(response(429, "",
		"Date", "Sun, 22 Nov 2026 08:00:00 GMT",
		"Anthropic-Ratelimit-Tokens-Remaining", "0",
		"Anthropic-Ratelimit-Tokens-Reset", "2026-11-22T08:00:45Z")))
	// Output: 45s true
}

// Google Cloud names the wait in the details of an error.
func ExampleRetryInfo() {
	fmt.Println(classify.RetryInfo(response(429, `{"error": {"code": 429, "details": [
		{"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "3.5s"}
	]}}`)))
	// Output: 3.5s true
}

// GitHub does not always name a wait when the secondary rate limit is exceeded.
func ExampleSecondaryLimit() {
	fmt.Println(classify.SecondaryLimit(response(403,
		`{"message": "You have exceeded a secondary rate limit."}`, "X-Github-Request-Id", "C0DE")))
	// Output: 1m0s true
}

// A gRPC server pushes back for half a second.
func ExamplePushback() {
	fmt.Println(classify.Pushback(response(503, "", "Grpc-Retry-Pushback-Ms", "500")))
	// Output: 500ms true
}
