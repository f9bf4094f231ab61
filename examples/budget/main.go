// Budget shows what retries do to a host that is down, and what the retry
// budget, which is on by default, leaves of that.
//
//	go run ./examples/budget
package main

import (
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"time"

	"github.com/aplomb-go/aplomb/policy"
	"github.com/aplomb-go/aplomb/policy/backoff"
	"github.com/aplomb-go/aplomb/transport"
)

const requests = 200

func main() {
	without, _ := outage(policy.Budget{Burst: policy.Off})
	with, took := outage(policy.Budget{}) // the zero value: the default
	// A fifth of the requests, 30 that were saved up, and 3 per second.
	most := 1.2*requests + 30 + 3*took.Seconds()

	fmt.Printf("%d requests to a host that answers nothing but 503\n", requests)
	fmt.Printf("  without the budget: %4d arrive, %.1f for each request\n", without, float64(without)/requests)
	fmt.Printf("  with the budget:    %4d arrive, where %.0f are the most\n", with, most)
	if without != 6*requests || float64(with) > most {
		log.Fatalf("expected %d and at most %.0f", 6*requests, most)
	}
}

// outage sends the requests and returns how many arrived, retries included.
func outage(budget policy.Budget) (arrived int64, took time.Duration) {
	var n atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		n.Add(1)
		w.WriteHeader(http.StatusServiceUnavailable)
	}))
	defer server.Close()
	quick := backoff.Constant(time.Millisecond) // too quick for real life
	t, err := transport.New(transport.Config{Rule: policy.Rule{Backoff: quick, Budget: budget}})
	if err != nil {
		log.Fatal(err)
	}
	client, start := &http.Client{Transport: t}, time.Now()
	for range requests {
		resp, err := client.Get(server.URL)
		if err != nil {
			log.Fatal(err)
		}
		resp.Body.Close()
	}
	return n.Load(), time.Since(start)
}
