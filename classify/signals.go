// Header fields and texts by which servers forbid a retry or ask for it.

package classify

import (
	"bytes"
	"net/http"

	"github.com/aplomb-go/aplomb/internal/field"
	"github.com/aplomb-go/aplomb/internal/peek"
)

// Signals is an opt-in classifier for responses in which a server says whether
// a retry makes sense. It looks at responses of status 400 and above. It
// returns [Unknown] if the server says nothing about retries.
//
// [Final], because the server forbids a retry:
//
//   - x-should-retry or Stripe-Should-Retry is "false" (OpenAI, Anthropic,
//     Stripe).
//   - finagle-http-nonretryable-nack is present (Finagle).
//   - x-envoy-overloaded is present (Envoy).
//   - grpc-retry-pushback-ms is negative or malformed, or there are several of
//     them (gRPC over HTTP).
//   - The status is 429 and the first 64 KiB of the body contain
//     "insufficient_quota", with the quotes (OpenAI). Waiting does not refill
//     such a quota.
//
// [Refused], because GitHub reports an exceeded limit by status 403. The
// response has x-github-request-id and one of these:
//
//   - Retry-After
//   - x-ratelimit-remaining: 0
//   - "secondary rate limit" in the first 64 KiB of the body
//
// [Ambiguous], because the server asks for a retry: x-should-retry or
// Stripe-Should-Retry is "true". This holds for any response except those after
// which any method may be sent again: those that [Default] or [Refusals] calls
// Refused. For these the class is Unknown, so that the next classifier
// decides. For example, First(Signals, Refusals) sends any method again after a
// 429 unless the server forbids it.
//
// If a response both forbids a retry and asks for it, the class is Final.
func Signals(o Outcome) Class {
	if !o.failed() {
		return Unknown
	}
	h := o.Response.Header
	switch {
	case field.Says(h, "X-Should-Retry", "false"), field.Says(h, "Stripe-Should-Retry", "false"):
		return Final
	case has(h, "Finagle-Http-Nonretryable-Nack"), has(h, "X-Envoy-Overloaded"):
		return Final
	case field.ForbidsPushback(h):
		return Final
	case quotaUsedUp(o):
		return Final
	case githubLimit(o):
		return Refused
	case !field.Says(h, "X-Should-Retry", "true") && !field.Says(h, "Stripe-Should-Retry", "true"):
		return Unknown
	case byFailure(o, o.Response.StatusCode) == Refused, Refusals(o) == Refused:
		return Unknown // Ambiguous would hide that the server did not act
	}
	return Ambiguous
}

// githubLimit reports whether a 403 of GitHub means an exceeded limit. GitHub
// uses 403 for other errors as well.
func githubLimit(o Outcome) bool {
	h := o.Response.Header
	return o.Response.StatusCode == http.StatusForbidden && has(h, "X-Github-Request-Id") &&
		(has(h, "Retry-After") || field.Zero(h, "X-Ratelimit-Remaining") || bytes.Contains(o.Peek(peek.Limit), []byte("secondary rate limit")))
}

func quotaUsedUp(o Outcome) bool {
	return o.Response.StatusCode == http.StatusTooManyRequests &&
		bytes.Contains(o.Peek(peek.Limit), []byte(`"insufficient_quota"`))
}
