package literature

import (
	"fmt"
	"net/http"
	"sync"
	"time"
)

// failing is the experiment of the article "Fixing retries with token buckets and circuit
// breakers" (Marc Brooker, 2022).
func failing() *Model {
	m := &Model{
		Name:   "A server that fails at random",
		Source: "https://github.com/mbrooker/simulator_example/tree/main/retry_sim",
		About: "100 clients send 10 requests per second each for a minute. The server fails so many attempts at random, and is not slower under load. " +
			"A message takes 10 ms in the mean, exponentially distributed. The authors' clients do not wait between attempts.",
		Arms: []Arm{
			{Name: "no retries", New: Plain},
			{Name: "three retries", New: atOnce(func() retries { return retries{} })},
			{Name: "token bucket", New: atOnce(func() retries { return retries{bucket: true, tokens: 5} })},
			{Name: "three retries, breaker at 10 %", New: atOnce(func() retries { return retries{breaker: true} })},
		},
		Play: playFailing,
	}
	for _, rate := range []float64{0, 0.01, 0.1, 0.3, 0.5, 0.75, 1} {
		s := Setting{Name: fmt.Sprintf("%v %% fail", 100*rate), Value: rate, Length: time.Minute}
		if rate == 1 {
			s.Dead = Span{To: s.Length}
		}
		m.Settings = append(m.Settings, s)
	}
	// The figures of their program, which the article has as curves. At 100 % they follow from the
	// text: three retries send four times as much.
	m.publish(Load, map[string][]float64{
		"no retries":                     {1, 1, 1, 1, 1, 1, 1},
		"three retries":                  {1, 1.01, 1.11, 1.42, 1.881, 2.74, 4},
		"token bucket":                   {1, 1.011, 1.095, 1.113, 1.114, 1.114, 1.1},
		"three retries, breaker at 10 %": {1, 1.009, 1.032, 1, 1, 1, 1},
	})
	m.publish(Success, map[string][]float64{
		"no retries":                     {100, 99, 89.97, 69.34, 50.23, 25.07},
		"three retries":                  {100, 100, 99.99, 99.18, 93.52, 68.24},
		"token bucket":                   {100, 100, 98.73, 77.57, 55.81, 27.69},
		"three retries, breaker at 10 %": {100, 99.97, 92.79, 70.02, 50.04, 24.94},
	})
	return m
}

func playFailing(r *Run) {
	delay := func() time.Duration { return Seconds(0.010 * r.ExpFloat64()) }
	server := r.Server(func(req *http.Request) (*http.Response, error) {
		status := http.StatusNoContent
		if r.Float64() < r.Setting.Value {
			status = http.StatusInternalServerError
		}
		return Reply(req, delay()+delay(), status)
	})
	for range r.Part(100) {
		client := r.Client(server)
		r.Go(func() {
			r.Arrive(func() float64 { return 10 }, func() { r.Request(client) })
		})
	}
}

// retries are what one of the authors' clients knows.
type retries struct {
	mu              sync.Mutex
	bucket, breaker bool
	tokens          float64
	calls, failures float64
}

// atOnce retries at once.
func atOnce(first func() retries) func(*Run, http.RoundTripper) http.RoundTripper {
	return tries(never, func(*Run) judge {
		know := first()
		return know.judge
	})
}

// judge retries failures with a response. Only the bucket bounds the retries of a call with a bucket.
func (c *retries) judge(n int, resp *http.Response, err error) (time.Duration, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if n == 1 {
		c.calls++
		c.tokens = min(c.tokens+0.1, 5)
	}
	if err != nil || good(resp, err) {
		return 0, false
	}
	c.failures++
	switch {
	case c.bucket && c.tokens > 1:
		c.tokens--
		return 0, true
	case c.bucket, c.breaker && c.failures/c.calls > 0.1:
		return 0, false
	}
	return 0, n <= 3
}
