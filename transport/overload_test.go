package transport_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
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
	made, open, twice atomic.Int64
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
	} else {
		e.l.twice.Add(1)
	}
	return nil
}

// everything turns every limit on.
var everything = policy.Rule{
	Attempts: 4, Backoff: backoff.Exponential{}, AttemptTimeout: 2 * time.Second,
	Rate:   policy.Rate{PerSecond: 2000, Burst: 200},
	Pacing: policy.On, Cooldown: policy.On,
	Gate:  policy.Gate{Start: 20},
	Hedge: policy.Hedge{After: 300 * time.Millisecond, Percentile: 95},
}

// A chaos is a server that does anything, at random.
type chaos struct {
	responses, requests ledger
	attempts            atomic.Int64
}

func (c *chaos) RoundTrip(req *http.Request) (*http.Response, error) {
	c.attempts.Add(1)
	if req.Body != nil {
		defer func() { _ = req.Body.Close() }()
		if rand.IntN(4) > 0 {
			_, _ = io.Copy(io.Discard, req.Body)
		}
	}
	wait := time.Duration(rand.IntN(40)) * time.Millisecond
	if rand.IntN(50) == 0 {
		wait = time.Duration(rand.IntN(5000)) * time.Millisecond
	}
	if err := pause(req, wait); err != nil {
		return nil, err
	}
	var header []string
	if rand.IntN(3) == 0 {
		header = append(header, "X-RateLimit-Limit: 5000", fmt.Sprintf("X-RateLimit-Remaining: %d", rand.IntN(5000)), "X-RateLimit-Reset: 1")
	}
	code := 200
	switch rand.IntN(20) {
	case 0:
		return nil, syscall.ECONNRESET
	case 1:
		return nil, syscall.ECONNREFUSED
	case 2, 3:
		code = 503
	case 4:
		code, header = 429, append(header, "Retry-After: 1")
	case 5:
		code = 500
	case 6:
		code = 404
	}
	if rand.IntN(5) == 0 {
		return newResponse(req, code, http.NoBody, header...), nil
	}
	return newResponse(req, code, c.responses.body(req.Context(), "a response"), header...), nil
}

// TestEverythingAtOnce: hundreds of callers with all limits on use a base that does
// anything at random. Some callers leave early, and some read half of the body.
func TestEverythingAtOnce(t *testing.T) {
	callers, each := soak.Size(300, 1000), 10
	rule := everything
	rule.Budget.Burst = soak.Size(5., 0) // so that even fewer requests use it up
	bubble(t, func(t *testing.T) {
		base := &chaos{}
		tr := mustNew(t, transport.Config{Base: base, Rule: rule})
		start := time.Now()
		var requests, succeeded atomic.Int64
		var mu sync.Mutex
		reasons := map[transport.Reason]int{}
		trace := &transport.Trace{Event: func(e transport.Event) {
			mu.Lock()
			defer mu.Unlock()
			reasons[e.Reason]++
		}}
		together(callers, func(i int) {
			for range each {
				host := fmt.Sprintf("http://h%d.test/", i%3)
				if rand.IntN(soak.Size(3, 10)) == 0 {
					host = "http://calm.test/" // where there is room for hedges
				}
				time.Sleep(time.Duration(rand.IntN(2000)) * time.Millisecond)
				ctx, cancel := context.WithTimeout(transport.WithTrace(t.Context(), trace), time.Minute)
				switch rand.IntN(10) {
				case 0:
					ctx, cancel = context.WithTimeout(ctx, time.Duration(rand.IntN(3000))*time.Millisecond)
				case 1:
					time.AfterFunc(time.Duration(rand.IntN(3000))*time.Millisecond, cancel)
				}
				req := randomRequest(ctx, &base.requests, host)
				requests.Add(1)
				resp, err := tr.RoundTrip(req)
				if err == nil {
					if resp.StatusCode == 200 {
						succeeded.Add(1)
					}
					if rand.IntN(3) > 0 {
						time.Sleep(time.Duration(rand.IntN(100)) * time.Millisecond)
						if _, err := io.Copy(io.Discard, resp.Body); err != nil && ctx.Err() == nil {
							t.Errorf("a response is cut: %v", err)
						}
					}
					_ = resp.Body.Close()
				}
				cancel()
			}
		})
		synctest.Wait() // for the losers
		var sum transport.HostState
		for _, s := range tr.Snapshot() {
			t.Log(s)
			sum.InFlight += s.InFlight
			sum.GateSlots += s.GateSlots
			sum.GateQueue += s.GateQueue
		}
		elapsed := time.Since(start).Seconds()
		t.Logf("%d requests, %d attempts in %.0f s, %d succeeded; %v", requests.Load(), base.attempts.Load(), elapsed, succeeded.Load(), reasons)
		assert.Zero(t, sum.InFlight)
		assert.Zero(t, sum.GateSlots)
		assert.Zero(t, sum.GateQueue)
		assert.Zero(t, base.responses.open.Load(), "responses left open, of %d", base.responses.made.Load())
		assert.Zero(t, base.requests.open.Load(), "request bodies left open, of %d", base.requests.made.Load())
		assert.Zero(t, base.requests.twice.Load(), "request bodies closed twice")
		assert.LessOrEqual(t, float64(base.attempts.Load()), 1.2*float64(requests.Load())+4*(30+3*elapsed), "four hosts")
		assert.Greater(t, succeeded.Load(), int64(callers*each/2))
		for _, r := range []transport.Reason{transport.ReasonRetry, transport.ReasonHedged, transport.ReasonOutrun, transport.ReasonCanceled, transport.ReasonBudget} {
			assert.NotZero(t, reasons[r], "%v", r)
		}
	})
}

