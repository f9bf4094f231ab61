// Rate shows that an adaptive rate finds the limit of a server. The rule allows
// 200 requests per second, but the server accepts only 50 and refuses the rest
// with 429.
//
//	go run ./examples/rate
package main

import (
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"github.com/aplomb-go/aplomb/policy"
	"github.com/aplomb-go/aplomb/transport"
)

func main() {
	fmt.Println("An adaptive rate finds the limit of a server, here 50 requests per second.")
	fmt.Println()
	fixed, adaptive := try(policy.RateFixed), try(policy.RateAdaptive)
	if fixed < 0.5 || adaptive > 0.2 {
		log.Fatal("expected most to be refused at the fixed rate, and few at the adaptive rate")
	}
	fmt.Println("\nThe rule allows 200 requests per second. The adaptive rate learns from each 429.")
}

// try sends requests for two seconds and returns the share of 429s in the
// second second.
func try(mode policy.RateMode) (share float64) {
	limit := rate.NewLimiter(50, 5)
	var served, refused atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if limit.Allow() {
			served.Add(1)
			return
		}
		refused.Add(1)
		w.WriteHeader(http.StatusTooManyRequests)
	}))
	defer server.Close()
	rule := policy.Rule{Rate: policy.Rate{PerSecond: 200, Burst: 1, Mode: mode}, Attempts: 1} // no retries, to count each 429 once
	t, err := transport.New(transport.Config{Rule: rule})
	if err != nil {
		log.Fatal(err)
	}
	for second := range 2 {
		for start := time.Now(); time.Since(start) < time.Second; {
			resp, err := (&http.Client{Transport: t}).Get(server.URL)
			if err != nil {
				log.Fatal(err)
			}
			resp.Body.Close()
		}
		s, r, now := served.Swap(0), refused.Swap(0), t.Snapshot()[0].RatePerSecond
		fmt.Printf("  %-8v second %d: %d served, %3d refused; the rate is now %3.0f/s\n", mode, second+1, s, r, now)
		share = float64(r) / float64(r+s)
	}
	return share
}
