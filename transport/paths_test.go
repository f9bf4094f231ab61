package transport_test

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/aplomb-go/aplomb/policy"
	"github.com/aplomb-go/aplomb/transport"
)

// The limits of a host stay the host's.
func TestPathsHaveNoLimitsOfTheHost(t *testing.T) {
	for field, rule := range hostLimits {
		_, err := transport.New(transport.Config{Base: newNoop(), Hosts: map[string]policy.Rule{"h.test/v1/": rule, "h.test": {Attempts: 2}}})
		var faults policy.Errors
		if assert.ErrorAs(t, err, &faults, field) && assert.Len(t, faults, 1, field) {
			assert.Equal(t, `Hosts["h.test/v1/"].`+field, faults[0].Field)
			assert.Contains(t, faults[0].Reason, "is a limit of the host")
		}
		_, err = transport.New(transport.Config{Base: newNoop(), Hosts: map[string]policy.Rule{"h.test": rule}})
		assert.NoError(t, err, field)
	}
}

// hostLimits are rules that set a limit of a host.
var hostLimits = map[string]policy.Rule{
	"Rate":             {Rate: policy.Rate{PerSecond: 1}},
	"Budget":           {Budget: policy.Budget{Burst: policy.Off}},
	"Cooldown":         {Cooldown: policy.On},
	"Pacing":           {Pacing: policy.On},
	"Gate":             {Gate: policy.Gate{Mode: policy.GateWait}},
	"Scope":            {Scope: func(*http.Request) string { return "" }},
	"RetryAfter":       {RetryAfter: policy.RetryAfter{Max: time.Second}},
	"Hedge.Percentile": {Hedge: policy.Hedge{Percentile: 90}},
	"Lanes":            {Lanes: policy.Off},
}

// All paths of a host share its rate, its budget and its state.
func TestPathsShareTheHost(t *testing.T) {
	bubble(t, func(t *testing.T) {
		base := script(status(200))
		tr := mustNew(t, transport.Config{Base: base, Hosts: map[string]policy.Rule{
			"h.test":               {Rate: policy.Rate{PerSecond: 1, Burst: 1}},
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
		assert.Len(t, tr.Snapshot(), 1)
	})
}

// The rule of the path is the rule of the request.
func TestRulesOfPathsApply(t *testing.T) {
	bubble(t, func(t *testing.T) {
		base := script(status(503))
		tr := mustNew(t, transport.Config{Base: base, Rule: quick, Hosts: map[string]policy.Rule{
			"h.test/once":        {Attempts: 1},
			"PUT h.test/twice":   {Attempts: 2},
			"h.test/%7Bthree%7D": {Attempts: 3},
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
			rule, _ := tr.RuleOf(row.method, req.URL)
			assert.Equal(t, row.attempts, rule.Attempts, row)
		}
		_, patterns := tr.RuleOf("", getRequest(t, "http://h.test/once").URL)
		assert.Equal(t, []string{"h.test/once"}, patterns)
		require.NoError(t, tr.Update(quick, map[string]policy.Rule{"h.test/once": {Attempts: 2}}))
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
		tr := mustNew(t, transport.Config{Base: base, Rule: quick, Hosts: map[string]policy.Rule{"h.test/from": {Attempts: 2}, "h.test/to": {Attempts: 3}}})
		client := &http.Client{Transport: tr}
		finish(client.Get("http://h.test/from"))
		assert.Equal(t, map[string]int{"/from": 2, "/to": 3}, counts)

		clear(counts)
		ctx := transport.WithRule(t.Context(), policy.Rule{Attempts: 5})
		finish(client.Do(getRequest(t, "http://h.test/from").WithContext(ctx)))
		assert.Equal(t, map[string]int{"/from": 2, "/to": 5}, counts)
	})
}

func manyPaths(n int) map[string]policy.Rule {
	hosts := map[string]policy.Rule{"api.example.com": {Attempts: 3}}
	for i := range n {
		hosts[fmt.Sprintf("api.example.com/v1/tenants/t%d/", i)] = policy.Rule{Attempts: 2}
	}
	return hosts
}

func TestFirstTryWithAPathAllocatesNothing(t *testing.T) {
	tr := mustNew(t, transport.Config{Base: newNoop(), Hosts: manyPaths(1000)})
	for _, target := range []string{"/v1/tenants/t7/reports/9", "/v1/tenants/t%37/reports%2F9", "/v1/else", "/v1/tenants/a%20b/"} {
		req := getRequest(t, "https://api.example.com"+target)
		assert.Zero(t, testing.AllocsPerRun(1000, func() { _, _ = tr.RoundTrip(req) }), target)
	}
	rule := policy.Rule{Attempts: 2}
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
		{"1000/WithRule", manyPaths(1000), req.WithContext(transport.WithRule(b.Context(), policy.Rule{Attempts: 4}))},
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
