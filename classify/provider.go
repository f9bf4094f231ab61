// How do single providers say when to come back?
//
// None of these is part of DefaultHint. Compose what a host needs:
// FirstHint(DefaultHint, RetryInfo).

package classify

import (
	"bytes"
	"encoding/json"
	"net/http"
	"strings"
	"time"
)

// RetryInfo reads google.rpc.RetryInfo from the JSON error body of Google Cloud:
// its retryDelay, seconds with up to nine decimals and the letter s, as in
// "3.5s". It looks at the first 64 KiB of answers of status 400 and above; a
// longer body is no hint.
func RetryInfo(o Outcome) (wait time.Duration, ok bool) {
	if !o.failed() {
		return 0, false
	}
	body := bytes.TrimLeft(o.Peek(bodyLimit), " \t\r\n")
	if !bytes.Contains(body, []byte("google.rpc.RetryInfo")) {
		return 0, false
	}
	var answers []googleError
	if body[0] == '[' { // streaming methods answer with a list
		ok = json.Unmarshal(body, &answers) == nil
	} else {
		answers = make([]googleError, 1)
		ok = json.Unmarshal(body, &answers[0]) == nil
	}
	if !ok {
		return 0, false
	}
	return retryDelay(answers)
}

// googleError is the part of google.rpc.Status in JSON that matters here.
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

// ResetAfter reads X-RateLimit-Reset-After (Discord), seconds with or without
// decimals, from answers of status 429, unless X-RateLimit-Remaining says that
// something is left: the limit that was hit is then another one.
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

// BodyRetryAfter reads retry_after, a number of seconds with or without
// decimals, from a JSON object in the body of an answer of status 429
// (Discord). It looks at the first 64 KiB; a longer body is no hint.
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

// ResetDurations reads x-ratelimit-reset-requests and x-ratelimit-reset-tokens
// (OpenAI), durations such as "6m0s" or "20ms", from answers of status 429: the
// longer of those whose x-ratelimit-remaining-… is 0. One that is too long for a
// [time.Duration] is no hint.
func ResetDurations(o Outcome) (time.Duration, bool) {
	return resets(o, duration,
		[2]string{"X-Ratelimit-Remaining-Requests", "X-Ratelimit-Reset-Requests"},
		[2]string{"X-Ratelimit-Remaining-Tokens", "X-Ratelimit-Reset-Tokens"})
}

// ResetTimes reads anthropic-ratelimit-…-reset for requests, tokens, input
// tokens and output tokens, instants in the form of RFC 3339, from answers of
// status 429: the latest of those whose anthropic-ratelimit-…-remaining is 0,
// measured from the response's Date.
func ResetTimes(o Outcome) (time.Duration, bool) {
	if o.Response == nil {
		return 0, false
	}
	var ref time.Time // found once, and only if an instant is there
	instant := func(v string) (time.Duration, bool) {
		at, err := time.Parse(time.RFC3339, trim(v))
		if err != nil {
			return 0, false
		}
		if ref.IsZero() {
			ref = received(o.Response.Header)
		}
		return max(at.Sub(ref), 0), true
	}
	return resets(o, instant,
		[2]string{"Anthropic-Ratelimit-Requests-Remaining", "Anthropic-Ratelimit-Requests-Reset"},
		[2]string{"Anthropic-Ratelimit-Tokens-Remaining", "Anthropic-Ratelimit-Tokens-Reset"},
		[2]string{"Anthropic-Ratelimit-Input-Tokens-Remaining", "Anthropic-Ratelimit-Input-Tokens-Reset"},
		[2]string{"Anthropic-Ratelimit-Output-Tokens-Remaining", "Anthropic-Ratelimit-Output-Tokens-Reset"})
}

// resets returns the longest reset among pairs of a remaining and a reset field
// of which nothing remains.
func resets(o Outcome, parse func(string) (time.Duration, bool), pairs ...[2]string) (wait time.Duration, ok bool) {
	if o.Response == nil || o.Response.StatusCode != http.StatusTooManyRequests {
		return 0, false
	}
	for _, pair := range pairs {
		if !usedUp(o.Response.Header, pair[0]) {
			continue
		}
		if d, found := longest(o.Response.Header[pair[1]], parse); found {
			wait, ok = max(wait, d), true
		}
	}
	return wait, ok
}

// usedUp reports whether the field says that nothing remains.
func usedUp(h http.Header, key string) bool {
	for _, v := range h[key] {
		if v = trim(v); digits(v) && strings.Trim(v, "0") == "" {
			return true
		}
	}
	return false
}

// duration reads Go's form of a duration, without a sign.
func duration(s string) (time.Duration, bool) {
	d, err := time.ParseDuration(trim(s))
	if err != nil || d < 0 || strings.HasPrefix(trim(s), "+") {
		return 0, false
	}
	return d, true
}

// Pushback reads grpc-retry-pushback-ms (gRPC over HTTP): whole milliseconds,
// from answers of status 400 and above. Anything that forbids a repetition
// ([Signals]) is no hint.
func Pushback(o Outcome) (time.Duration, bool) {
	if !o.failed() || forbidsPushback(o.Response.Header) {
		return 0, false
	}
	return longest(o.Response.Header["Grpc-Retry-Pushback-Ms"], millis)
}

// SecondaryLimit is one minute for an answer by which GitHub says that its
// secondary rate limit is exceeded, when nothing in it names a wait
// ([DefaultHint]): status 403 or 429, x-github-request-id, and "secondary rate
// limit" in the first 64 KiB of the body. One minute is the least that GitHub
// asks for. A hint alone does not send a 403 again: put [Signals] before
// [Default] as well.
func SecondaryLimit(o Outcome) (time.Duration, bool) {
	if !o.limited() || !has(o.Response.Header, "X-Github-Request-Id") {
		return 0, false
	}
	if _, ok := DefaultHint(o); ok {
		return 0, false
	}
	if !saysSecondaryLimit(o) {
		return 0, false
	}
	return time.Minute, true
}

func saysSecondaryLimit(o Outcome) bool {
	return bytes.Contains(o.Peek(bodyLimit), []byte("secondary rate limit"))
}
