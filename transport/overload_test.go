package transport_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/aplomb-go/aplomb/policy"
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
