// Default shows that one line adds retries to everything that uses
// http.DefaultClient, such as http.Get, http.Post and many libraries.
//
//	go run ./examples/default
package main

import (
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"time"

	"github.com/aplomb-go/aplomb/transport"
)

func main() {
	fmt.Println("One line adds retries to everything that uses http.DefaultClient.")
	fmt.Println()
	// Do this once, at the start of the program and before any request. Clients
	// with a Transport of their own do not change.
	http.DefaultClient.Transport = transport.Default()

	server := failsOnce()
	defer server.Close()

	start := time.Now()
	resp, err := http.Get(server.URL) // the call does not change
	if err != nil {
		log.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("  http.Get returned %s after %.1f s: %s\n", resp.Status, time.Since(start).Seconds(), body)
	if resp.StatusCode != http.StatusOK {
		log.Fatal("the 503 was not retried")
	}
	fmt.Println("\nThe first request got a 503. http.Get waited, and sent the request again.")
}

// failsOnce returns a server that answers its first request with 503.
func failsOnce() *httptest.Server {
	var requests atomic.Int32
	return httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		n := requests.Add(1)
		if n == 1 {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintf(w, "request %d was served", n)
	}))
}
