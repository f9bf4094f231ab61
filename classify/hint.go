// How long did the server ask to wait?

package classify

import (
	"net/http"
	"slices"
	"time"
)

// A Hint reads from an outcome how long the server asked to wait before the
// request is sent again. ok is false where it named nothing; a wait of zero
// with ok means "at once". It must be safe for concurrent use and must not
// read the response's body other than through [Outcome.Peek].
//
// A hint is never a reason to send again: that is for a [Func] to say. The
// hints of this package speak only of answers of status 400 and above, never
// name a negative wait, and never one shorter than what the server said: a
// number too large for a [time.Duration] becomes the longest one, fractions of
// a nanosecond are rounded up, and of several valid values of one field the
// longest counts. A value that is not well-formed is no hint.
type Hint func(Outcome) (wait time.Duration, ok bool)

// DefaultHint is the standard hint: [RetryAfterMillis], else [RetryAfter], else
// [RateLimitReset].
func DefaultHint(o Outcome) (time.Duration, bool) {
	if !o.failed() {
		return 0, false
	}
	if wait, ok := RetryAfterMillis(o); ok {
		return wait, true
	}
	if wait, ok := RetryAfter(o); ok {
		return wait, true
	}
	return RateLimitReset(o)
}

// NoHint never names a wait. In a rule it turns an inherited hint off.
func NoHint(Outcome) (time.Duration, bool) { return 0, false }

// FirstHint asks the given hints in turn and returns the first answer. Nil ones
// are skipped.
func FirstHint(hints ...Hint) Hint {
	hints = slices.DeleteFunc(slices.Clone(hints), func(h Hint) bool { return h == nil })
	return func(o Outcome) (time.Duration, bool) {
		for _, h := range hints {
			if wait, ok := h(o); ok {
				return wait, true
			}
		}
		return 0, false
	}
}

// longest returns the longest wait that parse finds among the values of a field.
// A field longer than fieldLimit is no hint.
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

// received is the time that instants in the response are measured from: its
// Date field, so that the difference between the server's clock and ours
// cancels, and what it has spent in caches since (RFC 9111 §5.1); our own clock
// where there is no Date (RFC 9110 §6.6.1).
func received(h http.Header) time.Time {
	now := time.Now()
	date, ok := httpDate(h.Get("Date"), now)
	if !ok {
		return now
	}
	return date.Add(age(h))
}
