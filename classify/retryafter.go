// How long did the server ask to wait?

package classify

import (
	"slices"
	"time"

	"github.com/aplomb-go/aplomb/internal/field"
)

// A RetryAfterFunc reads from an outcome how long the server asked to wait before the
// request is sent again. If the server named no wait, ok is false. A wait of
// zero with ok true means that the server asks for no wait of its own. A RetryAfterFunc
// must be safe for concurrent use and may read the response's body through
// [Outcome.Peek] only.
//
// A wait is never a reason to send again. Only a [Func] gives such a reason. It
// is never a reason to hurry either. Package transport waits for the back-off or
// for this wait, whichever is longer. So after a Retry-After: 0, or one with a
// past date, the back-off alone counts. It spreads clients that failed together,
// and many servers send a zero although they are overloaded.
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

// FirstRetryAfter asks the given functions in turn and returns the first wait. Nil functions are
// skipped.
func FirstRetryAfter(funcs ...RetryAfterFunc) RetryAfterFunc {
	funcs = slices.DeleteFunc(slices.Clone(funcs), func(f RetryAfterFunc) bool { return f == nil })
	return func(o Outcome) (time.Duration, bool) {
		for _, f := range funcs {
			if wait, ok := f(o); ok {
				return wait, true
			}
		}
		return 0, false
	}
}
