package transport_test

import (
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/aplomb-go/aplomb/classify"
	"github.com/aplomb-go/aplomb/policy"
	"github.com/aplomb-go/aplomb/transport"
)

// generous turns on every limit, with values that hold nothing back.
var generous = policy.Rule{
	AttemptTimeout: 10 * time.Second,
	Stall:          policy.Stall{Timeout: 30 * time.Second},
	MaxElapsed:     time.Minute,
	Classify:       classify.Refusals,
	Rate:           policy.Rate{PerSecond: 1e6, Burst: 1e6},
	Pacing:         policy.On,
	Gate:           policy.Gate{Mode: policy.GateWait, Start: 2000},
}

// BenchmarkCrowd has 1,000 goroutines on a single host with every limit on. Run it
// with -mutexprofile to see at which locks they wait for each other. If the base
// responds at once, the goroutines do nothing but ask the limits, so nearly all of
// them wait for a lock at any time.
func BenchmarkCrowd(b *testing.B) {
	const crowd = 1000
	for _, row := range []struct {
		name  string
		takes time.Duration
	}{
		{"at once", 0},
		{"after 50 ms", 50 * time.Millisecond},
	} {
		b.Run(row.name, func(b *testing.B) {
			base := rt(func(req *http.Request) (*http.Response, error) {
				time.Sleep(row.takes)
				return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody, Request: req}, nil
			})
			tr := mustNew(b, transport.Config{Base: base, Rule: generous})
			var left atomic.Int64
			left.Store(int64(b.N))
			var wg sync.WaitGroup
			b.ReportAllocs()
			b.ResetTimer()
			for range crowd {
				wg.Go(func() {
					req := getRequest(b, "https://api.example.com/v1/things")
					for left.Add(-1) >= 0 {
						if _, err := tr.RoundTrip(req); err != nil {
							b.Error(err)
							return
						}
					}
				})
			}
			wg.Wait()
		})
	}
}

// limited are the limits of a host, each by itself and all together.
var limited = map[string]policy.Rule{
	"no limit":      {MaxElapsed: time.Minute},
	"gate":          {Gate: policy.Gate{Mode: policy.GateWait}},
	"rate":          {Rate: policy.Rate{PerSecond: 1e6, Burst: 1e6}},
	"pacing":        {Pacing: policy.On},
	"hedge":         {Hedge: policy.Hedge{After: time.Minute}},
	"all but hedge": {Gate: policy.Gate{Mode: policy.GateWait}, Rate: generous.Rate, Pacing: policy.On, MaxElapsed: time.Minute},
}

// TestLimitsAllocateNothing: the limits of a host cost no allocation if nothing waits.
func TestLimitsAllocateNothing(t *testing.T) {
	req := getRequest(t, "https://api.example.com/v1/things")
	for name, rule := range limited {
		if rule.Hedge.Enabled() {
			continue // an attempt that may be hedged runs in a goroutine of its own
		}
		tr := mustNew(t, transport.Config{Base: newNoop(), Rule: rule})
		assert.Zero(t, testing.AllocsPerRun(1000, func() {
			_, _ = tr.RoundTrip(req)
		}), name)
	}
}

// BenchmarkLimits is the first try with each of the limits.
func BenchmarkLimits(b *testing.B) {
	req := getRequest(b, "https://api.example.com/v1/things")
	for name, rule := range limited {
		tr := mustNew(b, transport.Config{Base: newNoop(), Rule: rule})
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				_, _ = tr.RoundTrip(req)
			}
		})
	}
}
