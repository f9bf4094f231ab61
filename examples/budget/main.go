// Budget shows that the retry budget limits the load that retries add to a host
// that is down. The budget is on by default.
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
	fmt.Println("The retry budget limits the load that retries add to a host that is down.")
	fmt.Println()
	without, _ := outage(policy.Budget{Burst: policy.Off})
	with, took := outage(policy.Budget{}) // the default
	// The budget allows a fifth of the requests, 30 saved-up retries, and 3
	// retries per second.
	most := 1.2*requests + 30 + 3*took.Seconds()

	fmt.Printf("%d requests go to a host that answers every attempt with 503:\n", requests)
	fmt.Printf("  without the budget: %4d attempts arrive, %.1f per request\n", without, float64(without)/requests)
	fmt.Printf("  with the budget:    %4d attempts arrive, and at most %.0f may\n", with, most)
	if without != 6*requests || float64(with) > most {
		log.Fatalf("expected %d and at most %.0f", 6*requests, most)
	}
	fmt.Println("\nWithout the budget the outage would get six times the load.")
}

// outage sends the requests and returns how many attempts arrived.
func outage(budget policy.Budget) (arrived int64, took time.Duration) {
	var n atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		n.Add(1)
		w.WriteHeader(http.StatusServiceUnavailable)
	}))
	defer server.Close()
	quick := backoff.Constant(time.Millisecond) // short, so that the example does not take long
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
