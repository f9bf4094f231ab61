// RetryAfter, functions made of smaller functions, and what else forbids or asks for a retry.

package classify

import (
	"bytes"
	"net/http"
	"time"

	"github.com/aplomb-go/aplomb/internal/field"
	"github.com/aplomb-go/aplomb/internal/peek"
)

// A RetryAfterFunc reads from an outcome how long the server asked to wait before the
// request is sent again. If the server named no wait, ok is false. A wait of
// zero with ok true means that the server asks for no wait of its own. A RetryAfterFunc
// must be safe for concurrent use and may read the response's body through
// [Outcome.Peek] only.
//
// A wait is never a reason to send again. Only a [Func] gives such a reason. The first retry
// of a request in package transport comes after this wait, at least 100 ms later, and
// each further retry after the back-off or this wait, whichever is longer. After a
// Retry-After: 0, or one with a past date, the back-off alone counts. It spreads clients that
// failed together, and many servers send a zero although they are overloaded.
type RetryAfterFunc func(Outcome) (wait time.Duration, ok bool)

// RetryAfter is the RetryAfterFunc of the default rule. It reads the header fields of responses of
// status 400 or above. The first of these that a response has counts:
//
//   - retry-after-ms, x-ms-retry-after-ms (Azure and OpenAI use both) or x-amz-retry-after (AWS), in
//     milliseconds.
//   - Retry-After (RFC 9110 §10.2.3): a number of seconds, or a date. Some servers send what the RFC
//     does not allow: a fraction, a Unix time in seconds or milliseconds, a time with a unit, such as
//     "30s" or "1m30s", quotes, or a date in a form of RFC 3339 or ISO 8601. All of these are read. A
//     date is measured from the response's Date field plus its Age, or from the local clock if there
//     is no Date. A date in the past is a wait of zero.
//   - grpc-retry-pushback-ms, in milliseconds (gRPC over HTTP).
//   - X-RateLimit-Reset-After, in seconds, after a 429 (Discord). It does not count if
//     X-RateLimit-Remaining says that something is left.
//   - RateLimit (draft-ietf-httpapi-ratelimit-headers, also in the form of the seventh draft),
//     RateLimit-Reset, X-RateLimit-Reset or X-Rate-Limit-Reset, after a 429 or a 403. They count if
//     the quota that they are about is used up. A reset is a number of seconds, which counts as a day
//     at most, a Unix time or a date. X-Rate-Limit-Reset counts only if it is a Unix time or a date,
//     because servers disagree about any other number there.
//
// The wait is never negative, and never shorter than the server asked for. If a number is too large
// for a [time.Duration], the wait is the longest Duration. Fractions of a nanosecond are rounded up.
// If a field has several valid values, the longest wait counts. A malformed value is ignored.
func RetryAfter(o Outcome) (wait time.Duration, ok bool) { return field.Wait(o.Response) }

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
	case o.Response.StatusCode == http.StatusTooManyRequests &&
		bytes.Contains(o.Peek(peek.Limit), []byte(`"insufficient_quota"`)):
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
