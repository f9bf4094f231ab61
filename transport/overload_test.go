package transport_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/aplomb-go/aplomb/internal/soak"
	"github.com/aplomb-go/aplomb/internal/testkit"
	"github.com/aplomb-go/aplomb/policy"
	"github.com/aplomb-go/aplomb/policy/backoff"
	"github.com/aplomb-go/aplomb/transport"
)

// A ledger counts the bodies that are open.
type ledger struct {
	made, open atomic.Int64
}

// An entry is a body that the ledger counts. Its Reads fail when ctx ends, as the Reads
// of net/http's bodies do.
type entry struct {
	io.Reader
	l      *ledger
	ctx    context.Context
	closes atomic.Int64
}

func (l *ledger) body(ctx context.Context, text string) *entry {
	l.made.Add(1)
	l.open.Add(1)
	return &entry{Reader: strings.NewReader(text), l: l, ctx: ctx}
}

func (e *entry) Read(p []byte) (int, error) {
	if e.ctx.Err() != nil {
		return 0, context.Cause(e.ctx)
	}
	return e.Reader.Read(p)
}

func (e *entry) Close() error {
	if e.closes.Add(1) == 1 {
		e.l.open.Add(-1)
	}
	return nil
}

// everything turns every limit on.
var everything = policy.Rule{
	MaxAttempts: 4, Backoff: backoff.Exponential{}, AttemptTimeout: 2 * time.Second,
	RateLimit:   policy.RateLimit{PerSecond: 2000, Burst: 200},
	QuotaPacing: policy.On, ShareRetryAfter: policy.On,
	Concurrency: policy.Concurrency{Max: 20},
	Hedge:       policy.Hedge{Delay: 300 * time.Millisecond, Percentile: 95},
}

// TestManyHostsWithEverythingOn: the state of hosts is bounded in number and size.
func TestManyHostsWithEverythingOn(t *testing.T) {
	for name, row := range map[string]struct {
		hosts    int
		response answer
	}{
		"healthy": {135_000, status(200, "X-RateLimit-Limit: 50", "X-RateLimit-Remaining: 40", "X-RateLimit-Reset: 10")},
		"held":    {20_000, status(429, "Retry-After: 30")}, // eviction among held hosts is tested with the table
	} {
		t.Run(name, func(t *testing.T) {
			hosts := min(row.hosts, soak.Size(5_000, row.hosts)) // the table's own tests fill it
			rule := everything
			rule.MaxAttempts, rule.AttemptTimeout = 1, 0
			tr := mustNew(t, transport.Config{Base: script(row.response), Rule: rule})
			before := testkit.Heap()
			for i := range hosts {
				resp, err := tr.RoundTrip(&http.Request{
					Method: http.MethodGet, Header: http.Header{},
					URL: &url.URL{Scheme: "https", Host: fmt.Sprintf("host-%d.example.com", i)},
				})
				require.NoError(t, err)
				_ = resp.Body.Close()
			}
			kept := tr.Hosts().Len()
			perHost := float64(testkit.Heap()-before) / float64(kept)
			t.Logf("%d hosts asked, %d kept, %.0f B each", hosts, kept, perHost)
			assert.LessOrEqual(t, kept, 1<<17)
			assert.Less(t, perHost, 3000.)
			assert.Len(t, tr.Snapshot().Hosts, kept)
		})
	}
}

