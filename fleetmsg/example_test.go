package fleetmsg_test

import (
	"fmt"
	"time"

	"github.com/aplomb-go/aplomb/fleetmsg"
)

// A Message is a value. A log or a test can print it, and compare it with another.
func ExampleMessage() {
	told := fleetmsg.Message{Kind: fleetmsg.Hold, Host: "https://api.example.com", Status: 429, Wait: 2 * time.Second}
	heard := told
	fmt.Println(heard)
	fmt.Println(heard == told)
	// Output:
	// hold host=https://api.example.com status=429 wait=2s
	// true
}
