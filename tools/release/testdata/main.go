// The program of a user. Each released module adds a file with the function module. The program
// fails if the second of two attempts is not the response.
package main

import (
	"context"
	"fmt"
	"log"
	"net/http"
	"time"

	"github.com/aplomb-go/aplomb/faults"
	"github.com/aplomb-go/aplomb/policy"
	"github.com/aplomb-go/aplomb/policy/backoff"
	"github.com/aplomb-go/aplomb/transport"
)

func main() {
	attempts := 0
	config := transport.Config{
		Base:   faults.New(nil, faults.Script(faults.Status(503), faults.Pass())),
		Rule:   policy.Rule{Backoff: backoff.Constant(time.Millisecond)},
		Traces: []*transport.Trace{&transport.Trace{AttemptEnd: func(context.Context, transport.AttemptEnd) { attempts++ }}},
	}
	if err := module(&config); err != nil {
		log.Fatal(err)
	}
	tr, err := transport.New(config)
	if err != nil {
		log.Fatal(err)
	}
	resp, err := (&http.Client{Transport: tr}).Get("https://www.example.net/")
	if err != nil {
		log.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusOK || attempts != 2 {
		log.Fatalf("%d after %d attempts", resp.StatusCode, attempts)
	}
	fmt.Printf("it says %d after %d attempts\n", resp.StatusCode, attempts)
}
