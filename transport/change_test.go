package transport_test

import (
	"context"
	"errors"
	"log/slog"
	"math"
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

// changes are the changes of hosts that a Trace was told.
type changes struct {
	mu  sync.Mutex
	all []transport.HostChange
}

func (c *changes) trace() *transport.Trace {
	return &transport.Trace{HostChange: func(_ context.Context, h transport.HostChange) {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.all = append(c.all, h)
	}}
}

// told returns the changes as words, and forgets them.
func (c *changes) told() (all []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, h := range c.all {
		word := string(h.Reason)
		if h.Over {
			word = "no longer " + word
		}
		all = append(all, word)
	}
	c.all = nil
	return all
}

// TestChangeOfAHold: a hold is told when it begins, and when the first request goes after it.
func TestChangeOfAHold(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var seen changes
		tr := mustNew(t, transport.Config{Rule: policy.Rule{MaxAttempts: 1, ShareRetryAfter: policy.On}, Traces: []*transport.Trace{seen.trace()},
			Base: script(faults.Status(429).Header("Retry-After", "30"), faults.Status(200))})
		start := time.Now()
		mustFetch(t, tr, t.Context(), "http://h.test/")
		require.Len(t, seen.all, 1, "events")
		began := seen.all[0]
		assert.Equal(t, transport.ReasonThrottled, began.Reason)
		assert.Equal(t, "http://h.test", began.Host)
		assert.Equal(t, 429, began.Status)
		assert.Equal(t, start.Add(30*time.Second), began.Until)
		assert.Equal(t, "http://h.test asks for a pause (429): requests wait for 30s", began.String())
		assert.Equal(t, []string{"throttled"}, seen.told())

		var all sync.WaitGroup
		for range 3 {
			all.Go(func() {
				_, err := fetch(t, tr, t.Context(), "http://h.test/")
				assert.NoError(t, err)
			})
		}
		time.Sleep(29 * time.Second)
		synctest.Wait()
		assert.Empty(t, seen.told(), "nobody goes yet")
		all.Wait()
		assert.Len(t, seen.all, 1, "events")
		assert.Contains(t, seen.all[0].String(), "http://h.test takes requests again after a pause of 3")
		assert.Equal(t, []string{"no longer throttled"}, seen.told())
		mustFetch(t, tr, t.Context(), "http://h.test/")
		assert.Empty(t, seen.told(), "it is told once")
	})
}

// TestChangeOfAnOutage: that a host is down and back is told with the retries or requests that wait, which the log calls an open
// circuit only if there is a circuit breaker.
func TestChangeOfAnOutage(t *testing.T) {
	for name, row := range map[string]struct {
		breaker     policy.CircuitBreaker
		down, back  string
		first, last string // messages of the log
	}{
		"retries wait":  {policy.CircuitBreaker{}, "http://h.test is down (503): retries wait", `is back after \d+s: \d+ come back gradually$`, "host down", "host back"},
		"requests wait": {policy.CircuitBreaker{Enabled: policy.On}, "http://h.test is down (503): requests wait", `is back after \d+s: \d+ come back gradually$`, "circuit open", "circuit closed"},
		"they fail":     {policy.CircuitBreaker{Enabled: policy.On, FailFast: policy.On}, "http://h.test is down (503): requests fail", `is back after \d+s: none waits$`, "circuit open", "circuit closed"},
	} {
		inBubble(t, name, func(t *testing.T) {
			var seen changes
			var log journal
			start := time.Now()
			patient := policy.Rule{MaxAttempts: 60, Backoff: backoff.Constant(time.Second), CircuitBreaker: row.breaker}
			tr := mustNew(t, transport.Config{Rule: patient, Traces: []*transport.Trace{seen.trace()}, Logger: log.above(slog.LevelInfo), Base: rt(func(req *http.Request) (*http.Response, error) {
				if time.Since(start) < 11*time.Second {
					return play(req, faults.Status(503))
				}
				return play(req, faults.Status(200))
			})})
			together(60, func(i int) {
				time.Sleep(time.Duration(i) * 300 * time.Millisecond)
				_, _ = fetch(t, tr, t.Context(), "http://h.test/")
			})
			require.Len(t, seen.all, 2, "events")
			assert.Equal(t, row.down, seen.all[0].String())
			assert.Regexp(t, row.back, seen.all[1].String())
			assert.Equal(t, 503, seen.all[0].Status)
			assert.Equal(t, []string{"circuit_open", "no longer circuit_open"}, seen.told())
			var messages []string
			for _, r := range log.records() {
				if !strings.HasPrefix(r.Message, "request ") {
					messages = append(messages, r.Message)
				}
			}
			assert.Equal(t, []string{row.first, row.last}, messages)
		})
	}
}

