package profile_test

import (
	"fmt"
	"io"
	"log"
	"net/http"
	"strings"

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
	rule.Attempts = 4
	rule.Backoff = backoff.Constant(0) // the example has no time
	tr, err := transport.New(transport.Config{
		Base:  &openAI{},
		Hosts: map[string]policy.Rule{"api.openai.com": rule},
	})
	if err != nil {
		log.Fatal(err)
	}
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
	// {Classify: func, Hint: func, Rate: Rate{PerSecond: 50, Burst: 1}, Cooldown: on, Scope: func, Pacing: on}
}
