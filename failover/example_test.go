package failover_test

import (
	"fmt"
	"io"
	"log"
	"net/http"

	"github.com/aplomb-go/aplomb/failover"
	"github.com/aplomb-go/aplomb/faults"
	"github.com/aplomb-go/aplomb/policy"
	"github.com/aplomb-go/aplomb/transport"
)

// The first region is down. The second may see the token and the number of the page, and its path differs.
func ExampleEndpoint() {
	network := faults.New(nil, func(req *http.Request) faults.Step {
		fmt.Println("->", req.Method, req.URL, req.Header.Get("Authorization"))
		if req.URL.Host == "us.example.com" {
			return faults.ConnRefused()
		}
		return faults.Status(200).Body("hello")
	})
	base := transport.MustNew(transport.Config{Base: network, Rule: policy.Rule{MaxAttempts: 1}})
	t, err := failover.New(
		failover.Endpoint{URL: "https://us.example.com", Transport: base},
		failover.Endpoint{URL: "https://eu.example.com/api", Transport: base, Allow: []string{"Authorization", "page"}},
	)
	if err != nil {
		log.Fatal(err)
	}
	client := &http.Client{Transport: t}

	req, err := http.NewRequest(http.MethodGet, "https://us.example.com/items?page=2", nil)
	if err != nil {
		log.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer t0ken")
	resp, err := client.Do(req)
	if err != nil {
		log.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	fmt.Printf("%s from %s, %v\n", text, resp.Request.URL, err)
	// Output:
	// -> GET https://us.example.com/items?page=2 Bearer t0ken
	// -> GET https://eu.example.com/api/items?page=2 Bearer t0ken
	// hello from https://eu.example.com/api/items?page=2, <nil>
}

// The first region is down for a while. Requests with X-Tenant stay there, and their success ends the outage.
func ExampleEndpoint_notify() {
	n := 0
	network := faults.New(nil, func(req *http.Request) faults.Step {
		if n++; req.URL.Host == "us.example.com" && n < 10 {
			return faults.Status(503)
		}
		return faults.Status(200)
	})
	base := transport.MustNew(transport.Config{Base: network, Rule: policy.Rule{MaxAttempts: 1}})
	t, err := failover.New(
		failover.Endpoint{URL: "https://us.example.com", Transport: base, Notify: func(up bool, why error) {
			fmt.Printf("us up: %v, %v\n", up, why) // a gauge takes up, and a log line both
		}},
		failover.Endpoint{URL: "https://eu.example.com", Transport: base},
	)
	if err != nil {
		log.Fatal(err)
	}
	for i := range 6 {
		req, err := http.NewRequest(http.MethodGet, "https://us.example.com/", nil)
		if err != nil {
			log.Fatal(err)
		}
		if i == 5 {
			req.Header.Set("X-Tenant", "7")
		}
		resp, err := t.RoundTrip(req)
		if err != nil {
			log.Fatal(err)
		}
		resp.Body.Close()
	}
	// Output:
	// us up: false, 503 Service Unavailable
	// us up: true, <nil>
	// us up: true, X-Tenant: keeps requests with https://us.example.com, because an Allow lacks it
}
