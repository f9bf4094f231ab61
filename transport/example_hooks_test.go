package transport_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/url"
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
			fmt.Println("body of", b.Bytes, "bytes, whole:", b.Whole)
		},
	}
	tr, err := transport.New(transport.Config{
		Base:  faults.New(nil, faults.Script(faults.Reset(), faults.Status(503), faults.Pass().Body("hello"))),
		Rule:  policy.Rule{Backoff: backoff.Constant(time.Millisecond)},
		Trace: trace,
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
func ExampleJoinTraces() {
	attempts, retries := 0, 0
	tr, err := transport.New(transport.Config{
		Base: faults.New(nil, faults.Script(faults.Status(503), faults.Pass())),
		Rule: policy.Rule{Backoff: backoff.Constant(time.Millisecond)},
		Trace: transport.JoinTraces(
			&transport.Trace{AttemptStart: func(ctx context.Context, _ transport.AttemptStart) context.Context {
				attempts++
				return ctx
			}},
			&transport.Trace{Event: func(e transport.Event) {
				if e.Kind == transport.KindRetry {
					retries++
				}
			}},
		),
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

// A log of the program can write URLs as the Transport does. The names of a query stay,
// and its values go.
func ExampleSafeURL() {
	u, err := url.Parse("https://user:password@api.test/v1/items?token=secret&page=2#top")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(transport.SafeURL(u))
	// Output: https://xxxxx@api.test/v1/items?token=xxxxx&page=xxxxx
}

// http.Client puts the whole URL into its errors. SafeError takes the secrets out.
func ExampleSafeError() {
	u, err := url.Parse("http://api.test/v1/items?token=secret")
	if err != nil {
		log.Fatal(err)
	}
	client := &http.Client{Transport: faults.New(nil, faults.Always(faults.Fail(errors.New("no route"))))}
	_, err = client.Get(u.String())
	fmt.Println(err)
	fmt.Println(transport.SafeError(err, u))
	// Output:
	// Get "http://api.test/v1/items?token=secret": no route
	// Get "http://api.test/v1/items?token=xxxxx": no route
}
