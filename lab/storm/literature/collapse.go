package literature

import (
	"context"
	"math"
	"net/http"
	"sync"
	"time"

	"github.com/aplomb-go/aplomb/policy"
)

// collapse is the experiment of the article "What is Backoff For?" (Marc Brooker, 2022).
func collapse() *Model {
	m := &Model{
		Name:   "Collapse after a spike",
		Source: "https://github.com/mbrooker/simulator_example/tree/main/simple_collapse_sim",
		About: "40 requests per second begin, and 80 from 20 to 25 s. The server takes 1 s, and 10 ms more for each request in progress, " +
			"also for requests whose clients have left. A message takes 100 ms in the mean. A client waits 3 s. The clients of aplomb share a Transport.",
		Arms: []Arm{
			{Name: "one try", New: tries(1, 0)},
			{Name: "three tries", New: tries(3, 0)},
			{Name: "three tries, exponential wait with full jitter", New: tries(3, 20)},
		},
		Settings: []Setting{{Name: "spike", Runs: 100, Length: 80 * time.Second, Trigger: Span{20 * time.Second, 25 * time.Second}}},
		Rule:     policy.Rule{AttemptTimeout: collapseTimeout},
		Play:     playCollapse,
		Why: []Reason{{"", gateOn, "The gate does worse than no retries here. It learns from failures alone, and this server has none until 200 requests are in progress. " +
			"Then all of them time out at once, more than the budget has retries for. With Gate.Max below that it does not happen."}},
	}
	m.publish(Back, map[string][]float64{
		"three tries": {math.Inf(1)},
		"three tries, exponential wait with full jitter": {0},
	})
	return m
}

const collapseTimeout = 3 * time.Second

func playCollapse(r *Run) {
	delay := func() time.Duration { return Seconds(0.100 * r.ExpFloat64()) }
	var mu sync.Mutex
	busy := 0
	server := r.Server(func(req *http.Request) (*http.Response, error) {
		answered := make(chan struct{})
		r.Go(func() {
			time.Sleep(delay())
			mu.Lock()
			busy++
			work := time.Second + time.Duration(busy)*10*time.Millisecond
			mu.Unlock()
			time.Sleep(work)
			mu.Lock()
			busy--
			mu.Unlock()
			time.Sleep(delay())
			close(answered)
		})
		select {
		case <-answered:
			return Response(req, http.StatusNoContent), nil
		case <-req.Context().Done():
			return nil, req.Context().Err()
		}
	})
	client := r.Client(server)
	r.Arrive(func() float64 {
		if t := r.Setting.Trigger; r.Now() >= t.From && r.Now() <= t.To {
			return 80
		}
		return 40
	}, func() { r.Request(client) })
}

// tries sends a request n times at most. Before the next it waits up to first seconds, then twice
// that, and so on, at random.
func tries(n int, first float64) func(*Run, http.RoundTripper) http.RoundTripper {
	return func(r *Run, server http.RoundTripper) http.RoundTripper {
		return RoundTripper(func(req *http.Request) (resp *http.Response, err error) {
			most := first
			for i := range n {
				if i > 0 {
					time.Sleep(Seconds(r.Float64() * most))
					most *= 2
				}
				ctx, cancel := context.WithTimeout(req.Context(), collapseTimeout)
				resp, err = server.RoundTrip(req.WithContext(ctx))
				cancel()
				if err == nil {
					return resp, nil
				}
			}
			return nil, err
		})
	}
}
