package profile

import (
	"net/http"
	"strings"

	"github.com/aplomb-go/aplomb/classify"
	"github.com/aplomb-go/aplomb/policy"
)

// Stripe returns a rule for api.stripe.com. Give each POST an Idempotency-Key, as Stripe's
// libraries do, or set IdempotencyKey to [policy.UUIDKey]. If a POST has none, it is not
// sent again after a lost response.
//
//   - Retry-After is in seconds. Most refusals do not have it.
//   - If Stripe-Should-Retry is false, the response is final. So is every 4xx but 409 and
//     429. If a POST to API v1 gets a 500, the 500 is final unless Stripe-Should-Retry is
//     true. Stripe keeps it under the Idempotency-Key and would send it again.
//   - A POST is sent again after a 429. Stripe sends it when a limit is exceeded, and when
//     another request holds a lock for too long. If a POST has an Idempotency-Key, it is
//     also sent again after a 409, a 502, a 503 and a 504, and when Stripe-Should-Retry is
//     true.
//   - Requests share a scope if they have the same API key and the same connected account
//     (Stripe-Account, Stripe-Context), because Stripe counts requests per account.
//
// The sources were read on 2026-11-22. https://docs.stripe.com/error-low-level,
// https://docs.stripe.com/api/idempotent_requests and https://docs.stripe.com/rate-limits.
//
// To assign to a field, such as Classify, replaces what the profile knows.
// policy.Rule{…}.Or(profile.Stripe()) adds to it.
func Stripe() policy.Rule {
	return policy.Rule{
		// Signals comes before the rule about 500, because it knows when Stripe asks
		// for a retry.
		Classify: classify.First(
			classify.Signals,
			given(classify.Final, http.StatusInternalServerError, isStored),
			classify.OnStatus(classify.Ambiguous, http.StatusConflict),
			classify.Refusals,
		),
		ThrottleKey: func(req *http.Request) string {
			return withToken(req, req.Header.Get("Stripe-Account")+"\n"+req.Header.Get("Stripe-Context"))
		},
	}
}

// isStored reports whether Stripe keeps a failure as the result of the request.
func isStored(o classify.Outcome) bool {
	return o.Request != nil && o.Request.Method == http.MethodPost && strings.HasPrefix(urlOf(o.Request).Path, "/v1/")
}
