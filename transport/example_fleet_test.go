package transport_test

import (
	"fmt"
	"hash/maphash"
	"log"
	"net/http"
	"net/url"
	"sync"
	"time"

	"github.com/aplomb-go/aplomb/faults"
	"github.com/aplomb-go/aplomb/fleetmsg"
	"github.com/aplomb-go/aplomb/policy"
	"github.com/aplomb-go/aplomb/transport"
)

// A board shares holds between the Transports of this process. A real backend also
// carries them to other processes.
type board struct {
	seed  maphash.Seed
	mu    sync.Mutex
	seats []*seat
}

// A seat is the place of one member at the board. It is a Fleet.
type seat struct {
	*board
	hear func(fleetmsg.Message)
}

func (s *seat) Join(hear func(fleetmsg.Message)) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hear = hear
	s.seats = append(s.seats, s)
	return nil
}

func (s *seat) Tell(m fleetmsg.Message) {
	if m.Kind != fleetmsg.Hold {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, other := range s.seats {
		if other != s {
			go other.hear(m) // never within Tell
		}
	}
}

func (s *seat) Scope(text string) uint64 { return maphash.String(s.seed, text) }

// A hold that one Transport is told binds the other. The module fleet does this over
// Redis, and shares more than holds.
func ExampleFleet() {
	b := &board{seed: maphash.MakeSeed()}
	client := func(s faults.Step) *transport.Transport {
		tr, err := transport.New(transport.Config{
			Base:  faults.New(nil, faults.Always(s)),
			Rule:  policy.Rule{Attempts: 1, RetryAfter: policy.RetryAfter{Max: time.Second}},
			Fleet: &seat{board: b},
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
	for range 100 { // the news takes a moment
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
