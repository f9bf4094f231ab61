package profile_test

import (
	"fmt"
	"strings"
	"time"

	"github.com/aplomb-go/aplomb/policy/profile"
)

// The responses below have the shape of recorded responses of the providers. The
// names in them are made up.

const (
	githubID     = "X-Github-Request-Id: C0DE:1A2B\n"
	githubDenied = "403 Forbidden\nX-Github-Request-Id: C0DE:1A2B\nX-Ratelimit-Limit: 5000\nX-Ratelimit-Remaining: 4999\nX-Ratelimit-Reset: {unix+1800}\n\n" +
		`{"message": "Resource not accessible by personal access token", "status": "403"}`
	githubSecondary = "403 Forbidden\nX-Github-Request-Id: C0DE:1A2B\nX-Ratelimit-Remaining: 4000\nX-Ratelimit-Reset: {unix+1800}\n\n" +
		`{"message": "You have exceeded a secondary rate limit. Please wait a few minutes before you try again."}`
)

// githubPrimary is the response when the quota is used up.
func githubPrimary(seconds int) string {
	return fmt.Sprintf("403 Forbidden\nX-Github-Request-Id: C0DE:1A2B\nX-Ratelimit-Limit: 30\nX-Ratelimit-Remaining: 0\nX-Ratelimit-Reset: {unix+%d}\n\n"+
		`{"message": "API rate limit exceeded for user ID 1.", "documentation_url": "https://docs.github.com/rest"}`, seconds)
}

func tokens(a, b string) [2]string {
	return [2]string{"GET /\nAuthorization: " + a, "GET /\nAuthorization: " + b}
}

const (
	awsThrottled = "400 Bad Request\nX-Amzn-Requestid: 1\nContent-Type: application/x-amz-json-1.0\n\n" +
		`{"__type": "com.amazonaws.dynamodb.v20120810#ProvisionedThroughputExceededException", "message": "The level of configured provisioned throughput was exceeded."}`
	s3SlowDown = "503 Slow Down\nX-Amz-Request-Id: 1\nX-Amz-Id-2: abc\nServer: AmazonS3\n\n" +
		`<?xml version="1.0"?><Error><Code>SlowDown</Code><Message>Please reduce your request rate.</Message></Error>`
	sigV4 = "AWS4-HMAC-SHA256 Credential=%s/20261122/eu-north-1/dynamodb/aws4_request, SignedHeaders=host, Signature=%s"
)

// openAILimit is a 429 about a limit that waiting does not lift.
func openAILimit(kind, code string) string {
	return "429 Too Many Requests\nX-Request-Id: req_1\n\n" + fmt.Sprintf(
		`{"error": {"message": "You exceeded your current quota, please check your plan and billing details.", "type": %q, "param": null, "code": %q}}`, kind, code)
}

const pullLimit = `{"errors":[{"code":"TOOMANYREQUESTS","message":"You have reached your pull rate limit. You may increase the limit by authenticating and upgrading: https://www.docker.com/increase-rate-limit"}]}`

// googleReason is a 403 in the form of the older JSON APIs.
func googleReason(reason string) string {
	return "403 Forbidden\n\n" + fmt.Sprintf(`{"error": {"errors": [{"domain": "usageLimits", "reason": %q, "message": "Limit"}], "code": 403}}`, reason)
}

// googleError is an error with details. Without a delay it has no RetryInfo.
func googleError(code int, status, quota, delay string) string {
	details := fmt.Sprintf(`{"@type": "type.googleapis.com/google.rpc.QuotaFailure", "violations": [{"quotaId": %q}]}`, quota)
	if delay != "" {
		details += fmt.Sprintf(`, {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": %q}`, delay)
	}
	return fmt.Sprintf("%d Error\nServer: ESF\n\n"+`{"error": {"code": %[1]d, "message": "Error", "status": %[2]q, "details": [%[3]s]}}`, code, status, details)
}

