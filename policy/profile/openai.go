package profile

import (
	"net/http"

	"github.com/aplomb-go/aplomb/classify"
	"github.com/aplomb-go/aplomb/policy"
)

// OpenAI returns a rule for api.openai.com.
//
//   - Signals: x-should-retry. retry-after-ms is in milliseconds, Retry-After in
//     seconds. Without them the wait is the longest of x-ratelimit-reset-requests and
//     -tokens whose remaining quota is 0. These are durations such as "6m0s".
//   - Final: x-should-retry: false. A 429 is final if the credit is used up or a limit
//     of spending is reached (insufficient_quota, credit_balance_exhausted,
//     organization_spend_limit_exceeded, project_spend_limit_exceeded,
//     organization_usage_limit_exceeded).
//   - POST is sent again after any other 429, and after a 503 that says that the
//     servers are overloaded or that you should slow down. After a 500 it is not,
//     also if x-should-retry is true, because the response may have been generated
//     and charged. If that does no harm, set Idempotent.
//   - Scope: the API key. Limits also differ by model, which is in the body.
//
// Sources, read on 2026-11-22: https://developers.openai.com/api/docs/guides/error-codes,
// https://help.openai.com/en/articles/5955604-troubleshooting-api-rate-limits-and-429-errors
// and https://github.com/openai/openai-go/blob/v1.12.0/internal/requestconfig/requestconfig.go.
func OpenAI() policy.Rule {
	return policy.Rule{
		Classify: judge(
			onWords(classify.Final, []int{http.StatusTooManyRequests}, `"insufficient_quota"`, `"credit_balance_exhausted"`,
				`"organization_spend_limit_exceeded"`, `"project_spend_limit_exceeded"`, `"organization_usage_limit_exceeded"`),
			onWords(classify.Refused, []int{http.StatusServiceUnavailable}, `"slow_down"`, "overloaded"),
		),
		Hint: classify.FirstHint(classify.DefaultHint, classify.ResetDurations),
	}
}
