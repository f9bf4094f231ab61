package faults_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/aplomb-go/aplomb/classify"
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
		faults.ConnRefused(),
		faults.ConnReset(),
		faults.Status(503),
		faults.Status(200).Body("back again"),
	))
	rule := policy.Rule{Backoff: backoff.Constant(0)}
	client := &http.Client{Transport: transport.MustNew(transport.Config{Base: base, Rule: rule})}
	resp, err := client.Get("http://api.test/")
	if err != nil {
		panic(err)
	}
	defer resp.Body.Close()
	text, _ := io.ReadAll(resp.Body)
	fmt.Printf("%s after %d requests\n", text, len(base.Records()))
	// Output: back again after 4 requests
}

// In staging, a share of the requests meets faults on the way to the real server.
// Here a handler stands for it.
func ExampleRandom() {
	real := faults.Handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "hello") }))
	base := faults.New(real, faults.Random(1,
		faults.Chance{Rate: 0.05, Step: faults.ConnReset()},
		faults.Chance{Rate: 0.05, Step: faults.Status(503)},
	))
	rule := policy.Rule{Backoff: backoff.Constant(0), RetryBudget: policy.RetryBudget{Enabled: policy.Off}}
	client := &http.Client{Transport: transport.MustNew(transport.Config{Base: base, Rule: rule})}
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
	steps := map[string]int{}
	for _, r := range base.Records() {
		steps[r.Step.String()]++
	}
	fmt.Println("every call succeeded:", steps["pass"] == 1000)
	fmt.Println("there were faults:", steps["connection reset"] > 20 && steps["status 503"] > 20)
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
	client := &http.Client{Transport: transport.MustNew(transport.Config{Base: base})}
	resp, err := client.Get("http://files.test/play.txt")
	if err != nil {
		panic(err)
	}
	defer resp.Body.Close()
	got, err := io.ReadAll(resp.Body)
	fmt.Println(string(got) == text, err, len(base.Records()))
	// Output: true <nil> 2
}

// A search fails more often than it hangs. The same seed gives the same steps in each
// run.
func ExampleChance() {
	plan := faults.Random(7,
		faults.Chance{Rate: 0.3, Step: faults.Status(500)},
		faults.Chance{Rate: 0.1, Step: faults.Hang().Delay(time.Second)},
	)
	for range 6 {
		fmt.Println(plan(nil))
	}
	// Output:
	// pass
	// status 500
	// pass
	// status 500
	// status 500
	// status 500
}

// Each fault fails with the error that net/http would return, so package classify tells
// them apart. After ConnRefused and DialTimeout a POST may be sent again, because it never
// left.
func ExampleStep() {
	for _, step := range []faults.Step{
		faults.ConnRefused(), faults.DialTimeout(), faults.ConnReset(), faults.ResponseTimeout(),
		faults.Fail(errors.New("the proxy has no route")),
	} {
		req, err := http.NewRequest(http.MethodPost, "http://api.test/", strings.NewReader("order"))
		if err != nil {
			panic(err)
		}
		_, err = faults.New(nil, faults.Script(step)).RoundTrip(req)
		class := classify.Default(classify.Outcome{Request: req, Err: err})
		fmt.Printf("%v: %v, %v\n", step, classify.ErrorTypeOf(err), class)
	}
	// Output:
	// connection refused: dial, refused
	// dial timeout: dial, refused
	// connection reset: reset, ambiguous
	// response timeout: timeout, ambiguous
	// fail: _OTHER, final
}

// A request that hangs ends with its context.
func ExampleHang() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://frozen.test/", nil)
	if err != nil {
		panic(err)
	}
	client := &http.Client{Transport: faults.New(nil, faults.Script(faults.Hang()))}
	_, err = client.Do(req)
	fmt.Println(errors.Is(err, context.DeadlineExceeded))
	// Output: true
}
