// The hints of single providers.

package classify

import (
	"bytes"
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"time"
)

// RetryInfo is a [Hint] for Google Cloud. It reads the retryDelay of
// google.rpc.RetryInfo in the JSON error body of responses of status 400 and
// above. The delay is in seconds with up to nine decimals and the letter s, as
// in "3.5s". The body is ignored if it is longer than 64 KiB.
func RetryInfo(o Outcome) (wait time.Duration, ok bool) {
	if !o.failed() {
		return 0, false
	}
	body := bytes.TrimLeft(o.Peek(bodyLimit), " \t\r\n")
	if !bytes.Contains(body, []byte("google.rpc.RetryInfo")) {
		return 0, false
	}
	if body[0] != '[' { // the response of a streaming method is a list
		body = slices.Concat([]byte{'['}, body, []byte{']'})
	}
	var answers []googleError
	if json.Unmarshal(body, &answers) != nil {
		return 0, false
	}
	return retryDelay(answers)
}

// googleError is the part of google.rpc.Status in JSON that holds the delay.
type googleError struct {
	Error struct {
		Details []struct {
			Type       string          `json:"@type"`
			RetryDelay json.RawMessage `json:"retryDelay"`
		} `json:"details"`
	} `json:"error"`
}

func retryDelay(answers []googleError) (time.Duration, bool) {
	var delays []string
	for _, a := range answers {
		for _, d := range a.Error.Details {
			var delay string
			if strings.HasSuffix(d.Type, "/google.rpc.RetryInfo") && json.Unmarshal(d.RetryDelay, &delay) == nil {
				delays = append(delays, delay)
			}
		}
	}
	return longest(delays, func(v string) (time.Duration, bool) {
		v, ok := strings.CutSuffix(v, "s")
		if !ok {
			return 0, false
		}
		return decimal(v, time.Second)
	})
}

// ResetAfter is a [Hint] for Discord. It reads X-RateLimit-Reset-After, in
// seconds with or without decimals, in responses of status 429. If
// X-RateLimit-Remaining says that something is left, the field is about another
// limit and is ignored.
func ResetAfter(o Outcome) (time.Duration, bool) {
	if o.Response == nil || o.Response.StatusCode != http.StatusTooManyRequests {
		return 0, false
	}
	h := o.Response.Header
	if has(h, "X-Ratelimit-Remaining") && !usedUp(h, "X-Ratelimit-Remaining") {
		return 0, false
	}
	return longest(h["X-Ratelimit-Reset-After"], seconds)
}

// BodyRetryAfter is a [Hint] for Discord. It reads retry_after, in seconds with
// or without decimals, from the JSON object in the body of responses of status
// 429. The body is ignored if it is longer than 64 KiB.
func BodyRetryAfter(o Outcome) (time.Duration, bool) {
	if o.Response == nil || o.Response.StatusCode != http.StatusTooManyRequests {
		return 0, false
	}
	var answer struct {
		RetryAfter json.RawMessage `json:"retry_after"`
	}
	if json.Unmarshal(o.Peek(bodyLimit), &answer) != nil {
		return 0, false
	}
	return decimal(string(answer.RetryAfter), time.Second)
}

// ResetDurations is a [Hint] for OpenAI. It reads x-ratelimit-reset-requests
// and x-ratelimit-reset-tokens in responses of status 429. They are durations
// such as "6m0s" or "20ms". A field counts only if its x-ratelimit-remaining-…
// is 0, and the longer wait counts, which is a day at most.
func ResetDurations(o Outcome) (time.Duration, bool) { return resets(o, openAIFields) }

// ResetTimes is a [Hint] for Anthropic. It reads anthropic-ratelimit-…-reset in
// responses of status 429, for requests, tokens, input tokens and output
// tokens. They are instants in the form of RFC 3339. A field counts only if its
// anthropic-ratelimit-…-remaining is 0, and the latest instant counts. The wait
// is measured from the response's Date.
func ResetTimes(o Outcome) (time.Duration, bool) { return resets(o, anthropicFields) }

// resets returns the longest reset of the fields with nothing remaining.
func resets(o Outcome, fields []unitFields) (wait time.Duration, ok bool) {
	if o.Response == nil || o.Response.StatusCode != http.StatusTooManyRequests {
		return 0, false
	}
	ref := received(o.Response.Header)
	for _, f := range fields {
		if !usedUp(o.Response.Header, f.remaining) {
			continue
		}
		d, found := longest(o.Response.Header[f.reset], func(v string) (time.Duration, bool) { return f.wait(v, ref) })
		if found {
			wait, ok = max(wait, d), true
		}
	}
	return wait, ok
}

// usedUp reports whether the field is zero, so that nothing remains.
func usedUp(h http.Header, key string) bool {
	return slices.ContainsFunc(h[key], func(v string) bool {
		v = trim(v)
		return v != "" && strings.Trim(v, "0") == ""
	})
}

// duration reads a duration in Go's form, without a sign.
func duration(s string) (time.Duration, bool) {
	d, err := time.ParseDuration(s)
	if err != nil || d < 0 || strings.HasPrefix(s, "+") {
		return 0, false
	}
	return d, true
}

// Pushback is a [Hint] for gRPC over HTTP. It reads grpc-retry-pushback-ms, in
// whole milliseconds, in responses of status 400 and above. A value that
// forbids a retry is no hint. [Signals] reads such values.
func Pushback(o Outcome) (time.Duration, bool) {
	if !o.failed() || forbidsPushback(o.Response.Header) {
		return 0, false
	}
	return longest(o.Response.Header["Grpc-Retry-Pushback-Ms"], millis)
}

// SecondaryLimit is a [Hint] for GitHub. It returns one minute if a response
// says that the secondary rate limit is exceeded and [DefaultHint] finds no
// wait in it. One minute is the shortest wait that GitHub asks for.
//
// Such a response has status 403 or 429, an x-github-request-id field, and
// "secondary rate limit" in the first 64 KiB of its body. [Default] says that a
// 403 is final, so put [Signals] before it as well.
func SecondaryLimit(o Outcome) (time.Duration, bool) {
	if !o.limited() || !has(o.Response.Header, "X-Github-Request-Id") {
		return 0, false
	}
	if _, ok := DefaultHint(o); ok || !saysSecondaryLimit(o) {
		return 0, false
	}
	return time.Minute, true
}

func saysSecondaryLimit(o Outcome) bool {
	return bytes.Contains(o.Peek(bodyLimit), []byte("secondary rate limit"))
}
