package profile

import (
	"net/http"

	"github.com/aplomb-go/aplomb/classify"
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
//   - Requests share a scope if they have the same API key. The limits also differ by model,
//     but the model is in the body.
//
// The sources were read on 2026-11-22.
// https://learn.microsoft.com/en-us/microsoft-cloud/dev/dev-proxy/concepts/anthropic-529-overloaded-error,
// which refers to Anthropic's own page, and
// https://docs.aws.amazon.com/claude-platform/latest/userguide/rate-limits.html.
func Anthropic() policy.Rule {
	return policy.Rule{
		Classify: judge(
			onWords(classify.Final, []int{http.StatusTooManyRequests}, `"enforced_spend_limit_reached"`),
			classify.OnStatus(classify.Refused, overloaded),
		),
		Hint: classify.FirstHint(classify.DefaultHint, classify.ResetTimes),
	}
}
