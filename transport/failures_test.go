package transport_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/aplomb-go/aplomb/faults"
	"github.com/aplomb-go/aplomb/internal/soak"
	"github.com/aplomb-go/aplomb/policy"
	"github.com/aplomb-go/aplomb/transport"
)

// TestSingleFaults: a tenth of the first attempts fail. Whatever the rate, each is healed.
func TestSingleFaults(t *testing.T) {
	for _, every := range []time.Duration{time.Minute, 10 * time.Second, time.Second, 100 * time.Millisecond, 10 * time.Millisecond} {
		for name, fault := range map[string]faults.Step{"503": faults.Status(503), "reset": faults.Reset(), "silent": faults.Hang()} {
			t.Run(fmt.Sprint(name, " every ", every), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					const requests = 500
					var first, good atomic.Int64
					base := faults.New(nil, func(req *http.Request) faults.Step {
						if req.Header.Get("Attempt") == "" && first.Add(1)%10 == 0 {
							return fault
						}
						good.Add(1)
						return faults.Status(200)
					})
					tr := mustNew(t, transport.Config{Base: base, Rule: policy.Rule{AttemptTimeout: time.Second}, Trace: &transport.Trace{
						AttemptStart: func(ctx context.Context, a transport.AttemptStart) context.Context {
							if a.Number > 1 {
								a.Header.Set("Attempt", "again")
							}
							return ctx
						},
					}})
					steady(t, tr, every, requests*every, "http://api.test")
					assert.EqualValues(t, requests, first.Load(), "first attempts")
					assert.EqualValues(t, requests, good.Load(), "requests that succeeded")
				})
			})
		}
	}
}

// TestFailuresAtRandom is retry_sim of github.com/mbrooker/simulator_example for one of its clients:
// ten requests per second to a server where each attempt fails with the same probability. The
// success is what it was before the budget had a rest, which begins only if hardly anything
// succeeds.
func TestFailuresAtRandom(t *testing.T) {
	for failure, before := range map[float64]float64{0.1: 1, 0.3: 0.999, 0.5: 0.752, 0.7: 0.452, 0.9: 0.147} {
		t.Run(fmt.Sprint(failure), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				rng := rand.New(rand.NewPCG(1, uint64(100*failure)))
				var mu sync.Mutex // guards rng
				var sent, good atomic.Int64
				base := faults.New(nil, func(*http.Request) faults.Step {
					sent.Add(1)
					mu.Lock()
					defer mu.Unlock()
					if rng.Float64() < failure {
						return faults.Status(503)
					}
					good.Add(1)
					return faults.Status(200)
				})
				requests := soak.Size(3000, 30_000)
				steady(t, mustNew(t, transport.Config{Base: base}), 100*time.Millisecond, time.Duration(requests)*100*time.Millisecond, "http://api.test")
				success, load := float64(good.Load())/float64(requests), float64(sent.Load())/float64(requests)
				t.Logf("failure %.1f: success %.3f, load %.3f", failure, success, load)
				assert.GreaterOrEqual(t, success, before-0.03)
			})
		})
	}
}