var providers = map[string]provider{
	"github": {
		rule: profile.GitHub,
		refused: map[string]string{
			"primary limit":     githubPrimary(20),
			"secondary limit":   githubSecondary,
			"retry-after":       "403 Forbidden\nX-Github-Request-Id: C0DE:1A2B\nRetry-After: 30\n\n{}",
			"too many requests": "429 Too Many Requests\nX-Github-Request-Id: C0DE:1A2B\nRetry-After: 30\n\n{}",

			// A proxy, such as that of an enterprise, may drop the ID.
			"primary limit, no ID":   strings.Replace(githubPrimary(20), githubID, "", 1),
			"secondary limit, no ID": strings.Replace(githubSecondary, githubID, "", 1),
			"retry-after, no ID":     "403 Forbidden\nRetry-After: 3\n\n" + `{"message": "You have exceeded a secondary rate limit."}`,
		},
		ambiguous: map[string]string{"bad gateway": "502 Bad Gateway\nX-Github-Request-Id: C0DE:1A2B\n\n{\"message\": \"Server Error\"}"},
		final: map[string]string{
			"no permission":        githubDenied,
			"no permission, no ID": strings.Replace(githubDenied, githubID, "", 1),
			"validation":           "422 Unprocessable Entity\nX-Github-Request-Id: C0DE:1A2B\n\n{\"message\": \"Validation Failed\"}",
		},
		waits: map[string]wait{
			"seconds":         {"403 Forbidden\nX-Github-Request-Id: C0DE:1A2B\nRetry-After: 45\n\n{}", 45 * time.Second},
			"epoch seconds":   {githubPrimary(61), 61 * time.Second},
			"a minute":        {githubSecondary, time.Minute},
			"a minute, no ID": {strings.Replace(githubSecondary, githubID, "", 1), time.Minute},
			"seconds, no ID":  {"403 Forbidden\nRetry-After: 3\n\n{}", 3 * time.Second},
			"a minute, 429":   {"429 Too Many Requests\nX-Github-Request-Id: C0DE:1A2B\n\n{}", time.Minute},
		},
		limit:    githubPrimary(20),
		together: map[string][2]string{"token": tokens("Bearer a", "Bearer a"), "search": {"GET /search/issues", "GET /search/commits"}},
		apart: map[string][2]string{
			"token":      tokens("Bearer a", "Bearer b"),
			"search":     {"GET /search/issues", "GET /repos/a/b"},
			"code":       {"GET /search/issues", "GET /search/code"},
			"graphql":    {"POST /graphql", "GET /repos/a/b"},
			"enterprise": {"POST /api/graphql", "GET /api/v3/repos/a/b"},
		},
	},
	"aws": {
		rule: profile.AWS,
		refused: map[string]string{
			"json": awsThrottled,
			"cbor": "400 Bad Request\nSmithy-Protocol: rpc-v2-cbor\nContent-Type: application/cbor\n\n" +
				"\xbf\x67message\x69Too fast.\x66__type\x78\x2ecom.amazonaws.example#TooManyRequestsException\xff",
			"header":         "400 Bad Request\nX-Amzn-Errortype: ThrottlingException:http://internal.amazon.com/coral/\n\n{}",
			"query":          "400 Bad Request\n\n<ErrorResponse><Error><Type>Sender</Type><Code>Throttling</Code></Error></ErrorResponse>",
			"ec2":            "503 Service Unavailable\n\n<Response><Errors><Error><Code>RequestLimitExceeded</Code></Error></Errors></Response>",
			"s3 slow down":   s3SlowDown,
			"s3, no code":    "503 Service Unavailable\nServer: AmazonS3\n\n",
			"429":            "429 Too Many Requests\nX-Amzn-Errortype: TooManyRequestsException\n\n{}",
			"503 and a wait": "503 Service Unavailable\nRetry-After: 1\n\n",
		},
		ambiguous: map[string]string{
			"503":      "503 Service Unavailable\n\n{\"message\": \"Service Unavailable\"}",
			"internal": "500 Internal Server Error\nServer: AmazonS3\nX-Amz-Id-2: abc\n\n<Error><Code>InternalError</Code></Error>",
			"timeout":  "400 Bad Request\nServer: AmazonS3\n\n<Error><Code>RequestTimeout</Code></Error>",
		},
		final: map[string]string{
			"validation": "400 Bad Request\nX-Amzn-Errortype: ValidationException\n\n{\"message\": \"ThrottlingException\"}",
			"quota":      "429 Too Many Requests\nX-Amzn-Errortype: ServiceQuotaExceededException\n\n{}",
			"odd body":   "400 Bad Request\n\n{\"__type\": 5",
		},
		waits: map[string]wait{
			"milliseconds": {"503 Service Unavailable\nX-Amz-Retry-After: 1500\n\n", 1500 * time.Millisecond},
			"seconds":      {"429 Too Many Requests\nRetry-After: 7\n\n{}", 7 * time.Second},
		},
		limit:    "429 Too Many Requests\nX-Amz-Retry-After: 20000\n\n{}",
		together: map[string][2]string{"access key": tokens(fmt.Sprintf(sigV4, "AKIA1", "aa"), fmt.Sprintf(sigV4, "AKIA1", "bb"))},
		apart:    map[string][2]string{"access key": tokens(fmt.Sprintf(sigV4, "AKIA1", "aa"), fmt.Sprintf(sigV4, "AKIA2", "aa"))},
	},
	"openai": {
		rule: profile.OpenAI,
		path: "/v1/responses",
		refused: map[string]string{
			"rate limit": "429 Too Many Requests\nRetry-After: 2\nX-Ratelimit-Remaining-Requests: 0\n\n" +
				`{"error": {"message": "Rate limit reached for requests", "type": "requests", "code": "rate_limit_exceeded"}}`,
			"slow down":      "503 Service Unavailable\n\n" + `{"error": {"message": "Slow down", "type": "service_unavailable_error", "code": "slow_down"}}`,
			"overloaded":     "503 Service Unavailable\nX-Should-Retry: true\n\n" + `{"error": {"message": "The engine is currently overloaded, please try again later", "type": "server_error"}}`,
			"429 with a yes": "429 Too Many Requests\nX-Should-Retry: true\n\n{}",
		},
		ambiguous: map[string]string{
			"server error":           "500 Internal Server Error\n\n" + `{"error": {"message": "The server had an error", "type": "server_error"}}`,
			"server error and a yes": "500 Internal Server Error\nX-Should-Retry: true\n\n{}",
			"bad gateway":            "502 Bad Gateway\nServer: cloudflare\n\n<html>",
		},
		final: map[string]string{
			"quota":        openAILimit("insufficient_quota", "insufficient_quota"),
			"credit":       openAILimit("billing", "credit_balance_exhausted"),
			"organization": openAILimit("billing", "organization_spend_limit_exceeded"),
			"project":      openAILimit("billing", "project_spend_limit_exceeded"),
			"usage":        openAILimit("billing", "organization_usage_limit_exceeded"),
			"a no":         "429 Too Many Requests\nX-Should-Retry: false\nRetry-After: 1\n\n{}",
			"too large for the limit": "429 Too Many Requests\n\n" +
				`{"error": {"message": "Request too large for gpt-4 on tokens per min (TPM): Limit 10000, Requested 12000.", "type": "tokens", "code": "rate_limit_exceeded"}}`,
			"a no and a 503": "503 Service Unavailable\nX-Should-Retry: false\n\n" + `{"error": {"code": "slow_down"}}`,
			"bad request":    "400 Bad Request\n\n{}",
		},
		waits: map[string]wait{
			"milliseconds": {"429 Too Many Requests\nRetry-After-Ms: 2500\nRetry-After: 3\n\n{}", 2500 * time.Millisecond},
			"seconds":      {"429 Too Many Requests\nRetry-After: 21\n\n{}", 21 * time.Second},
			"durations": {"429 Too Many Requests\nX-Ratelimit-Remaining-Requests: 0\nX-Ratelimit-Reset-Requests: 8.64s\n" +
				"X-Ratelimit-Remaining-Tokens: 0\nX-Ratelimit-Reset-Tokens: 59s\n\n{}", 59 * time.Second},
			"one duration": {"429 Too Many Requests\nX-Ratelimit-Remaining-Requests: 0\nX-Ratelimit-Reset-Requests: 350ms\n" +
				"X-Ratelimit-Remaining-Tokens: 10\nX-Ratelimit-Reset-Tokens: 6m0s\n\n{}", 350 * time.Millisecond},
		},
		together: map[string][2]string{"key": tokens("Bearer sk-a", "Bearer sk-a")},
		apart:    map[string][2]string{"key": tokens("Bearer sk-a", "Bearer sk-b")},
	},
	"azure": {
		rule: profile.Azure,
		refused: map[string]string{
			"resource manager": "429 Too Many Requests\nRetry-After: 17\nX-Ms-Ratelimit-Remaining-Subscription-Writes: 0\n\n" +
				`{"error": {"code": "SubscriptionRequestsThrottled", "message": "Number of requests for subscription exceeded the limit."}}`,
			"storage":       "503 Service Unavailable\nX-Ms-Error-Code: ServerBusy\n\n",
			"storage, body": "503 Service Unavailable\n\n<?xml version=\"1.0\"?><Error><Code>ServerBusy</Code><Message>The server is busy.</Message></Error>",
			"cosmos write":  "449 Retry With\nX-Ms-Substatus: 5352\n\n{\"code\": \"449\"}",
		},
		ambiguous: map[string]string{
			"storage timeout": "500 Internal Server Error\nX-Ms-Error-Code: OperationTimedOut\n\n",
			"unavailable":     "503 Service Unavailable\n\n<html>",
		},
		final: map[string]string{
			"quota":         "409 Conflict\nX-Ms-Error-Code: QuotaExceeded\n\n{\"error\": {\"code\": \"QuotaExceeded\"}}",
			"paid quota":    "429 Too Many Requests\n\n{\"error\": {\"code\": \"insufficient_quota\"}}",
			"not allowed":   "403 Forbidden\nX-Ms-Error-Code: AuthorizationFailure\n\n",
			"being created": "409 Conflict\nX-Ms-Error-Code: AccountBeingCreated\n\n",
		},
		waits: map[string]wait{
			"milliseconds, first": {"429 Too Many Requests\nRetry-After-Ms: 1200\nX-Ms-Retry-After-Ms: 5000\nRetry-After: 9\n\n", 1200 * time.Millisecond},
			"milliseconds":        {"429 Too Many Requests\nX-Ms-Retry-After-Ms: 2500\nRetry-After: 3\n\n", 2500 * time.Millisecond},
			"seconds":             {"429 Too Many Requests\nRetry-After: 12\n\n", 12 * time.Second},
			"date":                {"429 Too Many Requests\nDate: Sat, 01 Jan 2000 00:00:00 GMT\nRetry-After: Sat, 01 Jan 2000 00:00:30 GMT\n\n", 30 * time.Second},
		},
		together: map[string][2]string{
			"token":      tokens("Bearer a", "Bearer a"),
			"shared key": tokens("SharedKey account:aa", "SharedKey account:bb"),
		},
		apart: map[string][2]string{
			"token":      tokens("Bearer a", "Bearer b"),
			"shared key": tokens("SharedKey account:aa", "SharedKey other:aa"),
		},
	},
	"google_cloud": {
		rule: profile.GoogleCloud,
		path: "/v1/projects",
		refused: map[string]string{
			"429":              googleError(429, "RESOURCE_EXHAUSTED", "RATE_LIMIT_EXCEEDED", ""),
			"403, rate":        googleReason("rateLimitExceeded"),
			"403, user":        googleReason("userRateLimitExceeded"),
			"503 and a wait":   googleError(503, "UNAVAILABLE", "", "1s"),
			"503, retry-after": "503 Service Unavailable\nRetry-After: 1\n\n",
		},
		ambiguous: map[string]string{
			"unavailable": googleError(503, "UNAVAILABLE", "", ""),
			"internal":    googleError(500, "INTERNAL", "", ""),
		},
		final: map[string]string{
			"403":          googleReason("forbidden"),
			"403, day":     googleReason("dailyLimitExceeded"),
			"403, quota":   googleReason("quotaExceeded"),
			"429, day":     "429 Too Many Requests\n\n" + `{"error": {"errors": [{"reason": "dailyLimitExceeded"}], "code": 429}}`,
			"gemini, day":  googleError(429, "RESOURCE_EXHAUSTED", "GenerateRequestsPerDayPerProjectPerModel-FreeTier", "20.2s"),
			"precondition": "412 Precondition Failed\n\n{}",
		},
		waits: map[string]wait{
			"retryDelay":  {googleError(429, "RESOURCE_EXHAUSTED", "GenerateRequestsPerMinutePerProjectPerModel", "20.25s"), 20250 * time.Millisecond},
			"with a 503":  {googleError(503, "UNAVAILABLE", "", "3.5s"), 3500 * time.Millisecond},
			"retry-after": {"429 Too Many Requests\nRetry-After: 30\n\n{}", 30 * time.Second},
		},
		together: map[string][2]string{"token": tokens("Bearer a", "Bearer a")},
		apart: map[string][2]string{
			"token": tokens("Bearer a", "Bearer b"),
			"key":   {"GET /\nX-Goog-Api-Key: a", "GET /\nX-Goog-Api-Key: b"},
		},
	},
	"anthropic": {
		rule: profile.Anthropic,
		path: "/v1/messages",
		refused: map[string]string{
			"rate limit": "429 Too Many Requests\nRetry-After: 3\nRequest-Id: req_1\n\n" +
				`{"type": "error", "error": {"type": "rate_limit_error", "message": "This request would exceed your organization's rate limit"}}`,
			"overloaded": "529 Overloaded\nX-Should-Retry: true\n\n" + `{"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}`,
		},
		ambiguous: map[string]string{
			"internal":           "500 Internal Server Error\n\n" + `{"type": "error", "error": {"type": "api_error", "message": "Internal server error"}}`,
			"internal and a yes": "500 Internal Server Error\nX-Should-Retry: true\n\n{}",
		},
		final: map[string]string{
			"spend limit": "429 Too Many Requests\n\n" +
				`{"type": "error", "error": {"type": "rate_limit_error", "details": {"error_code": "enforced_spend_limit_reached"}}}`,
			"a no":     "529 Overloaded\nX-Should-Retry: false\n\n{}",
			"too long": "413 Request Entity Too Large\n\n" + `{"type": "error", "error": {"type": "request_too_large"}}`,
		},
		waits: map[string]wait{
			"seconds": {"429 Too Many Requests\nRetry-After: 40\nAnthropic-Ratelimit-Requests-Remaining: 0\nAnthropic-Ratelimit-Requests-Reset: {instant+5}\n\n{}", 40 * time.Second},
			"instants": {"429 Too Many Requests\nAnthropic-Ratelimit-Requests-Remaining: 3\nAnthropic-Ratelimit-Requests-Reset: {instant+55}\n" +
				"Anthropic-Ratelimit-Input-Tokens-Remaining: 0\nAnthropic-Ratelimit-Input-Tokens-Reset: {instant+33}\n\n{}", 33 * time.Second},
			"overloaded": {"529 Overloaded\nRetry-After: 8\n\n{}", 8 * time.Second},
		},
		together: map[string][2]string{"key": {"GET /\nX-Api-Key: a", "GET /\nX-Api-Key: a"}},
		apart:    map[string][2]string{"key": {"GET /\nX-Api-Key: a", "GET /\nX-Api-Key: b"}},
	},
	"stripe": {
		rule: profile.Stripe,
		path: "/v1/charges",
		refused: map[string]string{
			"rate limit": "429 Too Many Requests\nStripe-Should-Retry: true\nRequest-Id: req_1\n\n" +
				`{"error": {"type": "invalid_request_error", "code": "rate_limit", "message": "Too many requests"}}`,
			"lock": "429 Too Many Requests\n\n" + `{"error": {"type": "invalid_request_error", "code": "lock_timeout"}}`,
		},
		ambiguous: map[string]string{
			"same key":    "409 Conflict\n\n" + `{"error": {"type": "idempotency_error"}}`,
			"unavailable": "503 Service Unavailable\n\n{}",
			"a yes":       "500 Internal Server Error\nStripe-Should-Retry: true\n\n{}",
		},
		final: map[string]string{
			"a no":     "503 Service Unavailable\nStripe-Should-Retry: false\n\n{}",
			"a 409":    "409 Conflict\nStripe-Should-Retry: false\n\n{}",
			"declined": "402 Payment Required\n\n" + `{"error": {"type": "card_error", "code": "card_declined"}}`,
		},
		waits:    map[string]wait{"seconds": {"429 Too Many Requests\nRetry-After: 4\n\n{}", 4 * time.Second}},
		together: map[string][2]string{"key": tokens("Bearer sk_a", "Bearer sk_a")},
		apart: map[string][2]string{
			"key":     tokens("Bearer sk_a", "Bearer sk_b"),
			"account": {"GET /\nStripe-Account: acct_1", "GET /\nStripe-Account: acct_2"},
			"context": {"GET /\nStripe-Context: acct_1", "GET /\nStripe-Context: acct_2"},
		},
	},
	"slack": {
		rule:      profile.Slack,
		path:      "/api/chat.postMessage",
		refused:   map[string]string{"rate limit": "429 Too Many Requests\nRetry-After: 1\n\n" + `{"ok": false, "error": "ratelimited"}`},
		ambiguous: map[string]string{"unavailable": "503 Service Unavailable\n\nupstream connect error"},
		final: map[string]string{
			"no service":  "404 Not Found\n\nno_service",
			"not allowed": "403 Forbidden\n\naction_prohibited",
		},
		waits:    map[string]wait{"seconds": {"429 Too Many Requests\nRetry-After: 30\n\n" + `{"ok": false, "error": "ratelimited"}`, 30 * time.Second}},
		together: map[string][2]string{"method": {"POST /api/chat.postMessage\nAuthorization: Bearer xoxb-1", "POST /api/chat.postMessage\nAuthorization: Bearer xoxb-1"}},
		apart: map[string][2]string{
			"method":    {"POST /api/chat.postMessage", "POST /api/users.list"},
			"workspace": tokens("Bearer xoxb-1", "Bearer xoxb-2"),
			"webhook":   {"POST /services/T1/B1/a", "POST /services/T1/B2/b"},
		},
	},
	"discord": {
		rule: profile.Discord,
		path: "/api/v10/channels/1/messages",
		refused: map[string]string{
			"route": "429 Too Many Requests\nRetry-After: 1\nX-Ratelimit-Limit: 5\nX-Ratelimit-Remaining: 0\nX-Ratelimit-Reset-After: 0.57\nX-Ratelimit-Bucket: abcd\nX-Ratelimit-Scope: user\n\n" +
				`{"message": "You are being rate limited.", "retry_after": 0.57, "global": false}`,
			"global": "429 Too Many Requests\nRetry-After: 1\nX-Ratelimit-Global: true\nX-Ratelimit-Scope: global\n\n" +
				`{"message": "You are being rate limited.", "retry_after": 0.9, "global": true}`,
		},
		ambiguous: map[string]string{"bad gateway": "502 Bad Gateway\nServer: cloudflare\n\n<html>"},
		final: map[string]string{
			"not allowed": "403 Forbidden\n\n" + `{"message": "Missing Access", "code": 50001}`,
			"token":       "401 Unauthorized\n\n" + `{"message": "401: Unauthorized", "code": 0}`,
		},
		waits: map[string]wait{
			"seconds":     {"429 Too Many Requests\nRetry-After: 1\nX-Ratelimit-Remaining: 0\nX-Ratelimit-Reset-After: 0.15\n\n" + `{"retry_after": 0.15}`, time.Second},
			"body":        {"429 Too Many Requests\n\n" + `{"message": "You are being rate limited.", "retry_after": 4.57, "global": true}`, 4570 * time.Millisecond},
			"reset-after": {"429 Too Many Requests\nX-Ratelimit-Remaining: 0\nX-Ratelimit-Reset-After: 7.25\n\n", 7250 * time.Millisecond},
		},
		together: map[string][2]string{
			"messages":  {"DELETE /api/v10/channels/1/messages/8", "DELETE /api/v10/channels/1/messages/9"},
			"versions":  {"GET /api/v10/channels/1", "GET /api/channels/1"},
			"reactions": {"PUT /api/v10/channels/1/messages/8/reactions/%F0%9F%8D%95/@me", "PUT /api/v10/channels/1/messages/9/reactions/x:7/@me"},
		},
		apart: map[string][2]string{
			"channel": {"GET /api/v10/channels/1/messages", "GET /api/v10/channels/2/messages"},
			"guild":   {"GET /api/v10/guilds/1/members", "GET /api/v10/guilds/2/members"},
			"webhook": {"POST /api/webhooks/1/a", "POST /api/webhooks/1/b"},
			"method":  {"GET /api/v10/channels/1/messages", "POST /api/v10/channels/1/messages"},
			"token":   tokens("Bot a", "Bot b"),
		},
	},
	"cloudflare": {
		rule: profile.Cloudflare,
		refused: map[string]string{
			"rate limit":  "429 Too Many Requests\nRetry-After: 3\nRatelimit: \"default\";r=0;t=3\nRatelimit-Policy: \"default\";q=1200;w=300\n\n{\"success\": false, \"errors\": [{\"code\": 10000}]}",
			"server down": "521 Web server is down\nServer: cloudflare\n\n<html>",
			"unreachable": "523 Origin is unreachable\nServer: cloudflare\n\n<html>",
			"handshake":   "525 SSL handshake failed\nServer: cloudflare\n\n<html>",
		},
		ambiguous: map[string]string{
			"unknown":   "520 Web server returned an unknown error\nServer: cloudflare\n\n<html>",
			"timed out": "522 Connection timed out\nServer: cloudflare\n\n<html>",
			"timeout":   "524 A timeout occurred\nServer: cloudflare\n\n<html>",
		},
		final: map[string]string{
			"certificate": "526 Invalid SSL certificate\nServer: cloudflare\n\n<html>",
			"denied":      "403 Forbidden\nServer: cloudflare\n\nerror code: 1020",
		},
		waits: map[string]wait{
			"seconds":   {"429 Too Many Requests\nRetry-After: 30\n\nerror code: 1015", 30 * time.Second},
			"ratelimit": {"429 Too Many Requests\nRatelimit: \"default\";r=0;t=12\n\n{}", 12 * time.Second},
		},
		together: map[string][2]string{"token": tokens("Bearer a", "Bearer a")},
		apart: map[string][2]string{
			"token": tokens("Bearer a", "Bearer b"),
			"key":   {"GET /\nX-Auth-Email: a@example.com\nX-Auth-Key: a", "GET /\nX-Auth-Email: b@example.com\nX-Auth-Key: b"},
		},
	},
	"docker_hub": {
		rule: profile.DockerHub,
		path: "/v2/library/alpine/manifests/latest",
		refused: map[string]string{
			"abuse":                  "429 Too Many Requests\nRetry-After: 2\n\nToo Many Requests",
			"abuse, no wait":         "429 Too Many Requests\n\n<html><body><h1>429 Too Many Requests</h1>",
			"pull limit and its end": "429 Too Many Requests\nRetry-After: {unix+20}\n\n" + pullLimit,
			"unavailable":            "503 Service Unavailable\n\n<html>",
		},
		ambiguous: map[string]string{"bad gateway": "502 Bad Gateway\n\n<html>"},
		final: map[string]string{
			"pull limit":                  "429 Too Many Requests\nDocker-Ratelimit-Source: 192.0.2.1\n\n" + pullLimit,
			"pull limit, unauthenticated": "429 Too Many Requests\n\n" + `{"errors":[{"code":"TOOMANYREQUESTS","message":"You have reached your unauthenticated pull rate limit. https://www.docker.com/increase-rate-limit"}]}`,
			"denied":                      "401 Unauthorized\n\n" + `{"errors":[{"code":"UNAUTHORIZED","message":"authentication required"}]}`,
		},
		waits: map[string]wait{
			"seconds":       {"429 Too Many Requests\nRetry-After: 50\n\nToo Many Requests", 50 * time.Second},
			"epoch seconds": {"429 Too Many Requests\nRetry-After: {unix+25}\n\nToo Many Requests", 25 * time.Second},
		},
		together: map[string][2]string{"tokens of repositories": tokens("Bearer a", "Bearer b")},
		apart:    map[string][2]string{"host": {"GET /v2/", "GET https://other.test/v2/"}},
	},
	"registry": {
		rule: profile.Registry,
		path: "/v2/a/blobs/uploads/",
		refused: map[string]string{
			"too many":          "429 Too Many Requests\n\n" + `{"errors":[{"code":"TOOMANYREQUESTS","message":"retry-after: 1ms, allowed: 44000/minute"}]}`,
			"unavailable":       "503 Service Unavailable\n\n" + `{"errors":[{"code":"UNAVAILABLE","message":"service unavailable"}]}`,
			"unavailable, bare": "503 Service Unavailable\n\n",
		},
		ambiguous: map[string]string{"internal": "500 Internal Server Error\n\n" + `{"errors":[{"code":"UNKNOWN"}]}`},
		final: map[string]string{
			"denied":  "403 Forbidden\n\n" + `{"errors":[{"code":"DENIED"}]}`,
			"unknown": "404 Not Found\n\n" + `{"errors":[{"code":"BLOB_UPLOAD_UNKNOWN"}]}`,
		},
		waits: map[string]wait{
			"seconds":       {"503 Service Unavailable\nRetry-After: 9\n\n", 9 * time.Second},
			"epoch seconds": {"429 Too Many Requests\nRetry-After: {unix+25}\n\n", 25 * time.Second},
		},
		together: map[string][2]string{"tokens of repositories": tokens("Bearer a", "Bearer b")},
		apart:    map[string][2]string{"host": {"GET /v2/", "GET https://other.test/v2/"}},
	},
}
