package transport_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/aplomb-go/aplomb/faults"
	"github.com/aplomb-go/aplomb/policy"
	"github.com/aplomb-go/aplomb/policy/backoff"
	"github.com/aplomb-go/aplomb/transport"
)

// The hooks of a Trace see a request from its beginning to the end of its body.
func ExampleTrace() {
	trace := &transport.Trace{
		RequestStart: func(ctx context.Context, req *http.Request) context.Context {
			fmt.Println("request", req.Method)
			return ctx
		},
		AttemptEnd: func(_ context.Context, a transport.AttemptEnd) {
			if a.Err != nil {
				fmt.Printf("attempt %d, %v: failed\n", a.Number, a.Kind)
				return
			}
			fmt.Printf("attempt %d, %v: %d\n", a.Number, a.Kind, a.Response.StatusCode)
		},
		RequestEnd: func(_ context.Context, r transport.RequestEnd) {
			fmt.Println("response after", r.Attempts, "attempts")
		},
		BodyEnd: func(_ context.Context, b transport.BodyEnd) {
			fmt.Println("body of", b.Bytes, "bytes, whole:", b.Complete)
		},
	}
	tr, err := transport.New(transport.Config{
		Base:   faults.New(nil, faults.Script(faults.ConnReset(), faults.Status(503), faults.Pass().Body("hello"))),
		Rule:   policy.Rule{Backoff: backoff.Constant(time.Millisecond)},
		Traces: []*transport.Trace{trace},
	})
	if err != nil {
		log.Fatal(err)
	}
	resp, err := (&http.Client{Transport: tr}).Get("http://api.test/")
	if err != nil {
		log.Fatal(err)
	}
	if _, err := io.ReadAll(resp.Body); err != nil {
		log.Fatal(err)
	}
	// Output:
	// request GET
	// attempt 1, first: failed
	// attempt 2, retry: 503
	// attempt 3, retry: 200
	// response after 3 attempts
	// body of 5 bytes, whole: true
}

// Two observers share a Transport. The first counts attempts, and the second counts
// retries.
func ExampleConfig_traces() {
	attempts, retries := 0, 0
	tr, err := transport.New(transport.Config{
		Base: faults.New(nil, faults.Script(faults.Status(503), faults.Pass())),
		Rule: policy.Rule{Backoff: backoff.Constant(time.Millisecond)},
		Traces: []*transport.Trace{
			{AttemptStart: func(ctx context.Context, _ transport.AttemptStart) context.Context {
				attempts++
				return ctx
			}},
			{AttemptEnd: func(_ context.Context, e transport.AttemptEnd) {
				if e.Kind == transport.AttemptRetry {
					retries++
				}
			}},
		},
	})
	if err != nil {
		log.Fatal(err)
	}
	resp, err := (&http.Client{Transport: tr}).Get("http://api.test/")
	if err != nil {
		log.Fatal(err)
	}
	resp.Body.Close()
	fmt.Println(attempts, "attempts,", retries, "retry")
	// Output: 2 attempts, 1 retry
}

// http.Client puts the whole URL into its errors. SafeError takes the secrets out.
func ExampleSafeError() {
	u, err := url.Parse("http://api.test/v1/items?token=secret")
	if err != nil {
		log.Fatal(err)
	}
	client := &http.Client{Transport: faults.New(nil, faults.Script(faults.Fail(errors.New("no route"))))}
	_, err = client.Get(u.String())
	fmt.Println(err)
	fmt.Println(transport.SafeError(err, u))
	// Output:
	// Get "http://api.test/v1/items?token=secret": no route
	// Get "http://api.test/v1/items?token=xxxxx": no route
}

// shop stands for a host whose charges hang and whose reports take a while.
type shop struct{}

func (shop) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.Body != nil {
		req.Body.Close()
	}
	wait := time.Hour
	if strings.HasPrefix(req.URL.Path, "/v1/reports/") {
		wait = 50 * time.Millisecond
	}
	select {
	case <-time.After(wait):
		return &http.Response{StatusCode: 200, Status: "200 OK", Header: http.Header{}, Body: http.NoBody, Request: req}, nil
	case <-req.Context().Done():
		return nil, req.Context().Err()
	}
}

// One Transport has a short timeout for charges and a long timeout for reports. It replaces
// two Transports, which would have shared neither the rate of the host nor its budget.
func ExampleConfig_paths() {
	tr := transport.MustNew(transport.Config{
		Base: shop{},
		Hosts: map[string]policy.Rule{
			"api.example.com":              {RateLimit: policy.RateLimit{PerSecond: 100}}, // of all its requests together
			"api.example.com/v1/reports/":  {AttemptTimeout: 30 * time.Second},            // and everything below it
			"POST api.example.com/charges": {AttemptTimeout: 5 * time.Millisecond, MaxAttempts: 1},
		},
	})
	client := &http.Client{Transport: tr}
	resp, err := client.Get("https://api.example.com/v1/reports/2026")
	if err != nil {
		log.Fatal(err)
	}
	resp.Body.Close()
	fmt.Println(resp.Status)
	_, err = client.Post("https://api.example.com/charges", "text/plain", strings.NewReader("9 €"))
	fmt.Println(err)
	for _, host := range tr.Snapshot().Hosts {
		fmt.Printf("%s: %d requests, %v attempts/s\n", host.Host, host.Requests, host.RateLimit)
	}
	// Output:
	// 200 OK
	// Post "https://api.example.com/charges": transport: not retried (retries off): no response within the attempt's 5ms
	// https://api.example.com: 2 requests, 100 attempts/s
}

// A request can have a rule of its own. The fields that it leaves open come from the rule of
// its path or host.
func ExampleWithRule() {
	tr, err := transport.New(transport.Config{
		Base:  tooMany{},
		Hosts: map[string]policy.Rule{"api.example.com": {MaxAttempts: 1}},
	})
	if err != nil {
		log.Fatal(err)
	}
	client := &http.Client{Transport: tr}
	ctx := transport.WithRule(context.Background(), policy.Rule{MaxAttempts: 5000})
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://api.example.com/report", nil)
	if err != nil {
		log.Fatal(err)
	}
	_, err = client.Do(req) // nothing is sent
	fmt.Println(err)
	ctx = transport.WithRule(ctx, policy.Rule{MaxAttempts: 2, Backoff: backoff.Constant(10 * time.Millisecond)})
	resp, err := client.Do(req.WithContext(ctx))
	if err != nil {
		log.Fatal(err)
	}
	resp.Body.Close()
	// Output:
	// Get "https://api.example.com/report": transport: WithRule.MaxAttempts: 5000 is more than 1000 attempts
	// -> GET https://api.example.com/report
	// -> GET https://api.example.com/report
}

// RuleFor says which rules apply, for tests of a configuration.
func ExampleTransport_RuleFor() {
	tr, err := transport.New(transport.Config{Hosts: map[string]policy.Rule{
		"*.example.com":                    {MaxAttempts: 3},
		"POST api.example.com/v1/charges/": {AttemptTimeout: 500 * time.Millisecond},
	}})
	if err != nil {
		log.Fatal(err)
	}
	for _, method := range []string{"GET", "POST"} {
		req, err := http.NewRequest(method, "https://api.example.com/v1/charges/17", nil)
		if err != nil {
			log.Fatal(err)
		}
		rule, patterns := tr.RuleFor(req)
		fmt.Println(method, rule.MaxAttempts, rule.AttemptTimeout, patterns)
	}
	// Output:
	// GET 3 0s [*.example.com]
	// POST 3 500ms [POST api.example.com/v1/charges/ *.example.com]
}
