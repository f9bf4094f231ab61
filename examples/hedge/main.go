// Hedge: one in fifty of a server's answers takes 205 ms instead of 5. Who
// sends a request again once it takes longer than 95 % of them, and takes what
// comes first, hardly notices.
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
	plain, _ := measure("without", policy.Hedge{After: policy.Off})
	hedged, extra := measure("with", policy.Hedge{Percentile: 95})
	if hedged > plain/2 || extra > 0.15 {
		log.Fatal("expected less than half the time for at most 15 % more sends")
	}
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
	took = took[60:] // it takes 40 answers to know the percentile
	slices.Sort(took)
	p99 = took[len(took)*98/100]
	fmt.Printf("%-7s hedging: p99 %3d ms, %.1f %% more sends\n", name, p99.Milliseconds(), 100*extra)
	return p99, extra
}
