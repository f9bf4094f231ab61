package transport_test

import (
	"context"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/aplomb-go/aplomb/faults"
	"github.com/aplomb-go/aplomb/policy"
	"github.com/aplomb-go/aplomb/policy/backoff"
	"github.com/aplomb-go/aplomb/transport"
)

var (
	breaker  = policy.Rule{CircuitBreaker: policy.CircuitBreaker{Enabled: policy.On}}
	failFast = policy.Rule{CircuitBreaker: policy.CircuitBreaker{Enabled: policy.On, FailFast: policy.On}}
)

// bring makes requests of one attempt fail until the host is down. They take 1.1 s.
func bring(t *testing.T, tr *transport.Transport) {
	t.Helper()
	for range 12 {
		_, _ = get(t, tr, transport.WithoutRetries(t.Context()))
		time.Sleep(100 * time.Millisecond)
	}
	require.True(t, stateOf(t, tr).Down)
}

// While the host is down, first attempts wait for a probe. When it is back, all come back gradually.
func TestBreakerWithholdsFirstAttempts(t *testing.T) {
	bubble(t, func(t *testing.T) {
		const back = 15 * time.Second
		base := downUntil(back)
		tr := mustNew(t, transport.Config{Rule: breaker, Base: base})
		bring(t, tr)
		assert.True(t, stateOf(t, tr).CircuitOpen)
		before := base.attempts()
		together(200, func(i int) {
			time.Sleep(time.Duration(i) * 50 * time.Millisecond) // for 10 s
			method := http.MethodGet
			if i%3 == 0 {
				method = http.MethodPost // which is not sent again, so it has to wait before
			}
			code, err := send(t, tr, method, "http://h.test/")
			if assert.NoError(t, err) && code != 200 {
				assert.Equal(t, http.MethodPost, method, "the probe")
			}
			assert.LessOrEqual(t, time.Since(base.start), back+15*time.Second)
		})
		assert.LessOrEqual(t, base.between(2*time.Second, back)-before+12, 8, "probes")
		for from := back; from < back+20*time.Second; from += 100 * time.Millisecond {
			assert.LessOrEqual(t, base.between(from, from+time.Second), 4*20, "from %v", from)
		}
		assert.Zero(t, stateOf(t, tr).RetriesWaiting)
		assert.False(t, stateOf(t, tr).CircuitOpen)
	})
}

// With FailFast requests fail while the host is down, apart from probes, and so do their retries.
func TestBreakerThatFailsFast(t *testing.T) {
	bubble(t, func(t *testing.T) {
		const back = 20 * time.Second
		base := downUntil(back)
		tr := mustNew(t, transport.Config{Rule: failFast, Base: base})
		var healed atomic.Int64
		together(300, func(i int) {
			time.Sleep(time.Duration(i) * 100 * time.Millisecond)
			begin := time.Now()
			resp, err := get(t, tr, t.Context())
			switch at := time.Since(base.start); {
			case err != nil:
				assert.ErrorIs(t, err, transport.ErrNotSent)
				assert.Equal(t, transport.ReasonCircuitOpen, errorAs[*transport.Error](t, err).Reason)
				assert.Zero(t, time.Since(begin), "at once")
				assert.Less(t, at, back+5*time.Second)
			case resp.StatusCode == 503:
				assert.Equal(t, transport.ReasonCircuitOpen, transport.ReasonOf(resp, nil))
				assert.LessOrEqual(t, at, back)
			default:
				healed.Add(1)
			}
			_ = closing(resp, err)
		})
		assert.GreaterOrEqual(t, healed.Load(), int64(50), "all of the last 5 s")
		assert.LessOrEqual(t, base.between(3*time.Second, back), 7, "probes")
	})
}

