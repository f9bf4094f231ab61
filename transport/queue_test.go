// Requests in the queues of a host, the changes that they hear of, and what a snapshot has of them.

package transport_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
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
	"github.com/aplomb-go/aplomb/internal/host"
	"github.com/aplomb-go/aplomb/internal/soak"
	"github.com/aplomb-go/aplomb/internal/testkit"
	"github.com/aplomb-go/aplomb/policy"
	"github.com/aplomb-go/aplomb/policy/backoff"
	"github.com/aplomb-go/aplomb/transport"
)

// TestPacingBeginsWhileRequestsWaitAtTheGate: some requests passed the pacing before the
// server named a quota, and wait at the limiter. They ask the pacing again.
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
		tr := mustNew(t, transport.Config{Base: base, Rule: policy.Rule{MaxAttempts: 1, QuotaPacing: policy.On, Concurrency: policy.Concurrency{Max: 4}}})
		together(60, func(int) { responds(t, tr, http.MethodGet, "http://h.test/") })
		t.Log(sent, over, time.Since(start))
		assert.LessOrEqual(t, over, 4, "requests beyond the quota, which were under way when the server first said so")
	})
}

// TestUpdateReachesTheQueue: a rate and a Max that are raised or taken away also hold for the requests that wait.
func TestUpdateReachesTheQueue(t *testing.T) {
	slow, fast := policy.RateLimit{PerSecond: 0.01, Burst: 1}, policy.RateLimit{PerSecond: 100, Burst: 1}
	five, one, fifty := policy.Concurrency{Max: 5}, policy.Concurrency{Max: 1}, policy.Concurrency{Max: 50}
	for name, row := range map[string]struct{ old, raised policy.Rule }{
		"rate":           {policy.Rule{RateLimit: slow}, policy.Rule{RateLimit: fast}},
		"rate and limit": {policy.Rule{RateLimit: slow, Concurrency: five}, policy.Rule{RateLimit: fast, Concurrency: five}},
		"Max":            {policy.Rule{Concurrency: one}, policy.Rule{Concurrency: fifty}},
		"no rate":        {policy.Rule{RateLimit: slow}, policy.Rule{}},
		"no limit":       {policy.Rule{RateLimit: slow, Concurrency: five}, policy.Rule{}},
	} {
		inBubble(t, name, func(t *testing.T) {
			tr := mustNew(t, transport.Config{Base: script(status(204).Delay(time.Second)), Rule: row.old})
			start := time.Now()
			together(20, func(i int) {
				if time.Sleep(time.Duration(i)); i == 19 {
					assert.NoError(t, tr.Update(row.raised, nil))
				}
				responds(t, tr, http.MethodGet, "http://h.test/")
			})
			assert.Less(t, time.Since(start), 7*time.Second, "without the Update it would be 20 s or more")
		})
	}
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
		tr := mustNew(t, transport.Config{Base: base, Rule: policy.Rule{Hedge: policy.Hedge{Delay: 10 * time.Millisecond}}})
		resp := mustRoundTrip(t, tr, newRequest(t, http.MethodGet, "http://h.test/", nil))
		_ = resp.Body.Close()
		assert.LessOrEqual(t, time.Since(start), 40*time.Millisecond, "the response of 40 ms came after")
	})
}

