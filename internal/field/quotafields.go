// The fields that name quotas, and structured fields, the syntax of RateLimit.

package field

import (
	"net/http"
	"strings"
	"time"

	"github.com/dunglas/httpsfv"
)

// A quotaGroup is the fields by which a provider or a specification names quotas.
type quotaGroup struct {
	own   bool // a provider names the units of its quotas
	units []unitFields
	read  func(h http.Header) []Quota // nil: each field has one number
}

// unitFields are the fields of a unit, which hold one number each, and the function that reads the
// reset.
type unitFields struct {
	unit, remaining, reset, limit string
	wait                          func(s string, ref time.Time) (time.Duration, bool)
}

var (
	openAI = quotaGroup{own: true, units: []unitFields{
		{"", "X-Ratelimit-Remaining-Requests", "X-Ratelimit-Reset-Requests", "X-Ratelimit-Limit-Requests", reset},
		{"tokens", "X-Ratelimit-Remaining-Tokens", "X-Ratelimit-Reset-Tokens", "X-Ratelimit-Limit-Tokens", reset},
	}}
	anthropic = quotaGroup{own: true, units: []unitFields{
		{"", "Anthropic-Ratelimit-Requests-Remaining", "Anthropic-Ratelimit-Requests-Reset", "Anthropic-Ratelimit-Requests-Limit", instant},
		{"tokens", "Anthropic-Ratelimit-Tokens-Remaining", "Anthropic-Ratelimit-Tokens-Reset", "Anthropic-Ratelimit-Tokens-Limit", instant},
		{"input-tokens", "Anthropic-Ratelimit-Input-Tokens-Remaining", "Anthropic-Ratelimit-Input-Tokens-Reset", "Anthropic-Ratelimit-Input-Tokens-Limit", instant},
		{"output-tokens", "Anthropic-Ratelimit-Output-Tokens-Remaining", "Anthropic-Ratelimit-Output-Tokens-Reset", "Anthropic-Ratelimit-Output-Tokens-Limit", instant},
	}}
)

// quotaGroups are all fields that name quotas. The first group that is there and well-formed
// counts. Some servers send X-Rate-Limit-Reset in seconds and others in milliseconds, so only a
// Unix time is unambiguous there. X and Okta send a Unix time.
//
// The sources were read on 2026-11-22 and 2026-11-23:
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
var quotaGroups = [...]quotaGroup{
	openAI,
	anthropic,
	{own: true, units: []unitFields{
		{"", "X-Ratelimit-Requests-Remaining", "X-Ratelimit-Requests-Reset", "X-Ratelimit-Requests-Limit", instant},
		{"complexity", "X-Ratelimit-Complexity-Remaining", "X-Ratelimit-Complexity-Reset", "X-Ratelimit-Complexity-Limit", instant},
	}},
	{own: true, units: []unitFields{
		{"", "X-Hubspot-Ratelimit-Remaining", "X-Hubspot-Ratelimit-Interval-Milliseconds", "X-Hubspot-Ratelimit-Max", millis},
	}},
	{own: true, units: []unitFields{{remaining: "X-Shopify-Shop-Api-Call-Limit"}}, read: shopifyQuota},
	{units: []unitFields{{remaining: "Ratelimit"}}, read: draftQuotas},
	{units: []unitFields{{"", "Ratelimit-Remaining", "Ratelimit-Reset", "Ratelimit-Limit", reset}}},
	{units: []unitFields{{"", "X-Ratelimit-Remaining", "X-Ratelimit-Reset", "X-Ratelimit-Limit", reset}}},
	{units: []unitFields{{"", "X-Rate-Limit-Remaining", "X-Rate-Limit-Reset", "X-Rate-Limit-Limit", instant}}},
}

// quotaLeads has the groups as bits, by the fields without which they name no quota. quotaLengths
// has the lengths of these fields.
var quotaLeads, quotaLengths = func() (groups map[string]uint, lengths uint64) {
	groups = make(map[string]uint)
	for i, g := range quotaGroups {
		for _, f := range g.units {
			groups[f.remaining] |= 1 << i
			lengths |= 1 << len(f.remaining)
		}
	}
	return groups, lengths
}()

// quotaGroupsIn returns the groups that may name a quota in a header, as bits. It looks at each
// field once, because most responses have no quota.
func quotaGroupsIn(h http.Header) (found uint) {
	for name := range h {
		if quotaLengths>>len(name)&1 != 0 {
			found |= quotaLeads[name]
		}
	}
	return found
}

// readQuotas returns the quotas of the first group that is well-formed. Each of them has both
// Remaining and Reset. own says that the groups of providers that name units are read, too.
func readQuotas(h http.Header, own bool) []Quota {
	found := quotaGroupsIn(h)
	if found == 0 || age(h) > 0 {
		return nil
	}
	for i := range quotaGroups {
		if g := &quotaGroups[i]; found>>i&1 != 0 && (own || !g.own) {
			if all := g.quotas(h); len(all) > 0 {
				return all
			}
		}
	}
	return nil
}

// quotas returns the quotas of the group. A quota whose fields are malformed is left out.
func (g *quotaGroup) quotas(h http.Header) (all []Quota) {
	if g.read != nil {
		return g.read(h)
	}
	for i := range g.units {
		q, ok := g.units[i].read(h)
		if !ok || g.own && q.Reset <= 0 {
			continue
		}
		if !g.own && h.Get("X-Ratelimit-Resource") == "graphql" {
			q.Unit = "points"
		}
		all = append(all, q)
	}
	return all
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
	used, size, _ := strings.Cut(trim(field[0]), "/")
	n, _, valid := number(used)
	limit, _, known := number(size)
	if !valid || !known || n <= 0 || n > limit {
		return nil
	}
	return []Quota{{Remaining: limit - n, Limit: limit, Reset: time.Duration(float64(n) / float64(limit) * float64(shopifyEmpty))}}
}

const (
	// fieldLimit is how many bytes of a field are read, all its lines together.
	// An honest server needs a hundredth of that.
	fieldLimit = 4 << 10
	// structuredLimit is the same for a structured field. The parser allocates for each member and
	// each parameter.
	structuredLimit = 1 << 10
)

// parseList reads a list (RFC 9651 §4.2.1). The lines of a field are one list.
func parseList(lines []string) (httpsfv.List, bool) {
	if !within(structuredLimit, lines) {
		return nil, false
	}
	list, err := httpsfv.UnmarshalList(lines)
	return list, err == nil
}

// named returns a member of a list that has the name of a quota: a string or a token.
func named(m httpsfv.Member) (item httpsfv.Item, name string, ok bool) {
	item, _ = m.(httpsfv.Item)
	switch v := item.Value.(type) {
	case string:
		return item, v, true
	case httpsfv.Token:
		return item, string(v), true
	}
	return item, "", false
}

// param returns the parameter of an item that has the given key, if it is a
// whole number and not negative. The last parameter of a key counts
// (RFC 9651 §4.2.3.2).
func param(item httpsfv.Item, key string) (int64, bool) {
	v, _ := item.Params.Get(key)
	return natural(v)
}

// entry returns the item of a dictionary that has the given key, if it is a
// whole number and not negative.
func entry(dict *httpsfv.Dictionary, key string) (int64, bool) {
	m, _ := dict.Get(key)
	item, _ := m.(httpsfv.Item)
	return natural(item.Value)
}

// natural converts the value of an item. ok is false if the value is not a whole
// number or is negative.
func natural(value any) (n int64, ok bool) {
	n, ok = value.(int64)
	return max(n, 0), ok && n >= 0
}
