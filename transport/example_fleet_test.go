package transport_test

import (
	"expvar"
	"fmt"
	"log"
	"net/http"
	"net/url"
	"time"

	"github.com/aplomb-go/aplomb/faults"
	"github.com/aplomb-go/aplomb/fleettest"
	"github.com/aplomb-go/aplomb/policy"
	"github.com/aplomb-go/aplomb/transport"
)

// A hold that one Transport is told binds the other. Here both are in one process. The module
// fleet does this over Redis.
func ExampleFleet() {
	fleet := fleettest.NewMemory()
	client := func(s faults.Step) *transport.Transport {
		tr, err := transport.New(transport.Config{
			Base:  faults.New(nil, faults.Always(s)),
			Rule:  policy.Rule{Cooldown: policy.On, Attempts: 1, RetryAfter: policy.RetryAfter{Max: time.Second}},
			Fleet: fleet.Member(),
		})
		if err != nil {
			log.Fatal(err)
		}
		return tr
	}
	told, other := client(faults.Status(429).RetryAfter(time.Minute)), client(faults.Status(200))
	get := func(tr *transport.Transport) (*http.Response, error) {
		c := http.Client{Transport: tr}
		return c.Get("http://api.test/")
	}
	if resp, err := get(other); err == nil {
		resp.Body.Close() // from now on it knows the host
	}
	if resp, err := get(told); err == nil {
		fmt.Println("told:", resp.StatusCode)
		resp.Body.Close()
	}
	for range 1000 { // the news takes a moment
		if s, _ := other.SnapshotOf(&url.URL{Scheme: "http", Host: "api.test"}); s.HeldScopes > 0 {
			fmt.Println("other: holds its requests back")
			return
		}
		time.Sleep(time.Millisecond)
	}
	// Output:
	// told: 429
	// other: holds its requests back
}

// expvar shows how the fleet is, beside the states of the hosts.
func ExampleTransport_FleetState() {
	tr, err := transport.New(transport.Config{Fleet: fleettest.NewMemory().Member()})
	if err != nil {
		log.Fatal(err)
	}
	expvar.Publish("aplomb_hosts", expvar.Func(func() any { return tr.Snapshot() }))
	expvar.Publish("aplomb_fleet", expvar.Func(func() any {
		s, _ := tr.FleetState()
		return s
	}))
	fmt.Println(expvar.Get("aplomb_fleet"))
	// Output: {"connected":true,"members":1,"commands":0,"dropped":0,"heartbeat_age":0}
}
