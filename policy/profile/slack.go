package profile

import (
	"net/http"

	"github.com/aplomb-go/aplomb/policy"
)

// Slack returns a rule for slack.com and hooks.slack.com. Nearly all of Slack's API is
// POST.
//
//   - A refusal has status 429, with Retry-After in seconds.
//   - Every other 4xx is final. So is a response of status 200, even if its body says
//     "ok": false.
//   - A POST is sent again after a 429. After a 5xx or a lost response it is not sent again,
//     because the message may have been posted.
//   - Requests share a scope and its waits if they have the same token and the same path,
//     because limits are "applied on a 'per API method per workspace/team per app' basis".
//     The path of an incoming webhook is its credentials.
//
// The source was read on 2026-11-22. https://docs.slack.dev/apis/web-api/rate-limits.
//
// To assign to a field, such as Classify, replaces what the profile knows.
// policy.Rule{…}.Or(profile.Slack()) adds to it.
func Slack() policy.Rule {
	return policy.Rule{
		Classify:        judge(),
		ShareRetryAfter: policy.On,
		ThrottleKey:     func(req *http.Request) string { return withToken(req, urlOf(req).Path) },
	}
}
