// Default gives retries to everything that is sent through http.DefaultClient:
// http.Get, http.Post and the libraries that use them.
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
	// Once, at the start of the program and before anybody sends. It concerns
	// those who use http.DefaultClient; a client with a Transport of its own
	// goes on as before.
	http.DefaultClient.Transport = transport.Default()

	server := failsOnce()
	defer server.Close()

	start := time.Now()
	resp, err := http.Get(server.URL) // nothing changes here
	if err != nil {
		log.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%s after %.1f s: %s\n", resp.Status, time.Since(start).Seconds(), body)
	if resp.StatusCode != http.StatusOK {
		log.Fatal("the 503 was not retried")
	}
}

// failsOnce is a server that is unavailable to the first request.
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
