package transport_test

import (
	"fmt"
	"log"
	"net/http"
	"strings"
	"time"

	"github.com/aplomb-go/aplomb/classify"
	"github.com/aplomb-go/aplomb/policy"
	"github.com/aplomb-go/aplomb/policy/backoff"
	"github.com/aplomb-go/aplomb/transport"
)

// tooMany stands for every host: it prints what it is asked, and responds with 429.
type tooMany struct{}

func (tooMany) RoundTrip(req *http.Request) (*http.Response, error) {
	fmt.Println("->", req.Method, req.URL)
	if req.Body != nil {
		req.Body.Close()
	}
	return &http.Response{StatusCode: http.StatusTooManyRequests, Header: http.Header{}, Body: http.NoBody, Request: req}, nil
}

// Rules per host: what a pattern leaves open is taken from the wider patterns, and then
// from Rule.
func ExampleConfig_hosts() {
	tr, err := transport.New(transport.Config{
		Base: tooMany{},
		Rule: policy.Rule{MaxAttempts: 2, Backoff: backoff.Constant(time.Millisecond)},
		Hosts: map[string]policy.Rule{
			"*.example.com":         {MaxAttempts: 3},
			"billing.example.com":   {MaxAttempts: 1},              // never again
			"search.example.com":    {Classify: classify.Refusals}, // a 429 was surely not acted on
			"internal.test:8443":    {AttemptTimeout: 2 * time.Second},
			"[2001:db8::1]:8080":    {MaxRetryAfter: 5 * time.Minute},
			"throttled.example.net": {RateLimit: policy.RateLimit{PerSecond: 10, Burst: 5}},
		},
	})
	if err != nil {
		log.Fatal(err)
	}
	client := &http.Client{Transport: tr}
	for _, host := range []string{"elsewhere.test", "api.example.com", "billing.example.com"} {
		resp, err := client.Get("https://" + host)
		if err != nil {
			log.Fatal(err)
		}
		resp.Body.Close()
	}
	resp, err := client.Post("https://search.example.com", "text/plain", strings.NewReader("words"))
	if err != nil {
		log.Fatal(err)
	}
	resp.Body.Close()
	// Output:
	// -> GET https://elsewhere.test
	// -> GET https://elsewhere.test
	// -> GET https://api.example.com
	// -> GET https://api.example.com
	// -> GET https://api.example.com
	// -> GET https://billing.example.com
	// -> POST https://search.example.com
	// -> POST https://search.example.com
	// -> POST https://search.example.com
}
