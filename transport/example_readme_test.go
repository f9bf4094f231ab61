// The examples of README.md, docs/settings.md and docs/observability.md. Package
// internal/snippets checks that these pages have the same functions.

package transport_test

import (
	"context"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"strings"
	"time"

	"github.com/aplomb-go/aplomb/faults"
	"github.com/aplomb-go/aplomb/policy"
	"github.com/aplomb-go/aplomb/policy/profile"
	"github.com/aplomb-go/aplomb/transport"
)

func main() {
	client := &http.Client{Transport: transport.Default()}                // make one for the whole program
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute) // for all attempts, all waits and the body
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, os.Args[1], nil)
	if err != nil {
		log.Fatal(err)
	}
	resp, err := client.Do(req)
	if err != nil || resp.StatusCode != http.StatusOK {
		log.Fatal(transport.Explain(resp, err)) // each attempt, and why there was no other
	}
	defer resp.Body.Close()
	if _, err := io.Copy(os.Stdout, resp.Body); err != nil { // a download that is cut goes on
		log.Fatal(err)
	}
}

// The first program prints a page.
func Example_firstProgram() {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "the page") }))
	defer server.Close()
	defer func(args []string) { os.Args = args }(os.Args)
	os.Args = []string{"first", server.URL}
	main()
	// Output: the page
}

var hosts = map[string]policy.Rule{
	"api.stripe.com": profile.Stripe(), // what the provider's documentation says
	"*.example.com":  profile.API(),    // a 429, and a 503 that names a wait, did nothing
}

// A POST is sent again after a 429, and not after a lost response.
func ExampleConfig_post() {
	for _, codes := range [][]int{{429, 200}, {0, 200}} {
		tr, err := transport.New(transport.Config{Base: server(codes...), Rule: policy.Rule{Backoff: atOnce}, Hosts: hosts})
		if err != nil {
			log.Fatal(err)
		}
		resp, err := tr.RoundTrip(post("https://api.stripe.com/v1/charges"))
		if err != nil {
			fmt.Println(err)
			continue
		}
		resp.Body.Close()
		fmt.Println(resp.StatusCode)
	}
	// Output:
	// -> POST https://api.stripe.com/v1/charges
	// -> POST https://api.stripe.com/v1/charges
	// 200
	// -> POST https://api.stripe.com/v1/charges
	// transport: not retried (not idempotent): read tcp: read: connection reset by peer
}

func post(url string) *http.Request {
	req, err := http.NewRequest(http.MethodPost, url, strings.NewReader("amount=100"))
	if err != nil {
		log.Fatal(err)
	}
	return req
}

// An SDK that makes three attempts of its own multiplies them with those of its client.
func ExampleDefault_sdk() {
	requests := 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		requests++
		w.WriteHeader(http.StatusServiceUnavailable)
	}))
	defer server.Close()
	for _, attempts := range []int{3, 1} {
		client := &http.Client{Transport: transport.Default()}
		defer client.CloseIdleConnections()
		tr := client.Transport.(*transport.Transport)
		if err := tr.Update(policy.Rule{Backoff: atOnce}, nil); err != nil { // the example has no time
			log.Fatal(err)
		}
		requests = 0
		for range attempts { // the loop of the SDK
			resp, err := client.Get(server.URL)
			if err != nil {
				log.Fatal(err)
			}
			resp.Body.Close()
		}
		fmt.Println("the SDK makes", attempts, "and the server sees", requests)
	}
	// Output:
	// the SDK makes 3 and the server sees 18
	// the SDK makes 1 and the server sees 6
}

var timeouts = policy.Rule{
	AttemptTimeout: 100 * time.Millisecond, // of an attempt, until its headers
	MaxElapsedTime: 2 * time.Second,        // until the last retry starts
	StallTimeout:   30 * time.Second,       // of a body that stands still
}

// An attempt that hangs is given up and retried.
func ExampleNew_timeouts() {
	base := faults.New(nil, faults.Script(faults.Hang(), faults.Status(200)))
	tr, err := transport.New(transport.Config{Base: base, Rule: timeouts.Or(profile.Service())})
	if err != nil {
		log.Fatal(err)
	}
	client := &http.Client{Transport: tr, Timeout: time.Minute}
	resp, err := client.Get("https://api.example.com")
	if err != nil {
		log.Fatal(err)
	}
	defer resp.Body.Close()
	fmt.Println(resp.StatusCode, "after", len(base.Records()), "attempts")
	// Output:
	// 200 after 2 attempts
}

func why(resp *http.Response, err error) string {
	return transport.Explain(resp, err) // no secrets of the URL, unlike the *url.Error around it
}

var waits = &transport.Trace{AttemptEnd: func(_ context.Context, a transport.AttemptEnd) { // for Config.Traces
	log.Println(a.Host, a.Attempt.Waited, a.Attempt.WaitedFor, a.Attempt.Reason, a.Attempt.Delay)
}}

// The caller gets the last response or an error, and both say why.
func ExampleExplain() {
	for _, codes := range [][]int{{503}, {503, 0}} {
		rule := policy.Rule{MaxAttempts: 2, Backoff: atOnce}
		tr, err := transport.New(transport.Config{Base: server(codes...), Rule: rule, Traces: []*transport.Trace{waits}})
		if err != nil {
			log.Fatal(err)
		}
		resp, err := (&http.Client{Transport: tr}).Get("https://api.example.com?key=secret")
		story := regexp.MustCompile(`,? after [0-9.]+m?s( in all)?`).ReplaceAllString(why(resp, err), "") // if it took any time
		fmt.Println(regexp.MustCompile(`at [0-9.]+m?s`).ReplaceAllString(story, "at …"))
		if err == nil {
			resp.Body.Close()
		}
	}
	// Output:
	// -> GET https://api.example.com?key=secret
	// -> GET https://api.example.com?key=secret
	// GET https://api.example.com?key=xxxxx
	//   attempt 1, at …: 503
	//   attempt 2, at …: 503
	//   status 503: all attempts are used up
	// -> GET https://api.example.com?key=secret
	// -> GET https://api.example.com?key=secret
	// GET https://api.example.com?key=xxxxx
	//   attempt 1, at …: 503
	//   attempt 2, at …: connection reset by peer
	//   failed: all attempts are used up
}
