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
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/aplomb-go/aplomb/transport"
)

func main() {
	fmt.Println("If one request is told to wait, all requests to the host wait with it.")
	fmt.Println()
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
	close(arrivals)
	first := <-arrivals
	var rows []int // requests in each tenth of a second after the first
	for at := range arrivals {
		tenth := int(at.Sub(first) / (100 * time.Millisecond))
		rows = append(rows, make([]int, max(0, tenth+1-len(rows)))...)
		rows[tenth]++
	}
	fmt.Println("One of 50 requests gets a 429 with Retry-After: 1. Then the server gets")
	begin := slices.IndexFunc(rows, func(n int) bool { return n > 0 })
	if begin < 10 {
		log.Fatalf("expected nothing in the first second, and then 49 requests: %v", rows)
	}
	fmt.Printf("  until %.1f s  nothing\n", float64(begin)/10)
	for i, n := range rows[begin:] {
		fmt.Printf("  from %.1f s  %2d %s\n", float64(begin+i)/10, n, strings.Repeat("#", n))
	}
	fmt.Println("\nAfter the wait a single request goes first, and each response lets two more go.")
}
