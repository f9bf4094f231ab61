// The program of a user of the module fleet. There is no Redis, so it fails if the
// Transport does not do without.
package main

import (
	"fmt"
	"log"
	"net/http"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/aplomb-go/aplomb/faults"
	"github.com/aplomb-go/aplomb/fleet"
	"github.com/aplomb-go/aplomb/policy"
	"github.com/aplomb-go/aplomb/policy/backoff"
	"github.com/aplomb-go/aplomb/transport"
)

func main() {
	f, err := fleet.New(fleet.Config{
		Redis: &redis.UniversalOptions{Addrs: []string{"127.0.0.1:1"}},
		Key:   []byte("a key for this program only"),
	})
	if err != nil {
		log.Fatal(err)
	}
	attempts := 0
	tr, err := transport.New(transport.Config{
		Base:  faults.New(nil, faults.Script(faults.Status(503), faults.Pass())),
		Rule:  policy.Rule{Backoff: backoff.Constant(time.Millisecond)},
		Fleet: f,
		Trace: &transport.Trace{Event: func(transport.Event) { attempts++ }},
	})
	if err != nil {
		log.Fatal(err)
	}
	resp, err := (&http.Client{Transport: tr}).Get("https://www.example.net/")
	if err != nil {
		log.Fatal(err)
	}
	resp.Body.Close()
	f.Close()
	if resp.StatusCode != http.StatusOK || attempts != 2 {
		log.Fatalf("%d after %d attempts", resp.StatusCode, attempts)
	}
	fmt.Printf("without Redis it says %d after %d attempts\n", resp.StatusCode, attempts)
}
