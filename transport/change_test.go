package transport_test

import (
	"context"
	"errors"
	"log/slog"
	"math"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/aplomb-go/aplomb/faults"
	"github.com/aplomb-go/aplomb/internal/fleetmsg"
	"github.com/aplomb-go/aplomb/internal/fleettest"
	"github.com/aplomb-go/aplomb/internal/soak"
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
		assert.Equal(t, "http://h.test: throttled (429) for 30s", began.String())
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
		assert.Contains(t, seen.all[0].String(), "http://h.test: no longer throttled after 3")
		assert.Equal(t, []string{"no longer throttled"}, seen.told())
		mustFetch(t, tr, t.Context(), "http://h.test/")
		assert.Empty(t, seen.told(), "it is told once")
	})
}

// TestChangeOfAHoldThatNobodyWaitsFor: a request of another scope tells the end, because the
// next request of the scope may never come.
func TestChangeOfAHoldThatNobodyWaitsFor(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var seen changes
		tr := mustNew(t, transport.Config{Rule: policy.Rule{MaxAttempts: 1, ShareRetryAfter: policy.On}, Traces: []*transport.Trace{seen.trace()},
			Base: script(faults.Status(429).Header("Retry-After", "30"), faults.Status(200))})
		req := newRequest(t, http.MethodGet, "http://h.test/", nil)
		req.Header.Set("Authorization", "Bearer SECRET")
		mustRoundTrip(t, tr, req)
		mustFetch(t, tr, t.Context(), "http://h.test/")
		assert.Equal(t, []string{"throttled"}, seen.told(), "another scope is not held")
		time.Sleep(time.Hour)
		mustFetch(t, tr, t.Context(), "http://h.test/")
		assert.Equal(t, []string{"no longer throttled"}, seen.told())
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
		"retries wait":  {policy.CircuitBreaker{}, "http://h.test: host down (503)", `: host back after \d+s, \d+ waiting$`, "host down", "host back"},
		"requests wait": {policy.CircuitBreaker{Enabled: policy.On}, "http://h.test: circuit open (503)", `: circuit closed after \d+s, \d+ waiting$`, "circuit open", "circuit closed"},
		"they fail":     {policy.CircuitBreaker{Enabled: policy.On, FailFast: policy.On}, "http://h.test: circuit open (503)", `: circuit closed after \d+s$`, "circuit open", "circuit closed"},
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

// TestChangeOfABudget: that a retry has waited for longer than a second is told when it goes, and when none waits any more. A shorter
// wait is no news, unless it was in vain.
func TestChangeOfABudget(t *testing.T) {
	one := policy.RetryBudget{Enabled: policy.On, Ratio: policy.Off, MinPerSecond: 0.1} // a retry in ten seconds
	inBubble(t, "retries that wait", func(t *testing.T) {
		var seen changes
		fail := faults.Status(503)
		tr := mustNew(t, transport.Config{Rule: policy.Rule{RetryBudget: one, Backoff: backoff.Constant(15 * time.Second)}, Traces: []*transport.Trace{seen.trace()}, Base: script(fail, fail, fail, faults.Status(200))})
		together(3, func(int) { mustFetch(t, tr, t.Context(), "http://h.test/") })
		require.NotEmpty(t, seen.all)
		assert.Equal(t, "http://h.test: retry budget used up (503), 1 waiting", seen.all[0].String())
		time.Sleep(time.Minute)
		mustFetch(t, tr, t.Context(), "http://h.test/")
		require.Len(t, seen.all, 2, "events")
		assert.Equal(t, "http://h.test: retry budget restored after 1m20s", seen.all[1].String())
		assert.Equal(t, []string{"retry_budget", "no longer retry_budget"}, seen.told())
	})
	for name, row := range map[string]struct {
		fails int
		want  []string
	}{"a short wait": {2, nil}, "a wait in vain": {9, []string{"retry_budget"}}} {
		inBubble(t, name, func(t *testing.T) {
			var seen changes
			steps := append(slices.Repeat([]answer{faults.Status(503)}, row.fails), faults.Status(200))
			budget := policy.RetryBudget{Enabled: policy.On, Ratio: policy.Off, MinPerSecond: 0.1}
			if row.want == nil {
				budget.MinPerSecond = 2
			}
			tr := mustNew(t, transport.Config{Rule: policy.Rule{RetryBudget: budget, Backoff: backoff.Constant(200 * time.Millisecond)}, Traces: []*transport.Trace{seen.trace()}, Base: script(steps...)})
			together(3, func(int) { mustFetch(t, tr, t.Context(), "http://h.test/") })
			assert.Equal(t, row.want, seen.told())
		})
	}
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

// TestChangeThatUpdateEnds: a condition is over when Update turns off the limit that it is about.
func TestChangeThatUpdateEnds(t *testing.T) {
	for condition, row := range map[string]struct {
		rule policy.Rule
		base http.RoundTripper
	}{
		"rate_limit": {policy.Rule{MaxAttempts: 1, RateLimit: policy.RateLimit{PerSecond: 0.5}}, script(faults.Status(200))},
		"quota": {policy.Rule{MaxAttempts: 1, QuotaPacing: policy.On, MaxRetryAfter: time.Second},
			script(faults.Status(200).Header("X-RateLimit-Limit", "100").Header("X-RateLimit-Remaining", "1").Header("X-RateLimit-Reset", "3600"))},
	} {
		inBubble(t, condition, func(t *testing.T) {
			var seen changes
			tr := mustNew(t, transport.Config{Rule: row.rule, Traces: []*transport.Trace{seen.trace()}, Base: row.base})
			for range 50 {
				_, _ = fetch(t, tr, t.Context(), "http://h.test/")
				time.Sleep(100 * time.Millisecond)
			}
			require.Equal(t, []string{condition}, seen.told())
			require.NoError(t, tr.Update(policy.Rule{MaxAttempts: 1}, nil))
			time.Sleep(10 * time.Second)
			for range 3 {
				_, _ = fetch(t, tr, t.Context(), "http://h.test/")
			}
			assert.Equal(t, []string{"no longer " + condition}, seen.told())
		})
	}
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

// TestChangesInOrder: what begins and ends by turns is told by turns, although the requests race.
func TestChangesInOrder(t *testing.T) {
	var mu sync.Mutex
	var lasts bool
	changes, wrong := 0, 0
	var n atomic.Int64
	tr := mustNew(t, transport.Config{Rule: policy.Rule{QuotaPacing: policy.On},
		Traces: []*transport.Trace{&transport.Trace{HostChange: func(_ context.Context, h transport.HostChange) {
			mu.Lock()
			defer mu.Unlock()
			if changes++; lasts != h.Over {
				wrong++
			}
			lasts = !h.Over
		}}},
		Base: rt(func(req *http.Request) (*http.Response, error) {
			left := "900000"
			if n.Add(1)%2 == 0 {
				left = "190000"
			}
			h := http.Header{"X-Ratelimit-Limit": {"1000000"}, "X-Ratelimit-Remaining": {left}, "X-Ratelimit-Reset": {"60"}}
			return &http.Response{StatusCode: 200, Body: http.NoBody, Header: h, Request: req}, nil
		})})
	together(8, func(_ int) {
		for range soak.Size(100, 3000) {
			_, _ = fetch(t, tr, t.Context(), "http://h.test/")
		}
	})
	assert.Zero(t, wrong)
	assert.Greater(t, changes, 100)
}

// TestCauseOfAFleet: the word of a fleet is the cause, and not what this process saw an hour ago.
func TestCauseOfAFleet(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var seen changes
		heard := make(chan func(fleetmsg.Message), 1)
		tr := mustNew(t, transport.Config{Rule: policy.Rule{MaxAttempts: 1, Concurrency: policy.Concurrency{Max: 10}}, Fleet: fleettest.Link(headersSeen{heard}), Traces: []*transport.Trace{seen.trace()},
			Base: script(faults.Status(502), faults.Status(200))})
		send := func() {
			mustFetch(t, tr, t.Context(), "http://h.test/")
		}
		send()
		hear := <-heard
		hear(fleetmsg.Message{Kind: fleetmsg.Hold, Host: "http://h.test", Status: 429, Wait: time.Minute})
		time.Sleep(time.Hour)
		send()
		assert.Empty(t, seen.told(), "the hold is over, and nobody noticed it")
	})
}

// TestHostChangeTexts: each names the host and its cause, however long they are.
func TestHostChangeTexts(t *testing.T) {
	long, cause := "https://"+strings.Repeat("long.", 40)+"example.com:8443", "ein "+strings.Repeat("ü", 300)
	h := transport.HostChange{Host: long, Reason: transport.ReasonRateLimit, Err: errors.New(cause), Limit: 2, Waiting: 1_000_000}
	assert.Equal(t, long+": rate limit reached ("+cause+"), limit 2, 1000000 waiting", h.String())
	told := transport.HostChange{Host: "https://h.test", Reason: transport.ReasonThrottled, Over: true, FromFleet: true, Since: time.Now().Add(-20 * time.Second)}
	assert.Equal(t, "https://h.test: no longer throttled (says the fleet) after 20s", told.String())
}

// A Trace that only hears of hosts leaves the first try as it is, and a failure of a healthy
// host is no change.
func TestHostChangedAlone(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var seen changes
		tr := mustNew(t, transport.Config{Rule: quick, Traces: []*transport.Trace{seen.trace()}, Base: script(faults.Status(503), faults.Status(200))})
		mustFetch(t, tr, t.Context(), "http://h.test/")
		assert.Empty(t, seen.told())
	})
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
