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
	rule := policy.Rule{Gate: policy.Gate{Mode: policy.GateWait}, Rate: policy.Rate{PerSecond: 100}}
	t, err := transport.New(transport.Config{Rule: rule})
	if err != nil {
		log.Fatal(err)
	}
	// This line is all that is needed. expvar registers /debug/vars in
	// http.DefaultServeMux. A real program serves that mux on a port of its
	// own.
	expvar.Publish("aplomb", expvar.Func(func() any { return t.Snapshot() }))
	debug := httptest.NewServer(http.DefaultServeMux)
	defer debug.Close()

	api := httptest.NewServer(http.NotFoundHandler())
	defer api.Close()
	fetch(&http.Client{Transport: t}, api.URL)

	// A monitoring system reads all variables. This example reads only ours.
	var vars struct{ Aplomb []transport.HostState }
	if err := json.Unmarshal(fetch(http.DefaultClient, debug.URL+"/debug/vars"), &vars); err != nil {
		log.Fatal(err)
	}
	for _, host := range vars.Aplomb {
		fmt.Println(host)
	}
	if len(vars.Aplomb) != 1 || vars.Aplomb[0].Requests != 1 || vars.Aplomb[0].GateLimit != 10 {
		log.Fatal("expected one host with one request and a gate of 10")
	}
	fmt.Println("The page /debug/vars has the state of each host.")
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