// TestLimitsReturnTheContextsCause: a waiting request ends at once with its context. Its
// error has the cause of the context. It leaves nothing behind.
func TestLimitsReturnTheContextsCause(t *testing.T) {
	slow := func(req *http.Request) (*http.Response, error) { return play(req, status(200)) }
	rules := map[string]struct {
		rule    policy.Rule
		prepare func(t *testing.T, tr *transport.Transport) (release func())
	}{
		"throttle": {sharing, func(t *testing.T, tr *transport.Transport) func() {
			require.Equal(t, 429, responds(t, tr, http.MethodPost, "http://h.test/told"))
			return func() { time.Sleep(time.Minute) }
		}},
		"limiter": {policy.Rule{Concurrency: policy.Concurrency{Max: 1}}, func(t *testing.T, tr *transport.Transport) func() {
			resp := mustGet(t, tr)
			return func() { _ = resp.Body.Close() }
		}},
		"rate": {policy.Rule{RateLimit: policy.RateLimit{PerSecond: 0.01, Burst: 1}}, func(t *testing.T, tr *transport.Transport) func() {
			responds(t, tr, http.MethodGet, "http://h.test/")
			return func() { time.Sleep(200 * time.Second) }
		}},
		"rate behind a limiter": {policy.Rule{RateLimit: policy.RateLimit{PerSecond: 0.01, Burst: 1}, Concurrency: policy.Concurrency{Max: 5}}, func(t *testing.T, tr *transport.Transport) func() {
			responds(t, tr, http.MethodGet, "http://h.test/")
			return func() { time.Sleep(200 * time.Second) }
		}},
		"pacing": {policy.Rule{QuotaPacing: policy.On}, func(t *testing.T, tr *transport.Transport) func() {
			responds(t, tr, http.MethodGet, "http://h.test/quota")
			return func() { time.Sleep(time.Minute) }
		}},
	}
	for name, row := range rules {
		inBubble(t, name, func(t *testing.T) {
			base := script(func(req *http.Request) (*http.Response, error) {
				switch req.URL.Path {
				case "/told":
					return play(req, status(429, "Retry-After: 30"))
				case "/quota":
					return play(req, status(200, "X-RateLimit-Remaining: 0", "X-RateLimit-Limit: 10", "X-RateLimit-Reset: 30"))
				}
				return slow(req)
			})
			tr := mustNew(t, transport.Config{Base: base, Rule: row.rule})
			release := row.prepare(t, tr)
			attempts := base.attempts()

			reason := errors.New("the caller's reason")
			ctx, cancel := context.WithCancelCause(t.Context())
			start := time.Now()
			time.AfterFunc(time.Second, func() { cancel(reason) })
			together(20, func(int) {
				b := oneShot("text")
				req := newRequest(t, http.MethodPut, "http://h.test/", b).WithContext(ctx)
				resp, err := tr.RoundTrip(req)
				assert.Nil(t, resp)
				assert.ErrorIs(t, err, context.Canceled)
				assert.ErrorIs(t, err, reason)
				count(t, 1, b.closed(), "body closed")
			})
			assert.Equal(t, time.Second, time.Since(start))
			base.sent(t, attempts)
			s := stateOf(t, tr)
			assert.Zero(t, s.InFlight, "requests in flight")
			assert.Zero(t, s.ConcurrencyWaiting)

			release()
			assert.Equal(t, 200, responds(t, tr, http.MethodGet, "http://h.test/"))
		})
	}
}

// TestRefusedForTheDeadline: a wait that cannot end before the deadline does
// not begin.
func TestRefusedForTheDeadline(t *testing.T) {
	bubble(t, func(t *testing.T) {
		base := script(status(429, "Retry-After: 10"), status(200))
		tr := mustNew(t, transport.Config{Base: base, Rule: sharing})
		responds(t, tr, http.MethodPost, "http://h.test/")
		until := stateOf(t, tr).ThrottledUntil

		start := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		b := oneShot("text")
		_, err := tr.RoundTrip(newRequest(t, http.MethodPut, "http://h.test/", b).WithContext(ctx))
		assert.Equal(t, start, time.Now(), "at once")
		assert.ErrorIs(t, err, context.DeadlineExceeded)
		assert.ErrorIs(t, err, transport.ErrNotSent)
		e := errorAs[*transport.Error](t, err)
		assert.Equal(t, transport.ReasonThrottled, e.Reason)
		assert.True(t, e.Timeout())
		assert.True(t, e.GaveUp())
		assert.Equal(t, until, e.Until)
		count(t, 1, b.closed(), "body closed")
		base.sent(t, 1)
	})
}
