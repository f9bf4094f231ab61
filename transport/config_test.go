// What does New refuse, and which rule meets which host?

package transport_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/aplomb-go/aplomb/faults"
	"github.com/aplomb-go/aplomb/internal/rules"
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
