// Requests in the queues of a host, and the changes that they hear of.

package transport_test

import (
	"context"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
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

// TestPacingBeginsWhileRequestsWaitAtTheGate: some requests passed the pacing before the
// server named a quota, and wait at the gate. They ask the pacing again.
func TestPacingBeginsWhileRequestsWaitAtTheGate(t *testing.T) {
	bubble(t, func(t *testing.T) {
		const quota = 20
		start := time.Now()
		var mu sync.Mutex
		sent, over := map[int]int{}, 0
		base := rt(func(req *http.Request) (*http.Response, error) {
			mu.Lock()
			k := int(time.Since(start) / (10 * time.Second))
			sent[k]++
			left := quota - sent[k]
			if left < 0 {
				over++
			}
			mu.Unlock()
			time.Sleep(50 * time.Millisecond)
			code := 200
			if left < 0 {
				code = 429
			}
			reset := (k+1)*10 - int(time.Since(start)/time.Second)
			return newResponse(req, code, http.NoBody, "RateLimit-Limit: 20", "RateLimit-Remaining: "+strconv.Itoa(max(0, left)), "RateLimit-Reset: "+strconv.Itoa(reset)), nil
		})
		tr := mustNew(t, transport.Config{Base: base, Rule: policy.Rule{Attempts: -1, Pacing: policy.On, Gate: policy.Gate{Start: 4, Max: 4}}})
		together(60, func(int) { responds(t, tr, http.MethodGet, "http://h.test/") })
		t.Log(sent, over, time.Since(start))
		if over > 4 { // requests that were under way when the server first said so
			t.Errorf("%d requests beyond the quota", over)
		}
	})
}

// TestUpdateReachesTheRate: an Update also reaches the requests in the queue.
func TestUpdateReachesTheRate(t *testing.T) {
	bubble(t, func(t *testing.T) {
		start := time.Now()
		tr := mustNew(t, transport.Config{Base: script(status(204)), Rule: policy.Rule{Rate: policy.Rate{PerSecond: 0.01, Burst: 1}}})
		get := func() time.Duration {
			responds(t, tr, http.MethodGet, "http://h.test/")
			return time.Since(start)
		}
		get()
		var old time.Duration
		var wg sync.WaitGroup
		wg.Go(func() { old = get() })
		synctest.Wait()
		require.NoError(t, tr.Update(policy.Rule{Rate: policy.Rate{PerSecond: 100, Burst: 1}}, nil))
		late := get()
		wg.Wait()
		assert.LessOrEqual(t, old, late, "the first in the queue went at %v, a newcomer at", old)
	})
}

func TestUpdateReachesTheRateBehindAGate(t *testing.T) {
	bubble(t, func(t *testing.T) {
		start := time.Now()
		rule := policy.Rule{Rate: policy.Rate{PerSecond: 0.01, Burst: 1}, Gate: policy.Gate{Start: 5}}
		tr := mustNew(t, transport.Config{Base: script(status(204)), Rule: rule})
		get := func() time.Duration {
			responds(t, tr, http.MethodGet, "http://h.test/")
			return time.Since(start)
		}
		get()
		var wg sync.WaitGroup
		wg.Go(func() { get() })
		synctest.Wait()
		rule.Rate.PerSecond = 100
		require.NoError(t, tr.Update(rule, nil))
		assert.LessOrEqual(t, get(), time.Second, "after the Update to 100 per second a request waited")
		wg.Wait()
	})
}

// TestHedgeDoesNotWaitForTheDrain: the winner's response is delivered at once.
func TestHedgeDoesNotWaitForTheDrain(t *testing.T) {
	bubble(t, func(t *testing.T) {
		start := time.Now()
		var n atomic.Int32
		base := rt(func(req *http.Request) (*http.Response, error) {
			if n.Add(1) == 1 {
				time.Sleep(30 * time.Millisecond)
				r, w := io.Pipe() // a body that does not end
				context.AfterFunc(req.Context(), func() { _ = w.Close() })
				return newResponse(req, 500, r), nil
			}
			time.Sleep(30 * time.Millisecond)
			return newResponse(req, 200, io.NopCloser(strings.NewReader(""))), nil
		})
		tr := mustNew(t, transport.Config{Base: base, Rule: policy.Rule{Hedge: policy.Hedge{After: 10 * time.Millisecond}}})
		resp := mustRoundTrip(t, tr, newRequest(t, http.MethodGet, "http://h.test/", nil))
		_ = resp.Body.Close()
		assert.LessOrEqual(t, time.Since(start), 40*time.Millisecond, "the response of 40 ms came after")
	})
}

// TestGateComesBackByItself: slow requests from the time of the low limit do not delay
// others after the limit has recovered.
func TestGateComesBackByItself(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var mu sync.Mutex
		mode := "fail"
		base := rt(func(req *http.Request) (*http.Response, error) {
			mu.Lock()
			m := mode
			mu.Unlock()
			switch {
			case m == "fail":
				time.Sleep(200 * time.Millisecond)
				return nil, io.ErrUnexpectedEOF
			case req.URL.Path == "/slow":
				time.Sleep(10 * time.Minute) // a long poll
			}
			return newResponse(req, 200, http.NoBody), nil
		})
		tr := mustNew(t, transport.Config{Base: base, Rule: policy.Rule{Attempts: -1, Gate: policy.Gate{Start: 10}}})
		get := func(path string) { _, _ = send(t, tr, http.MethodGet, "http://h.test"+path) }
		for range 12 {
			get("/")
			if tr.Snapshot()[0].GateClosed {
				break
			}
		}
		require.True(t, tr.Snapshot()[0].GateClosed)
		mu.Lock()
		mode = "ok"
		mu.Unlock()
		time.Sleep(time.Second)
		get("/") // the probe
		var wg sync.WaitGroup
		for range 2 {
			wg.Go(func() { get("/slow") })
		}
		time.Sleep(time.Second)
		at := time.Now()
		get("/")
		assert.LessOrEqual(t, time.Since(at), 20*time.Second, "waited")
		wg.Wait()
	})
}

