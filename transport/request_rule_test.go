package transport_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/aplomb-go/aplomb/classify"
	"github.com/aplomb-go/aplomb/internal/rules"
	"github.com/aplomb-go/aplomb/internal/testkit"
	"github.com/aplomb-go/aplomb/policy"
	"github.com/aplomb-go/aplomb/policy/backoff"
	"github.com/aplomb-go/aplomb/transport"
)

// Each field comes from the innermost WithRule, then from the path, the host and Config.Rule. Hints
// are asked in this order.
func TestRulesAreInherited(t *testing.T) {
	bubble(t, func(t *testing.T) {
		base := script(status(503))
		asked := ""
		hint := func(name string) classify.RetryAfterFunc {
			return func(classify.Outcome) (time.Duration, bool) {
				if !strings.Contains(asked, name) {
					asked += name + " "
				}
				return 0, false
			}
		}
		tr := mustNew(t, transport.Config{
			Base: base,
			Rule: policy.Rule{MaxAttempts: 2, Backoff: backoff.Constant(time.Second), RetryAfter: hint("config"), RetryBudget: quick.RetryBudget},
			Hosts: map[string]policy.Rule{
				"h.test":     {MaxAttempts: 3, Backoff: backoff.Constant(2 * time.Second)},
				"h.test/v1/": {MaxAttempts: 4},
			},
		})
		outer := transport.WithRule(t.Context(), policy.Rule{MaxAttempts: 5, RetryAfter: hint("outer")})
		for _, row := range []struct {
			name, url, hint string
			ctx             context.Context
			attempts        int
			wait            time.Duration
		}{
			{"config", "http://other.test/", "config ", t.Context(), 2, time.Second},
			{"host", "http://h.test/", "config ", t.Context(), 3, 2 * time.Second},
			{"path", "http://h.test/v1/", "config ", t.Context(), 4, 2 * time.Second},
			{"request", "http://h.test/v1/", "outer config ", outer, 5, 2 * time.Second},
			{"request to another host", "http://other.test/", "outer config ", outer, 5, time.Second},
			{"inner", "http://h.test/v1/", "outer config ", transport.WithRule(transport.WithIdempotent(outer), policy.Rule{MaxAttempts: 6}), 6, 2 * time.Second},
			{"off", "http://h.test/v1/", "outer config ", transport.WithRule(outer, policy.Rule{MaxAttempts: 1}), 1, 0},
		} {
			before, start := base.attempts(), time.Now()
			asked = ""
			finish(tr.RoundTrip(getRequest(t, row.url).WithContext(row.ctx)))
			assert.Len(t, base.reqs[before:], row.attempts, row.name)
			assert.Equal(t, time.Duration(row.attempts-1)*row.wait, time.Since(start), row.name)
			assert.Equal(t, row.hint, asked, row.name)
		}
	})
}

// A wrong rule is the error of RoundTrip. Nothing is sent, the body is closed, and the
// request earns no retry.
func TestWrongRuleOfARequest(t *testing.T) {
	wrong := map[string]policy.Rule{"MaxAttempts": {MaxAttempts: 5000}}
	for field, rule := range hostLimits {
		wrong[field] = rule
	}
	for field, rule := range wrong {
		base := script(status(200))
		tr := mustNew(t, transport.Config{Base: base})
		ctx := transport.WithRule(t.Context(), rule)
		for range 2 { // the second comes from the list
			body := oneShot("body")
			resp, err := tr.RoundTrip(newRequest(t, http.MethodPost, "http://h.test/", body).WithContext(ctx))
			assert.Nil(t, resp, field)
			if faults := rules.FaultsOf(err, ""); assert.Len(t, faults, 1, field) {
				assert.Equal(t, "WithRule."+field, faults[0].Field)
			}
			if field != "MaxAttempts" {
				assert.ErrorContains(t, err, "is a limit of the host")
			}
			count(t, 1, body.closed(), "body closed", field)
		}
		base.sent(t, 0, field)
		state := stateOf(t, tr)
		assert.Zero(t, state.Requests, "requests counted, %v", field)
		assert.Zero(t, state.InFlight, "requests in flight, %v", field)
	}
}

