package fleettest_test

import (
	"fmt"
	"log"

	"github.com/aplomb-go/aplomb/fleettest"
	"github.com/aplomb-go/aplomb/transport"
)

// Two Transports of one process are the members of a fleet.
func ExampleMemory() {
	fleet := fleettest.NewMemory()
	member := fleet.Member()
	defer member.Close()
	for _, f := range []transport.Fleet{member, fleet.Member()} {
		if _, err := transport.New(transport.Config{Fleet: f}); err != nil {
			log.Fatal(err)
		}
	}
	_, err := transport.New(transport.Config{Fleet: member})
	fmt.Println(err)
	// Output: Fleet: fleettest: a Member serves a single Transport, and this one has another already
}