// TestChangeOfACrowd: a host is crowded when requests wait at its limiter for long.
func TestChangeOfACrowd(t *testing.T) {
	for failFast, want := range map[policy.Switch]string{policy.Off: "concurrency", policy.On: "concurrency"} {
		bubble(t, func(t *testing.T) {
			var seen changes
			tr := mustNew(t, transport.Config{Rule: policy.Rule{Concurrency: policy.Concurrency{Max: 1, FailFast: failFast}}, Traces: []*transport.Trace{seen.trace()},
				Base: script(faults.Status(200).Delay(700 * time.Millisecond))})
			together(4, func(_ int) { _, _ = fetch(t, tr, t.Context(), "http://h.test/") })
			assert.Equal(t, []string{want}, seen.told(), "fail fast %v", failFast)
			time.Sleep(time.Minute)
			_, _ = fetch(t, tr, t.Context(), "http://h.test/")
			assert.Equal(t, []string{"no longer concurrency"}, seen.told(), "fail fast %v", failFast)
		})
	}
}

// TestChangeOfABudget: that a retry has waited for longer than a second is told when it goes, and when none waits any more.
func TestChangeOfABudget(t *testing.T) {
	one := policy.RetryBudget{Enabled: policy.On, Ratio: policy.Off, MinPerSecond: 0.1} // a retry in ten seconds
	bubble(t, func(t *testing.T) {
		var seen changes
		fail := faults.Status(503)
		tr := mustNew(t, transport.Config{Rule: policy.Rule{RetryBudget: one, Backoff: backoff.Constant(15 * time.Second)}, Traces: []*transport.Trace{seen.trace()}, Base: script(fail, fail, fail, faults.Status(200))})
		together(3, func(int) { mustFetch(t, tr, t.Context(), "http://h.test/") })
		require.NotEmpty(t, seen.all)
		assert.Equal(t, "http://h.test has used up its retries (503): 1 request waits", seen.all[0].String())
		time.Sleep(time.Minute)
		mustFetch(t, tr, t.Context(), "http://h.test/")
		require.Len(t, seen.all, 2, "events")
		assert.Equal(t, "http://h.test has retries again after 1m20s: none waits", seen.all[1].String())
		assert.Equal(t, []string{"retry_budget", "no longer retry_budget"}, seen.told())
	})
}

// TestChangeOfAQuota: a quota of which a fifth is left is told, and the end of its window.
func TestChangeOfAQuota(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var seen changes
		quota := func(left string) faults.Step {
			return faults.Status(200).Header("X-RateLimit-Limit", "100").Header("X-RateLimit-Remaining", left).Header("X-RateLimit-Reset", "60")
		}
		tr := mustNew(t, transport.Config{Rule: policy.Rule{QuotaPacing: policy.On}, Traces: []*transport.Trace{seen.trace()},
			Base: script(quota("21"), quota("20"), quota("19"), quota("100"))})
		for range 3 {
			mustFetch(t, tr, t.Context(), "http://h.test/")
		}
		require.NotEmpty(t, seen.all)
		assert.Equal(t, 20, seen.all[0].Limit)
		assert.Equal(t, []string{"quota"}, seen.told())
		mustFetch(t, tr, t.Context(), "http://h.test/")
		assert.Equal(t, []string{"no longer quota"}, seen.told())
	})
}

