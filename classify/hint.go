// Hints, and how the values of a field are combined.

package classify

import (
	"net/http"
	"slices"
	"time"
)

// A Hint reads from an outcome how long the server asked to wait before the
// request is sent again. If the server named no wait, ok is false. A wait of
// zero with ok true means that the server asks for no wait of its own. A Hint
// must be safe for concurrent use and may read the response's body through
// [Outcome.Peek] only.
//
// A hint is never a reason to send again. Only a [Func] gives such a reason. It
// is never a reason to hurry either. Package transport waits for the back-off or
// for the hint, whichever is longer. So after a Retry-After: 0, or one with a
// past date, the back-off alone counts. It spreads clients that failed together,
// and many servers send a zero although they are overloaded.
//
// The hints of this package read responses of status 400 and above only. They
// never return a negative wait, and never a shorter wait than the server asked
// for. If a number is too large for a [time.Duration], the wait is the longest
// Duration. Fractions of a nanosecond are rounded up. If a field has several
// valid values, the longest wait counts. A malformed value is ignored.
type RetryAfterFunc func(Outcome) (wait time.Duration, ok bool)

// DefaultHint is the hint of the default rule. It returns the wait of
// [RetryAfterMillis], else of [RetryAfter], else of [RateLimitReset].
func DefaultHint(o Outcome) (time.Duration, bool) {
	if wait, ok := RetryAfterMillis(o); ok {
		return wait, true
	}
	if wait, ok := RetryAfter(o); ok {
		return wait, true
	}
	return RateLimitReset(o)
}

// NoHint is a hint that never names a wait. In a rule it turns an inherited
// hint off.
func NoHint(Outcome) (time.Duration, bool) { return 0, false }

// FirstRetryAfter returns a hint that asks the given hints in turn and returns the
// first wait. Nil hints are skipped.
func FirstRetryAfter(hints ...RetryAfterFunc) RetryAfterFunc {
	hints = slices.DeleteFunc(slices.Clone(hints), func(h RetryAfterFunc) bool { return h == nil })
	return func(o Outcome) (time.Duration, bool) {
		for _, h := range hints {
			if wait, ok := h(o); ok {
				return wait, true
			}
		}
		return 0, false
	}
}

// failed reports whether there is a response of status 400 or above. No other
// response can be a reason to send again or to wait.
func (o Outcome) failed() bool {
	return o.Response != nil && o.Response.StatusCode >= http.StatusBadRequest
}

// inLimit reports whether the lines of a field, joined, are short enough to be
// read.
func inLimit(lines []string) bool {
	size := 0
	for _, line := range lines {
		size += len(line) + len(", ")
		if size > fieldLimit {
			return false
		}
	}
	return true
}

// longest returns the longest wait that parse finds among the values of a
// field. If the field is longer than fieldLimit, ok is false.
func longest(values []string, parse func(string) (time.Duration, bool)) (wait time.Duration, ok bool) {
	if !inLimit(values) {
		return 0, false
	}
	for _, v := range values {
		if d, valid := parse(v); valid {
			wait, ok = max(wait, d), true
		}
	}
	return wait, ok
}

// received returns the time from which the instants in a response are measured.
// That is its Date field plus its age in caches (RFC 9111 §5.1), so a
// difference between the server's clock and ours does not matter. Without a
// Date it is the local time (RFC 9110 §6.6.1).
func received(h http.Header) time.Time {
	now := time.Now()
	date, ok := httpDate(h.Get("Date"), now)
	if !ok {
		return now
	}
	return date.Add(age(h))
}