// MaxElapsed also bounds the wait of a retry at the gate.
func TestMaxElapsedAtTheGate(t *testing.T) {
	bubble(t, func(t *testing.T) {
		base := script(func(req *http.Request) (*http.Response, error) {
			if req.URL.Path == "/long" {
				return play(req, status(200).Delay(time.Minute))
			}
			return play(req, status(503))
		})
		rule := policy.Rule{MaxElapsed: 5 * time.Second, Gate: policy.Gate{Mode: policy.GateWait, Start: 1, Max: 1}}
		tr := over(t, transport.Config{Rule: rule.Or(exact)}, base)
		done := make(chan struct{})
		time.AfterFunc(500*time.Millisecond, func() { // takes the slot during the back-off
			defer close(done)
			responds(t, tr, http.MethodGet, "http://h.test/long")
		})
		_, err := get(t, tr, t.Context())
		assert.LessOrEqual(t, time.Since(base.start), 5*time.Second+time.Millisecond)
		e := errorAs[*transport.Error](t, err)
		assert.Equal(t, transport.ReasonMaxElapsed, e.Reason)
		<-done
		time.Sleep(time.Minute)
		assert.Equal(t, 2, base.attempts())
		assert.Zero(t, stateOf(t, tr).GateQueue)
	})
}

// A request whose turn by the rate comes after its deadline is refused at once,
// with and without a gate.
func TestLateTurnsOfTheRateAreRefusedAtOnce(t *testing.T) {
	for name, mode := range map[string]policy.GateMode{"rate": policy.Off, "rate and gate": policy.GateWait} {
		inBubble(t, name, func(t *testing.T) {
			base := script(faults.Status(200))
			tr := over(t, transport.Config{Rule: policy.Rule{Rate: policy.Rate{PerSecond: 1, Burst: 1}, Gate: policy.Gate{Mode: mode}}}, base)
			ctx, cancel := context.WithTimeout(t.Context(), 5500*time.Millisecond)
			defer cancel()
			var wg sync.WaitGroup
			for range 20 {
				wg.Go(func() {
					if _, err := get(t, tr, ctx); err != nil {
						assert.ErrorIs(t, err, transport.ErrOverDeadline)
						assert.Zero(t, time.Since(base.start))
					}
				})
				synctest.Wait() // each request finds the request before it in the queue
			}
			wg.Wait()
			assert.Equal(t, 6, base.attempts(), "one per second")
		})
	}
}