// How long a first attempt waits: for the back-offs of its rule, and those of one retry at least. The deadline ends the
// wait a little before.
func TestHowLongTheBreakerWithholds(t *testing.T) {
	for name, row := range map[string]struct {
		rule     policy.Rule
		deadline time.Duration
		once     bool
		ends     time.Duration
	}{
		"three attempts": {rule: policy.Rule{MaxAttempts: 3}, ends: 3 * time.Second},
		"one attempt":    {rule: policy.Rule{MaxAttempts: 1}, ends: time.Second},
		"deadline":       {rule: policy.Rule{MaxAttempts: 10}, deadline: 2 * time.Second, ends: 1500 * time.Millisecond},
		"they take time": {rule: policy.Rule{MaxAttempts: 3, AttemptTimeout: 5 * time.Second}, ends: 13 * time.Second},
	} {
		inBubble(t, name, func(t *testing.T) {
			base := script(status(503))
			tr := mustNew(t, transport.Config{Rule: breaker.Or(exact), Base: base})
			bring(t, tr)
			go func() { _, _ = send(t, tr, http.MethodGet, "http://h.test/") }() // it probes
			time.Sleep(time.Millisecond)
			ctx := transport.WithRule(t.Context(), row.rule)
			if row.deadline > 0 {
				until, cancel := context.WithTimeout(ctx, row.deadline)
				defer cancel()
				ctx = until
			}
			begin := time.Now()
			resp, err := get(t, tr, ctx)
			took := time.Since(begin).Round(10 * time.Millisecond)
			if err != nil {
				assert.Equal(t, row.ends, took)
				assert.ErrorIs(t, err, transport.ErrNotSent)
			} else { // it was a probe
				_ = resp.Body.Close()
				assert.LessOrEqual(t, took, 2*row.ends)
			}
			assert.Equal(t, transport.ReasonCircuitOpen, transport.ReasonOf(resp, err))
		})
	}
}

// The caller's context ends a wait for the end of an outage.
func TestContextEndsBehindTheBreaker(t *testing.T) {
	bubble(t, func(t *testing.T) {
		tr := mustNew(t, transport.Config{Rule: breaker, Base: script(status(503))})
		bring(t, tr)
		ctx, cancel := context.WithCancel(t.Context())
		var all sync.WaitGroup
		for range 10 {
			all.Go(func() {
				body := oneShot("text")
				req := newRequest(t, http.MethodPost, "http://h.test/", body).WithContext(ctx)
				resp, err := tr.RoundTrip(req)
				if err == nil { // a probe
					_ = resp.Body.Close()
				} else {
					assert.ErrorIs(t, err, context.Canceled)
					assert.Equal(t, transport.ReasonCanceled, transport.ReasonOf(nil, err))
				}
				assert.Equal(t, 1, body.closed())
			})
		}
		time.Sleep(3 * time.Second)
		assert.GreaterOrEqual(t, stateOf(t, tr).RetriesWaiting, 8)
		cancel()
		all.Wait()
		idle(t, tr)
	})
}

// The breaker and the bulkhead go together: who waits for the end of an outage holds no place.
func TestBreakerAndBulkhead(t *testing.T) {
	for name, wait := range map[string]policy.Switch{"waits": policy.Off, "fails fast": policy.On} {
		inBubble(t, name, func(t *testing.T) {
			const back = 10 * time.Second
			var inFlight, most atomic.Int64
			base := downUntil(back)
			serve := base.serve
			base.serve = rt(func(req *http.Request) (*http.Response, error) {
				n := inFlight.Add(1)
				defer inFlight.Add(-1)
				most.Store(max(most.Load(), n))
				time.Sleep(20 * time.Millisecond)
				return play(req, serve)
			})
			rule := breaker
			rule.CircuitBreaker.FailFast, rule.Concurrency = wait, policy.Concurrency{Max: 2}
			tr := mustNew(t, transport.Config{Rule: rule, Base: base})
			bring(t, tr)
			together(100, func(i int) {
				time.Sleep(time.Duration(i) * 100 * time.Millisecond)
				resp, err := get(t, tr, t.Context())
				if err == nil {
					_, _ = io.Copy(io.Discard, resp.Body)
				}
				if _ = closing(resp, err); wait == policy.Off && assert.NoError(t, err) {
					assert.Equal(t, 200, resp.StatusCode)
				}
			})
			assert.LessOrEqual(t, most.Load(), int64(2))
			idle(t, tr)
			assert.LessOrEqual(t, time.Since(base.start), back+15*time.Second)
		})
	}
}

