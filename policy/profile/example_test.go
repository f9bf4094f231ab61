package profile_test

import (
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/aplomb-go/aplomb/classify"
	"github.com/aplomb-go/aplomb/policy"
	"github.com/aplomb-go/aplomb/policy/backoff"
	"github.com/aplomb-go/aplomb/policy/profile"
	"github.com/aplomb-go/aplomb/transport"
)

// openAI stands for the server. Its first response is a refusal, and its second says
// that the credit is used up.
type openAI struct{ requests int }

func (s *openAI) RoundTrip(req *http.Request) (*http.Response, error) {
	fmt.Println("->", req.Method, req.URL)
	if err := req.Body.Close(); err != nil {
		return nil, err
	}
	s.requests++
	header, body := http.Header{"Retry-After-Ms": {"20"}}, `{"error": {"code": "rate_limit_exceeded"}}`
	if s.requests > 1 {
		header, body = http.Header{}, `{"error": {"type": "insufficient_quota"}}`
	}
	return &http.Response{
		StatusCode: http.StatusTooManyRequests, Header: header, Request: req, Body: io.NopCloser(strings.NewReader(body)),
	}, nil
}

// Both responses have status 429. The first means "in 20 ms", and the second means
// "never".
func Example() {
	rule := profile.OpenAI()
	rule.MaxAttempts = 4
	rule.Backoff = backoff.Constant(0) // the example has no time
	tr := transport.MustNew(transport.Config{
		Base:  &openAI{},
		Hosts: map[string]policy.Rule{"api.openai.com": rule},
	})
	client := &http.Client{Transport: tr}
	resp, err := client.Post("https://api.openai.com/v1/responses", "application/json", strings.NewReader("{}"))
	if err != nil {
		log.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	fmt.Println(string(body), err)
	// Output:
	// -> POST https://api.openai.com/v1/responses
	// -> POST https://api.openai.com/v1/responses
	// {"error": {"type": "insufficient_quota"}} <nil>
}

// A profile sets only the fields that depend on the provider.
func ExampleDiscord() {
	fmt.Println(profile.Discord())
	// Output:
	// {Classify: func, RetryAfter: func, RateLimit: RateLimit{PerSecond: 50, Burst: 1}, ShareRetryAfter: on, ThrottleKey: func, QuotaPacing: on}
}

// say prints how a rule judges a response to a POST, and the wait that it reads from it.
func say(rule policy.Rule, url string, status int, body string, header ...string) {
	resp := &http.Response{StatusCode: status, Header: http.Header{}, Body: io.NopCloser(strings.NewReader(body))}
	for i := 0; i < len(header); i += 2 {
		resp.Header.Set(header[i], header[i+1])
	}
	resp.Request = httptest.NewRequest(http.MethodPost, url, nil)
	outcome := classify.Outcome{Request: resp.Request, Response: resp}
	rule = rule.Or(policy.Defaults())
	verdict := classify.First(rule.Classify, classify.Default)(outcome)
	wait, _ := rule.RetryAfter(outcome)
	fmt.Println(status, verdict, wait)
}

// GitHub sends a 403 for a limit and for a permission that is missing.
func ExampleGitHub() {
	url := "https://api.github.com/repos/o/r/issues"
	say(profile.GitHub(), url, 403, `{"message": "You have exceeded a secondary rate limit."}`, "X-Github-Request-Id", "C0DE")
	say(profile.GitHub(), url, 403, `{"message": "Resource not accessible by integration"}`, "X-Github-Request-Id", "C0DE")
	// Output:
	// 403 refused 1m0s
	// 403 final 0s
}

// The code of the error counts, and its status may be 400.
func ExampleAWS() {
	url := "https://dynamodb.eu-central-1.amazonaws.com/"
	say(profile.AWS(), url, 400, `{"__type": "ThrottlingException"}`)
	say(profile.AWS(), url, 400, `{"__type": "ValidationException"}`)
	// Output:
	// 400 refused 0s
	// 400 final 0s
}

// A busy server did not act. A paid quota does not come back by waiting.
func ExampleAzure() {
	url := "https://account.blob.core.windows.net/container/blob"
	say(profile.Azure(), url, 503, "", "X-Ms-Error-Code", "ServerBusy")
	say(profile.Azure(), url, 409, "", "X-Ms-Error-Code", "QuotaExceeded")
	// Output:
	// 503 refused 0s
	// 409 final 0s
}

// The quota of a day does not come back in time.
func ExampleGoogleCloud() {
	url := "https://www.googleapis.com/drive/v3/files"
	say(profile.GoogleCloud(), url, 403, `{"error": {"errors": [{"reason": "userRateLimitExceeded"}]}}`)
	say(profile.GoogleCloud(), url, 403, `{"error": {"errors": [{"reason": "dailyLimitExceeded"}]}}`)
	// Output:
	// 403 refused 0s
	// 403 final 0s
}

// After a 500 the response may have been generated and charged. After a 529 it was not.
func ExampleAnthropic() {
	url := "https://api.anthropic.com/v1/messages"
	say(profile.Anthropic(), url, 529, "")
	say(profile.Anthropic(), url, 500, "", "X-Should-Retry", "true")
	// Output:
	// 529 refused 0s
	// 500 ambiguous 0s
}

// Stripe says itself whether to try again.
func ExampleStripe() {
	url := "https://api.stripe.com/v1/charges"
	say(profile.Stripe(), url, 429, "")
	say(profile.Stripe(), url, 402, "", "Stripe-Should-Retry", "false")
	// Output:
	// 429 refused 0s
	// 402 final 0s
}

// After a 500 the message may have been posted.
func ExampleSlack() {
	url := "https://slack.com/api/chat.postMessage"
	say(profile.Slack(), url, 429, "", "Retry-After", "30")
	say(profile.Slack(), url, 500, "")
	// Output:
	// 429 refused 30s
	// 500 ambiguous 0s
}

// With a 521 Cloudflare had no connection to the server behind it. With a 524 the server
// may still be at work.
func ExampleCloudflare() {
	url := "https://www.example.com/orders"
	say(profile.Cloudflare(), url, 521, "")
	say(profile.Cloudflare(), url, 524, "")
	// Output:
	// 521 refused 0s
	// 524 ambiguous 0s
}

// The quota of pulls is for six hours. The limit against abuse is for a moment.
func ExampleDockerHub() {
	url := "https://registry-1.docker.io/v2/library/alpine/blobs/uploads/"
	say(profile.DockerHub(), url, 429, "You have reached your unauthenticated pull rate limit.")
	say(profile.DockerHub(), url, 429, "Too Many Requests", "Retry-After", "12")
	// Output:
	// 429 final 0s
	// 429 refused 12s
}

// A registry sends a 503 before it touches an upload.
func ExampleRegistry() {
	url := "https://ghcr.io/v2/owner/image/blobs/uploads/"
	say(profile.Registry(), url, 503, "")
	say(profile.Registry(), url, 500, "")
	// Output:
	// 503 refused 0s
	// 500 ambiguous 0s
}
