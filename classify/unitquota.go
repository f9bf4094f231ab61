// Reads the fields of providers that name the units of their quotas.

package classify

import (
	"net/http"
	"strings"
	"time"
)

// unitFields are plain fields of a unit.
type unitFields struct {
	unit string
	plainFields
}

var (
	openAIFields = []unitFields{
		{"", plainFields{"X-Ratelimit-Remaining-Requests", "X-Ratelimit-Reset-Requests", "X-Ratelimit-Limit-Requests", durationOrSeconds}},
		{"tokens", plainFields{"X-Ratelimit-Remaining-Tokens", "X-Ratelimit-Reset-Tokens", "X-Ratelimit-Limit-Tokens", durationOrSeconds}},
	}
	anthropicFields = []unitFields{
		{"", plainFields{"Anthropic-Ratelimit-Requests-Remaining", "Anthropic-Ratelimit-Requests-Reset", "Anthropic-Ratelimit-Requests-Limit", timestamp}},
		{"tokens", plainFields{"Anthropic-Ratelimit-Tokens-Remaining", "Anthropic-Ratelimit-Tokens-Reset", "Anthropic-Ratelimit-Tokens-Limit", timestamp}},
		{"input-tokens", plainFields{"Anthropic-Ratelimit-Input-Tokens-Remaining", "Anthropic-Ratelimit-Input-Tokens-Reset", "Anthropic-Ratelimit-Input-Tokens-Limit", timestamp}},
		{"output-tokens", plainFields{"Anthropic-Ratelimit-Output-Tokens-Remaining", "Anthropic-Ratelimit-Output-Tokens-Reset", "Anthropic-Ratelimit-Output-Tokens-Limit", timestamp}},
	}
)

// unitGroups are the known providers, each with its units. The sources were read on 2026-11-22 and
// 2026-11-23:
//
//   - OpenAI: https://community.openai.com/t/how-to-get-rate-limit-reset-time-for-response-api/1268905
//   - Azure OpenAI: https://learn.microsoft.com/en-us/answers/questions/5625878/azure-openai-responses-api-x-ratelimit-headers-val
//   - Anthropic: https://rdrr.io/cran/tidyllm/src/tests/testthat/claude/api.anthropic.com/v1/messages-e050b5-POST.R
//   - GitHub: https://docs.github.com/graphql/overview/rate-limits-and-query-limits-for-the-graphql-api
//   - Linear: https://linear.app/developers/rate-limiting
//   - Linear: https://docs.rs/linear-api/0.1.0/linear_api/struct.RateLimitInfo.html
//   - HubSpot: https://developers.hubspot.com/changelog/2018-11-06-rate-limit-information-headers-will-be-included-in-http-responses
//   - HubSpot: https://developers.hubspot.com/apps/api_guidelines
//   - Shopify, REST: https://shopify.dev/docs/api/admin-rest/usage/rate-limits
//   - Shopify, REST: https://www.throttleproxy.com/docs/rate-limits/shopify
var unitGroups = [...][]unitFields{
	openAIFields,
	anthropicFields,
	{
		{"", plainFields{"X-Ratelimit-Requests-Remaining", "X-Ratelimit-Requests-Reset", "X-Ratelimit-Requests-Limit", instant}},
		{"complexity", plainFields{"X-Ratelimit-Complexity-Remaining", "X-Ratelimit-Complexity-Reset", "X-Ratelimit-Complexity-Limit", instant}},
	},
	{
		{"", plainFields{"X-Hubspot-Ratelimit-Remaining", "X-Hubspot-Ratelimit-Interval-Milliseconds", "X-Hubspot-Ratelimit-Max",
			func(s string, _ time.Time) (time.Duration, bool) { return millis(s) }}},
	},
}

// unitQuotas returns the quotas of the first provider whose fields are there. A quota whose
// fields are malformed is left out.
func unitQuotas(h http.Header) (all []Quota) {
	for i := range unitGroups {
		for j := range unitGroups[i] {
			f := &unitGroups[i][j]
			if len(h[f.remaining]) == 0 || len(h[f.reset]) == 0 {
				continue
			}
			if q, ok := f.read(h); ok && q.Reset > 0 {
				q.Unit = f.unit
				all = append(all, q)
			}
		}
		if len(all) > 0 {
			return all
		}
	}
	return shopifyQuota(h)
}

// shopifyEmpty is the time in which a full bucket of Shopify's leaks. A bucket of 40 leaks at 2
// requests per second.
const shopifyEmpty = 20 * time.Second

// shopifyQuota reads the requests in the bucket and its size, such as "32/40".
func shopifyQuota(h http.Header) []Quota {
	field := h["X-Shopify-Shop-Api-Call-Limit"]
	if len(field) != 1 {
		return nil
	}
	used, size, ok := strings.Cut(trim(field[0]), "/")
	n, _, valid := number(used)
	limit, _, known := number(size)
	if !ok || !valid || !known || limit <= 0 || n <= 0 || n > limit {
		return nil
	}
	return []Quota{{Remaining: limit - n, Limit: limit, Reset: time.Duration(float64(n) / float64(limit) * float64(shopifyEmpty))}}
}

// durationOrSeconds reads a duration in Go's form, or a number of seconds.
func durationOrSeconds(s string, _ time.Time) (time.Duration, bool) {
	if d, ok := duration(s); ok {
		return d, true
	}
	return seconds(s)
}

// timestamp reads an instant in the form of RFC 3339.
func timestamp(s string, ref time.Time) (time.Duration, bool) {
	at, err := time.Parse(time.RFC3339, trim(s))
	if err != nil {
		return 0, false
	}
	return max(at.Sub(ref), 0), true
}
