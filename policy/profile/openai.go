package profile

import (
	"net/http"

	"github.com/aplomb-go/aplomb/classify"
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
//     project_spend_limit_exceeded, organization_usage_limit_exceeded).
//   - A POST is sent again after any other 429, and after a 503 that says that the servers
//     are overloaded or that the client should slow down. After a 500 it is not sent again,
//     even if x-should-retry is true, because the response may have been generated and
//     charged. If that does no harm, set Idempotent.
//   - Requests share a scope if they have the same API key. The limits also differ by model,
//     but the model is in the body.
//
// The sources were read on 2026-11-22.
// https://developers.openai.com/api/docs/guides/error-codes,
// https://help.openai.com/en/articles/5955604-troubleshooting-api-rate-limits-and-429-errors
// and https://github.com/openai/openai-go/blob/v1.12.0/internal/requestconfig/requestconfig.go.
func OpenAI() policy.Rule {
	return policy.Rule{
		Classify: judge(
			// classify.Signals knows insufficient_quota.
			onWords(classify.Final, []int{http.StatusTooManyRequests}, `"credit_balance_exhausted"`, `"organization_spend_limit_exceeded"`,
				`"project_spend_limit_exceeded"`, `"organization_usage_limit_exceeded"`),
			onWords(classify.Refused, []int{http.StatusServiceUnavailable}, `"slow_down"`, "overloaded"),
		),
		Hint: classify.FirstHint(classify.DefaultHint, classify.ResetDurations),
	}
}