// Requests with a rule of their own go on while Update replaces the rules.
func TestWithRuleDuringUpdates(t *testing.T) {
	tr := mustNew(t, transport.Config{Base: newNoop()})
	ctx := transport.WithRule(t.Context(), policy.Rule{MaxElapsedTime: time.Minute})
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for range 200 {
				_, err := tr.RoundTrip(getRequest(t, "http://h.test/").WithContext(ctx))
				assert.NoError(t, err)
			}
		})
	}
	for i := range 200 {
		assert.NoError(t, tr.Update(policy.Rule{MaxAttempts: 1 + i%5}, nil))
	}
	all.Wait()
}

// The rule of the request holds for the reconnects of its body, too, also after Update.
func TestWithRuleHoldsForTheBody(t *testing.T) {
	bubble(t, func(t *testing.T) {
		base := script(
			func(req *http.Request) (*http.Response, error) {
				body := io.MultiReader(strings.NewReader("hel"), readFunc(func([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }))
				resp := newResponse(req, 200, io.NopCloser(body), `ETag: "1"`, "Accept-Ranges: bytes")
				resp.ContentLength = 5
				return resp, nil
			},
			status(503), status(503), status(503),
		)
		tr := mustNew(t, transport.Config{Base: base, Rule: quick})
		ctx := transport.WithRule(t.Context(), policy.Rule{MaxAttempts: 2})
		resp := mustRoundTrip(t, tr, getRequest(t, "http://h.test/").WithContext(ctx))
		require.NoError(t, tr.Update(quick, nil))
		_, err := io.ReadAll(resp.Body)
		assert.Equal(t, io.ErrUnexpectedEOF, err)
		base.sent(t, 2, "the reconnect is the second attempt")
	})
}

// A timer that a request started under a rule of its own does not stay until the time is over.
func TestRulesOfRequestsLeaveNoTimers(t *testing.T) {
	tr := mustNew(t, transport.Config{Base: rt(func(req *http.Request) (*http.Response, error) {
		return newResponse(req, 204, http.NoBody), nil
	})})
	send := func(n int) {
		for range n {
			ctx := transport.WithRule(t.Context(), policy.Rule{AttemptTimeout: time.Hour})
			_ = mustRoundTrip(t, tr, getRequest(t, "http://h.test/").WithContext(ctx))
		}
	}
	send(100)
	before := testkit.Heap()
	send(10_000)
	assert.Less(t, (testkit.Heap()-before)/10_000, int64(50), "bytes for each request")
}

// hostLimits are rules that set a limit of a host.
var hostLimits = map[string]policy.Rule{
	"RateLimit":        {RateLimit: policy.RateLimit{PerSecond: 1}},
	"RetryBudget":      {RetryBudget: policy.RetryBudget{Enabled: policy.Off}},
	"ShareRetryAfter":  {ShareRetryAfter: policy.On},
	"QuotaPacing":      {QuotaPacing: policy.On},
	"Concurrency":      {Concurrency: policy.Concurrency{Enabled: policy.On, Max: 100}},
	"ThrottleKey":      {ThrottleKey: func(*http.Request) string { return "" }},
	"MaxRetryAfter":    {MaxRetryAfter: time.Second},
	"Hedge.Percentile": {Hedge: policy.Hedge{Percentile: 90}},
}

// All paths of a host share its rate, its budget and its state.
func TestPathsShareTheHost(t *testing.T) {
	bubble(t, func(t *testing.T) {
		base := script(status(200))
		tr := mustNew(t, transport.Config{Base: base, Hosts: map[string]policy.Rule{
			"h.test":               {RateLimit: policy.RateLimit{PerSecond: 1, Burst: 1}},
			"h.test/reports/":      {AttemptTimeout: time.Minute},
			"POST h.test/charges":  {AttemptTimeout: time.Second},
			"other.test/unrelated": {},
		}})
		start := time.Now()
		for _, target := range []string{"/reports/1", "/charges", "/else"} {
			finish(tr.RoundTrip(newRequest(t, http.MethodPost, "http://h.test"+target, nil)))
		}
		assert.Equal(t, 2*time.Second, time.Since(start))
		base.sent(t, 3)
		assert.Len(t, tr.Snapshot().Hosts, 1)
	})
}

// The rule of the path is the rule of the request.
func TestRulesOfPathsApply(t *testing.T) {
	bubble(t, func(t *testing.T) {
		base := script(status(503))
		tr := mustNew(t, transport.Config{Base: base, Rule: quick, Hosts: map[string]policy.Rule{
			"h.test/once":        {MaxAttempts: 1},
			"PUT h.test/twice":   {MaxAttempts: 2},
			"h.test/%7Bthree%7D": {MaxAttempts: 3},
		}})
		for _, row := range []struct {
			method, path string
			attempts     int
		}{
			{"GET", "/once", 1}, {"PUT", "/twice", 2}, {"DELETE", "/twice", 6}, {"GET", "/{three}", 3}, {"GET", "/", 6}, {"", "/once", 1},
		} {
			before := base.attempts()
			req := newRequest(t, http.MethodGet, "http://h.test"+row.path, nil)
			req.Method = row.method
			finish(tr.RoundTrip(req))
			base.sent(t, before+row.attempts, row)
			rule, _ := tr.RuleFor(req)
			assert.Equal(t, row.attempts, rule.MaxAttempts, row)
		}
		_, patterns := tr.RuleFor(getRequest(t, "http://h.test/once"))
		assert.Equal(t, []string{"h.test/once"}, patterns)
		require.NoError(t, tr.Update(quick, map[string]policy.Rule{"h.test/once": {MaxAttempts: 2}}))
		before := base.attempts()
		finish(tr.RoundTrip(newRequest(t, http.MethodGet, "http://h.test/once", nil)))
		base.sent(t, before+2, "after Update")
	})
}

// Each request of a redirect has the rule of its own path, and the rule of the context.
func TestRedirectsHaveRulesOfTheirOwn(t *testing.T) {
	bubble(t, func(t *testing.T) {
		counts := map[string]int{}
		base := rt(func(req *http.Request) (*http.Response, error) {
			counts[req.URL.Path]++
			if req.URL.Path == "/from" && counts["/from"] == 2 {
				return play(req, status(302, "Location: /to"))
			}
			return play(req, status(503))
		})
		tr := mustNew(t, transport.Config{Base: base, Rule: quick, Hosts: map[string]policy.Rule{"h.test/from": {MaxAttempts: 2}, "h.test/to": {MaxAttempts: 3}}})
		client := &http.Client{Transport: tr}
		finish(client.Get("http://h.test/from"))
		assert.Equal(t, map[string]int{"/from": 2, "/to": 3}, counts)

		clear(counts)
		ctx := transport.WithRule(t.Context(), policy.Rule{MaxAttempts: 5})
		finish(client.Do(getRequest(t, "http://h.test/from").WithContext(ctx)))
		assert.Equal(t, map[string]int{"/from": 2, "/to": 5}, counts)
	})
}

func manyPaths(n int) map[string]policy.Rule {
	hosts := map[string]policy.Rule{"api.example.com": {MaxAttempts: 3}}
	for i := range n {
		hosts[fmt.Sprintf("api.example.com/v1/tenants/t%d/", i)] = policy.Rule{MaxAttempts: 2}
	}
	return hosts
}

func TestFirstTryWithAPathAllocatesNothing(t *testing.T) {
	tr := mustNew(t, transport.Config{Base: newNoop(), Hosts: manyPaths(1000)})
	for _, target := range []string{"/v1/tenants/t7/reports/9", "/v1/tenants/t%37/reports%2F9", "/v1/else", "/v1/tenants/a%20b/"} {
		req := getRequest(t, "https://api.example.com"+target)
		assert.Zero(t, testing.AllocsPerRun(1000, func() { _, _ = tr.RoundTrip(req) }), target)
	}
	rule := policy.Rule{MaxAttempts: 2}
	req := getRequest(t, "https://api.example.com/v1/tenants/t7/reports/9")
	req = req.WithContext(transport.WithRule(req.Context(), rule))
	assert.Zero(t, testing.AllocsPerRun(1000, func() { _, _ = tr.RoundTrip(req) }), "WithRule")
}

func BenchmarkFirstTryWithPaths(b *testing.B) {
	req := getRequest(b, "https://api.example.com/v1/tenants/t700/reports/9")
	for _, row := range []struct {
		name  string
		hosts map[string]policy.Rule
		req   *http.Request
	}{
		{"none", nil, req},
		{"1000", manyPaths(1000), req},
		{"1000/escaped", manyPaths(1000), getRequest(b, "https://api.example.com/v1/tenants/t%3700/reports%2F9")},
		{"1000/WithRule", manyPaths(1000), req.WithContext(transport.WithRule(b.Context(), policy.Rule{MaxAttempts: 4}))},
	} {
		tr := mustNew(b, transport.Config{Base: newNoop(), Hosts: row.hosts})
		b.Run("paths="+row.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				_, _ = tr.RoundTrip(row.req)
			}
		})
	}
}
