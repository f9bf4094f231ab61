// Gate shows that the gate keeps requests from piling up in a server that
// hangs. The server hangs for a second and gets 200 requests in that time.
//
//	go run ./examples/gate
package main

import (
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"time"

	"github.com/aplomb-go/aplomb/policy"
	"github.com/aplomb-go/aplomb/transport"
)

func main() {
	fmt.Println("The gate keeps requests from piling up in a server that hangs.")
	fmt.Println()
	without := hang("without", policy.Off)
	with := hang("with", policy.GateWait)
	if with > 10 || without < 100 {
		log.Fatal("expected at most 10 with the gate, and 100 or more without")
	}
	fmt.Println("\nWith the gate, requests wait in the client instead of the server that hangs.")
}

// hang returns how many requests were in the server when it stopped hanging.
func hang(name string, mode policy.GateMode) (queue int64) {
	var inServer atomic.Int64
	awake := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		inServer.Add(1)
		<-awake
	}))
	defer server.Close()
	t, err := transport.New(transport.Config{Rule: policy.Rule{Gate: policy.Gate{Mode: mode}}})
	if err != nil {
		log.Fatal(err)
	}
	var all sync.WaitGroup
	for range 200 {
		all.Go(func() {
			resp, err := (&http.Client{Transport: t}).Get(server.URL)
			if err != nil {
				log.Fatal(err)
			}
			resp.Body.Close()
		})
		time.Sleep(5 * time.Millisecond)
	}
	queue = inServer.Load()
	fmt.Printf("  %-7s the gate: %3d requests are in the server, and %3d wait in the client\n",
		name, queue, t.Snapshot()[0].GateQueue)
	start := time.Now()
	close(awake)
	all.Wait()
	fmt.Printf("  %17sall are answered %v after the server went on\n", "", time.Since(start).Round(time.Millisecond))
	return queue
}