// An Update turns the breaker off, or makes requests fail, while some wait.
func TestUpdateOfTheBreaker(t *testing.T) {
	for name, row := range map[string]struct {
		rule policy.Rule
		want transport.Reason
	}{"off": {policy.Rule{}, ""}, "FailFast": {failFast, transport.ReasonCircuitOpen}} {
		inBubble(t, name, func(t *testing.T) {
			var up atomic.Bool
			tr := mustNew(t, transport.Config{Rule: breaker, Base: rt(func(req *http.Request) (*http.Response, error) {
				if up.Load() {
					return play(req, faults.Status(200).Delay(time.Minute)) // so that no success lets anybody go
				}
				return play(req, status(503))
			})})
			bring(t, tr)
			up.Store(true)
			var gone atomic.Int64
			var all sync.WaitGroup
			for range 5 {
				all.Go(func() {
					req := newRequest(t, http.MethodPost, "http://h.test/", nil)
					resp, err := tr.RoundTrip(req)
					if gone.Add(1); row.want != "" && err != nil {
						assert.Equal(t, row.want, transport.ReasonOf(resp, err))
					}
					_ = closing(resp, err)
				})
			}
			time.Sleep(500 * time.Millisecond)
			require.Positive(t, stateOf(t, tr).RetriesWaiting)
			require.NoError(t, tr.Update(row.rule, nil))
			all.Go(func() { _, _ = send(t, tr, http.MethodPost, "http://h.test/") })
			synctest.Wait()
			assert.Zero(t, stateOf(t, tr).RetriesWaiting)
			all.Wait()
		})
	}
	inBubble(t, "on", func(t *testing.T) {
		const back = 10 * time.Second
		base := downUntil(back)
		tr := mustNew(t, transport.Config{Base: base})
		var all sync.WaitGroup
		for range 20 {
			all.Go(func() { assert.Equal(t, 200, responds(t, tr, http.MethodGet, "http://h.test/")) })
		}
		time.Sleep(5 * time.Second)
		require.NoError(t, tr.Update(breaker, nil))
		sent := base.attempts()
		for range 20 {
			all.Go(func() { assert.Equal(t, 200, responds(t, tr, http.MethodGet, "http://h.test/")) })
		}
		synctest.Wait()
		assert.LessOrEqual(t, base.attempts(), sent+1)
		all.Wait()
		assert.LessOrEqual(t, time.Since(base.start), back+15*time.Second)
	})
}

// A healthy host, or a few failures, hold nothing back.
func TestBreakerOfAHealthyHost(t *testing.T) {
	bubble(t, func(t *testing.T) {
		tr := mustNew(t, transport.Config{Rule: failFast.Or(policy.Rule{MaxAttempts: 1}), Base: numbered(func(req *http.Request, n int) (*http.Response, error) {
			if n%10 != 0 {
				return play(req, status(503))
			}
			return play(req, status(200))
		})})
		for range 300 {
			assert.NoError(t, closing(get(t, tr, t.Context())))
			time.Sleep(200 * time.Millisecond)
		}
	})
}

// A request that the breaker refuses has the body of its request closed, and earns no retry.
func TestBreakerClosesBodies(t *testing.T) {
	bubble(t, func(t *testing.T) {
		tr := mustNew(t, transport.Config{Rule: failFast.Or(policy.Rule{Backoff: backoff.Constant(0)}), Base: script(status(503))})
		bring(t, tr)
		requests := stateOf(t, tr).Requests
		for range 5 {
			body := oneShot(strings.Repeat("x", 10))
			_, err := tr.RoundTrip(newRequest(t, http.MethodPost, "http://h.test/", body))
			assert.ErrorIs(t, err, transport.ErrNotSent)
			assert.Equal(t, 1, body.closed())
		}
		assert.Equal(t, requests, stateOf(t, tr).Requests)
	})
}
