package literature

import (
	"cmp"
	"context"
	"math"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/aplomb-go/aplomb/policy"
)

// stragglers is the benchmark of a client that hedges, by Bhope.
func stragglers() *Model {
	m := &Model{
		Name:   "Stragglers",
		Source: "https://github.com/bhope/hedge",
		About: "20 callers send 50,000 requests as fast as they are answered. The server takes 5 ms with a deviation of 2 ms, lognormal, and ten times as long for 5 % of the requests. " +
			"0.25 ms for the network and the timers are added, which the authors measured with a real server.",
		Arms: []Arm{
			{Name: "no hedging", New: Plain},
			{Name: "hedge after 10 ms", Shared: true, New: hedging(func(*hedger) time.Duration { return 10 * time.Millisecond }, 0)},
			{Name: "hedge after 50 ms", Shared: true, New: hedging(func(*hedger) time.Duration { return 50 * time.Millisecond }, 0)},
			{Name: adaptive, Shared: true, New: hedging((*hedger).p90, 0.1*20/0.00725)},
		},
		Settings: []Setting{{Name: "5 % stragglers"}},
		Rule:     policy.Rule{Hedge: policy.Hedge{Percentile: 90}},
		Play:     playStragglers,
		Time:     func(c *Record) float64 { return c.Percentile(99) },
		TimeName: "p99",
	}
	m.publish(Load, map[string][]float64{"no hedging": {1}, "hedge after 10 ms": {1.074}, "hedge after 50 ms": {1.021}, adaptive: {1.089}})
	m.publish(Time, map[string][]float64{"no hedging": {64.3}, "hedge after 10 ms": {17.4}, "hedge after 50 ms": {54.7}, adaptive: {17.0}})
	return m
}

const adaptive = "hedge after p90, budget of 10 %"

func playStragglers(r *Run) {
	const mean, deviation = 5.0, 2.0 // ms
	sigma := math.Sqrt(math.Log(1 + deviation*deviation/(mean*mean)))
	mu := math.Log(mean) - sigma*sigma/2
	server := r.Server(func(req *http.Request) (*http.Response, error) {
		ms := math.Exp(mu + sigma*r.NormFloat64())
		if r.Float64() < 0.05 {
			ms *= 10
		}
		return Reply(req, Seconds((ms+0.25)/1000), http.StatusOK)
	})
	client := r.Client(server)
	for range 20 {
		r.Go(func() {
			for range r.Part(50_000) / 20 {
				r.Request(client)
			}
		})
	}
}

// A hedger sends a second attempt after a while.
type hedger struct {
	mu    sync.Mutex
	took  []time.Duration // sorted, of the last window
	seen  int
	rate  float64 // hedges per second; 0: no bound
	saved float64
	at    time.Time // of saved
}

// hedging waits as after says, and takes the response that comes first. The bucket of the budget
// is filled by rate, and holds that of two seconds.
func hedging(after func(*hedger) time.Duration, rate float64) func(*Run, http.RoundTripper) http.RoundTripper {
	return func(_ *Run, server http.RoundTripper) http.RoundTripper {
		h := &hedger{rate: rate, saved: 2 * rate, at: time.Now()}
		return RoundTripper(func(req *http.Request) (*http.Response, error) {
			began := time.Now()
			ctx, cancel := context.WithCancel(req.Context())
			defer cancel()
			responses := make(chan *http.Response, 2)
			send := func() {
				if resp, err := server.RoundTrip(req.WithContext(ctx)); err == nil {
					responses <- resp
				}
			}
			go send()
			timer := time.NewTimer(after(h))
			defer timer.Stop()
			select {
			case resp := <-responses:
				h.learn(time.Since(began))
				return resp, nil
			case <-timer.C:
			}
			if h.take() {
				go send()
			}
			resp := <-responses
			h.learn(time.Since(began))
			return resp, nil
		})
	}
}

func (h *hedger) take() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.rate == 0 {
		return true
	}
	h.saved = min(2*h.rate, h.saved+h.rate*time.Since(h.at).Seconds())
	h.at = time.Now()
	if h.saved < 1 {
		return false
	}
	h.saved--
	return true
}

func (h *hedger) learn(d time.Duration) {
	if h.rate == 0 {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	i, _ := slices.BinarySearchFunc(h.took, d, cmp.Compare[time.Duration])
	h.took = slices.Insert(h.took, i, d)
}

// p90 is the time that 90 % of the requests took at most. For the first 20 requests it is 10 ms.
func (h *hedger) p90() time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.seen++; h.seen <= 20 || len(h.took) == 0 {
		return 10 * time.Millisecond
	}
	return max(time.Millisecond, h.took[(len(h.took)*9+9)/10-1])
}
