// The program of a user of the root module. It fails if a response is not as promised.
package main

import (
	"fmt"
	"io"
	"log"
	"net/http"
	"strings"
	"time"

	"github.com/aplomb-go/aplomb/classify"
	"github.com/aplomb-go/aplomb/faults"
	"github.com/aplomb-go/aplomb/policy"
	"github.com/aplomb-go/aplomb/policy/backoff"
	"github.com/aplomb-go/aplomb/policy/profile"
	"github.com/aplomb-go/aplomb/policy/rulefile"
	"github.com/aplomb-go/aplomb/transport"
)

func main() {
	rule, hosts, err := rulefile.Load(strings.NewReader(`{
		"rule": {"attempts": 3},
		"hosts": {"api.github.com": {"profile": "github"}}
	}`), rulefile.Names{})
	if err != nil {
		log.Fatal(err)
	}
	rule.Backoff = backoff.Constant(time.Millisecond)
	hosts["api.stripe.com"] = profile.Stripe()
	hosts["*.example.com"] = policy.API()

	network := faults.New(nil, faults.Script(faults.Status(503), faults.Reset(), faults.Pass().Body("whole")))
	attempts := 0
	tr, err := transport.New(transport.Config{
		Base: network, Rule: rule, Hosts: hosts,
		Trace: &transport.Trace{Event: func(transport.Event) { attempts++ }},
	})
	if err != nil {
		log.Fatal(err)
	}
	resp, err := (&http.Client{Transport: tr}).Get("https://www.example.net/")
	if err != nil {
		log.Fatal(err)
	}
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		log.Fatal(err)
	}
	verdict := classify.Default(classify.Outcome{Request: resp.Request, Response: resp})
	if string(body) != "whole" || attempts != 3 || verdict != classify.Final {
		log.Fatalf("%d attempts: %v %q", attempts, verdict, body)
	}
	fmt.Printf("it says %d after %d attempts\n", resp.StatusCode, attempts)
}
