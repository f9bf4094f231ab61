package profile

import (
	"net/http"

	"github.com/aplomb-go/aplomb/classify"
	"github.com/aplomb-go/aplomb/policy"
)

// Slack returns a rule for slack.com and hooks.slack.com. Nearly all of Slack's API
// is POST.
//
//   - Signals: status 429 with Retry-After, in seconds.
//   - Final: every other 4xx, and a response of status 200, also if its body says
//     "ok": false.
//   - POST is sent again after a 429. It is not sent again after a 5xx or a lost
//     response, because the message may have been posted.
//   - Scope: the token and the path. Slack counts requests per method, workspace and
//     app. The path of an incoming webhook is its credentials.
//
// Source, read on 2026-11-22: https://docs.slack.dev/apis/web-api/rate-limits.
func Slack() policy.Rule {
	return policy.Rule{
		Classify: judge(),
		Hint:     classify.DefaultHint,
		Scope:    func(req *http.Request) string { return withToken(req, req.URL.Path) },
	}
}
