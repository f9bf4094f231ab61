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