// A refusal names the limit in the error and to the hooks.
func TestRefusalsNameTheLimit(t *testing.T) {
	busy := func(req *http.Request) (*http.Response, error) {
		if req.URL.Path == "/long" {
			time.Sleep(time.Minute)
		}
		return play(req, faults.Status(200))
	}
	hold := func(t *testing.T, tr *transport.Transport) { _, _ = get(t, tr, transport.WithoutRetries(t.Context())) }
	slow := func(t *testing.T, tr *transport.Transport) {
		go func() { _, _ = send(t, tr, http.MethodGet, "http://h.test/long") }()
		synctest.Wait()
	}
	elapsed := policy.Rule{MaxElapsedTime: 5 * time.Second, MaxAttempts: 2}.Or(exact)
	for name, row := range map[string]struct {
		rule   policy.Rule
		base   answer
		first  func(*testing.T, *transport.Transport)
		reason transport.Reason
		text   string
		until  bool // it is known when a request makes sense
	}{
		"rate": {base: faults.Status(200), first: hold, reason: transport.ReasonRateLimit, until: true,
			rule: policy.Rule{RateLimit: policy.RateLimit{PerSecond: 0.05}}, text: "not sent: the rule's rate limit is reached, next try at "},
		"rate with a limiter": {base: faults.Status(200), first: hold, reason: transport.ReasonRateLimit, until: true,
			rule: policy.Rule{RateLimit: policy.RateLimit{PerSecond: 0.05}, Concurrency: policy.Concurrency{Max: 5}}, text: "not sent: the rule's rate limit is reached, next try at "},
		"throttle": {base: status(429, "Retry-After: 20"), first: hold, reason: transport.ReasonThrottled, until: true, rule: sharing,
			text: "not sent: the server asked for a longer wait, next try at "},
		"pacing": {base: status(200, "RateLimit-Limit: 100", "RateLimit-Remaining: 1", "RateLimit-Reset: 50"), reason: transport.ReasonQuota, until: true,
			rule: policy.Rule{QuotaPacing: policy.On}, text: "not sent: the server's quota is nearly used up, next try at ",
			first: func(t *testing.T, tr *transport.Transport) {
				hold(t, tr)
				go hold(t, tr) // takes the last turn
				synctest.Wait()
			}},
		"limiter that refuses": {base: busy, first: slow, reason: transport.ReasonConcurrency,
			rule: policy.Rule{Concurrency: policy.Concurrency{Max: 1, FailFast: policy.On}}, text: "not sent: too many requests are in flight"},
		"limiter that refuses, and no token of the rate": {base: busy, first: slow, reason: transport.ReasonConcurrency,
			rule: policy.Rule{Concurrency: policy.Concurrency{Max: 1, FailFast: policy.On}, RateLimit: policy.RateLimit{PerSecond: 0.5, Burst: 1}}, text: "not sent: too many requests are in flight"},
		"limiter until the end of the context": {base: busy, first: slow, reason: transport.ReasonConcurrency,
			rule: policy.Rule{Concurrency: policy.Concurrency{Max: 1}}, text: "not sent: too many requests are in flight, waited 10s for the concurrency limit: context deadline exceeded"},
		"a retry by the rate": {base: faults.Fail(syscall.ECONNRESET), first: hold, reason: transport.ReasonRateLimit, until: true,
			rule: policy.Rule{RateLimit: policy.RateLimit{PerSecond: 0.05, Burst: 2}}.Or(exact), text: "(rate limit), next try at 2000"},
		"a retry too late for the rule": {base: faults.Fail(syscall.ECONNRESET), first: hold, reason: transport.ReasonRateLimit, until: true,
			rule: policy.Rule{RateLimit: policy.RateLimit{PerSecond: 0.12, Burst: 2}}.Or(elapsed), text: "(rate limit), next try at 2000"},
		"no limit": {base: faults.Fail(syscall.ECONNRESET), first: hold, reason: transport.ReasonDeadline,
			rule: policy.Rule{Backoff: backoff.Constant(time.Minute)}, text: "(deadline): connection reset"},
		"budget": {base: faults.Fail(syscall.ECONNRESET), first: hold, reason: transport.ReasonRetryBudget,
			rule: policy.Rule{RetryBudget: policy.RetryBudget{Ratio: 0.1, MinPerSecond: policy.Off}}.Or(exact), text: "(retry budget): connection reset"},
		"attempts": {base: faults.Fail(syscall.ECONNRESET), first: hold, reason: transport.ReasonMaxAttempts,
			rule: policy.Rule{MaxAttempts: 2}.Or(exact), text: "after 2 attempts: connection reset"},
	} {
		inBubble(t, name, func(t *testing.T) {
			var seen recorder
			var log journal
			tr := over(t, transport.Config{Rule: row.rule, Logger: log.logger()}, script(row.base))
			row.first(t, tr)
			_ = log.lines()
			ctx, cancel := context.WithTimeout(seen.on(t.Context()), 10*time.Second)
			defer cancel()
			resp, err := get(t, tr, ctx)
			require.Error(t, err, "%v", resp)
			assert.ErrorContains(t, err, row.text)
			e := errorAs[*transport.Error](t, err)
			assert.Equal(t, row.reason, transport.ReasonOf(nil, &url.Error{Err: err}))
			assert.Equal(t, row.until, e.Until.After(time.Now()))
			assert.Equal(t, row.until, !e.Until.IsZero())
			last := seen.all[len(seen.all)-1]
			assert.Equal(t, row.reason, last.Reason)
			for _, r := range log.records() {
				if r.Message == "request not sent" {
					assert.Empty(t, e.Attempts)
					assert.Equal(t, string(row.reason), attr(r, "reason"))
					assert.Equal(t, row.until, attr(r, "until") != nil)
				}
			}
			assert.Equal(t, len(e.Attempts) == 0, strings.Contains(strings.Join(log.lines(), "\n"), "DEBUG request not sent"))
			time.Sleep(2 * time.Minute)
		})
	}
}

