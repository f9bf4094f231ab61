package transport_test

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/aplomb-go/aplomb/internal/soak"
	"github.com/aplomb-go/aplomb/policy"
)

// A told is a refusal: a status and the seconds that it names.
type telling struct{ code, seconds int }

func (r telling) String() string { return fmt.Sprintf("%d for %d s", r.code, r.seconds) }

func (r telling) response(req *http.Request) (*http.Response, error) {
	return play(req, status(r.code, fmt.Sprint("Retry-After: ", r.seconds)))
}

var allTold = []telling{{429, 5}, {429, 60}, {503, 5}, {503, 60}}

// inFlight lets each member keep so many requests in flight until the context ends. Each
// takes 100 ms.
func (c *crew) inFlight(ctx context.Context, t *testing.T, all *sync.WaitGroup, each int) {
	for i := range c.transports {
		for range each {
			all.Go(func() {
				for ctx.Err() == nil {
					req := newRequest(t, http.MethodGet, "http://h.test/", nil)
					_ = closing(c.transports[i].RoundTrip(req.WithContext(ctx)))
				}
			})
		}
	}
}

// endsAfter returns a context without a deadline that ends after d.
func endsAfter(t *testing.T, d time.Duration) context.Context {
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(d, cancel)
	return ctx
}

// lasts takes the time of a request.
func lasts(req *http.Request) error { return pause(req, 100*time.Millisecond) }

// Members that are refused for reasons of their own do not stop the others, also if they
// were served before.
func TestFleetSickNeighbour(t *testing.T) {
	for _, r := range allTold {
		type row struct {
			members, sick int
			after         time.Duration
		}
		rows := []row{{4, 1, 0}, {4, 2, 5 * time.Second}, {4, 2, 0}, {20, 1, 0}, {20, 10, 0}, {20, 10, 5 * time.Second}}
		for _, row := range rows[:soak.Size(2, len(rows))] {
			inBubble(t, fmt.Sprint(r, row), func(t *testing.T) {
				begun := time.Now()
				c := newCrew(t, row.members, newMemFleet(2*time.Millisecond), policy.Rule{}, func(i int, req *http.Request) (*http.Response, error) {
					if err := lasts(req); err != nil {
						return nil, err
					}
					if i < row.sick && time.Since(begun) >= row.after {
						return r.response(req)
					}
					return play(req, status(200))
				})
				ctx := endsAfter(t, 30*time.Second)
				var all sync.WaitGroup
				c.inFlight(ctx, t, &all, 8)
				all.Wait()
				t.Logf("%v", c.each())
				for _, n := range c.each()[row.sick:] {
					assert.GreaterOrEqual(t, n, 2400*8/10)
				}
			})
		}
	}
}

// If all members are refused, they send hardly anything during the hold.
func TestFleetAllRefused(t *testing.T) {
	const members, begin = 4, 5 * time.Second
	for _, r := range allTold {
		inBubble(t, fmt.Sprint(r), func(t *testing.T) {
			begun := time.Now()
			var mu sync.Mutex
			var first time.Time // when the first refusal was given
			late := 0
			c := newCrew(t, members, newMemFleet(2*time.Millisecond), policy.Rule{}, func(_ int, req *http.Request) (*http.Response, error) {
				refused := time.Since(begun) > begin
				mu.Lock()
				if !first.IsZero() && time.Since(first) > 10*time.Millisecond {
					late++
				}
				mu.Unlock()
				if err := lasts(req); err != nil || !refused {
					resp, _ := play(req, status(200))
					return resp, err
				}
				mu.Lock()
				defer mu.Unlock()
				if first.IsZero() {
					first = time.Now()
				}
				return r.response(req)
			})
			ctx := endsAfter(t, begin+time.Duration(r.seconds)*time.Second)
			var all sync.WaitGroup
			c.inFlight(ctx, t, &all, 8)
			all.Wait()
			t.Logf("%d sends during the hold", late)
			assert.LessOrEqual(t, late, 2)
		})
	}
}
