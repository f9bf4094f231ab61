package profile

import (
	"net/http"
	"strings"
	"time"

	"github.com/aplomb-go/aplomb/classify"
	"github.com/aplomb-go/aplomb/internal/chain"
	"github.com/aplomb-go/aplomb/policy"
)

// GitHub returns a rule for api.github.com and for GitHub Enterprise.
//
//   - A refusal has status 429, or 403 with a Retry-After, an x-ratelimit-remaining of 0, or
//     "secondary rate limit" in the first 64 KiB of its body. Retry-After is in seconds. If
//     it is missing and x-ratelimit-remaining is 0, the wait ends at x-ratelimit-reset, a
//     Unix time in seconds. If the response names no wait, the wait is one minute, the
//     shortest that GitHub asks for.
//   - Any other 403 is final. GitHub sends it when a permission is missing, for example.
//   - A POST is sent again after a refusal. It is not sent again after a 5xx.
//   - Requests share a scope if they have the same token and count against the same quota.
//     The path tells the quotas of search, of code search, of GraphQL and of all the rest
//     apart. They share their waits: "If you receive a rate limit error, you should stop
//     making requests temporarily." A secondary limit holds only the scope in which it was met.
//   - MaxRetryAfter is two minutes, because many waits are a minute and some seconds. If
//     the quota of an hour is used up, the wait is longer. Then the caller gets the
//     response at once, and further requests of the scope wait for two minutes.
//
// The sources were read on 2026-11-22.
// https://docs.github.com/rest/using-the-rest-api/rate-limits-for-the-rest-api and
// https://docs.github.com/rest/guides/best-practices-for-using-the-rest-api.
//
// To assign to a field, such as Classify, replaces what the profile knows.
// policy.Rule{…}.Or(profile.GitHub()) adds to it.
func GitHub() policy.Rule {
	return policy.Rule{
		Classify:        judge(githubLimit),
		RetryAfter:      chain.FirstRetryAfter(classify.RetryAfter, githubMinute),
		ShareRetryAfter: policy.On,
		ThrottleKey:     func(req *http.Request) string { return withToken(req, githubQuota(urlOf(req).Path)) },
		MaxRetryAfter:   2 * time.Minute,
	}
}

// githubLimit knows a 403 that means an exceeded limit. classify.Signals wants to see the field
// x-github-request-id, too, because it does not know that the server is GitHub. Proxies drop that
// field.
func githubLimit(o classify.Outcome) classify.Class {
	if o.Response == nil || o.Response.StatusCode != http.StatusForbidden {
		return classify.Unknown
	}
	h := o.Response.Header
	if h.Get("Retry-After") != "" || strings.TrimSpace(h.Get("X-Ratelimit-Remaining")) == "0" {
		return classify.Refused
	}
	return onWords(classify.Refused, http.StatusForbidden, "secondary rate limit")(o)
}

// githubMinute returns the wait after an exceeded limit that names none.
func githubMinute(o classify.Outcome) (time.Duration, bool) {
	limited := o.Response != nil && o.Response.StatusCode == http.StatusTooManyRequests || githubLimit(o) == classify.Refused
	return time.Minute, limited
}

// githubQuota returns the quota that a request to a path counts against. The paths
// of GitHub Enterprise begin with /api/v3, and with /api for GraphQL.
func githubQuota(path string) string {
	path = strings.TrimPrefix(strings.TrimPrefix(path, "/api"), "/v3")
	switch {
	case path == "/graphql":
		return "graphql"
	case path == "/search/code":
		return "code_search"
	case strings.HasPrefix(path, "/search/"):
		return "search"
	}
	return "core"
}
