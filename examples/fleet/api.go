package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// An api refuses requests beyond its quota. Three may come at once, because the time
// between two requests is never exactly the same at both ends of a network.
type api struct {
	limit *rate.Limiter

	mu    sync.Mutex // guards the fields below
	begin time.Time  // when the first request came
	seen  result
}

// A result says what an api saw.
type result struct {
	done    []int // by worker
	refused int
	took    time.Duration
}

func (a *api) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	worker, err := strconv.Atoi(strings.TrimPrefix(r.URL.Path, "/"))
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.begin.IsZero() {
		a.begin = time.Now()
	}
	switch {
	case err != nil || worker < 1 || worker > len(a.seen.done):
		http.NotFound(w, r)
	case !a.limit.Allow():
		a.seen.refused++
		w.Header().Set("Retry-After", "1")
		w.WriteHeader(http.StatusTooManyRequests)
	default:
		a.seen.done[worker-1]++
	}
}

// play runs an API and a process for each worker for a while. atOnce is how many requests
// at a time each worker has.
func play(redisAddr string, atOnce []int, long time.Duration) (seen result, err error) {
	a := &api{limit: rate.NewLimiter(quota, 3), seen: result{done: make([]int, len(atOnce))}}
	server := httptest.NewServer(a)
	defer server.Close()
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error)
	for i, n := range atOnce {
		go func() { ended <- runWorker(ctx, strconv.Itoa(i+1), server.URL, strconv.Itoa(n), redisAddr) }()
	}
	time.Sleep(long)
	seen = a.read()
	stop()
	for range atOnce {
		err = errors.Join(err, <-ended)
	}
	if err == nil && seen.total() == 0 {
		err = errors.New("the workers got nothing done")
	}
	return seen, err
}

// runWorker runs this program once more, as a worker, until the context ends.
func runWorker(ctx context.Context, name, url, atOnce, redisAddr string) error {
	program, err := os.Executable()
	if err != nil {
		return err
	}
	w := exec.CommandContext(ctx, program, "worker", name, url+"/"+name, atOnce, redisAddr)
	w.Stderr = os.Stderr
	input, err := w.StdinPipe()
	if err != nil {
		return err
	}
	w.Cancel = input.Close // the worker ends when its input ends
	if err := w.Run(); ctx.Err() == nil {
		return fmt.Errorf("worker %s ended too early: %w", name, err)
	}
	return nil
}

func (a *api) read() result {
	a.mu.Lock()
	defer a.mu.Unlock()
	seen := a.seen
	seen.done, seen.took = slices.Clone(seen.done), time.Since(a.begin)
	return seen
}

func (r result) total() (n int) {
	for _, done := range r.done {
		n += done
	}
	return n
}

func (r result) print(out io.Writer, name string) {
	fmt.Fprintf(out, "  %-15s %8.1f %10d  ", name, float64(r.total())/r.took.Seconds(), r.refused)
	for _, done := range r.done {
		fmt.Fprintf(out, "%8d", done)
	}
	fmt.Fprintln(out)
}

// judge returns an error if a fleet was of no use. A slow machine passes, too.
func judge(alone, fleet result) error {
	switch fair := fleet.total() / len(fleet.done); {
	case fleet.refused >= alone.refused:
		return fmt.Errorf("expected fewer 429s with the fleet: %d, without %d", fleet.refused, alone.refused)
	case slices.Min(fleet.done) < fair/3:
		return fmt.Errorf("expected every worker of the fleet to get a part of the quota: %v", fleet.done)
	case fleet.total() < alone.total()/2:
		return fmt.Errorf("expected the fleet to get as much done: %d, without %d", fleet.total(), alone.total())
	}
	return nil
}
