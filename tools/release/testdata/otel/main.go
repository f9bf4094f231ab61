// The program of a user of the module otel. It fails if the request is not counted.
package main

import (
	"fmt"
	"log"
	"net/http"
	"time"

	"github.com/aplomb-go/aplomb/faults"
	aplombotel "github.com/aplomb-go/aplomb/otel"
	"github.com/aplomb-go/aplomb/policy"
	"github.com/aplomb-go/aplomb/policy/backoff"
	"github.com/aplomb-go/aplomb/transport"
)

func main() {
	telemetry, err := aplombotel.New(aplombotel.Config{})
	if err != nil {
		log.Fatal(err)
	}
	attempts := 0
	tr, err := transport.New(transport.Config{
		Base:  faults.New(nil, faults.Script(faults.Status(503), faults.Pass())),
		Rule:  policy.Rule{Backoff: backoff.Constant(time.Millisecond)},
		Trace: transport.JoinTraces(telemetry.Trace(), &transport.Trace{Event: func(transport.Event) { attempts++ }}),
	})
	if err != nil {
		log.Fatal(err)
	}
	stop, err := telemetry.Watch(tr)
	if err != nil {
		log.Fatal(err)
	}
	resp, err := (&http.Client{Transport: tr}).Get("https://www.example.net/")
	if err != nil {
		log.Fatal(err)
	}
	resp.Body.Close()
	if err := stop(); err != nil {
		log.Fatal(err)
	}
	if resp.StatusCode != http.StatusOK || attempts != 2 {
		log.Fatalf("%d after %d attempts", resp.StatusCode, attempts)
	}
	fmt.Printf("it says %d after %d attempts\n", resp.StatusCode, attempts)
}
