package transport_test

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/aplomb-go/aplomb/internal/soak"
	"github.com/aplomb-go/aplomb/policy"
	"github.com/aplomb-go/aplomb/transport"
)

// roundTrip is how long each response takes in openLoop.
const roundTrip = 20 * time.Millisecond

// openLoop sends so many requests at random times, on average perSecond of them, to a
// server that refuses a share of them with 429 and a wait of 1 s. It returns how long the
// requests took that were not refused themselves, in order.
func openLoop(t *testing.T, seed uint64, perSecond float64, n int, share float64, rule policy.Rule) (took []time.Duration) {
	rng := rand.New(rand.NewPCG(seed, 23))
	var mu sync.Mutex
	tr := mustNew(t, transport.Config{Rule: rule, Base: rt(func(req *http.Request) (*http.Response, error) {
		mu.Lock()
		refuse := rng.Float64() < share
		mu.Unlock()
		if err := pause(req, roundTrip); err != nil {
			return nil, err
		}
		if refuse {
			return play(req, status(429, "Retry-After: 1"))
		}
		return play(req, status(200))
	})})
	arrivals := rand.New(rand.NewPCG(seed, 24))
	var all sync.WaitGroup
	for range n {
		time.Sleep(time.Duration(arrivals.ExpFloat64() / perSecond * float64(time.Second)))
		all.Go(func() {
			refused, began := false, time.Now()
			ctx := transport.WithTrace(t.Context(), &transport.Trace{Event: func(e transport.Event) { refused = refused || e.Status == 429 }})
			resp, err := get(t, tr, ctx)
			if assert.NoError(t, err) {
				_ = resp.Body.Close()
			}
			if !refused {
				mu.Lock()
				defer mu.Unlock()
				took = append(took, time.Since(began))
			}
		})
	}
	all.Wait()
	slices.Sort(took)
	return took
}

// percentile returns a percentile of sorted durations.
func percentile(sorted []time.Duration, p float64) time.Duration {
	return sorted[min(len(sorted)-1, int(p/100*float64(len(sorted))))]
}

// TestScatteredLatency: a request that was not refused itself hardly waits for the refusals
// of others, if these are few among many successes.
func TestScatteredLatency(t *testing.T) {
	shares := soak.Size([]float64{0.02, 0.05, 0.1}, []float64{0.001, 0.005, 0.01, 0.02, 0.05, 0.1})
	for _, perSecond := range soak.Size([]float64{5, 40}, []float64{5, 10, 20, 40, 80, 200}) {
		for _, share := range shares {
			t.Run(fmt.Sprintf("%v per second, %v refused", perSecond, share), func(t *testing.T) {
				var took []time.Duration
				seeds := soak.Size(2, 10)
				if share >= 0.1 {
					seeds = 10 // the percentiles of fewer vary too much
				}
				for seed := range uint64(seeds) {
					bubble(t, func(t *testing.T) {
						n := int(max(2000, 60*perSecond))
						took = append(took, openLoop(t, seed, perSecond, n, share, policy.Rule{})...)
					})
				}
				slices.Sort(took)
				require.NotEmpty(t, took)
				p95, p99 := percentile(took, 95), percentile(took, 99)
				t.Logf("p90 %v, p95 %v, p99 %v, p99.9 %v", percentile(took, 90), p95, p99, percentile(took, 99.9))
				assert.LessOrEqual(t, p95, 3*roundTrip)
				if perSecond >= 40 && share <= 0.05 {
					assert.LessOrEqual(t, p99, 10*roundTrip)
				}
			})
		}
	}
}
