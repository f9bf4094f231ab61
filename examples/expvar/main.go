// Expvar publishes what a Transport knows of its hosts at /debug/vars.
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
	// This is all: expvar puts its handler into the default mux, which a real
	// program serves on a port of its own. Other names are other Transports.
	expvar.Publish("aplomb", expvar.Func(func() any { return t.Snapshot() }))
	debug := httptest.NewServer(http.DefaultServeMux)
	defer debug.Close()

	api := httptest.NewServer(http.NotFoundHandler())
	defer api.Close()
	fetch(&http.Client{Transport: t}, api.URL)

	// A monitoring system reads all that is there; this one, one variable.
	var vars struct{ Aplomb []transport.HostState }
	if err := json.Unmarshal(fetch(http.DefaultClient, debug.URL+"/debug/vars"), &vars); err != nil {
		log.Fatal(err)
	}
	for _, host := range vars.Aplomb {
		fmt.Println(host)
	}
	if len(vars.Aplomb) != 1 || vars.Aplomb[0].Requests != 1 || vars.Aplomb[0].Gate != 10 {
		log.Fatal("expected one host with one request and a gate of 10")
	}
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
