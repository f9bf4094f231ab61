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
	"github.com/aplomb-go/aplomb/policy"
	"github.com/aplomb-go/aplomb/transport"
)

// A board shares holds between the Transports of this process. A real backend also
// carries them to other processes.
type board struct {
	seed    maphash.Seed
	mu      sync.Mutex
	members []*transport.Member
}

// A seat is the place of one member at the board. It embeds a Fleet that is nil, so it
// has only the methods that this example needs.
type seat struct {
	transport.Fleet
	*board
	me *transport.Member
}

func (s *seat) Join(m *transport.Member) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.me = m
	s.members = append(s.members, m)
	return nil
}

func (s *seat) Scope(text string) uint64 { return maphash.String(s.seed, text) }

func (s *seat) Meet(string) {}

func (s *seat) Hold(h transport.FleetHold) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, m := range s.members {
		if m != s.me {
			go m.Hold(h) // never within a call of a method of the Fleet
		}
	}
}

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