// randomRequest returns a request without a body, with a body that has GetBody, or with
// a body that can be read once.
func randomRequest(ctx context.Context, l *ledger, url string) *http.Request {
	method := []string{http.MethodGet, http.MethodPut, http.MethodPut, http.MethodPost}[rand.IntN(4)]
	req, err := http.NewRequestWithContext(ctx, method, url, nil)
	if err != nil {
		panic(err)
	}
	req.Header.Set("Authorization", fmt.Sprintf("Bearer %d", rand.IntN(3)))
	if method == http.MethodGet {
		return req
	}
	req.Body = l.body(context.Background(), "a request's body")
	if rand.IntN(2) == 0 {
		req.GetBody = func() (io.ReadCloser, error) { return l.body(context.Background(), "a request's body"), nil }
	}
	return req
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
			rule.Attempts, rule.AttemptTimeout = 1, 0
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
			assert.Len(t, tr.Snapshot(), kept)
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
		"cooldown": {sharing, func(t *testing.T, tr *transport.Transport) func() {
			require.Equal(t, 429, responds(t, tr, http.MethodPost, "http://h.test/told"))
			return func() { time.Sleep(time.Minute) }
		}},
		"gate": {policy.Rule{Gate: policy.Gate{Start: 1, Max: 1}}, func(t *testing.T, tr *transport.Transport) func() {
			resp := mustGet(t, tr)
			return func() { _ = resp.Body.Close() }
		}},
		"rate": {policy.Rule{Rate: policy.Rate{PerSecond: 0.01, Burst: 1}}, func(t *testing.T, tr *transport.Transport) func() {
			responds(t, tr, http.MethodGet, "http://h.test/")
			return func() { time.Sleep(200 * time.Second) }
		}},
		"rate behind a gate": {policy.Rule{Rate: policy.Rate{PerSecond: 0.01, Burst: 1}, Gate: policy.Gate{Start: 5}}, func(t *testing.T, tr *transport.Transport) func() {
			responds(t, tr, http.MethodGet, "http://h.test/")
			return func() { time.Sleep(200 * time.Second) }
		}},
		"pacing": {policy.Rule{Pacing: policy.On}, func(t *testing.T, tr *transport.Transport) func() {
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
				assert.Equal(t, 1, b.closed())
			})
			assert.Equal(t, time.Second, time.Since(start))
			assert.Equal(t, attempts, base.attempts())
			s := stateOf(t, tr)
			assert.Zero(t, s.InFlight)
			assert.Zero(t, s.GateQueue)

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
		until := stateOf(t, tr).HeldUntil

		start := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		b := oneShot("text")
		_, err := tr.RoundTrip(newRequest(t, http.MethodPut, "http://h.test/", b).WithContext(ctx))
		assert.Equal(t, start, time.Now(), "at once")
		assert.ErrorIs(t, err, transport.ErrOverDeadline)
		assert.ErrorIs(t, err, context.DeadlineExceeded)
		e := errorAs[*transport.Error](t, err)
		assert.Equal(t, transport.ReasonDeadline, e.Reason)
		assert.True(t, e.Timeout())
		assert.True(t, e.GaveUp())
		assert.Equal(t, until, e.Until)
		assert.Equal(t, 1, b.closed())
		assert.Equal(t, 1, base.attempts())
	})
}
