package profile

import (
	"encoding/json"
	"net/http"
	"strings"
	"time"

	"github.com/aplomb-go/aplomb/classify"
	"github.com/aplomb-go/aplomb/internal/chain"
	"github.com/aplomb-go/aplomb/internal/field"
	"github.com/aplomb-go/aplomb/internal/peek"
	"github.com/aplomb-go/aplomb/policy"
)

// Discord returns a rule for discord.com.
//
//   - A refusal has status 429. Retry-After is in whole seconds. If it is missing, the wait
//     is retry_after in the JSON body or X-RateLimit-Reset-After, in seconds with decimals.
//   - Every other 4xx is final. Discord blocks clients that get too many responses of status
//     401, 403 and 429.
//   - A POST is sent again after a 429. After a 5xx or a lost response it is not sent again,
//     because the message may have been posted.
//   - Requests share a scope and its waits if they have the same token and the same route:
//     "Limits are applied to individual bots and users both on a per-route basis and
//     globally." A route is the
//     method and the path, without the version of the API. Of the ids in the path only
//     those of channels, guilds and webhooks count. If Discord counts several routes
//     together (X-RateLimit-Bucket), each of them learns of the limit by a response of its
//     own. The same holds for the global limit.
//   - The rate is 50 requests per second, which is the global limit. QuotaPacing is on and reads
//     X-RateLimit-Remaining and X-RateLimit-Reset, so that a 429 becomes rare.
//
// The sources were read on 2026-11-22. https://docs.discord.com/developers/topics/rate-limits and
// https://support-dev.discord.com/hc/en-us/articles/6223003921559-My-Bot-is-Being-Rate-Limited.
//
// To assign to a field, such as Classify, replaces what the profile knows.
// policy.Rule{…}.Or(profile.Discord()) adds to it.
func Discord() policy.Rule {
	return policy.Rule{
		Classify:        judge(),
		RetryAfter:      chain.FirstRetryAfter(discordRetryAfter, classify.RetryAfter),
		ShareRetryAfter: policy.On,
		ThrottleKey:     func(req *http.Request) string { return withToken(req, req.Method+" "+discordRoute(urlOf(req).Path)) },
		RateLimit:       policy.RateLimit{PerSecond: 50, Burst: 1},
		QuotaPacing:     policy.On,
	}
}

// discordRetryAfter reads Retry-After, or else retry_after, in seconds with or without decimals,
// from the JSON object in the body of a 429.
func discordRetryAfter(o classify.Outcome) (time.Duration, bool) {
	if wait, ok := field.RetryAfter(o.Response); ok {
		return wait, true
	}
	if o.Response == nil || o.Response.StatusCode != http.StatusTooManyRequests {
		return 0, false
	}
	var answer struct {
		RetryAfter json.RawMessage `json:"retry_after"`
	}
	if json.Unmarshal(o.Peek(peek.Limit), &answer) != nil {
		return 0, false
	}
	return field.Decimal(string(answer.RetryAfter), time.Second)
}

// discordRoute returns a path without the version, and with a colon for each id that
// does not have limits of its own. Behind "reactions" comes an emoji, which does not
// count either.
func discordRoute(path string) string {
	parts := strings.Split(strings.Trim(path, "/"), "/")
	if parts[0] == "api" {
		parts = parts[1:]
	}
	if len(parts) > 0 && len(parts[0]) > 1 && parts[0][0] == 'v' && isID(parts[0][1:]) {
		parts = parts[1:]
	}
	for i, part := range parts {
		major := i == 1 && (parts[0] == "channels" || parts[0] == "guilds" || parts[0] == "webhooks")
		switch {
		case part == "reactions":
			return strings.Join(parts[:i+1], "/")
		case isID(part) && !major:
			parts[i] = ":"
		}
	}
	return strings.Join(parts, "/")
}

// isID reports whether a part of a path is a number.
func isID(s string) bool { return s != "" && strings.Trim(s, "0123456789") == "" }
