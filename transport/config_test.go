// What does New refuse, and which rule meets which host, path and request?

package transport_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/aplomb-go/aplomb/classify"
	"github.com/aplomb-go/aplomb/faults"
	"github.com/aplomb-go/aplomb/internal/rules"
	"github.com/aplomb-go/aplomb/internal/testkit"
	ts "github.com/aplomb-go/aplomb/internal/testserver"
	"github.com/aplomb-go/aplomb/policy"
	"github.com/aplomb-go/aplomb/policy/backoff"
	"github.com/aplomb-go/aplomb/policy/profile"
	"github.com/aplomb-go/aplomb/transport"
)

// TestEveryFaultAtOnce: each bad field of each host, with its path, from New
// and from Update.
func TestEveryFaultAtOnce(t *testing.T) {
	rule := policy.Rule{MaxAttempts: 1 << 20, RateLimit: policy.RateLimit{PerSecond: math.NaN()}, QuotaPacing: 9}
	hosts := map[string]policy.Rule{
		"api.example.com":  {ReplayBuffer: 1 << 40, ShareRetryAfter: 99},
		"*.x":              {MaxAttempts: 1001},
		"https://h.test":   {},
		"good.example.com": {MaxAttempts: 3},
		"slow.example.com": {Backoff: backoff.Exponential{Max: -time.Second}},
	}
	want := []string{
		"Rule.MaxAttempts", "Rule.RateLimit.PerSecond", "Rule.QuotaPacing",
		`Hosts["*.x"].MaxAttempts`,
		`Hosts["api.example.com"].ShareRetryAfter`, `Hosts["api.example.com"].ReplayBuffer`,
		`Hosts["https://h.test"]`,
		`Hosts["slow.example.com"].Backoff.Max`,
	}
	fields := func(err error) (all []string) {
		t.Helper()
		for _, f := range rules.FaultsOf(err, "") {
			all = append(all, f.Field)
			assert.Contains(t, err.Error(), f.Field+": ")
		}
		return all
	}
	tr, err := transport.New(transport.Config{Base: (*http.Transport)(nil), Rule: rule, Hosts: hosts})
	assert.Nil(t, tr)
	assert.Equal(t, append([]string{"Base"}, want...), fields(err))
	assert.Len(t, strings.Split(err.Error(), "\n"), 1+len(want), "a fault for each")

	good := transport.Default()
	assert.Equal(t, want, fields(good.Update(rule, hosts)))
}

// attemptsAt returns how often a request to url is sent, which is how the tests
// below tell which rule met it.
func attemptsAt(t *testing.T, tr *transport.Transport, base *origin, url string) int {
	t.Helper()
	before := base.attempts()
	mustFetch(t, tr, t.Context(), url)
	return base.attempts() - before
}

// The rule of a host comes from the URL, not from the Host header.
func TestRuleIsOfTheURL(t *testing.T) {
	base := script(faults.Status(503))
	tr := mustNew(t, transport.Config{Base: base, Rule: quick, Hosts: map[string]policy.Rule{"front.test": {MaxAttempts: 2}}})
	req := newRequest(t, http.MethodGet, "http://10.0.0.1/", nil)
	req.Host = "front.test"
	mustRoundTrip(t, tr, req)
	base.sent(t, 6)
}

// TestConfigIsCopied: what the caller does to it afterwards has no effect.
func TestConfigIsCopied(t *testing.T) {
	base, told := script(faults.Status(503)), 0
	hosts := map[string]policy.Rule{"h.test": {MaxAttempts: 2}}
	trace := &transport.Trace{AttemptEnd: func(context.Context, transport.AttemptEnd) { told++ }}
	tr := mustNew(t, transport.Config{Base: base, Rule: quick, Hosts: hosts, Traces: []*transport.Trace{trace}})
	hosts["h.test"] = policy.Rule{MaxAttempts: 7}
	hosts["other.test"] = policy.Rule{MaxAttempts: 7}
	trace.AttemptEnd = nil
	assert.Equal(t, 2, attemptsAt(t, tr, base, "http://h.test/"))
	count(t, 2, told, "AttemptEnd called")
	assert.Equal(t, 6, attemptsAt(t, tr, base, "http://other.test/"))

	require.NoError(t, tr.Update(quick, hosts))
	clear(hosts)
	assert.Equal(t, 7, attemptsAt(t, tr, base, "http://h.test/"), "Update copies, too")
}

// TestTypedNilBase: a mistake that would else be a panic at the first request.
func TestTypedNilBase(t *testing.T) {
	for _, b := range []http.RoundTripper{(*http.Transport)(nil), (*transport.Transport)(nil), rt(nil)} {
		_, err := transport.New(transport.Config{Base: b})
		fault, ok := errors.AsType[*policy.FieldError](err)
		require.True(t, ok, "%T", b)
		assert.Equal(t, "Base", fault.Field)
	}
}

