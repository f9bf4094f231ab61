package transport_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/aplomb-go/aplomb/faults"
	"github.com/aplomb-go/aplomb/internal/host"
	"github.com/aplomb-go/aplomb/policy"
	"github.com/aplomb-go/aplomb/transport"
)

// limitsOf returns the limits of the one host that a Transport knows, or nil if it has none.
func limitsOf(t *testing.T, tr *transport.Transport) *host.Limits {
	t.Helper()
	h := tr.Hosts().Peek(newRequest(t, http.MethodGet, "http://h.test/", nil).URL)
	require.NotNil(t, h)
	if h.MachinesMade() == nil {
		return nil
	}
	return h.MachinesMade().LimitsMade()
}

// TestNoGate: a host whose rule sets no rate limit, concurrency limit, circuit breaker, quota pacing and shared waits has no limits,
// whatever happens to its requests and whoever observes them. Until a 429, nobody asks whose requests they are.
func TestNoGate(t *testing.T) {
	for name, row := range map[string]struct {
		rule    policy.Rule
		answers []answer
		body    string
		down    bool // the host is down before
		code    int
		told    bool // a 429, whose line is that of the credentials
	}{
		"a first try":                   {answers: []answer{status(200)}, code: 200},
		"an upload":                     {answers: []answer{status(200)}, body: "text", code: 200},
		"a retry":                       {answers: []answer{status(503), status(200)}, code: 200},
		"a retry after an error":        {answers: []answer{faults.Fail(syscall.ECONNRESET), status(200)}, code: 200},
		"a Retry-After":                 {answers: []answer{status(503, "Retry-After: 3"), status(200)}, code: 200},
		"a 429":                         {answers: []answer{status(429, "Retry-After: 3"), status(200)}, code: 200, told: true},
		"a 429 that is final":           {rule: policy.Rule{MaxAttempts: 1}, answers: []answer{status(429, "Retry-After: 3")}, code: 429, told: true},
		"a quota that is used up":       {answers: []answer{status(200, "RateLimit-Limit: 10", "RateLimit-Remaining: 0", "RateLimit-Reset: 60")}, code: 200},
		"a budget that is used up":      {rule: poor, answers: []answer{status(503)}, code: 503},
		"an outage":                     {down: true, answers: []answer{status(503), status(200)}, code: 200},
		"an outage without an end":      {down: true, answers: []answer{status(503)}, code: 503},
		"a hedge":                       {rule: policy.Rule{Hedge: policy.Hedge{Delay: time.Second}}, answers: []answer{status(200).Delay(time.Minute), status(200)}, code: 200},
		"the rest of a body":            {answers: []answer{cutter("0123456789", 4, -503, 2)}, code: 200},
		"a timeout, and MaxElapsedTime": {rule: policy.Rule{AttemptTimeout: time.Second, MaxElapsedTime: time.Hour}, answers: []answer{status(200).Delay(time.Minute), status(200)}, code: 200},
	} {
		for _, watched := range []bool{false, true} {
			inBubble(t, fmt.Sprint(name, ", watched ", watched), func(t *testing.T) {
				keys, down := 0, row.down
				answers := script(row.answers...)
				rule := policy.Rule{ThrottleKey: func(*http.Request) string { keys++; return "key" }}
				c := transport.Config{Rule: row.rule.Or(rule).Or(exact), Base: rt(func(req *http.Request) (*http.Response, error) {
					if down {
						return play(req, status(503))
					}
					return answers.RoundTrip(req)
				})}
				if watched {
					c.Traces = []*transport.Trace{new(recorder).trace(), {HostChange: func(context.Context, transport.HostChange) {}}}
					c.Logger = slog.New(slog.NewTextHandler(io.Discard, nil))
				}
				tr := mustNew(t, c)
				if down {
					bring(t, tr)
					down = false
				}
				req := newRequest(t, http.MethodGet, "http://h.test/", nil)
				if row.body != "" {
					req = newRequest(t, http.MethodPut, "http://h.test/", strings.NewReader(row.body))
				}
				resp := mustRoundTrip(t, tr, req)
				mustRead(t, resp)
				assert.Equal(t, row.code, resp.StatusCode)
				stateOf(t, tr)
				assert.Nil(t, limitsOf(t, tr))
				assert.Equal(t, row.told, keys > 0, "asked for the scope")
				require.NoError(t, tr.Update(policy.Rule{MaxAttempts: 1}, nil))
				_, _ = send(t, tr, http.MethodGet, "http://h.test/")
				assert.Nil(t, limitsOf(t, tr), "an Update that turns none on")
			})
		}
	}
	for name, on := range map[string]policy.Rule{
		"shared waits": {ShareRetryAfter: policy.On}, "rate": {RateLimit: policy.RateLimit{PerSecond: 1}}, "limiter": {Concurrency: policy.Concurrency{Max: 1}}, "quota": {QuotaPacing: policy.On},
	} {
		inBubble(t, name, func(t *testing.T) {
			tr := mustNew(t, transport.Config{Rule: on, Base: script(status(429, "Retry-After: 3"))})
			_ = closing(get(t, tr, transport.WithoutRetries(t.Context())))
			assert.NotNil(t, limitsOf(t, tr), "a rule that turns a limit on")
		})
	}
}

