// Traced makes a request over the default base, for ../../main.go. Its arguments are how many
// attempts get a 503, and whether the body of the response is short or long. Each function that the request enters says so.
package main

import (
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/aplomb-go/aplomb/policy"
	"github.com/aplomb-go/aplomb/policy/backoff"
	"github.com/aplomb-go/aplomb/transport"
)

func main() {
	failures, err := strconv.Atoi(os.Args[1])
	check(err)
	var left atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if left.Add(-1) >= 0 {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		if os.Args[2] == "long" { // and without a length
			w.Header().Set("ETag", `"v1"`)
			_, _ = w.Write(make([]byte, 64<<10))
		}
		_, _ = io.WriteString(w, `{"hello":"world"}`)
	}))
	tr, err := transport.New(transport.Config{Rule: policy.Rule{Backoff: backoff.Constant(time.Millisecond)}})
	check(err)
	get(tr, server.URL) // makes the connection
	left.Store(int64(failures))
	println("begin")
	get(tr, server.URL)
	if left.Load() >= 0 {
		log.Fatalf("%d failures are left", left.Load()+1)
	}
}

func get(tr *transport.Transport, url string) {
	req, err := http.NewRequest(http.MethodGet, url, nil)
	check(err)
	resp, err := tr.RoundTrip(req)
	check(err)
	if resp.StatusCode != http.StatusOK {
		log.Fatal(resp.Status)
	}
	_, err = io.Copy(io.Discard, resp.Body)
	check(err)
	check(resp.Body.Close())
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
