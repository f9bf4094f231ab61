package transport_test

import (
	"context"
	"fmt"
	"log"
	"net/http"
	"strconv"
	"time"

	"github.com/aplomb-go/aplomb/policy"
	"github.com/aplomb-go/aplomb/transport"
)

// told stands for a server. It prints whether it knows how long its client waits.
type told struct{}

func (told) RoundTrip(req *http.Request) (*http.Response, error) {
	for _, name := range []string{"Grpc-Timeout", "X-Envoy-Expected-Rq-Timeout-Ms", "X-Timeout-Seconds"} {
		fmt.Println(name, req.Header.Get(name) != "")
	}
	return &http.Response{StatusCode: 200, Header: http.Header{}, Body: http.NoBody, Request: req}, nil
}

// A hook tells the server the deadline of each attempt, so that the server drops work for
// which nobody waits. Servers read different fields. Set the one that yours knows.
func ExampleAttemptStart_deadline() {
	tell := func(ctx context.Context, a transport.AttemptStart) context.Context {
		if a.Deadline.IsZero() {
			return ctx
		}
		left := max(a.Deadline.Sub(a.Start), time.Millisecond)
		ms := strconv.FormatInt(left.Milliseconds(), 10)
		a.Header.Set("Grpc-Timeout", ms+"m") // at most 8 digits; m is for milliseconds
		a.Header.Set("X-Envoy-Expected-Rq-Timeout-Ms", ms)
		a.Header.Set("X-Timeout-Seconds", strconv.FormatFloat(left.Seconds(), 'f', 3, 64))
		return ctx
	}
	tr := transport.MustNew(transport.Config{
		Base:   told{},
		Rule:   policy.Rule{AttemptTimeout: 2 * time.Second},
		Traces: []*transport.Trace{&transport.Trace{AttemptStart: tell}},
	})
	resp, err := (&http.Client{Transport: tr}).Get("https://api.example.com/")
	if err != nil {
		log.Fatal(err)
	}
	resp.Body.Close()
	// Output:
	// Grpc-Timeout true
	// X-Envoy-Expected-Rq-Timeout-Ms true
	// X-Timeout-Seconds true
}
