package profile

import (
	"bytes"
	"encoding/json"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/aplomb-go/aplomb/classify"
	"github.com/aplomb-go/aplomb/internal/chain"
	"github.com/aplomb-go/aplomb/internal/field"
	"github.com/aplomb-go/aplomb/policy"
)

// OpenAI returns a rule for api.openai.com.
//
//   - The unit of retry-after-ms is a millisecond, and that of Retry-After is a second. If
//     both are missing, the wait is x-ratelimit-reset-requests or -tokens, a duration such
//     as "6m0s". It counts if its remaining quota is 0, and the longer wait counts.
//   - If x-should-retry is false, the response is final. A 429 is final if the credit is
//     used up or a limit of spending is reached (insufficient_quota,
//     credit_balance_exhausted, organization_spend_limit_exceeded,
//     project_spend_limit_exceeded, organization_usage_limit_exceeded), or if the request
//     alone is larger than the limit ("Request too large").
//   - A POST is sent again after any other 429, and after a 503 that says that the servers
//     are overloaded or that the client should slow down. After a 500 it is not sent again,
//     even if x-should-retry is true, because the response may have been generated and
//     charged. If that does no harm, set Idempotent.
//   - The response to a request with "stream": true is returned with its first event that has
//     content: text, reasoning or a call of a tool. If an error comes before that, it is judged
//     as the status that it stands for: rate_limit_exceeded is a 429, and server_error a 500.
//     FirstEventTimeout bounds the wait for the first event. After that event the response is
//     held for at most 5 s and 64 KiB.
//   - Requests share a scope if they have the same API key. The limits also differ by model,
//     but the model is in the body.
//
// The sources were read on 2026-11-22.
// https://developers.openai.com/api/docs/guides/error-codes,
// https://help.openai.com/en/articles/5955604-troubleshooting-api-rate-limits-and-429-errors,
// https://github.com/openai/openai-go/blob/v1.12.0/internal/requestconfig/requestconfig.go
// and https://github.com/openai/openai-python/issues/2699.
//
// To assign to a field, such as Classify, replaces what the profile knows.
// policy.Rule{…}.Or(profile.OpenAI()) adds to it.
func OpenAI() policy.Rule {
	inside := firstEvent(openAIStatus, openAIBare)
	return policy.Rule{
		Classify: judgeInside(inside,
			// classify.Signals knows insufficient_quota.
			onWords(classify.Final, http.StatusTooManyRequests, `"credit_balance_exhausted"`, `"organization_spend_limit_exceeded"`,
				`"project_spend_limit_exceeded"`, `"organization_usage_limit_exceeded"`, "Request too large"),
			onWords(classify.Refused, http.StatusServiceUnavailable, `"slow_down"`, "overloaded"),
		),
		RetryAfter: hintInside(inside, chain.FirstRetryAfter(classify.RetryAfter, openAIReset)),
	}
}

// openAIReset returns the time until the quota that is used up is full again.
func openAIReset(o classify.Outcome) (time.Duration, bool) { return field.ResetOpenAI(o.Response) }

// openAIStatus returns the status for which an event stands, or 0 if it is no error. An
// error of Chat Completions is {"error": {"type": …, "code": …}}. One of Responses is
// {"type": "error", "code": …}, with or without an "error" inside, or a response.failed.
// An unknown error stands for a 400, which is final.
func openAIStatus(data []byte) int {
	var event streamError
	if json.Unmarshal(data, &event) != nil {
		return 0
	}
	switch {
	case event.Type == "response.failed" && event.Response != nil && event.Response.Error != nil:
		event = *event.Response.Error
	case event.Error != nil:
		event = *event.Error
	case event.Type != "error":
		return 0
	}
	return openAICode(strings.Trim(string(event.Code), `"`)+" "+event.Type, bytes.Contains(data, []byte("overloaded")))
}

// openAICode returns the status of an error with these words, which are its code and its
// type. The same type stands for a failure and for overload, which the message tells.
func openAICode(words string, overloaded bool) int {
	for _, word := range strings.Fields(words) {
		if code, err := strconv.Atoi(word); err == nil && code >= 400 && code < 600 {
			return code // servers that speak the same protocol send the status
		}
		switch word {
		case "rate_limit_exceeded", "rate_limit_error", "too_many_requests", "requests", "tokens", "insufficient_quota",
			"credit_balance_exhausted", "organization_spend_limit_exceeded", "project_spend_limit_exceeded", "organization_usage_limit_exceeded":
			return http.StatusTooManyRequests
		case "slow_down", "service_unavailable_error", "overloaded_error", "server_overloaded":
			return http.StatusServiceUnavailable
		case "server_error", "internal_error", "internal_server_error":
			if overloaded {
				return http.StatusServiceUnavailable
			}
			return http.StatusInternalServerError
		}
	}
	return http.StatusBadRequest
}

// openAIBare reports whether an event has no content yet. Responses begin with the response
// itself and with the frames of what follows. A Chat Completion begins with the role.
func openAIBare(data []byte) bool {
	var event struct {
		Type    string
		Item    struct{ Type string }
		Part    struct{ Text, Refusal string }
		Choices []struct {
			Delta  map[string]json.RawMessage
			Finish string `json:"finish_reason"`
		}
	}
	if json.Unmarshal(data, &event) != nil {
		return false
	}
	switch event.Type {
	case "response.created", "response.queued", "response.in_progress":
		return true
	case "response.output_item.added":
		return event.Item.Type == "message" || event.Item.Type == "reasoning"
	case "response.content_part.added", "response.reasoning_summary_part.added":
		return event.Part.Text+event.Part.Refusal == ""
	}
	for _, choice := range event.Choices {
		delete(choice.Delta, "role")
		for _, value := range choice.Delta {
			if s := string(value); s != "null" && s != `""` && s != "[]" {
				return false
			}
		}
		if choice.Finish != "" {
			return false
		}
	}
	return event.Choices != nil
}
