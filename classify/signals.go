// Did the server say in so many words whether to send again?

package classify

import (
	"bytes"
	"net/http"
	"strconv"
	"strings"
)

// Signals is an opt-in classifier that takes servers at their word, in answers
// of status 400 and above; [Unknown] where there is no such word.
//
// [Final], where the server forbids a repetition:
//
//   - x-should-retry or Stripe-Should-Retry: false (OpenAI, Anthropic, Stripe);
//   - finagle-http-nonretryable-nack, with any value (Finagle);
//   - x-envoy-overloaded, with any value (Envoy): not to this server, now;
//   - grpc-retry-pushback-ms, negative or malformed (gRPC over HTTP);
//   - status 429 with "insufficient_quota", in quotes, in the first 64 KiB of
//     the body (OpenAI): a quota that waiting does not refill.
//
// [Refused], where GitHub says by a 403 that a limit is exceeded: with
// x-github-request-id, and Retry-After, or x-ratelimit-remaining: 0, or
// "secondary rate limit" in the first 64 KiB of the body.
//
// [Ambiguous], where it asks for one: x-should-retry or Stripe-Should-Retry:
// true, whatever the status: a repetition helps, but not one that does harm. A
// status by which the server says, or with [Refusals] is taken to say, that it
// did not act is left to those who ask next: First(Signals, Refusals) sends any
// method again on a 429 unless the server forbids it.
//
// Any word against outweighs any word for.
func Signals(o Outcome) Verdict {
	if !o.failed() {
		return Unknown
	}
	h := o.Response.Header
	switch {
	case says(h, "X-Should-Retry", "false"), says(h, "Stripe-Should-Retry", "false"):
		return Final
	case has(h, "Finagle-Http-Nonretryable-Nack"), has(h, "X-Envoy-Overloaded"):
		return Final
	case forbidsPushback(h):
		return Final
	case quotaUsedUp(o):
		return Final
	case githubLimit(o):
		return Refused
	case !says(h, "X-Should-Retry", "true") && !says(h, "Stripe-Should-Retry", "true"):
		return Unknown
	case byStatus(o.Response.StatusCode) == Refused, Refusals(o) == Refused:
		return Unknown // Ambiguous would be less than what is known
	}
	return Ambiguous
}

// says reports whether any of the field's values is the given word.
func says(h http.Header, key, word string) bool {
	for _, v := range h[key] {
		if strings.EqualFold(trim(v), word) {
			return true
		}
	}
	return false
}

// forbidsPushback: a server stops gRPC's retries by a pushback that is no wait
// (gRFC A6).
func forbidsPushback(h http.Header) bool {
	for _, v := range h["Grpc-Retry-Pushback-Ms"] {
		if ms, err := strconv.ParseInt(trim(v), 10, 32); err != nil || ms < 0 {
			return true
		}
	}
	return false
}

// githubLimit reports whether GitHub limits by a 403, which means anything else
// as well.
func githubLimit(o Outcome) bool {
	h := o.Response.Header
	return o.Response.StatusCode == http.StatusForbidden && has(h, "X-Github-Request-Id") &&
		(has(h, "Retry-After") || usedUp(h, "X-Ratelimit-Remaining") || saysSecondaryLimit(o))
}

func quotaUsedUp(o Outcome) bool {
	return o.Response.StatusCode == http.StatusTooManyRequests &&
		bytes.Contains(o.Peek(bodyLimit), []byte(`"insufficient_quota"`))
}
