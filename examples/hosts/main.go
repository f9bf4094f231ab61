// Hosts gives hosts rules of their own, in code and then from a file:
//
//	go run ./examples/hosts
package main

import (
	_ "embed"
	"fmt"
	"log"
	"net/http"
	"net/url"
	"strings"

	"github.com/aplomb-go/aplomb/internal/testserver"
	"github.com/aplomb-go/aplomb/policy"
	"github.com/aplomb-go/aplomb/policy/backoff"
	"github.com/aplomb-go/aplomb/policy/rulefile"
	"github.com/aplomb-go/aplomb/transport"
)

//go:embed rules.json
var file string

func main() {
	server, err := testserver.New(testserver.Config{}, testserver.Status(503)) // always
	must(err)
	t, err := transport.New(transport.Config{
		Rule: policy.Rule{Attempts: 4, Backoff: backoff.FullJitter{}},
		Hosts: map[string]policy.Rule{
			"*.example.com":   {Attempts: 2},          // other fields as in Rule
			"pay.example.com": {Attempts: policy.Off}, // no retries; the most specific pattern wins
		},
		// For this example only: one server stands for all hosts.
		Base: &http.Transport{Proxy: func(*http.Request) (*url.URL, error) { return url.Parse(server.URL) }},
	})
	must(err)
	try(t, server, "rules in code", 4, 2, 1)
	rule, hosts, err := rulefile.Load(strings.NewReader(file), rulefile.Names{})
	must(err)
	must(t.Update(rule, hosts)) // for requests from now on
	try(t, server, "rules from the file", 3, 5, 1)
}

func try(t *transport.Transport, server *testserver.Server, title string, want ...int) {
	for i, host := range []string{"example.org", "api.example.com", "pay.example.com"} {
		before := server.Arrivals()
		resp, err := (&http.Client{Transport: t}).Get("http://" + host)
		must(err)
		resp.Body.Close()
		fmt.Printf("%s: %s: sent %d×\n", title, host, server.Arrivals()-before)
		if server.Arrivals() != before+want[i] {
			log.Fatalf("expected %d×", want[i])
		}
	}
}

func must(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
