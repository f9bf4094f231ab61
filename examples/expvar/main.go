// Expvar shows how to publish the state of each host at /debug/vars.
//
//	go run ./examples/expvar
package main

import (
	"encoding/json"
	"expvar"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"

	"github.com/aplomb-go/aplomb/policy"
	"github.com/aplomb-go/aplomb/transport"
)

func main() {
	fmt.Println("One line publishes the state of each host at /debug/vars.")
	rule := policy.Rule{Gate: policy.Gate{Mode: policy.GateWait}, Rate: policy.Rate{PerSecond: 100}}
	t, err := transport.New(transport.Config{Rule: rule})
	if err != nil {
		log.Fatal(err)
	}
	// This is the line. expvar registers /debug/vars in http.DefaultServeMux. A
	// real program serves that mux on a port of its own.
	expvar.Publish("aplomb", expvar.Func(func() any { return t.Snapshot() }))
	debug := httptest.NewServer(http.DefaultServeMux)
	defer debug.Close()

	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/busy" {
			w.Header().Set("Retry-After", "3600")
			w.WriteHeader(http.StatusTooManyRequests)
		}
	}))
	defer api.Close()
	client := &http.Client{Transport: t}
	for _, path := range []string{"/", "/", "/busy"} {
		fetch(client, api.URL+path)
	}

	// A monitoring system reads all variables. This example reads only ours.
	var vars struct{ Aplomb []transport.HostState }
	if err := json.Unmarshal(fetch(http.DefaultClient, debug.URL+"/debug/vars"), &vars); err != nil {
		log.Fatal(err)
	}
	page, err := json.MarshalIndent(vars.Aplomb, "  ", "  ")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("\nA host got three requests. It told the last one to come back in an hour:\n\n  %s\n\n", page)
	if len(vars.Aplomb) != 1 || vars.Aplomb[0].Requests != 3 || vars.Aplomb[0].HeldScopes != 1 {
		log.Fatal("expected one host with three requests and a hold")
	}
	fmt.Println("held_scopes says that requests to this host wait, and held_until says how long.")
}

func fetch(client *http.Client, url string) []byte {
	resp, err := client.Get(url)
	if err != nil {
		log.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		log.Fatal(err)
	}
	return body
}
