// Gate: a server hangs for a second under 200 requests per second. What queues
// up in it, with and without the gate?
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
	without := hang("without", policy.Off)
	with := hang("with", policy.GateWait)
	if with > 10 || without < 100 {
		log.Fatal("expected at most 10 with the gate, and 100 or more without")
	}
}

// hang returns how many requests were in the server when it woke.
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
	fmt.Printf("%s the gate: %d requests are in the server that hangs\n  %v\n", name, queue, t.Snapshot()[0])
	start := time.Now()
	close(awake)
	all.Wait()
	fmt.Printf("  it wakes: all 200 are answered within %v\n", time.Since(start).Round(time.Millisecond))
	return queue
}
