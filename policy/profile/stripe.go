package profile

import (
	"net/http"
	"strings"

	"github.com/aplomb-go/aplomb/classify"
	"github.com/aplomb-go/aplomb/policy"
)

// Stripe returns a rule for api.stripe.com. Give each POST an Idempotency-Key, as
// Stripe's libraries do. Otherwise it is not sent again after a lost response.
//
//   - Signals: Stripe-Should-Retry. Retry-After is in seconds, if it is there.
//   - Final: Stripe-Should-Retry: false, and every 4xx but those named here. A 500 is
//     final for a POST to API v1, unless Stripe-Should-Retry is true. Stripe keeps the
//     response under the Idempotency-Key and would send the same response again.
//   - POST is sent again after a 429, which also stands for a lock that another
//     request held for too long. The limits are checked before a request is carried
//     out. After a 409, a 502, 503 or 504, and after Stripe-Should-Retry: true it is
//     sent again if it has an Idempotency-Key.
//   - Scope: the API key and the connected account (Stripe-Account, Stripe-Context),
//     because Stripe counts requests per account.
//
// Sources, read on 2026-11-22: https://docs.stripe.com/error-low-level,
// https://docs.stripe.com/api/idempotent_requests and https://docs.stripe.com/rate-limits.
func Stripe() policy.Rule {
	return policy.Rule{
		// Signals comes before the rule about 500, because it knows when Stripe asks
		// for a retry.
		Classify: classify.First(
			classify.Signals,
			storedFailure,
			classify.OnStatus(classify.Ambiguous, http.StatusConflict),
			classify.Refusals,
		),
		Hint: classify.DefaultHint,
		Scope: func(req *http.Request) string {
			return withToken(req, req.Header.Get("Stripe-Account")+"\n"+req.Header.Get("Stripe-Context"))
		},
	}
}

// storedFailure recognises a failure that Stripe keeps as the result of the request.
func storedFailure(o classify.Outcome) classify.Verdict {
	if o.Response != nil && o.Response.StatusCode == http.StatusInternalServerError &&
		o.Request != nil && o.Request.Method == http.MethodPost && strings.HasPrefix(o.Request.URL.Path, "/v1/") {
		return classify.Final
	}
	return classify.Unknown
}
