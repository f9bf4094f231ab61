package transport_test

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

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

// If all members are refused, they send hardly anything during the hold.
func TestFleetAllRefused(t *testing.T) {
	for _, row := range []struct {
		members, code, seconds, most int
	}{{4, 429, 5, 4 * 8}, {4, 503, 60, 4 * 8}, {50, 429, 60, 20}} {
		inBubble(t, fmt.Sprint(row), func(t *testing.T) {
			const begin = 5 * time.Second
			begun := time.Now()
			var mu sync.Mutex
			var first time.Time // when the first refusal was given
			late := 0
			c := newCrew(t, row.members, newMemFleet(2*time.Millisecond), sharing, func(_ int, req *http.Request) (*http.Response, error) {
				refused := time.Since(begun) > begin
				mu.Lock()
				if !first.IsZero() {
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
				return play(req, status(row.code, fmt.Sprint("Retry-After: ", row.seconds)))
			})
			ctx := endsAfter(t, begin+time.Duration(row.seconds)*time.Second)
			var all sync.WaitGroup
			c.inFlight(ctx, t, &all, 8)
			all.Wait()
			t.Logf("%d sends during the hold", late)
			assert.LessOrEqual(t, late, row.most)
		})
	}
}