// TestLimitsAllocateNothing: the limits of a host cost no allocation if nothing waits.
func TestLimitsAllocateNothing(t *testing.T) {
	limiter, rate := policy.Concurrency{Enabled: policy.On, Max: 100}, policy.RateLimit{PerSecond: 1e6, Burst: 1e6}
	req := getRequest(t, "https://api.example.com/v1/things")
	for name, rule := range map[string]policy.Rule{
		"no limit": {MaxElapsedTime: time.Minute},
		"limiter":  {Concurrency: limiter},
		"rate":     {RateLimit: rate},
		"pacing":   {QuotaPacing: policy.On},
		"all":      {Concurrency: limiter, RateLimit: rate, QuotaPacing: policy.On, MaxElapsedTime: time.Minute},
	} {
		tr := mustNew(t, transport.Config{Base: newNoop(), Rule: rule})
		assert.Zero(t, testing.AllocsPerRun(1000, func() { _, _ = tr.RoundTrip(req) }), name)
	}
}

func TestSnapshot(t *testing.T) {
	bubble(t, func(t *testing.T) {
		server := script(func(req *http.Request) (*http.Response, error) {
			switch req.URL.Path {
			case "/told":
				return play(req, status(429, "Retry-After: 30"))
			case "/fails":
				return play(req, status(503))
			}
			return play(req, status(200))
		})
		tr := mustNew(t, transport.Config{Base: server, Rule: policy.Rule{
			ShareRetryAfter: policy.On, Backoff: backoff.Constant(0), MaxAttempts: 3, RateLimit: policy.RateLimit{PerSecond: 50}, Concurrency: policy.Concurrency{Max: 2},
		}, Hosts: map[string]policy.Rule{
			"plain.test": {RetryBudget: policy.RetryBudget{Enabled: policy.Off}, RateLimit: policy.RateLimit{Enabled: policy.Off}, Concurrency: policy.Concurrency{Enabled: policy.Off}},
		}})
		assert.Empty(t, tr.Snapshot().Hosts)

		responds(t, tr, http.MethodGet, "http://plain.test/")
		plain := hostState(t, tr, "http://plain.test")
		assert.Equal(t, transport.HostState{Host: "http://plain.test", Requests: 1, RetryBudget: -1}, plain)

		_, err := send(t, tr, http.MethodGet, "http://h.test/fails") // two retries
		require.NoError(t, err)
		resp, err := get(t, tr, t.Context()) // its body keeps a slot
		require.NoError(t, err)
		responds(t, tr, http.MethodPost, "http://h.test/told", "Authorization: Bearer x")
		other := mustGet(t, tr)
		var waits sync.WaitGroup
		waits.Go(func() { _, _ = send(t, tr, http.MethodGet, "http://h.test/") })
		time.Sleep(time.Millisecond)
		s := stateOf(t, tr)
		assert.InDelta(t, 28+3*0.2, s.RetryBudget, 0.5)
		assert.WithinRange(t, s.ThrottledUntil, time.Now().Add(29*time.Second), time.Now().Add(31*time.Second))
		s.RetryBudget, s.ThrottledUntil = 0, time.Time{}
		assert.Equal(t, transport.HostState{
			Host: "http://h.test", Requests: 5, InFlight: 1, ThrottledKeys: 1, ConcurrencyLimit: 2, ConcurrencyInUse: 2, ConcurrencyWaiting: 1, RateLimit: 50,
		}, s)
		_ = resp.Body.Close()
		_ = other.Body.Close()
		waits.Wait()

		all := tr.Snapshot().Hosts
		require.Len(t, all, 2)
		assert.Equal(t, "http://h.test", all[0].Host)
		assert.Equal(t, "http://plain.test", all[1].Host)
	})
}

