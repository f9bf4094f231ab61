// Hedge shows that a second attempt shortens the slowest responses. The server
// takes 5 ms, but 205 ms for every fiftieth request. With hedging, a request is
// sent again if it takes longer than 95 % of the others. The first response
// counts.
//
//	go run ./examples/hedge
package main

import (
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync/atomic"
	"time"

	"github.com/aplomb-go/aplomb/policy"
	"github.com/aplomb-go/aplomb/transport"
)

func main() {
	fmt.Println("A second attempt beside a slow attempt shortens the slowest responses.")
	fmt.Println()
	plain, _ := measure("without", policy.Hedge{After: policy.Off})
	hedged, extra := measure("with", policy.Hedge{Percentile: 95})
	if hedged > plain/2 || extra > 0.15 {
		log.Fatal("expected less than half the time for at most 15 % more attempts")
	}
	fmt.Println("\nEvery fiftieth response takes 200 ms longer. Few requests now wait for it.")
}

func measure(name string, hedge policy.Hedge) (p99 time.Duration, extra float64) {
	var arrived atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		time.Sleep(5 * time.Millisecond)
		if arrived.Add(1)%50 == 0 {
			time.Sleep(200 * time.Millisecond)
		}
	}))
	defer server.Close()
	t, err := transport.New(transport.Config{Rule: policy.Rule{Hedge: hedge}})
	if err != nil {
		log.Fatal(err)
	}
	took := make([]time.Duration, 160)
	for i := range took {
		start := time.Now()
		resp, err := (&http.Client{Transport: t}).Get(server.URL)
		if err != nil {
			log.Fatal(err)
		}
		resp.Body.Close()
		took[i] = time.Since(start)
	}
	extra = float64(arrived.Load())/float64(len(took)) - 1
	took = took[60:] // the percentile is known after 40 responses
	slices.Sort(took)
	p99 = took[len(took)*98/100]
	fmt.Printf("  %-7s hedging: 99 %% of responses within %3d ms, %.1f %% more attempts\n", name, p99.Milliseconds(), 100*extra)
	return p99, extra
}
