// Package field reads the header fields in which servers name waits and quotas. It reads nothing
// else of a response but its status. Nothing that a server sends makes it panic.
//
// A wait is never negative, and never shorter than the server asked for. If a number is too large
// for a [time.Duration], the wait is the longest Duration. Fractions of a nanosecond are rounded
// up. If a field has several valid values, the longest wait counts. A malformed value is ignored.
//
// The files:
//
//	retryafter.go  Retry-After, in all its forms, and its relatives
//	ratelimit.go   RateLimit fields and their older relatives
//	quotafields.go the fields that name quotas, and structured fields, the syntax of RateLimit
package field

import (
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

// A waitField is a field that names a wait by itself.
type waitField struct {
	key    string
	read   func(value string, ref time.Time) (time.Duration, bool)
	counts func(*http.Response) bool // nil: in any response of status 400 or above
}

const pushback = "Grpc-Retry-Pushback-Ms"

var retryAfterField = waitField{key: "Retry-After", read: retryAfter}

// waits are all these fields, in the order in which they count. Nothing else knows their names.
var waits = [...]waitField{
	{key: "Retry-After-Ms", read: millis},      // Azure and OpenAI
	{key: "X-Ms-Retry-After-Ms", read: millis}, // the same
	{key: "X-Amz-Retry-After", read: millis},   // AWS
	retryAfterField,
	{key: pushback, read: millis, counts: func(resp *http.Response) bool { return !ForbidsPushback(resp.Header) }},
	{key: "X-Ratelimit-Reset-After", read: seconds, counts: usedUp}, // Discord
}

// Wait returns the wait that a response of status 400 or above names, in one of the fields above. In
// a response of status 429 or 403 a quota that is used up names it, too.
func Wait(resp *http.Response) (wait time.Duration, ok bool) {
	for i := range waits {
		if wait, ok := waits[i].in(resp); ok {
			return wait, true
		}
	}
	// GitHub sends a 403, too. Most servers do not mean a quota by that, so that a classifier has to know
	// those that do.
	if resp != nil && (resp.StatusCode == http.StatusTooManyRequests || resp.StatusCode == http.StatusForbidden) {
		return untilFull(readQuotas(resp.Header, false))
	}
	return 0, false
}

// NamesZero reports whether any of the fields above names the wait zero, and not a time in the past.
func NamesZero(resp *http.Response) bool {
	return slices.ContainsFunc(waits[:], func(f waitField) bool {
		_, ok := f.in(resp)
		return ok && Zero(resp.Header, f.key)
	})
}

// in returns the wait that the field names in a response of status 400 or above. No other response
// can be a reason to send again or to wait.
func (f *waitField) in(resp *http.Response) (wait time.Duration, ok bool) {
	if resp == nil || resp.StatusCode < http.StatusBadRequest || len(resp.Header[f.key]) == 0 ||
		f.counts != nil && !f.counts(resp) {
		return 0, false
	}
	ref := received(resp.Header)
	return Longest(resp.Header[f.key], func(v string) (time.Duration, bool) { return f.read(v, ref) })
}

// Says reports whether any value of the field is the given word. The case does
// not matter.
func Says(h http.Header, key, word string) bool {
	return slices.ContainsFunc(h[key], func(v string) bool { return strings.EqualFold(trim(v), word) })
}

// Zero reports whether a value of the field is zero, so that nothing remains.
func Zero(h http.Header, key string) bool {
	return slices.ContainsFunc(h[key], func(v string) bool {
		v = trim(v)
		return v != "" && strings.Trim(v, "0") == ""
	})
}

// within reports whether the lines of a field, joined, are short enough to be
// read.
func within(limit int, lines []string) bool {
	size := 0
	for _, line := range lines {
		size += len(line) + len(", ")
		if size > limit {
			return false
		}
	}
	return true
}

// Longest returns the longest wait that parse finds among the values of a
// field without white space around them, and 0 if all are negative. If the values are longer than 4 KiB, ok is false.
func Longest(values []string, parse func(string) (time.Duration, bool)) (wait time.Duration, ok bool) {
	if !within(fieldLimit, values) {
		return 0, false
	}
	for _, v := range values {
		if d, valid := parse(trim(v)); valid {
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

// ForbidsPushback reports whether a server stops the retries of gRPC. It does
// so by a pushback that is not a single valid wait (gRFC A6).
func ForbidsPushback(h http.Header) bool {
	for i, v := range h[pushback] {
		if ms, err := strconv.ParseInt(trim(v), 10, 32); i > 0 || err != nil || ms < 0 {
			return true
		}
	}
	return false
}

// usedUp reports whether X-RateLimit-Reset-After is about the limit that a response of status 429
// tells of. It is about another limit if X-RateLimit-Remaining says that something is left.
func usedUp(resp *http.Response) bool {
	_, known := resp.Header["X-Ratelimit-Remaining"]
	return resp.StatusCode == http.StatusTooManyRequests && (!known || Zero(resp.Header, "X-Ratelimit-Remaining"))
}

// ResetOpenAI reads x-ratelimit-reset-requests and x-ratelimit-reset-tokens in responses of status
// 429. They are durations such as "6m0s" or "20ms". A field counts only if its
// x-ratelimit-remaining-… is 0, and the longer wait counts, which is a day at most.
func ResetOpenAI(resp *http.Response) (time.Duration, bool) { return resets(resp, &openAI) }

// ResetAnthropic reads anthropic-ratelimit-…-reset in responses of status 429, for requests,
// tokens, input tokens and output tokens. They are instants in the form of RFC 3339. A field counts
// only if its anthropic-ratelimit-…-remaining is 0, and the latest instant counts. The wait is
// measured from the response's Date.
func ResetAnthropic(resp *http.Response) (time.Duration, bool) { return resets(resp, &anthropic) }

// resets returns the time until every quota of the group that is used up is full again.
func resets(resp *http.Response, g *quotaGroup) (wait time.Duration, ok bool) {
	if resp == nil || resp.StatusCode != http.StatusTooManyRequests {
		return 0, false
	}
	return untilFull(g.quotas(resp.Header))
}