// TestChangeOfALargeQuota: what is left of a quota may be more than an int of 32 bits.
func TestChangeOfALargeQuota(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var seen changes
		tr := mustNew(t, transport.Config{Rule: policy.Rule{QuotaPacing: policy.On}, Traces: []*transport.Trace{seen.trace()},
			Base: script(faults.Status(200).Header("X-RateLimit-Limit", "30000000000").Header("X-RateLimit-Remaining", "3000000000").Header("X-RateLimit-Reset", "60"))})
		mustFetch(t, tr, t.Context(), "http://h.test/")
		require.Len(t, seen.all, 1, "events")
		assert.GreaterOrEqual(t, seen.all[0].Limit, math.MaxInt32)
	})
}

// TestHostChangeTexts: each names the host, and the beginning of a condition its cause, however long
// they are.
func TestHostChangeTexts(t *testing.T) {
	long := "https://" + strings.Repeat("long.", 40) + "example.com:8443"
	for _, r := range []transport.Reason{transport.ReasonCircuitOpen, transport.ReasonThrottled, transport.ReasonRetryBudget, transport.ReasonQuota, transport.ReasonConcurrency, transport.ReasonRateLimit} {
		for _, over := range []bool{false, true} {
			cause := "ein " + strings.Repeat("ü", 300)
			h := transport.HostChange{Host: long, Reason: r, Over: over, Err: errors.New(cause), Waiting: 1_000_000, Limit: 1_000_000,
				Since: time.Unix(1e8, 0), Until: time.Unix(1e10, 1)}
			text := h.String()
			assert.True(t, strings.HasPrefix(text, long), text)
			assert.Equal(t, !over, strings.Contains(text, cause), text)
		}
	}
}

// TestHostChangeCounts: a text says how many wait.
func TestHostChangeCounts(t *testing.T) {
	for _, row := range []struct {
		waiting    int
		down, back string
	}{
		{0, "is down (503): retries wait", "is back after 20s: none waits"},
		{1, "is down (503): retries wait, 1 in line", "is back after 20s: 1 request waits"},
		{214, "is down (503): retries wait, 214 in line", "is back after 20s: 214 come back gradually"},
	} {
		h := transport.HostChange{Host: "https://h.test", Reason: transport.ReasonCircuitOpen, Status: 503, Since: time.Now().Add(-20 * time.Second), Waiting: row.waiting}
		assert.Equal(t, "https://h.test "+row.down, h.String())
		h.Over = true
		assert.Equal(t, "https://h.test "+row.back, h.String())
	}
}

// TestHookThatSends: a hook and a log handler may send requests over the same Transport.
func TestHookThatSends(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var tr *transport.Transport
		var depth atomic.Int64
		tr = mustNew(t, transport.Config{
			Rule: policy.Rule{MaxAttempts: 2, Concurrency: policy.Concurrency{Max: 1}}.Or(quick),
			Base: script(faults.Status(503)),
			Traces: []*transport.Trace{&transport.Trace{HostChange: func(context.Context, transport.HostChange) {
				if depth.Add(1) < 3 {
					_, _ = fetch(t, tr, t.Context(), "http://h.test/")
				}
			}}},
			Logger: slog.New(handler(func(slog.Record) {
				if depth.Add(1) < 20 {
					_, _ = fetch(t, tr, t.Context(), "http://h.test/")
				}
			})),
		})
		for range 30 {
			_, _ = fetch(t, tr, t.Context(), "http://h.test/")
			time.Sleep(100 * time.Millisecond)
		}
		assert.Greater(t, depth.Load(), int64(3))
	})
}

// A handler is a function that takes the records of a log.
type handler func(slog.Record)

func (handler) Enabled(context.Context, slog.Level) bool        { return true }
func (h handler) Handle(_ context.Context, r slog.Record) error { h(r); return nil }
func (h handler) WithAttrs([]slog.Attr) slog.Handler            { return h }
func (h handler) WithGroup(string) slog.Handler                 { return h }