// A refusal names the limit in the error and in the event.
func TestRefusalsNameTheLimit(t *testing.T) {
	busy := func(req *http.Request) (*http.Response, error) {
		if req.URL.Path == "/long" {
			time.Sleep(time.Minute)
		}
		return play(req, faults.Status(200))
	}
	hold := func(t *testing.T, tr *transport.Transport) { _, _ = get(t, tr, transport.Once(t.Context())) }
	slow := func(t *testing.T, tr *transport.Transport) {
		go func() { _, _ = send(t, tr, http.MethodGet, "http://h.test/long") }()
		synctest.Wait()
	}
	elapsed := policy.Rule{MaxElapsed: 5 * time.Second, Attempts: 2}.Or(exact)
	for name, row := range map[string]struct {
		limit  string
		rule   policy.Rule
		base   answer
		first  func(*testing.T, *transport.Transport)
		reason transport.Reason
		text   string
	}{
		"rate": {limit: "rate", base: faults.Status(200), first: hold, reason: transport.ReasonDeadline,
			rule: policy.Rule{Rate: policy.Rate{PerSecond: 0.05}}, text: "its turn would come after the deadline (rate)"},
		"rate with a gate": {limit: "rate", base: faults.Status(200), first: hold, reason: transport.ReasonDeadline,
			rule: policy.Rule{Rate: policy.Rate{PerSecond: 0.05}, Gate: policy.Gate{Max: 5}}, text: "its turn would come after the deadline (rate)"},
		"cooldown": {limit: "cooldown", base: status(429, "Retry-After: 20"), first: hold, reason: transport.ReasonDeadline, rule: sharing,
			text: "its turn would come after the deadline (cooldown)"},
		"pacing": {limit: "pacing", base: status(200, "RateLimit-Limit: 100", "RateLimit-Remaining: 1", "RateLimit-Reset: 50"), reason: transport.ReasonDeadline,
			rule: policy.Rule{Pacing: policy.On}, text: "its turn would come after the deadline (pacing)",
			first: func(t *testing.T, tr *transport.Transport) {
				hold(t, tr)
				go hold(t, tr) // takes the last turn
				synctest.Wait()
			}},
		"gate that refuses": {limit: "gate", base: busy, first: slow, reason: transport.ReasonGateFull,
			rule: policy.Rule{Gate: policy.Gate{Start: 1, Max: 1, Mode: policy.GateRefuse}}, text: "too many requests in flight"},
		"gate that refuses, and no token of the rate": {limit: "gate", base: busy, first: slow, reason: transport.ReasonGateFull,
			rule: policy.Rule{Gate: policy.Gate{Start: 1, Max: 1, Mode: policy.GateRefuse}, Rate: policy.Rate{PerSecond: 0.5, Burst: 1}}, text: "too many requests in flight"},
		"gate until the end of the context": {limit: "gate", base: busy, first: slow, reason: transport.ReasonTimeout,
			rule: policy.Rule{Gate: policy.Gate{Start: 1, Max: 1}}, text: "not sent while it waited for its turn (gate)"},
		"a retry by the rate": {limit: "rate", base: faults.Fail(syscall.ECONNRESET), first: hold, reason: transport.ReasonDeadline,
			rule: policy.Rule{Rate: policy.Rate{PerSecond: 0.05, Burst: 2}}.Or(exact), text: "(deadline, rate): connection reset"},
		"a retry too late for the rule": {limit: "rate", base: faults.Fail(syscall.ECONNRESET), first: hold, reason: transport.ReasonMaxElapsed,
			rule: policy.Rule{Rate: policy.Rate{PerSecond: 0.12, Burst: 2}}.Or(elapsed), text: "(max elapsed, rate): connection reset"},
		"no limit": {limit: "", base: faults.Fail(syscall.ECONNRESET), first: hold, reason: transport.ReasonDeadline,
			rule: policy.Rule{Backoff: backoff.Constant(time.Minute)}, text: "(deadline): connection reset"},
	} {
		inBubble(t, name, func(t *testing.T) {
			var seen recorder
			tr := over(t, transport.Config{Rule: row.rule}, script(row.base))
			row.first(t, tr)
			ctx, cancel := context.WithTimeout(seen.on(t.Context()), 10*time.Second)
			defer cancel()
			resp, err := get(t, tr, ctx)
			require.Error(t, err, "%v", resp)
			assert.ErrorContains(t, err, row.text)
			e := errorAs[*transport.Error](t, err)
			assert.Equal(t, row.reason, e.Reason)
			assert.Equal(t, row.limit, e.Limit)
			last := seen.all[len(seen.all)-1]
			assert.Equal(t, row.reason, last.Reason)
			assert.Equal(t, row.limit, last.Limit)
			time.Sleep(2 * time.Minute)
		})
	}
}
