package profile

import (
	"bytes"
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/aplomb-go/aplomb/classify"
	"github.com/aplomb-go/aplomb/internal/chain"
	"github.com/aplomb-go/aplomb/internal/field"
	"github.com/aplomb-go/aplomb/internal/peek"
	"github.com/aplomb-go/aplomb/policy"
)

// GoogleCloud returns a rule for *.googleapis.com, Cloud Storage and the Gemini API
// included.
//
//   - A refusal has status 429, or status 403 with the reason rateLimitExceeded or
//     userRateLimitExceeded. Retry-After is in seconds. If it is missing, the wait is the
//     retryDelay of google.rpc.RetryInfo in the JSON body, such as "3.5s".
//   - Any other 403 is final. A 429 is final if the quota of a day is used up
//     (dailyLimitExceeded, or a quotaId with PerDay), even if it has a retryDelay.
//   - A POST is sent again after a refusal, and after a 503 that names a wait. If a condition
//     protects it, it is sent again after every failure that may pass. Such a condition is
//     the parameter ifGenerationMatch or ifMetagenerationMatch of Cloud Storage, its
//     header x-goog-if-generation-match or x-goog-if-metageneration-match, or the
//     parameter requestId of Compute Engine. Google documents this for any method, a PUT or
//     DELETE with such a header included, although classify.Idempotent takes a condition for
//     a reason not to. If the first attempt had its effect, Cloud Storage answers the
//     second attempt with 412.
//   - Requests share a scope if they have the same credentials, or the same key in
//     x-goog-api-key. A key in the query is not seen.
//   - Request bodies of up to 16 MiB are kept, because the SDK sends its parts without
//     GetBody. The default back-off is Google's formula already.
//
// The sources were read on 2026-11-22.
// https://docs.cloud.google.com/storage/docs/retry-strategy,
// https://developers.google.com/drive/api/guides/limits and
// https://developers.google.com/bid-manager/quotas. Google's own client sends a chunk
// again after a lost response
// (https://github.com/googleapis/google-api-go-client/blob/v0.307.0/internal/gensupport/resumable.go).
// A response of the Gemini API is
// recorded in https://github.com/continuedev/continue/issues/11681.
//
// To assign to a field, such as Classify, replaces what the profile knows.
// policy.Rule{…}.Or(profile.GoogleCloud()) adds to it.
func GoogleCloud() policy.Rule {
	return policy.Rule{
		Classify: judge(
			onWords(classify.Final, http.StatusTooManyRequests, `"dailyLimitExceeded"`, "PerDay"),
			onWords(classify.Refused, http.StatusForbidden, `"rateLimitExceeded"`, `"userRateLimitExceeded"`),
			given(classify.Refused, http.StatusServiceUnavailable, hasRetryInfo), // as classify.Refusals for the wait in a header
		),
		RetryAfter:   chain.FirstRetryAfter(classify.RetryAfter, retryInfo),
		Idempotent:   googleIdempotent,
		ReplayBuffer: memory,
	}
}

// googleIdempotent reports whether a request may be repeated because of its method
// or because of a condition.
func googleIdempotent(req *http.Request) bool {
	switch {
	case classify.Idempotent(req):
		return true
	case req == nil:
		return false
	}
	if req.Header.Get("X-Goog-If-Generation-Match") != "" || req.Header.Get("X-Goog-If-Metageneration-Match") != "" {
		return true
	}
	q := urlOf(req).Query()
	if q.Get("upload_id") != "" && req.Header.Get("Content-Range") != "" {
		return true
	}
	return q.Get("ifGenerationMatch") != "" || q.Get("ifMetagenerationMatch") != "" || q.Get("requestId") != ""
}

// hasRetryInfo reports whether there is a wait in the body.
func hasRetryInfo(o classify.Outcome) bool {
	_, ok := retryInfo(o)
	return ok
}

// retryInfo reads the retryDelay of google.rpc.RetryInfo in the JSON error body of responses of
// status 400 and above. The delay is in seconds with up to nine decimals and the letter s, as
// in "3.5s". The body is ignored if it is longer than 64 KiB.
func retryInfo(o classify.Outcome) (wait time.Duration, ok bool) {
	if o.Response == nil || o.Response.StatusCode < http.StatusBadRequest {
		return 0, false
	}
	body := bytes.TrimLeft(o.Peek(peek.Limit), " \t\r\n")
	if !bytes.Contains(body, []byte("google.rpc.RetryInfo")) {
		return 0, false
	}
	if body[0] != '[' { // the response of a streaming method is a list
		body = slices.Concat([]byte{'['}, body, []byte{']'})
	}
	var answers []struct { // the part of google.rpc.Status in JSON that holds the delay
		Error struct {
			Details []struct {
				Type       string          `json:"@type"`
				RetryDelay json.RawMessage `json:"retryDelay"`
			} `json:"details"`
		} `json:"error"`
	}
	if json.Unmarshal(body, &answers) != nil {
		return 0, false
	}
	var delays []string
	for _, a := range answers {
		for _, d := range a.Error.Details {
			var delay string
			if strings.HasSuffix(d.Type, "/google.rpc.RetryInfo") && json.Unmarshal(d.RetryDelay, &delay) == nil {
				delays = append(delays, delay)
			}
		}
	}
	return field.Longest(delays, func(v string) (time.Duration, bool) {
		v, ok := strings.CutSuffix(v, "s")
		if !ok {
			return 0, false
		}
		return field.Decimal(v, time.Second)
	})
}