// TestUpdateUnderWay: a request keeps the rules it began with; the next one has
// the new ones.
func TestUpdateUnderWay(t *testing.T) {
	var tr *transport.Transport
	base := script(func(req *http.Request) (*http.Response, error) {
		assert.NoError(t, tr.Update(policy.Rule{MaxAttempts: 2}.Or(quick), nil))
		return play(req, faults.Status(503))
	})
	tr = mustNew(t, transport.Config{Rule: policy.Rule{MaxAttempts: 4}.Or(quick), Base: base})
	assert.Equal(t, 4, attemptsAt(t, tr, base, "http://h.test/"))
	assert.Equal(t, 2, attemptsAt(t, tr, base, "http://h.test/"))
	assert.Error(t, tr.Update(policy.Rule{MaxAttempts: 1 << 20}, nil))
	assert.Equal(t, 2, attemptsAt(t, tr, base, "http://h.test/"), "a bad Update changes nothing")
}

// TestUpdateConcurrently: rules change under many requests, and each request
// has one rule from its beginning to its end.
func TestUpdateConcurrently(t *testing.T) {
	rules := map[int]policy.Rule{}
	for _, n := range []int{2, 3, 4} {
		rules[n] = policy.Rule{MaxAttempts: n, RateLimit: policy.RateLimit{PerSecond: 1e6 * float64(n)}}.Or(quick)
	}
	tr := mustNew(t, transport.Config{Base: script(faults.Status(503)), Rule: rules[2]})
	var requests, updates sync.WaitGroup
	stop := make(chan struct{})
	for i := range 2 {
		updates.Go(func() {
			for n := i; ; n++ {
				select {
				case <-stop:
					return
				default:
				}
				assert.NoError(t, tr.Update(rules[2+n%3], map[string]policy.Rule{"h1.test": {MaxAttempts: 2 + n%3}}))
			}
		})
	}
	for range 4 {
		requests.Go(func() {
			for i := range 200 {
				resp, err := fetch(t, tr, t.Context(), fmt.Sprintf("http://h%d.test/", i%3))
				if !assert.NoError(t, err) {
					return
				}
				reason, attempts, ok := unretried(resp)
				assert.True(t, ok)
				assert.Equal(t, transport.ReasonMaxAttempts, reason)
				assert.Contains(t, []int{2, 3, 4}, len(attempts))
			}
		})
	}
	requests.Wait()
	close(stop)
	updates.Wait()
}

// An Update suspends a host, as docs/limits.md shows. A request with a deadline fails at once. One
// without goes when another Update has ended that, with the first request after it.
func TestSuspend(t *testing.T) {
	bubble(t, func(t *testing.T) {
		tr := mustNew(t, transport.Config{Base: script(faults.Status(200))})
		require.NoError(t, suspend(tr, policy.Rule{}, map[string]policy.Rule{}))
		mustFetch(t, tr, t.Context(), "http://api.example.com/") // the first, which a full bucket lets go
		start := time.Now()
		var waiting sync.WaitGroup
		waiting.Go(func() { mustFetch(t, tr, t.Context(), "http://api.example.com/") })
		time.Sleep(time.Minute)
		ctx := expires(t, time.Hour)
		_, err := tr.RoundTrip(getRequest(t, "http://api.example.com/").WithContext(ctx))
		assert.ErrorIs(t, err, transport.ErrNotSent)
		assert.Equal(t, transport.ReasonRateLimit, transport.HistoryOf(nil, err).Reason)
		mustFetch(t, tr, t.Context(), "http://other.example.com/")
		assert.Equal(t, time.Minute, time.Since(start))
		require.NoError(t, tr.Update(policy.Rule{}, nil))
		mustFetch(t, tr, t.Context(), "http://api.example.com/")
		waiting.Wait()
		assert.Equal(t, time.Minute, time.Since(start))
	})
}

// idler is a base with connections to close.
type idler struct {
	http.RoundTripper
	closed int
}

func (i *idler) CloseIdleConnections() { i.closed++ }

// TestCloseIdleConnections: passed on, also by http.Client, and never called by
// a Transport itself; a base without it is no fault.
func TestCloseIdleConnections(t *testing.T) {
	below := &idler{RoundTripper: script(faults.Status(503))}
	tr := mustNew(t, transport.Config{Base: below, Rule: quick})
	mustFetch(t, tr, t.Context(), "http://h.test/")
	assert.Zero(t, below.closed, "times closed")
	tr.CloseIdleConnections()
	(&http.Client{Transport: tr}).CloseIdleConnections()
	assert.Equal(t, 2, below.closed, "times closed")
	mustNew(t, transport.Config{Base: script(faults.Status(200))}).CloseIdleConnections()
}

// MustNew panics with the faults that New returns.
func TestMustNew(t *testing.T) {
	defer func() {
		err, _ := recover().(error)
		assert.Len(t, rules.FaultsOf(err, ""), 2)
	}()
	assert.NotNil(t, transport.MustNew(transport.Config{Rule: policy.Rule{MaxAttempts: 2}}))
	transport.MustNew(transport.Config{Rule: policy.Rule{MaxAttempts: 5000, ReplayBuffer: 1 << 40}})
}

