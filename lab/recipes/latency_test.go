// The table of the recipe for an internal service.

package recipes

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aplomb-go/aplomb/policy"
	"github.com/aplomb-go/aplomb/policy/profile"
	"github.com/aplomb-go/aplomb/transport"
)

// requests is how many requests each rule sends, 200 per second on average.
const requests = 50_000

// orderService is a service that responds within 5 to 30 ms. Of its attempts, 1.3 % take 400 ms more,
// 0.2 % are reset and 0.05 % hang. What happens to an attempt depends on its request and its
// number alone, so it is the same for each rule.
type orderService struct {
	mu   sync.Mutex
	seen map[string]uint64
	sent int
}

func (o *orderService) RoundTrip(req *http.Request) (*http.Response, error) {
	id := req.Header.Get("X-Request")
	o.mu.Lock()
	o.seen[id]++
	o.sent++
	number := o.seen[id]
	o.mu.Unlock()
	seed, _ := strconv.ParseUint(id, 10, 64)
	dice := rand.New(rand.NewPCG(seed, number))
	took := 5*time.Millisecond + time.Duration(dice.Float64()*dice.Float64()*float64(25*time.Millisecond))
	luck, reset := dice.Float64(), false
	switch {
	case luck < 0.013:
		took += 400 * time.Millisecond
	case luck < 0.015:
		reset = true
	case luck < 0.0155:
		took = time.Hour
	}
	select {
	case <-time.After(took):
	case <-req.Context().Done():
		return nil, req.Context().Err()
	}
	if reset {
		return nil, syscall.ECONNRESET
	}
	return &http.Response{StatusCode: http.StatusOK, Header: http.Header{}, Body: http.NoBody, Request: req}, nil
}

// A measured rule is a row of the table.
type measured struct {
	took   []time.Duration // sorted
	failed int
	sent   int
}

// measure sends the requests with a context that mark returns.
func measure(t *testing.T, rule policy.Rule, mark func(context.Context) context.Context) (m measured) {
	synctest.Test(t, func(t *testing.T) {
		server := &orderService{seen: map[string]uint64{}}
		c := &http.Client{Transport: transport.MustNew(transport.Config{Base: server, Rule: rule})}
		m.took = make([]time.Duration, requests)
		failed := make([]bool, requests)
		arrivals := rand.New(rand.NewPCG(1, 1))
		var all sync.WaitGroup
		for i := range requests {
			time.Sleep(time.Duration(arrivals.ExpFloat64() * float64(5*time.Millisecond)))
			all.Go(func() {
				start := time.Now()
				failed[i] = quote(mark(t.Context()), c, i) != nil
				m.took[i] = time.Since(start)
			})
		}
		all.Wait()
		for _, f := range failed {
			if f {
				m.failed++
			}
		}
		m.sent = server.sent
	})
	slices.Sort(m.took)
	return m
}

func quote(ctx context.Context, c *http.Client, id int) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://orders.internal/quote", strings.NewReader(`{"item": 17}`))
	if err != nil {
		return err
	}
	req.Header.Set("X-Request", strconv.Itoa(id))
	resp, err := c.Do(req)
	if err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, resp.Body)
	return errors.Join(err, resp.Body.Close())
}

// latencies returns the table. Each row has more settings of the recipe than the row before it.
func latencies(t *testing.T) string {
	full := internal(nil).Hosts["orders.internal"]
	rule, plain := profile.Service(), func(ctx context.Context) context.Context { return ctx }
	rows := []string{
		"| rule | p50 | p99 | p99.9 | failed | more attempts |",
		"|---|---:|---:|---:|---:|---:|",
		row("`profile.Service()` alone", measure(t, rule, plain)),
	}
	rule.Idempotent, rule.Backoff = full.Idempotent, full.Backoff
	rows = append(rows, row("and `Idempotent` and `Backoff`", measure(t, rule, plain)))
	rule.AttemptTimeout = full.AttemptTimeout
	rows = append(rows, row("and `AttemptTimeout`", measure(t, rule, plain)))
	rows = append(rows, row("and `Hedge` with `WithIdempotent`, which is the recipe", measure(t, full, transport.WithIdempotent)))
	full.Idempotent = nil
	rows = append(rows, row("the recipe without both", measure(t, full, plain)))
	return strings.Join(rows, "\n") + "\n"
}

func row(name string, m measured) string {
	at := func(share float64) int64 {
		return m.took[int(share*requests)].Round(time.Millisecond).Milliseconds()
	}
	return fmt.Sprintf("| %s | %d ms | %d ms | %d ms | %.2f %% | %.1f %% |", name, at(0.5), at(0.99), at(0.999),
		100*float64(m.failed)/requests, 100*float64(m.sent-requests)/requests)
}
