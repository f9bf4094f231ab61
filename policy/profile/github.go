package profile

import (
	"net/http"
	"strings"
	"time"

	"github.com/aplomb-go/aplomb/classify"
	"github.com/aplomb-go/aplomb/policy"
)

// GitHub returns a rule for api.github.com and for GitHub Enterprise.
//
//   - Signals: GitHub reports an exceeded limit by status 403 or 429. Retry-After is
//     in seconds. Without it, x-ratelimit-remaining: 0 means to wait until
//     x-ratelimit-reset, which is a Unix time in seconds. If the response names no
//     wait, it is one minute, the shortest that GitHub asks for.
//   - Final: any other 403, such as missing permissions.
//   - POST is sent again after an exceeded limit, and not after a 5xx.
//   - Scope: the token, and the quota of the endpoint by its path. The quotas are
//     those of search, of code search, of GraphQL, and of all the rest. A secondary
//     limit holds only the scope in which it was met.
//   - Limits: waits of up to 2 minutes, because many are a minute and some seconds.
//     The quota of an hour is refilled too late for most callers, so they get the
//     response at once, and further requests of the scope fail without being sent.
//
// Sources, read on 2026-11-22:
// https://docs.github.com/rest/using-the-rest-api/rate-limits-for-the-rest-api and
// https://docs.github.com/rest/guides/best-practices-for-using-the-rest-api.
func GitHub() policy.Rule {
	return policy.Rule{
		Classify:   judge(),
		Hint:       classify.FirstHint(classify.DefaultHint, githubMinute),
		Scope:      func(req *http.Request) string { return withToken(req, githubQuota(req.URL.Path)) },
		RetryAfter: policy.RetryAfter{Max: 2 * time.Minute, Beyond: policy.BeyondStop},
	}
}

// githubMinute returns the wait after an exceeded limit that names none.
func githubMinute(o classify.Outcome) (time.Duration, bool) {
	limited := o.Response != nil && (o.Response.StatusCode == http.StatusTooManyRequests || classify.Signals(o) == classify.Refused)
	if !limited || o.Response.Header.Get("X-Github-Request-Id") == "" {
		return 0, false
	}
	return time.Minute, true
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