// A limitWatch is a host that answers after 700 ms, and counts the attempts of the requests whose rule turns a limit on.
type limitWatch struct {
	mu       sync.Mutex
	n        int
	inFlight int
	most     int             // in flight together
	sent     []time.Duration // when they went
	told     time.Time       // when they were told to wait last, for longer than before
	held     time.Time       // until then
	early    int             // how many went before
	begun    time.Time
}

func (w *limitWatch) RoundTrip(req *http.Request) (*http.Response, error) {
	on := req.Header.Get("On") != ""
	w.mu.Lock()
	w.n++
	n := w.n
	if on {
		w.inFlight++
		w.most = max(w.most, w.inFlight)
		w.sent = append(w.sent, time.Since(w.begun))
		if now := time.Now(); now.After(w.told) && now.Before(w.held) {
			w.early++
		}
	}
	w.mu.Unlock()
	err := pause(req, 700*time.Millisecond)
	w.mu.Lock()
	defer w.mu.Unlock()
	if on {
		w.inFlight--
	}
	switch {
	case err != nil:
		return nil, err
	case n%7 == 0:
		if until := time.Now().Add(2 * time.Second); on && until.After(w.held) {
			w.told, w.held = time.Now(), until
		}
		return play(req, status(429, "Retry-After: 2"))
	case n%5 == 0:
		return play(req, status(503))
	}
	return play(req, status(200))
}

// inASecond returns how many attempts went at most in any second from a time on.
func (w *limitWatch) inASecond(from time.Duration) (most int) {
	for i, at := range w.sent {
		for j := i; j < len(w.sent) && at >= from && w.sent[j] < at+time.Second; j++ {
			most = max(most, j-i+1)
		}
	}
	return most
}

// TestUpdateTurnsLimitsOnAndOff: whatever requests do while an Update turns a limit on or off, they leave nothing behind, and those
// that begin with the limit keep to it together. Some are in flight then, some in a back-off, some in the queue, and some leave.
func TestUpdateTurnsLimitsOnAndOff(t *testing.T) {
	limiter := policy.Rule{Concurrency: policy.Concurrency{Max: 3}}
	rate := policy.Rule{RateLimit: policy.RateLimit{PerSecond: 4, Burst: 1}}
	shared := policy.Rule{ShareRetryAfter: policy.On}
	for name, on := range map[string]policy.Rule{
		"limiter": limiter, "rate": rate, "shared waits": shared, "limiter and rate": limiter.Or(rate), "all": limiter.Or(rate).Or(shared),
	} {
		for first, requests := range map[bool]int{false: 100, true: 80} { // whether the limit is on at the start, as it is at the end
			inBubble(t, fmt.Sprint(name, ", at first ", first), func(t *testing.T) {
				off := policy.Rule{MaxAttempts: 3, RetryBudget: policy.RetryBudget{Enabled: policy.Off}}.Or(exact)
				rules := map[bool]policy.Rule{false: off, true: on.Or(off)}
				w := &limitWatch{begun: time.Now()}
				tr := mustNew(t, transport.Config{Base: w, Rule: rules[first]})
				var all sync.WaitGroup
				is, last := first, time.Duration(0)
				for i := range requests {
					if i%20 == 10 {
						is, last = !is, time.Since(w.begun)
						require.NoError(t, tr.Update(rules[is], nil))
					}
					ctx, cancel := context.WithCancel(t.Context())
					req := newRequest(t, http.MethodGet, "http://h.test/", nil).WithContext(ctx)
					if is {
						req.Header.Set("On", "1")
					}
					all.Go(func() {
						defer cancel()
						if i%4 == 0 {
							time.AfterFunc(500*time.Millisecond, cancel)
						}
						_ = closing(tr.RoundTrip(req))
					})
					time.Sleep(100 * time.Millisecond)
				}
				all.Wait()
				assert.Equal(t, 200, responds(t, tr, http.MethodGet, "http://h.test/"))
				l := limitsOf(t, tr)
				s := stateOf(t, tr)
				assert.Equal(t, []int{0, 0, 0, 0}, []int{s.ConcurrencyInUse, s.ConcurrencyWaiting, s.RateLimitWaiting, s.InFlight})
				assert.Zero(t, l.Throttle.State(0).Waiting)
				if on.Concurrency.Max > 0 {
					assert.Equal(t, 3, w.most, "in flight together")
				}
				if on.RateLimit.PerSecond > 0 {
					assert.LessOrEqual(t, w.inASecond(last), 5, "in a second")
				}
				if on.ShareRetryAfter == policy.On {
					assert.Zero(t, w.early, "before the end of a wait")
				}
			})
		}
	}
}