func TestSnapshotOfNothing(t *testing.T) {
	assert.Zero(t, new(transport.Transport).Snapshot())
}

func TestSnapshotAsJSON(t *testing.T) {
	full := transport.HostState{
		Host: "https://api.example.com", Requests: 7, InFlight: 2, RetryBudget: 12.34, ThrottledKeys: 1, ThrottledUntil: time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC),
		ConcurrencyLimit: 10, ConcurrencyInUse: 1, ConcurrencyWaiting: 3, Down: true, RetriesWaiting: 4, RateLimit: 12.5,
	}
	text, err := json.Marshal(full)
	require.NoError(t, err)
	assert.JSONEq(t, `{"host":"https://api.example.com","requests":7,"in_flight":2,"retry_budget":12.34,"throttled_keys":1,
		"throttled_until":"2026-05-01T12:00:00Z","concurrency_limit":10,"concurrency_in_use":1,"concurrency_waiting":3,"down":true,"retries_waiting":4,"circuit_open":false,"rate_limit":12.5}`, string(text))
	var back transport.HostState
	require.NoError(t, json.Unmarshal(text, &back))
	assert.Equal(t, full, back)
	text, err = json.Marshal(transport.HostState{})
	require.NoError(t, err)
	assert.NotContains(t, string(text), "throttled_until")
}

// A limit that Update turned off is no longer in the Snapshot.
func TestSnapshotAfterUpdate(t *testing.T) {
	bubble(t, func(t *testing.T) {
		tr := over(t, transport.Config{Rule: policy.Rule{Concurrency: policy.Concurrency{Enabled: policy.On, Max: 100}, RateLimit: policy.RateLimit{PerSecond: 10}}}, script(faults.Status(200)))
		mustGet(t, tr)
		s := stateOf(t, tr)
		assert.NotZero(t, s.ConcurrencyLimit)
		assert.Equal(t, 10., s.RateLimit)
		require.NoError(t, tr.Update(policy.Rule{}, nil))
		mustGet(t, tr)
		s = stateOf(t, tr)
		assert.Zero(t, s.ConcurrencyLimit)
		assert.Zero(t, s.RateLimit)
	})
}

// A snapshot tells how many requests wait for a quota and for the rate.
func TestSnapshotOfQueues(t *testing.T) {
	bubble(t, func(t *testing.T) {
		quota := faults.Status(200).Header("X-RateLimit-Limit", "100").Header("X-RateLimit-Remaining", "0").Header("X-RateLimit-Reset", "60")
		tr := mustNew(t, transport.Config{Base: script(quota), Hosts: map[string]policy.Rule{
			"paced.test": {QuotaPacing: policy.On},
			"rated.test": {RateLimit: policy.RateLimit{PerSecond: 0.1, Burst: 1}},
		}})
		ctx, cancel := context.WithCancel(t.Context())
		var all sync.WaitGroup
		for _, url := range []string{"http://paced.test/", "http://rated.test/"} {
			mustFetch(t, tr, ctx, url)
			for range 3 {
				all.Go(func() { _, _ = fetch(t, tr, ctx, url) })
			}
		}
		synctest.Wait()
		states := tr.Snapshot().Hosts
		assert.Equal(t, []int{3, 0}, []int{states[0].QuotaWaiting, states[0].RateLimitWaiting})
		assert.Equal(t, []int{0, 3}, []int{states[1].QuotaWaiting, states[1].RateLimitWaiting})
		cancel()
		all.Wait()
		states = tr.Snapshot().Hosts
		assert.Zero(t, states[0].QuotaWaiting+states[1].RateLimitWaiting)
	})
}

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

// everything turns every limit on.
var everything = policy.Rule{
	MaxAttempts: 4, Backoff: backoff.Exponential{}, AttemptTimeout: 2 * time.Second,
	RateLimit:   policy.RateLimit{PerSecond: 2000, Burst: 200},
	QuotaPacing: policy.On, ShareRetryAfter: policy.On,
	Concurrency: policy.Concurrency{Max: 20},
	Hedge:       policy.Hedge{Delay: 300 * time.Millisecond, Percentile: 95},
}

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
