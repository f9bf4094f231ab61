package literature

import (
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
			"also for requests whose clients have left. A message takes 100 ms in the mean. A client waits 3 s. The requests are spread over so many processes, which makes no difference to the authors' clients.",
		Arms: []Arm{
			{Name: "one try", New: spaced(1, 0)},
			{Name: "three tries", New: spaced(3, 0)},
			{Name: "three tries, exponential wait with full jitter", New: spaced(3, 20)},
		},
		Rule: policy.Rule{AttemptTimeout: collapseTimeout},
		Play: playCollapse,
		Why: []Reason{
			{"10 processes", "", "In a few of the 20 runs the spike leaves so many timeouts that their retries, 1 to 9 s later, keep the server overloaded. In the other runs no request is lost. " +
				"A process sends 4 requests per second, and has 3 retries per second beside those that its requests earn, so that a client with few requests keeps its retries. " +
				"With RetryBudget{MinPerSecond: 0.3, Burst: 5} the default is back after 2.6 s, with load 1.02 and 97.8 % success."},
			{"100 processes", "", "The same happens here, and a smaller budget helps less, because a process sends one request in 2.5 s. The authors' client that comes back waits up to 20 s after its first timeout, " +
				"and up to 40 s after the second. Few callers have that time. For those that have it, set three attempts and backoff.Exponential{Base: 20 * time.Second, Max: 40 * time.Second, Jitter: backoff.JitterFull}. Then aplomb does the same."},
		},
	}
	for _, x := range []struct {
		name            string
		processes, runs int
	}{{"1 process", 1, 50}, {"10 processes", 10, 20}, {"100 processes", 100, 20}} {
		m.Settings = append(m.Settings, Setting{
			Name: x.name, Value: float64(x.processes), Runs: x.runs,
			Length: 80 * time.Second, Trigger: Span{20 * time.Second, 25 * time.Second},
		})
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
	clients := make([]http.RoundTripper, int(r.Setting.Value))
	for i := range clients {
		clients[i] = r.Client(server)
	}
	r.Arrive(func() float64 {
		if t := r.Setting.Trigger; r.Now() >= t.From && r.Now() <= t.To {
			return 80
		}
		return 40
	}, func() { r.Request(clients[int(r.Float64()*float64(len(clients)))]) })
}

// spaced sends a request n times at most. Before the next it waits up to first seconds, then twice
// that, and so on, at random.
func spaced(n int, first float64) func(*Run, http.RoundTripper) http.RoundTripper {
	return tries(collapseTimeout, func(r *Run) judge {
		return func(i int, _ *http.Response, err error) (time.Duration, bool) {
			if err == nil || i == n {
				return 0, false
			}
			return Seconds(r.Float64() * first * math.Pow(2, float64(i-1))), true
		}
	})
}
