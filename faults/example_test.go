package faults_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/aplomb-go/aplomb/faults"
	"github.com/aplomb-go/aplomb/policy"
	"github.com/aplomb-go/aplomb/policy/backoff"
	"github.com/aplomb-go/aplomb/transport"
)

// A script tests how a client copes with a server that restarts. The rule has no
// waits, so the example takes no time. In a test leave the rule as it is, and let
// synctest.Test make the time virtual.
func Example() {
	base := faults.New(nil, faults.Script(
		faults.Refuse(),
		faults.Reset(),
		faults.Status(503),
		faults.Status(200).Body("back again"),
	))
	rt, err := transport.New(transport.Config{Base: base, Rule: policy.Rule{Backoff: backoff.Constant(0)}})
	if err != nil {
		panic(err)
	}
	client := &http.Client{Transport: rt}
	resp, err := client.Get("http://api.test/")
	if err != nil {
		panic(err)
	}
	defer resp.Body.Close()
	text, _ := io.ReadAll(resp.Body)
	fmt.Printf("%s after %d requests\n", text, base.Counts().Requests)
	// Output: back again after 4 requests
}

// In staging, a share of the requests meets faults on the way to the real server.
// Here a handler stands for it.
func ExampleRandom() {
	real := faults.Handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "hello") }))
	base := faults.New(real, faults.Random(1,
		faults.Chance{Rate: 0.05, Step: faults.Reset()},
		faults.Chance{Rate: 0.05, Step: faults.Status(503)},
	))
	rule := policy.Rule{Backoff: backoff.Constant(0), Budget: policy.Budget{Burst: policy.Off}}
	rt, err := transport.New(transport.Config{Base: base, Rule: rule})
	if err != nil {
		panic(err)
	}
	client := &http.Client{Transport: rt}
	for range 1000 {
		resp, err := client.Get("http://api.test/")
		if err != nil {
			panic(err)
		}
		if _, err := io.Copy(io.Discard, resp.Body); err != nil || resp.StatusCode != http.StatusOK {
			panic("a fault reached the caller")
		}
		resp.Body.Close()
	}
	counts := base.Counts()
	fmt.Println("every call succeeded:", counts.Requests-counts.Faults == 1000)
	fmt.Println("there were faults:", counts.Steps["reset"] > 20 && counts.Steps["status 503"] > 20)
	// Output:
	// every call succeeded: true
	// there were faults: true
}

// A Plan of the program chooses by the request.
func ExamplePlan() {
	outage := func(req *http.Request) faults.Step {
		if req.URL.Host == "search.test" {
			return faults.Status(503).RetryAfter(30 * time.Second)
		}
		return faults.Pass()
	}
	client := &http.Client{Transport: faults.New(nil, outage)}
	for _, host := range []string{"search.test", "mail.test"} {
		resp, err := client.Get("http://" + host + "/")
		if err != nil {
			panic(err)
		}
		resp.Body.Close()
		fmt.Println(host, resp.StatusCode, resp.Header.Get("Retry-After"))
	}
	// Output:
	// search.test 503 30
	// mail.test 200
}

// The connection is cut in the middle of a download. The reader notices nothing.
func ExampleStep_CutAt() {
	text := strings.Repeat("all work and no play\n", 10_000)
	files := faults.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("ETag", `"v1"`)
		http.ServeContent(w, r, "", time.Time{}, strings.NewReader(text))
	}))
	base := faults.New(files, faults.Script(faults.Pass().CutAt(100_000), faults.Pass()))
	rt, err := transport.New(transport.Config{Base: base})
	if err != nil {
		panic(err)
	}
	client := &http.Client{Transport: rt}
	resp, err := client.Get("http://files.test/play.txt")
	if err != nil {
		panic(err)
	}
	defer resp.Body.Close()
	got, err := io.ReadAll(resp.Body)
	fmt.Println(string(got) == text, err, base.Counts().Requests)
	// Output: true <nil> 2
}
