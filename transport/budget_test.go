package transport_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/aplomb-go/aplomb/faults"
	"github.com/aplomb-go/aplomb/policy"
	"github.com/aplomb-go/aplomb/policy/backoff"
	"github.com/aplomb-go/aplomb/transport"
)

// one is a budget with one retry in it, which does not come back.
var one = policy.RetryBudget{Ratio: -1, MinPerSecond: 1e-6}

// TestBudgetStopIsReal: what the caller gets is the response or the error itself,
// marked, and a Transport around this one leaves it alone.
func TestBudgetStopIsReal(t *testing.T) {
	const requests = 3
	for name, response := range map[string]answer{"response": status(503), "error": faults.Fail(syscall.ECONNRESET)} {
		inBubble(t, name, func(t *testing.T) {
			base := script(response)
			ev := &recorder{}
			inner := mustNew(t, transport.Config{Base: base, Rule: policy.Rule{Backoff: backoff.Constant(time.Millisecond), RetryBudget: one}})
			tr := mustNew(t, transport.Config{Base: inner, Rule: policy.Rule{Backoff: backoff.Constant(time.Millisecond)}})
			for i := range requests {
				resp, err := get(t, tr, ev.on(t.Context()))
				want := 1
				if i == 0 {
					want = 2 // the one retry
				}
				if name == "response" {
					require.NoError(t, err)
					assert.Equal(t, "body of Service Unavailable", mustRead(t, resp))
					_ = resp.Body.Close()
					reason, attempts, ok := unretried(resp)
					assert.True(t, ok)
					assert.Equal(t, transport.ReasonRetryBudget, reason)
					assert.Len(t, attempts, want, "attempts")
					continue
				}
				assert.Nil(t, resp)
				assert.ErrorIs(t, err, syscall.ECONNRESET)
				e := errorAs[*transport.Error](t, err)
				assert.Equal(t, transport.ReasonRetryBudget, e.Reason)
				assert.True(t, e.GaveUp())
				assert.Len(t, e.Attempts, want, "attempts")
			}
			base.sent(t, requests+1, "the outer one sent nothing again")
			assert.Contains(t, ev.reasons(), transport.ReasonRetryBudget)
			assert.Contains(t, ev.reasons(), transport.ReasonNested)
		})
	}
}

// TestBudgetIsRefunded: a retry that is not sent does not count.
func TestBudgetIsRefunded(t *testing.T) {
	rows := map[string]struct {
		rule policy.Rule
		run  func(t *testing.T, tr *transport.Transport)
		ends transport.Reason
	}{
		"the sleep is cancelled": {ends: transport.ReasonCanceled, run: func(t *testing.T, tr *transport.Transport) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			time.AfterFunc(time.Second, cancel)
			_, err := get(t, tr, ctx)
			assert.ErrorIs(t, err, context.Canceled)
		}},
		"its turn is past the deadline": {ends: transport.ReasonThrottled, rule: sharing, run: func(t *testing.T, tr *transport.Transport) {
			time.AfterFunc(5*time.Second, func() { _, _ = send(t, tr, http.MethodPost, "http://h.test/minute") })
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
			defer cancel()
			_, err := get(t, tr, ctx)
			assert.ErrorIs(t, err, context.DeadlineExceeded)
		}},
		"the limiter is full": {
			ends: transport.ReasonConcurrency,
			rule: policy.Rule{Concurrency: policy.Concurrency{FailFast: policy.On, Max: 1}},
			run: func(t *testing.T, tr *transport.Transport) {
				time.AfterFunc(5*time.Second, func() {
					resp, err := tr.RoundTrip(newRequest(t, http.MethodGet, "http://h.test/stream", nil))
					if assert.NoError(t, err) {
						time.AfterFunc(time.Minute, func() { _ = resp.Body.Close() })
					}
				})
				_, err := get(t, tr, t.Context())
				assert.Equal(t, transport.ReasonConcurrency, errorAs[*transport.Error](t, err).Reason)
				time.Sleep(time.Minute)
			},
		},
		"the body cannot be made again": {ends: transport.ReasonNotReplayable, run: func(t *testing.T, tr *transport.Transport) {
			req := newRequest(t, http.MethodPut, "http://h.test/", strings.NewReader("text"))
			req.GetBody = func() (io.ReadCloser, error) { return nil, errors.New("gone") }
			resp := mustRoundTrip(t, tr, req)
			assert.Equal(t, 503, resp.StatusCode)
			_ = resp.Body.Close()
		}},
		"the hedge's body cannot be made": {
			ends: transport.ReasonNotReplayable,
			rule: policy.Rule{Hedge: policy.Hedge{Delay: 10 * time.Millisecond}},
			run: func(t *testing.T, tr *transport.Transport) {
				req := newRequest(t, http.MethodPut, "http://h.test/slow", strings.NewReader("text"))
				req.GetBody = func() (io.ReadCloser, error) { return nil, errors.New("gone") }
				resp := mustRoundTrip(t, tr, req)
				_ = resp.Body.Close()
			},
		},
	}
	for name, row := range rows {
		inBubble(t, name, func(t *testing.T) {
			base := script(func(req *http.Request) (*http.Response, error) {
				switch req.URL.Path {
				case "/minute":
					return play(req, status(429, "Retry-After: 60"))
				case "/stream":
					return play(req, status(200))
				case "/slow":
					time.Sleep(time.Second)
				}
				return play(req, status(503))
			})
			ev := &recorder{}
			rule := row.rule
			rule.Backoff, rule.RetryBudget = backoff.Constant(10*time.Second), one
			tr := mustNew(t, transport.Config{Base: base, Rule: rule, Traces: []*transport.Trace{ev.trace()}})
			row.run(t, tr)
			assert.Contains(t, ev.reasons(), row.ends)
			assert.InDelta(t, 1, stateOf(t, tr).RetryBudget, 1e-3)
		})
	}
}

// TestRefusedCallsEarnNoRetries: a share of what is sent is a share of what the
// host sees; callers that try again and again behind a full limiter add nothing.
func TestRefusedCallsEarnNoRetries(t *testing.T) {
	bubble(t, func(t *testing.T) {
		tr := mustNew(t, transport.Config{Base: script(status(503), status(200)), Rule: policy.Rule{
			Backoff:     backoff.Constant(0),
			RetryBudget: policy.RetryBudget{Ratio: 0.01, MinPerSecond: -1},
			Concurrency: policy.Concurrency{FailFast: policy.On, Max: 1},
		}})
		stream, err := get(t, tr, t.Context()) // spends the one retry, and keeps its slot
		require.NoError(t, err)
		left := stateOf(t, tr).RetryBudget
		require.Less(t, left, 0.1)
		for range 1000 {
			_, err := send(t, tr, http.MethodGet, "http://h.test/")
			require.ErrorIs(t, err, transport.ErrNotSent)
		}
		assert.InDelta(t, left, stateOf(t, tr).RetryBudget, 1e-9)
		assert.EqualValues(t, 1, stateOf(t, tr).Requests, "requests counted")
		_ = stream.Body.Close()
	})
}
