package profile

import (
	"cmp"
	"encoding/json"
	"net/http"
	"time"

	"github.com/aplomb-go/aplomb/classify"
	"github.com/aplomb-go/aplomb/internal/chain"
	"github.com/aplomb-go/aplomb/internal/field"
	"github.com/aplomb-go/aplomb/policy"
)

// overloaded is a status that Anthropic uses.
const overloaded = 529

// Anthropic returns a rule for api.anthropic.com.
//
//   - retry-after is in seconds. If it is missing, the wait ends at the latest
//     anthropic-ratelimit-…-reset whose remaining quota is 0. These are instants such as
//     2026-11-22T08:00:00Z.
//   - If x-should-retry is false, the response is final. A 429 is final if the monthly limit
//     of spending is reached (enforced_spend_limit_reached).
//   - A POST is sent again after any other 429, and after a 529, which means that the API is
//     overloaded. After a 500 it is not sent again, even if x-should-retry is true, because
//     the response may have been generated and charged. If that does no harm, set
//     Idempotent.
//   - The response to a request with "stream": true is returned with its first event that has
//     content: text, thinking or a call of a tool. If an error comes before that, as after
//     message_start, it is judged as the status that it stands for: overloaded_error is a 529,
//     and rate_limit_error a 429. FirstEventTimeout bounds the wait for the first event. After
//     that event the response is held for at most 5 s and 64 KiB.
//   - Requests share a scope if they have the same API key. The limits also differ by model,
//     but the model is in the body.
//
// The sources were read on 2026-11-22.
// https://learn.microsoft.com/en-us/microsoft-cloud/dev/dev-proxy/concepts/anthropic-529-overloaded-error,
// which refers to Anthropic's own page,
// https://docs.aws.amazon.com/claude-platform/latest/userguide/rate-limits.html,
// https://docs.kindo.ai/apis/messages/streaming/ and
// https://www.truefoundry.com/docs/ai-gateway/first-chunk-gate.
//
// To assign to a field, such as Classify, replaces what the profile knows.
// policy.Rule{…}.Or(profile.Anthropic()) adds to it.
func Anthropic() policy.Rule {
	inside := firstEvent(anthropicStatus, anthropicBare)
	return policy.Rule{
		Classify: judgeInside(inside,
			onWords(classify.Final, http.StatusTooManyRequests, `"enforced_spend_limit_reached"`),
			classify.OnStatus(classify.Refused, overloaded),
		),
		RetryAfter: hintInside(inside, chain.FirstRetryAfter(classify.RetryAfter, anthropicReset)),
	}
}

// anthropicReset returns the time until the quota that is used up is full again.
func anthropicReset(o classify.Outcome) (time.Duration, bool) {
	return field.ResetAnthropic(o.Response)
}

// anthropicStatus returns the status for which an error event stands. An unknown error
// stands for a 400, which is final.
func anthropicStatus(data []byte) int {
	var event streamError
	if json.Unmarshal(data, &event) != nil || event.Type != "error" {
		return 0
	}
	statuses := map[string]int{
		"rate_limit_error": http.StatusTooManyRequests,
		"api_error":        http.StatusInternalServerError,
		"timeout_error":    http.StatusGatewayTimeout,
		"overloaded_error": overloaded,
	}
	kind := ""
	if event.Error != nil {
		kind = event.Error.Type
	}
	return cmp.Or(statuses[kind], http.StatusBadRequest)
}

// anthropicBare reports whether an event has no content yet: the frame of the message, or that
// of a text.
func anthropicBare(data []byte) bool {
	var event struct {
		Type  string
		Block struct{ Type, Text, Thinking string } `json:"content_block"`
	}
	if json.Unmarshal(data, &event) != nil {
		return false
	}
	switch event.Type {
	case "ping", "message_start":
		return true
	case "content_block_start":
		framed := event.Block.Type == "text" || event.Block.Type == "thinking"
		return framed && event.Block.Text+event.Block.Thinking == ""
	}
	return false
}
