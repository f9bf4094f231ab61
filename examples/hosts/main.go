// Hosts gives hosts rules of their own, in code and then from a file:
//
//	go run ./examples/hosts
package main

import (
	"context"
	_ "embed"
	"fmt"
	"log"
	"net/http"
	"net/url"
	"strings"
	"time"

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
		Rule: policy.Rule{MaxAttempts: 4, Backoff: backoff.Exponential{Base: 100 * time.Millisecond, Jitter: backoff.JitterFull}},
		Hosts: map[string]policy.Rule{
			"*.example.com":   {MaxAttempts: 2}, // other fields as in Rule
			"pay.example.com": {MaxAttempts: 1}, // no retries; other fields as in *.example.com
		},
		// For this example only: one server stands for all hosts.
		Base: &http.Transport{Proxy: func(*http.Request) (*url.URL, error) { return url.Parse(server.URL) }},
	})
	must(err)
	fmt.Println("Each host can have a rule of its own, in code or in a file.")
	fmt.Println("The server always answers 503, so it gets as many requests as the rule allows.")
	try(t, server, "rules in code", 4, 2, 1)
	rule, hosts, err := rulefile.Load(strings.NewReader(file), rulefile.Names{})
	must(err)
	must(t.Update(rule, hosts)) // for requests from now on
	try(t, server, "rules from the file, taken while the program runs", 3, 5, 1)
	fmt.Println("\nA pattern takes what it leaves open from wider ones, and then from Config.Rule.")
}

// try sends a request to each host, and prints the pattern of its rule and the reason
// why there were no more attempts.
func try(t *transport.Transport, server *testserver.Server, title string, want ...int) {
	fmt.Printf("\n%s:\n  %-16s %-18s %-7s %s\n", title, "host", "pattern", "sent", "why no more")
	for i, host := range []string{"example.org", "api.example.com", "pay.example.com"} {
		before := server.Arrivals()
		var last transport.Reason // of the last attempt, which says why there was no retry
		ctx := transport.WithTrace(context.Background(), &transport.Trace{
			AttemptEnd: func(_ context.Context, e transport.AttemptEnd) { last = e.Reason },
		})
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+host, nil)
		must(err)
		resp, err := (&http.Client{Transport: t}).Do(req)
		must(err)
		resp.Body.Close()
		_, patterns := t.RuleFor(req)
		sent := server.Arrivals() - before
		fmt.Printf("  %-16s %-18s %-7d %v\n", host, append(patterns, "(all hosts)")[0], sent, last)
		if sent != want[i] {
			log.Fatalf("expected %d", want[i])
		}
	}
}

func must(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
