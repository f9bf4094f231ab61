// The examples of README.md, docs/settings.md, docs/limits.md and docs/observability.md. Package
// internal/snippets checks that these pages have the same functions.

package transport_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"strings"
	"sync"
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

// withStory returns a context for a call of an SDK, and a function that tells what became of its requests.
func withStory(ctx context.Context) (context.Context, func() string) {
	var mu sync.Mutex // guards story, because an SDK may send several requests at once
	var story []string
	ctx = transport.WithTrace(ctx, &transport.Trace{RequestEnd: func(_ context.Context, r transport.RequestEnd) {
		mu.Lock()
		defer mu.Unlock()
		story = append(story, transport.Explain(r.Response, r.Err))
	}})
	return ctx, func() string { mu.Lock(); defer mu.Unlock(); return strings.Join(story, "\n") }
}

// An SDK puts an error of its own in the place of a response.
func ExampleWithTrace_sdk() {
	tr, err := transport.New(transport.Config{Base: server(200, 503), Rule: policy.Rule{MaxAttempts: 2, Backoff: atOnce}})
	if err != nil {
		log.Fatal(err)
	}
	sdk := func(ctx context.Context) error {
		for _, path := range []string{"token", "objects?key=secret"} {
			req, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://storage.example.com/"+path, nil)
			if err != nil {
				return err
			}
			resp, err := (&http.Client{Transport: tr}).Do(req)
			if err != nil {
				return err
			}
			resp.Body.Close()
			if resp.StatusCode != http.StatusOK {
				return fmt.Errorf("storage: error %d", resp.StatusCode)
			}
		}
		return nil
	}
	ctx, story := withStory(context.Background())
	if err := sdk(ctx); err != nil {
		fmt.Println(err)
		fmt.Println(timeless(story()))
	}
	// Output:
	// -> GET https://storage.example.com/token
	// -> GET https://storage.example.com/objects?key=secret
	// -> GET https://storage.example.com/objects?key=secret
	// storage: error 503
	// GET https://storage.example.com/token
	//   status 200 at the first attempt
	// GET https://storage.example.com/objects?key=xxxxx
	//   attempt 1, at …: 503
	//   attempt 2, at …: 503
	//   status 503: all attempts are used up
}

// timeless removes the times of a story, which vary.
func timeless(story string) string {
	story = regexp.MustCompile(`,? after [0-9.]+m?s( in all)?`).ReplaceAllString(story, "") // if it took any time
	return regexp.MustCompile(`at [0-9.]+m?s`).ReplaceAllString(story, "at …")
}

// The caller gets the last response or an error, and both say why.
func ExampleExplain() {
	for _, codes := range [][]int{{503}, {503, 0}} {
		rule := policy.Rule{MaxAttempts: 2, Backoff: atOnce}
		tr, err := transport.New(transport.Config{Base: server(codes...), Rule: rule})
		if err != nil {
			log.Fatal(err)
		}
		resp, err := (&http.Client{Transport: tr}).Get("https://api.example.com?key=secret")
		fmt.Println(timeless(transport.Explain(resp, err)))
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

func suspend(t *transport.Transport, rule policy.Rule, hosts map[string]policy.Rule) error { // those of the Config
	suspended := maps.Clone(hosts)
	suspended["api.example.com"] = policy.Rule{RateLimit: policy.RateLimit{PerSecond: 1e-6}}.Or(hosts["api.example.com"])
	return t.Update(rule, suspended) // t.Update(rule, hosts) ends it
}

// During maintenance a request with a deadline is refused at once. The first still goes, because the
// bucket of a new rate is full.
func ExampleTransport_Update_suspend() {
	var rule policy.Rule
	hosts := map[string]policy.Rule{"api.example.com": {MaxAttempts: 3}}
	tr, err := transport.New(transport.Config{Base: server(200), Rule: rule, Hosts: hosts})
	if err != nil {
		log.Fatal(err)
	}
	client := &http.Client{Transport: tr, Timeout: time.Minute}
	get := func() {
		if resp, err := client.Get("https://api.example.com"); err != nil {
			fmt.Println(errors.Is(err, transport.ErrNotSent), transport.HistoryOf(nil, err).Reason)
		} else {
			resp.Body.Close()
		}
	}
	if err := suspend(tr, rule, hosts); err != nil {
		log.Fatal(err)
	}
	get()
	get()
	if err := tr.Update(rule, hosts); err != nil {
		log.Fatal(err)
	}
	get()
	// Output:
	// -> GET https://api.example.com
	// true rate_limit
	// -> GET https://api.example.com
}
