// Cooldown shows that requests to a host wait together. One request is told to
// come back in one second, and 49 other requests wait with it instead of being
// refused one by one. The cooldown is on by default.
//
//	go run ./examples/cooldown
package main

import (
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"time"

	"github.com/aplomb-go/aplomb/transport"
)

func main() {
	arrivals := make(chan time.Time, 100)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		arrivals <- time.Now()
		if len(arrivals) == 1 {
			w.Header().Set("Retry-After", "1")
			w.WriteHeader(http.StatusTooManyRequests)
			return
		}
		time.Sleep(100 * time.Millisecond) // the server works
	}))
	defer server.Close()
	client := http.Client{Transport: transport.Default()}
	var all sync.WaitGroup
	for i := range 50 {
		all.Go(func() {
			resp, err := client.Get(server.URL)
			if err != nil || resp.StatusCode != http.StatusOK {
				log.Fatal("a request failed: ", err)
			}
			resp.Body.Close()
		})
		if i == 0 {
			time.Sleep(100 * time.Millisecond) // the response has arrived by then
		}
	}
	all.Wait()
	first, rows := <-arrivals, [50]int{}
	for range len(arrivals) {
		rows[min((<-arrivals).Sub(first)/(100*time.Millisecond), 49)]++
	}
	fmt.Println("Arrivals after the first of 50 requests was told to come back in 1 s:")
	for i, n := range rows {
		if n > 0 || i < 10 {
			fmt.Printf("  %.1f s %s\n", float64(i)/10, strings.Repeat("#", n))
		}
		if n > 0 && i < 10 {
			log.Fatal("expected no arrival in that second")
		}
	}
	fmt.Println("All requests to the host waited, and came back a few at a time.")
}
