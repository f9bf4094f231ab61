package literature

import (
	"fmt"
	"math"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/aplomb-go/aplomb/policy"
)

// updates is the experiment of the article "Exponential Backoff And Jitter" (Marc Brooker, AWS
// Architecture Blog, 2015).
func updates() *Model {
	m := &Model{
		Name:   "Updates of one row",
		Source: "https://github.com/aws-samples/aws-arch-backoff-simulator",
		About: "So many clients read a row at the same time and then write it. A write fails if another write came since the read. " +
			"A message takes 10 ms, with a deviation of 2 ms. An attempt of aplomb is a read and a write, and a conflict is a 503.",
		Arms: []Arm{
			{Name: "exponential", New: again(doubled)},
			{Name: "decorrelated jitter", New: decorrelated},
			{Name: "equal jitter", New: again(func(r *Run, n int) float64 { return doubled(r, n) * (1 + r.Float64()) / 2 })},
			{Name: "full jitter", New: again(func(r *Run, n int) float64 { return doubled(r, n) * r.Float64() })},
			{Name: "no wait", New: again(func(*Run, int) float64 { return 0 })},
		},
		Rule:     policy.Rule{Idempotent: func(*http.Request) bool { return true }},
		Play:     playUpdates,
		Time:     (*Record).Last,
		TimeName: "when the last client is done",
		Notes: []string{"The clients of aplomb send a third of the calls and take longer, because their waits are meant for hosts and not for rows. " +
			"A rule with backoff.Exponential{Base: 10 * time.Millisecond, Max: 2 * time.Second, Jitter: backoff.JitterFull} and 50 attempts does what full jitter does. " +
			"One Transport has one budget for all its clients, and loses the updates for which that has no retry."},
	}
	for _, x := range []struct{ clients, runs int }{{10, 1000}, {50, 400}, {100, 100}, {190, 100}} {
		m.Settings = append(m.Settings, Setting{Name: fmt.Sprint(x.clients, " clients"), Value: float64(x.clients), Runs: x.runs, Length: 5 * time.Minute})
	}
	// The means of 150 to 3000 runs of their program, for 10, 50, 100 and 190 clients. The article
	// has them as curves.
	m.publish(Load, map[string][]float64{
		"exponential":         {5.09, 12.5, 18.6, 27.2},
		"decorrelated jitter": {3.77, 7.49, 10, 12.8},
		"equal jitter":        {4.25, 6.94, 8.13, 9.26},
		"full jitter":         {3.9, 6.64, 7.95, 9.32},
		"no wait":             {5.08, 13.8, 24.2, 42.1},
	})
	m.publish(Time, map[string][]float64{
		"exponential":         {3508, 36378, 63473, 101446},
		"decorrelated jitter": {435, 2219, 4604, 8033},
		"equal jitter":        {728, 4231, 6610, 9425},
		"full jitter":         {462, 2859, 4908, 7451},
		"no wait":             {380, 1141, 2027, 3537},
	})
	return m
}

func playUpdates(r *Run) {
	delay := func() time.Duration { return Seconds(math.Abs(0.010 + 0.002*r.NormFloat64())) }
	var version atomic.Int64
	server := RoundTripper(func(req *http.Request) (*http.Response, error) {
		time.Sleep(delay())
		read := version.Load()
		time.Sleep(delay() + delay())
		status := http.StatusServiceUnavailable
		r.Attempt()
		if version.CompareAndSwap(read, read+1) {
			status = http.StatusNoContent
		}
		time.Sleep(delay())
		return Response(req, status), nil
	})
	for range int(r.Setting.Value) {
		client := r.Client(server)
		r.Go(func() { r.Request(client) })
	}
}

// doubled is 5 ms · 2^n, and at most 2 s, in seconds.
func doubled(_ *Run, n int) float64 { return min(2, 0.005*math.Pow(2, float64(n))) }

// again retries for ever. The wait in seconds is that after the nth failure.
func again(wait func(r *Run, n int) float64) func(*Run, http.RoundTripper) http.RoundTripper {
	return tries(never, func(r *Run) judge {
		return func(n int, resp *http.Response, err error) (time.Duration, bool) {
			if err != nil || good(resp, err) {
				return 0, false
			}
			return Seconds(wait(r, n)), true
		}
	})
}

// decorrelated waits between 5 ms and three times the last wait.
func decorrelated(r *Run, server http.RoundTripper) http.RoundTripper {
	last := 0.005
	return again(func(r *Run, _ int) float64 {
		last = min(2, 0.005+r.Float64()*(last*3-0.005))
		return last
	})(r, server)
}