// TestDefault: the zero Config works.
func TestDefault(t *testing.T) {
	assert.NotPanics(t, func() { transport.Default().CloseIdleConnections() })
	assert.NotSame(t, transport.Default(), transport.Default(), "each has a pool of its own")
}

func TestRuleFor(t *testing.T) {
	tr, err := transport.New(transport.Config{
		Rule:  policy.Rule{MaxAttempts: 3},
		Hosts: map[string]policy.Rule{"*.Example.com": {MaxAttempts: 4}, "a.example.com:8443": {MaxElapsedTime: time.Minute}},
	})
	require.NoError(t, err)
	for text, want := range map[string]struct {
		pattern  string
		attempts int
		elapsed  time.Duration
	}{
		"https://other.test/":          {"", 3, 0},
		"https://b.EXAMPLE.com./":      {"*.Example.com", 4, 0},
		"https://a.example.com:8443/x": {"a.example.com:8443 *.Example.com", 4, time.Minute},
		"https://a.example.com/":       {"*.Example.com", 4, 0},
	} {
		u, err := url.Parse(text)
		require.NoError(t, err)
		rule, patterns := tr.RuleFor(&http.Request{URL: u})
		require.Equal(t, want.pattern, strings.Join(patterns, " "), text)
		require.Equal(t, want.attempts, rule.MaxAttempts, text)
		require.Equal(t, want.elapsed, rule.MaxElapsedTime, text)
		require.NotNil(t, rule.Backoff, text)
	}
	require.NoError(t, tr.Update(policy.Rule{MaxAttempts: 2}, nil))
	rule, patterns := tr.RuleFor(getRequest(t, "https://b.example.com"))
	require.Equal(t, 2, rule.MaxAttempts)
	require.Empty(t, patterns)
	for _, req := range []*http.Request{nil, {}, getRequest(t, "https://b.example.com")} {
		rule, patterns = new(transport.Transport).RuleFor(req)
		require.Equal(t, 6, rule.MaxAttempts)
		require.Empty(t, patterns)
	}
}

// TestTheLongestTimes sets each time of a rule to the longest that there is, as users do for "never". It
// does not run over, so everything is as if it were a long time.
func TestTheLongestTimes(t *testing.T) {
	base := profile.API()
	base.ConnectTimeout, base.AttemptTimeout, base.FirstEventTimeout, base.Backoff = 5*time.Second, 10*time.Second, 10*time.Second, backoff.Constant(0)
	for field, change := range map[string]func(*policy.Rule, time.Duration){
		"AttemptTimeout":    func(r *policy.Rule, d time.Duration) { r.AttemptTimeout = d },
		"ConnectTimeout":    func(r *policy.Rule, d time.Duration) { r.ConnectTimeout = d },
		"FirstEventTimeout": func(r *policy.Rule, d time.Duration) { r.FirstEventTimeout = d },
		"MaxElapsedTime":    func(r *policy.Rule, d time.Duration) { r.MaxElapsedTime = d },
		"Hedge.Delay":       func(r *policy.Rule, d time.Duration) { r.Hedge.Delay = d },
		"MaxRetryAfter":     func(r *policy.Rule, d time.Duration) { r.MaxRetryAfter = d },
		"StallTimeout":      func(r *policy.Rule, d time.Duration) { r.StallTimeout = d },
	} {
		inMemory(t, []protocol{{field, ts.Config{}}}, func(t *testing.T, cfg ts.Config) {
			rule := base
			change(&rule, math.MaxInt64)
			if faults := rule.Validate(); faults != nil {
				t.Skip(faults)
			}
			s := set(t, cfg, rule, ts.Status(503).Header("Retry-After", "1"), ts.Bytes(8).Drip(2, time.Second),
				ts.OK("data: x\n\n").Header("Content-Type", "text/event-stream").Drip(2, time.Second), ts.Bytes(8).Drip(2, 3*time.Second))
			time.Sleep(time.Second) // the sum of a clock that is not at zero and such a time is too large
			r := s.send(http.MethodGet, nil)
			assert.NoError(t, r.err)
			assert.Equal(t, 200, r.status)
			assert.Len(t, r.body, 8)
			assert.Equal(t, 2, s.Arrivals(), "requests that arrived")
			r = s.send(http.MethodGet, nil)
			assert.NoError(t, r.err)
			assert.Len(t, r.body, 9)
			r = s.send(http.MethodGet, nil)
			assert.NoError(t, r.err)
			assert.Len(t, r.body, 8)
			assert.Less(t, r.elapsed, time.Second, "the body pauses, so its reader gets it")
			assert.Equal(t, 4, s.Arrivals(), "requests that arrived")
		})
	}
}

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
