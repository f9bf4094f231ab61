package transport_test

import (
	"context"
	"fmt"
	"log"
	"net/http"
	"sync"
	"time"

	"github.com/aplomb-go/aplomb/policy"
	"github.com/aplomb-go/aplomb/transport"
)

// busy stands for a host: it prints which request it gets, and works on a login until it may
// end.
type busy struct{ end chan struct{} }

func (b busy) RoundTrip(req *http.Request) (*http.Response, error) {
	fmt.Println("->", req.URL.Path)
	if req.URL.Path == "/login" {
		<-b.end
	}
	return &http.Response{StatusCode: http.StatusOK, Header: http.Header{}, Body: http.NoBody, Request: req}, nil
}

// An export runs beside the requests of users. It waits for a slot, and so does a user who
// comes later. The user goes first.
func ExampleBackground() {
	end := make(chan struct{})
	tr, err := transport.New(transport.Config{
		Base: busy{end},
		Rule: policy.Rule{Gate: policy.Gate{Start: 1, Max: 1}},
	})
	if err != nil {
		log.Fatal(err)
	}
	client := &http.Client{Transport: tr}
	var all sync.WaitGroup
	get := func(ctx context.Context, path string) {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://api.example.com"+path, nil)
		if err != nil {
			log.Fatal(err)
		}
		all.Go(func() {
			resp, err := client.Do(req)
			if err != nil {
				log.Fatal(err)
			}
			resp.Body.Close()
		})
	}
	until := func(yes func(transport.HostState) bool) {
		for {
			if s := tr.Snapshot(); len(s) > 0 && yes(s[0]) {
				return
			}
			time.Sleep(time.Millisecond)
		}
	}

	get(context.Background(), "/login")
	until(func(s transport.HostState) bool { return s.GateSlots == 1 })
	get(transport.Background(context.Background()), "/export")
	until(func(s transport.HostState) bool { return s.GateQueue == 1 })
	get(context.Background(), "/cart")
	until(func(s transport.HostState) bool { return s.GateQueue == 2 })
	close(end)
	all.Wait()
	// Output:
	// -> /login
	// -> /cart
	// -> /export
}
