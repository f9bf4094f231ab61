package transport_test

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/aplomb-go/aplomb/faults"
	"github.com/aplomb-go/aplomb/internal/testkit"
	"github.com/aplomb-go/aplomb/policy"
	"github.com/aplomb-go/aplomb/policy/backoff"
	"github.com/aplomb-go/aplomb/transport"
)

// Regions are origins by their hosts, behind one base transport. The test changes how they
// answer.
type regions struct {
	start time.Time

	mu   sync.Mutex
	down map[string]answer // nil: the region is well
	seen []arrival
}

// An arrival is an attempt that came to a region.
type arrival struct {
	host string
	at   time.Duration
	req  *http.Request
}

func newRegions() *regions { return &regions{start: time.Now(), down: map[string]answer{}} }

func (r *regions) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.Body != nil {
		_, _ = io.Copy(io.Discard, req.Body)
		_ = req.Body.Close()
	}
	r.mu.Lock()
	r.seen = append(r.seen, arrival{req.URL.Host, time.Since(r.start), req})
	answer := r.down[req.URL.Host]
	r.mu.Unlock()
	if err := pause(req, 5*time.Millisecond); err != nil {
		return nil, err
	}
	if answer == nil {
		answer = status(200, "X-From: "+req.URL.Host)
	}
	return play(req, answer)
}

func (r *regions) set(host string, answer answer) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.down[host] = answer
}

// at returns the arrivals at a host since a time.
func (r *regions) at(host string, from time.Duration) (all []arrival) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, a := range r.seen {
		if a.host == host && a.at >= from {
			all = append(all, a)
		}
	}
	return all
}

// now returns the time since the start, as arrivals have it.
func (r *regions) now() time.Duration { return time.Since(r.start) }

// between returns a Transport for http://a.test with the alternate http://b.test, and maybe
// others.
func (r *regions) transport(t testing.TB, rule policy.Rule, others ...string) *transport.Transport {
	if rule.Alternates.Bases == nil {
		rule.Alternates.Bases = append([]string{"http://b.test"}, others...)
	}
	return mustNew(t, transport.Config{Base: r, Hosts: map[string]policy.Rule{"a.test": rule}})
}

var (
	refuses = faults.Fail(syscall.ECONNREFUSED)
)

// answersOf sends so many requests at once, and returns the hosts that answered with a 200.
func answersOf(t *testing.T, tr http.RoundTripper, n int, url string) map[string]int {
	var all sync.WaitGroup
	var mu sync.Mutex
	from := map[string]int{}
	for range n {
		all.Go(func() {
			resp, err := tr.RoundTrip(newRequest(t, http.MethodGet, url, nil))
			mu.Lock()
			defer mu.Unlock()
			if !assert.NoError(t, err) {
				return
			}
			_ = resp.Body.Close()
			from[fmt.Sprint(resp.StatusCode, " ", resp.Header.Get("X-From"))]++
		})
	}
	all.Wait()
	return from
}

// The requirement of alternates. A is down, and B is well: each first retry succeeds at B,
// and A gets one request per second. When A is well again, first attempts are back within
// 5 s. With a gate, its probes are the requests that try A.
func TestAlternateServesAnOutage(t *testing.T) {
	for name, row := range map[string]struct {
		rule policy.Rule
		down answer
	}{
		"refused":          {policy.Rule{}, refuses},
		"503":              {policy.Rule{}, status(503)},
		"503 that waits":   {policy.Rule{}, status(503, "Retry-After: 3")},
		"silent":           {policy.Rule{AttemptTimeout: time.Second}, faults.Hang()},
		"gate":             {policy.Rule{Gate: policy.Gate{Mode: policy.GateWait}}, refuses},
		"gate, 503":        {policy.Rule{Gate: policy.Gate{Mode: policy.GateWait}}, status(503)},
		"gate that refuse": {policy.Rule{Gate: policy.Gate{Mode: policy.GateRefuse, Start: 64}}, refuses},
	} {
		inBubble(t, name, func(t *testing.T) {
			r := newRegions()
			tr := r.transport(t, row.rule)
			for range 20 {
				assert.Equal(t, map[string]int{"200 a.test": 1}, answersOf(t, tr, 1, "http://a.test/x"))
			}
			assert.Empty(t, r.at("b.test", 0))

			r.set("a.test", row.down)
			from := r.now()
			assert.Equal(t, map[string]int{"200 b.test": 64}, answersOf(t, tr, 64, "http://a.test/x"))
			assert.Len(t, r.at("b.test", from), 64, "each first retry succeeds")
			assert.LessOrEqual(t, len(r.at("a.test", from)), 64)

			time.Sleep(3 * time.Second)
			from = r.now()
			for range 100 { // 10 s
				sent := r.now()
				assert.Equal(t, map[string]int{"200 b.test": 8}, answersOf(t, tr, 8, "http://a.test/x"))
				assert.LessOrEqual(t, r.now()-sent, max(row.rule.AttemptTimeout, 0)+50*time.Millisecond, "nobody waits for the host")
				time.Sleep(100 * time.Millisecond)
			}
			tries := r.at("a.test", from)
			most := 1 + int((r.now()-from)/time.Second)
			if row.rule.Gate.Enabled() {
				most *= 2
			}
			assert.LessOrEqual(t, len(tries), most, "only probes")
			s, _ := tr.SnapshotOf(&url.URL{Scheme: "http", Host: "a.test"})
			assert.True(t, s.Down || s.GateClosed)
			assert.NotEmpty(t, tries)

			r.set("a.test", nil)
			from = r.now()
			for r.now() < from+5*time.Second {
				answersOf(t, tr, 8, "http://a.test/x")
				time.Sleep(100 * time.Millisecond)
			}
			from = r.now()
			assert.Equal(t, map[string]int{"200 a.test": 8}, answersOf(t, tr, 8, "http://a.test/x"))
			assert.Empty(t, r.at("b.test", from))
		})
	}
}

// Requests with a cost do not wait at a closed gate if there is an alternate. They find out that the
// host is back like all others.
func TestCostsFindTheWayBack(t *testing.T) {
	for name, rule := range map[string]policy.Rule{
		"each counts": {Gate: policy.Gate{Mode: policy.GateWait}},
		"costs count": {Gate: policy.Gate{Mode: policy.GateWait}, Rate: policy.Rate{PerSecond: 1000}, Cost: func(*http.Request) int { return 5 }},
	} {
		inBubble(t, name, func(t *testing.T) {
			r := newRegions()
			tr := r.transport(t, rule)
			from := func() string {
				resp := mustRoundTrip(t, tr, newRequest(t, http.MethodGet, "http://a.test/", nil))
				_ = resp.Body.Close()
				return resp.Header.Get("X-From")
			}
			r.set("a.test", refuses)
			for range 100 {
				assert.Equal(t, "b.test", from())
				time.Sleep(100 * time.Millisecond)
			}
			s, _ := tr.SnapshotOf(&url.URL{Scheme: "http", Host: "a.test"})
			require.True(t, s.GateClosed)
			r.set("a.test", nil)
			for range 50 {
				from()
				time.Sleep(100 * time.Millisecond)
			}
			assert.Equal(t, "a.test", from(), "after 5 s")
		})
	}
}

// The story of a request says which of its attempts went to an alternate.
func TestExplainNamesTheAlternate(t *testing.T) {
	inBubble(t, "refused", func(t *testing.T) {
		r := newRegions()
		r.set("a.test", refuses)
		resp := mustRoundTrip(t, r.transport(t, policy.Rule{}), newRequest(t, http.MethodGet, "http://a.test/x", nil))
		_ = resp.Body.Close()
		assert.Equal(t, "GET http://b.test/x\n  attempt 1, at 0s: connection refused after 5ms\n  attempt 2, at 5ms: 200 after 5ms at the alternate http://b.test\n  status 200, the caller has it",
			transport.Explain(resp, nil))
	})
}

// Without alternates the same 64 requests wait for the host, or fail.
func TestWithoutAlternatesAnOutageShows(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRegions()
		r.set("a.test", status(503))
		tr := r.transport(t, policy.Rule{Alternates: policy.Alternates{Bases: []string{}}})
		assert.Equal(t, map[string]int{"503 ": 64}, answersOf(t, tr, 64, "http://a.test/x"))
	})
}

// A hold that is longer than the request may wait sends the request to the alternate, also
// if the server speaks of this client's quota. A shorter hold is waited for.
func TestAlternateForALongHold(t *testing.T) {
	for name, row := range map[string]struct {
		status  int
		wait    string
		timeout time.Duration
		want    string
		after   time.Duration
	}{
		"a short 429":                   {429, "2", time.Minute, "429 ", 2 * time.Second},
		"a 429 beyond the deadline":     {429, "20", 10 * time.Second, "200 b.test", 0},
		"a 429 beyond Max":              {429, "200", 10 * time.Minute, "200 b.test", 0},
		"a 503 is about the host":       {503, "2", time.Minute, "200 b.test", 0},
		"a 408 is about the connection": {408, "", time.Minute, "408 ", 0},
	} {
		inBubble(t, name, func(t *testing.T) {
			r := newRegions()
			header := []string{}
			if row.wait != "" {
				header = append(header, "Retry-After: "+row.wait)
			}
			r.set("a.test", status(row.status, header...))
			tr := r.transport(t, policy.Rule{Attempts: 2, Backoff: backoff.Constant(0)})
			for range 3 { // the second and the third are held from the beginning
				ctx, cancel := context.WithTimeout(t.Context(), row.timeout)
				from := r.now()
				resp := mustRoundTrip(t, tr, newRequest(t, http.MethodGet, "http://a.test/", nil).WithContext(ctx))
				assert.Equal(t, row.want, fmt.Sprint(resp.StatusCode, " ", resp.Header.Get("X-From")))
				assert.GreaterOrEqual(t, r.now()-from, row.after)
				if row.after == 0 {
					assert.Less(t, r.now()-from, time.Second)
				}
				cancel()
			}
		})
	}
}

// Only a request that a server surely did not act on, or that may be acted on twice, goes
// on to another server. A key for idempotency is known to the first server only.
func TestAlternateOnlyIfItMayBeRepeated(t *testing.T) {
	for _, row := range []struct {
		method, header string
		ctx            func(context.Context) context.Context
		down           answer
		rule           policy.Rule
		want           int // attempts at B
	}{
		{method: http.MethodPost, down: refuses, want: 1},
		{method: http.MethodPost, down: status(503), want: 0},
		{method: http.MethodPost, down: faults.Fail(io.ErrUnexpectedEOF), want: 0},
		{method: http.MethodPost, down: status(503), ctx: transport.Repeatable, want: 1},
		{method: http.MethodPost, down: status(503), header: "Idempotency-Key: 1", want: 0},
		{method: http.MethodPost, down: refuses, header: "Idempotency-Key: 1", want: 0},
		{method: http.MethodPost, down: refuses, header: "Idempotency-Key: 1", ctx: transport.Repeatable, want: 1},
		{method: http.MethodPost, down: refuses, header: "Idempotency-Key: 1", want: 1, rule: policy.Rule{Idempotent: func(*http.Request) bool { return true }}},
		{method: http.MethodPost, down: refuses, want: 1, rule: policy.Rule{IdempotencyKey: policy.UUIDKey}},
		{method: http.MethodPost, down: status(503), want: 0, rule: policy.Rule{IdempotencyKey: policy.UUIDKey}},
		{method: http.MethodPut, down: status(503), want: 1},
		{method: http.MethodDelete, down: faults.Fail(io.ErrUnexpectedEOF), want: 1},
		{method: http.MethodGet, down: status(503), ctx: transport.Once, want: 0},
		{method: http.MethodGet, down: status(404), want: 0},
		{method: http.MethodPost, down: status(503), header: "Idempotency-Key: 1", want: 0,
			rule: policy.Rule{Idempotent: func(r *http.Request) bool { return r.Header.Get("Idempotency-Key") != "" }}},
		{method: http.MethodPost, down: status(503), want: 1, rule: policy.Rule{Idempotent: func(*http.Request) bool { return true }}},
	} {
		bubble(t, func(t *testing.T) {
			r := newRegions()
			r.set("a.test", row.down)
			row.rule.Attempts, row.rule.Backoff = 3, backoff.Constant(0)
			req := newRequest(t, row.method, "http://a.test/", strings.NewReader("body"))
			if name, value, ok := strings.Cut(row.header, ": "); ok {
				req.Header.Set(name, value)
			}
			if row.ctx != nil {
				req = req.WithContext(row.ctx(req.Context()))
			}
			_ = closing(r.transport(t, row.rule).RoundTrip(req))
			assert.Len(t, r.at("b.test", 0), row.want, "%+v", row)
		})
	}
}

// The host acts on a request and resets the connection, and is down when the caller sends the
// request again with its key. An alternate does not know the key, so it would act as well.
func TestKeyOfTheCallerStaysAtItsHost(t *testing.T) {
	for name, method := range map[string]string{"POST": http.MethodPost, "lower case": http.MethodPost, "PUT": http.MethodPut} {
		inBubble(t, name, func(t *testing.T) {
			r := newRegions()
			tr := r.transport(t, policy.Rule{Attempts: 2, Backoff: backoff.Constant(time.Second)})
			field := "Idempotency-Key"
			if name == "lower case" {
				field = strings.ToLower(field)
			}
			r.set("a.test", faults.Fail(syscall.ECONNRESET)) // it acts before that
			for range 8 {
				req := newRequest(t, method, "http://a.test/", nil)
				req.Header[field] = []string{"1"}
				_, err := tr.RoundTrip(req)
				require.Error(t, err)
				r.set("a.test", refuses)
			}
			assert.Empty(t, r.at("b.test", 0))
		})
	}
}

// A refusal by the host does not take back that it may have acted before.
func TestNothingGoesElsewhereOnceItMayBeActedUpon(t *testing.T) {
	for name, hedge := range map[string]time.Duration{"one after the other": 0, "hedged": 10 * time.Millisecond} {
		inBubble(t, name, func(t *testing.T) {
			r := newRegions()
			rule := policy.Rule{Attempts: 4, Backoff: backoff.Constant(time.Second), Alternates: policy.Alternates{Bases: []string{"http://b.test"}}}
			if rule.Hedge.After = hedge; hedge > 0 {
				rule.Idempotent = func(req *http.Request) bool { return req.Header.Get("Idempotency-Key") != "" }
			}
			var attempts atomic.Int32
			r.set("a.test", rt(func(req *http.Request) (*http.Response, error) {
				if attempts.Add(1) > 1 {
					time.Sleep(3 * hedge) // so that the first fails before the hedge
					return nil, syscall.ECONNREFUSED
				}
				time.Sleep(2 * hedge)
				return nil, syscall.ECONNRESET // it may have acted
			}))
			rule.IdempotencyKey = policy.UUIDKey
			tr := r.transport(t, rule)
			_, err := tr.RoundTrip(newRequest(t, http.MethodPost, "http://a.test/", nil))
			require.Error(t, err)
			assert.Len(t, r.at("a.test", 0), 4)
			assert.Empty(t, r.at("b.test", 0), "it need not know the key")
		})
	}
}

// The budget is that of the endpoint: the first attempt there counts as a request, once.
func TestAlternateAndBudget(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRegions()
		r.set("a.test", status(503))
		r.set("b.test", status(503))
		rule := policy.Rule{Attempts: 6, Backoff: backoff.Constant(time.Millisecond), Budget: policy.Budget{Ratio: 0.1, PerSecond: policy.Off, Burst: 2}}
		tr := mustNew(t, transport.Config{Base: r, Rule: rule, Hosts: map[string]policy.Rule{"a.test": {Alternates: policy.Alternates{Bases: []string{"http://b.test"}}}}})
		const n = 40
		for range n {
			answersOf(t, tr, 1, "http://a.test/")
			time.Sleep(2 * time.Second)
		}
		for _, host := range []string{"a.test", "b.test"} {
			s, ok := tr.SnapshotOf(&url.URL{Scheme: "http", Host: host})
			require.True(t, ok)
			arrived := len(r.at(host, 0))
			assert.LessOrEqual(t, int(s.Requests), n, host)
			assert.GreaterOrEqual(t, arrived, int(s.Requests), host)
			assert.LessOrEqual(t, float64(arrived-int(s.Requests)), 0.1*float64(s.Requests)+2, "%s: %d arrivals of %d requests", host, arrived, s.Requests)
			assert.Zero(t, s.InFlight, host)
		}
	})
}

// A request goes back to a host that asked for a wait only after that wait.
func TestAlternateKeepsTheWaitOfEachEndpoint(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRegions()
		r.set("a.test", status(503, "Retry-After: 7"))
		r.set("b.test", status(503, "Retry-After: 4"))
		tr := r.transport(t, policy.Rule{Attempts: 4, Cooldown: policy.Off, Backoff: backoff.Constant(time.Millisecond)})
		answersOf(t, tr, 1, "http://a.test/")
		for host, wait := range map[string]time.Duration{"a.test": 7 * time.Second, "b.test": 4 * time.Second} {
			at := r.at(host, 0)
			require.Len(t, at, 2, host)
			assert.GreaterOrEqual(t, at[1].at-at[0].at, wait, host)
		}
	})
}

// The limits at an alternate are those of the alternate's own rule. Everything else is as
// the rule of the host says.
func TestAlternateHasItsOwnLimits(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRegions()
		rule := policy.Rule{Rate: policy.Rate{PerSecond: 1000}, Alternates: policy.Alternates{Bases: []string{"http://b.test"}}}
		tr := mustNew(t, transport.Config{Base: r, Hosts: map[string]policy.Rule{"a.test": rule, "b.test": {Rate: policy.Rate{PerSecond: 2, Burst: 1}}}})
		r.set("a.test", refuses)
		from := r.now()
		answersOf(t, tr, 9, "http://a.test/")
		assert.GreaterOrEqual(t, r.now()-from, 4*time.Second)
		own, _ := tr.RuleOf("", &url.URL{Scheme: "http", Host: "b.test"})
		assert.False(t, own.Alternates.Enabled(), "requests for B have no alternates")
	})
}

// Limits and other fields, each seen by what it does at B. It stands in the rule of A or of B.
func TestLimitsAreThoseOfTheEndpoint(t *testing.T) {
	const n = 9
	hold := status(429, "Retry-After: 5")
	type outcome struct {
		at   []arrival // at B, of n requests for A at once
		took time.Duration
		errs int
	}
	play := func(t *testing.T, rule func(mine bool) policy.Rule, b answer) (o outcome) {
		bubble(t, func(t *testing.T) {
			r := newRegions()
			at, bt := rule(true), rule(false)
			at.Alternates, at.Backoff = policy.Alternates{Bases: []string{"http://b.test"}}, backoff.Constant(0)
			tr := mustNew(t, transport.Config{Base: r, Hosts: map[string]policy.Rule{"a.test": at, "b.test": bt}})
			r.set("a.test", refuses)
			r.set("b.test", b)
			var all sync.WaitGroup
			var errs atomic.Int32
			for range n {
				all.Go(func() {
					resp, err := tr.RoundTrip(newRequest(t, http.MethodGet, "http://a.test/", nil))
					if err != nil || resp.StatusCode != 200 {
						errs.Add(1)
					}
					if err == nil {
						_ = resp.Body.Close()
					}
				})
			}
			all.Wait()
			o = outcome{r.at("b.test", 0), r.now(), int(errs.Load())}
		})
		return o
	}
	for name, row := range map[string]struct {
		rule func() policy.Rule // of one of the two; the other has the defaults
		b    answer
		of   func(o outcome) bool // the rule had an effect at B
		mine bool                 // the rule counts if it is A's; otherwise if it is B's
	}{
		"Budget": {rule: func() policy.Rule { return policy.Rule{Budget: policy.Budget{Ratio: -1, PerSecond: 0.001, Burst: 1}} }, b: status(503), of: func(o outcome) bool {
			return len(o.at) <= n+1 // the first attempts count as requests
		}},
		"Gate": {rule: func() policy.Rule { return policy.Rule{Gate: policy.Gate{Mode: policy.GateRefuse, Start: 1, Max: 1}} }, of: func(o outcome) bool {
			return o.errs > 0 && len(o.at) < n
		}},
		"Cooldown": {rule: func() policy.Rule { return policy.Rule{Cooldown: policy.Off} }, b: hold, of: func(o outcome) bool {
			return o.took < time.Minute // nobody is held by the refusals of others
		}},
		"Attempts": {rule: func() policy.Rule { return policy.Rule{Attempts: 2} }, b: status(503), mine: true, of: func(o outcome) bool {
			return len(o.at) == n
		}},
		"AttemptTimeout": {rule: func() policy.Rule { return policy.Rule{AttemptTimeout: time.Second} }, b: faults.Hang(), mine: true, of: func(o outcome) bool {
			return o.took < time.Minute
		}},
	} {
		t.Run(name, func(t *testing.T) {
			for _, mine := range []bool{false, true} {
				o := play(t, func(of bool) policy.Rule {
					if of == mine {
						return row.rule()
					}
					return policy.Rule{AttemptTimeout: 2 * time.Minute}
				}, row.b)
				assert.Equal(t, mine == row.mine, row.of(o), "the rule is A's: %v; %d attempts at B, %d errors, %v", mine, len(o.at), o.errs, o.took)
			}
		})
	}
}

func TestJoinedURLs(t *testing.T) {
	for _, row := range [][3]string{
		{"https://b.test", "https://a.test/x/y?q=1", "https://b.test/x/y?q=1"},
		{"https://b.test/", "https://a.test/x", "https://b.test/x"},
		{"https://b.test/pub", "https://a.test/x", "https://b.test/pub/x"},
		{"https://b.test/pub/", "https://a.test/x/", "https://b.test/pub/x/"},
		{"https://b.test/pub", "https://a.test", "https://b.test/pub"},
		{"https://b.test/a%2Fb/", "https://a.test/x", "https://b.test/a%2Fb/x"},
		{"https://b.test/a%2F", "https://a.test/x", "https://b.test/a%2F/x"},
		{"https://b.test/pub", "https://a.test/x%2Fy%20z?a=b%20c&d", "https://b.test/pub/x%2Fy%20z?a=b%20c&d"},
		{"https://b.test:8443/pub", "https://a.test//x", "https://b.test:8443/pub//x"},
		{"https://[::1]:8443", "http://a.test/%e4", "https://[::1]:8443/%e4"},
	} {
		base, err := url.Parse(row[0])
		require.NoError(t, err)
		u, err := url.Parse(row[1])
		require.NoError(t, err)
		assert.Equal(t, row[2], transport.Joined(base, u).String())
		assert.Equal(t, row[1], u.String(), "the request's own URL stays")
	}
}

// A request that is meant for its host alone does not leave it, unless the rule says so.
func TestWhatDoesNotTravel(t *testing.T) {
	for _, row := range []struct {
		url, header string
		host        string
		needs       string // the setting with which it travels; "": none
	}{
		{header: "Authorization: Bearer x", needs: "credentials"},
		{header: "Cookie: a=b", needs: "credentials"},
		{header: "Proxy-Authorization: Basic eA==", needs: "credentials"},
		{header: "X-Api-Key: x", needs: "credentials"},
		{header: "Dd-Application-Key: x", needs: "credentials"},
		{header: "X-Custom_Token: x", needs: "credentials"},
		{header: "X-Anything: bearer x", needs: "credentials"},
		{header: "Referer: https://c.test/?sig=x", needs: "credentials"},
		{header: "X-Ms-Copy-Source: https://user:x@c.test/", needs: "credentials"},
		{url: "http://user:x@a.test/", needs: "credentials"},
		{url: "http://a.test/?X-Amz-Signature=x", needs: "credentials"},
		{url: "http://a.test/?a=b&%73ig=x", needs: "credentials"},
		{url: "http://a.test/?api_key=x", needs: "credentials"},
		{url: "http://a.test/?access_token=x", needs: "credentials"},
		{url: "http://a.test/?%zz=x", needs: "credentials"},
		{url: "http://a.test/?code=x", needs: "credentials"},
		{url: "http://a.test/?userCode=x", needs: "credentials"},
		{url: "http://a.test/?sid=x", needs: "credentials"},
		{url: "http://a.test/?connect.sid=x", needs: "credentials"},
		{url: "http://a.test/?PHPSESSID=x", needs: "credentials"},
		{url: "http://a.test/?hdnea=x", needs: "credentials"},
		{url: "http://a.test/?hmac=x", needs: "credentials"},
		{url: "http://a.test/?passphrase=x", needs: "credentials"},
		{url: "http://a.test/?pass=x", needs: "credentials"},
		{url: "http://a.test/?otp=x", needs: "credentials"},
		{url: "http://a.test/?ticket=x", needs: "credentials"},
		{url: "http://a.test/?a=b&to=https%3A%2F%2Fc.test%2F%3Fsig%3Dx", needs: "credentials"},
		{url: "http://a.test/?a=eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJ4In0.x_-y", needs: "credentials"},
		{header: "DPoP: x", needs: "credentials"},
		{header: "dpop: x", needs: "credentials"},
		{header: "X-Passphrase: x", needs: "credentials"},
		{header: "X-Api-Key-V2: x", needs: "credentials"},
		{header: "Api-Key-1: x", needs: "credentials"},
		{header: "apiKeyV2: x", needs: "credentials"},
		{header: "authorization: Bearer x", needs: "credentials"},
		{header: "X-Anything: eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJ4In0.x_-y", needs: "credentials"},
		{header: "X-Anything: v=eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJ4In0.x_-y; n=1", needs: "credentials"},
		{header: `X-Anything: Digest username="x"`, needs: "credentials"},
		{header: "X-Anything: NTLM TlRMTVNTUAAB", needs: "credentials"},
		{header: "X-Anything: negotiate YII", needs: "credentials"},
		{header: "X-Anything: Token x", needs: "credentials"},
		{header: "X-Anything:  Token\tx", needs: "credentials"},
		{header: "X-Anything: AWS4-HMAC-SHA256 Credential=x", needs: "credentials"},
		{header: "range: bytes=5-", needs: "validators"},
		{header: `if-match: "v1"`, needs: "validators"},
		{header: `IF-NONE-MATCH: "v1"`, needs: "validators"},
		{header: "last-event-id: 5", needs: "validators"},
		{header: "x-goog-if-generation-match: 5", needs: "validators"},
		{header: "X-Ms-Range: bytes=5-", needs: "validators"},
		{header: `If: (["v1"])`, needs: "validators"},
		{header: "upgrade: websocket"},
		{header: "host: other.test"},
		{url: "http://a.test/..%5c..%5cetc"},
		{url: "http://a.test/x/..%5cetc"},
		{url: "http://a.test/%2e%2E/etc"},
		{url: "http://a.test/%252e%252e/etc"},
		{url: "http://a.test/.%2509./etc"},
		{header: `If-None-Match: "v1"`, needs: "validators"},
		{header: "If-Modified-Since: x", needs: "validators"},
		{header: "Range: bytes=5-", needs: "validators"},
		{header: "Last-Event-ID: 5", needs: "validators"},
		{host: "other.test"},
		{url: "http://a.test/../x"},
		{url: "http://a.test/..;/x"},
		{header: "Upgrade: websocket"},
	} {
		for _, on := range []string{"", "credentials", "validators", "credentials and validators"} {
			bubble(t, func(t *testing.T) {
				r := newRegions()
				r.set("a.test", refuses)
				rule := policy.Alternates{Bases: []string{"http://b.test"}}
				if strings.Contains(on, "credentials") {
					rule.Credentials = policy.On
				}
				if strings.Contains(on, "validators") {
					rule.Validators = policy.On
				}
				req := newRequest(t, http.MethodGet, cmp.Or(row.url, "http://a.test/"), nil)
				if name, value, ok := strings.Cut(row.header, ": "); ok {
					req.Header[name] = []string{value} // as the row spells it
				}
				if row.host != "" {
					req.Host = row.host
				}
				_ = closing(r.transport(t, policy.Rule{Alternates: rule, Attempts: 2}).RoundTrip(req))
				travels := row.needs != "" && strings.Contains(on, row.needs)
				assert.Equal(t, travels, len(r.at("b.test", 0)) > 0, "%+v with %q", row, on)
			})
		}
	}
	for _, free := range []string{
		"Accept: x", "Content-Type: x", "Idempotency-Key: x", "X-Amz-Date: x", "User-Agent: Token/1 (like Basic)", "Referer: https://c.test/x?page=1",
		"Traceparent: x", "Monkeys: x", "Accept-Encoding: gzip", "X-Amz-Content-Sha256: x", "Baggage: processId=1,addressId=2", "X-Opaque-Id: x",
		"Accept: text/plain; q=0.5, eyJ/x", "X-Note: bytes ...", "Accept-Ranges: none",
	} {
		h := http.Header{}
		name, value, _ := strings.Cut(free, ": ")
		h.Set(name, value)
		assert.True(t, transport.MayTravel(&http.Request{URL: &url.URL{Path: "/", RawQuery: "page=2&sort=x&prefix=y&classId=3&decode=1&continue=eyJhIjoxfQ&v=..x&to=a..b"}, Header: h}, &policy.Alternates{}), free)
	}
}

// An https request never goes to an http alternate, and no request goes to its own host as
// an alternate.
func TestAlternateKeepsTheSchemeSafe(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRegions()
		r.set("a.test", refuses)
		tr := r.transport(t, policy.Rule{Attempts: 2, Alternates: policy.Alternates{Bases: []string{"http://b.test", "https://A.test:443/x"}, Credentials: policy.On}})
		_, err := tr.RoundTrip(newRequest(t, http.MethodGet, "https://a.test/", nil))
		require.Error(t, err)
		assert.Empty(t, r.at("b.test", 0))
		assert.Len(t, r.at("a.test", 0), 2)
	})
}

// The caller sees where a response comes from. Its Location means the same as at the
// alternate, and its cookies are not those of the host.
func TestResponseOfAnAlternate(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRegions()
		r.set("a.test", refuses)
		r.set("b.test", func(req *http.Request) (*http.Response, error) {
			if req.URL.Path == "/pub/done" {
				return play(req, status(200, "Set-Cookie: c=d"))
			}
			return play(req, status(302, "Location: done", "Set-Cookie: a=b"))
		})
		jar, err := cookiejar.New(nil)
		require.NoError(t, err)
		var log testkit.Text
		var events []transport.Event
		var starts []transport.AttemptStart
		tr := mustNew(t, transport.Config{
			Base:   r,
			Hosts:  map[string]policy.Rule{"a.test": {Alternates: policy.Alternates{Bases: []string{"http://b.test/pub"}}}},
			Logger: slog.New(slog.NewTextHandler(&log, nil)),
			Trace: &transport.Trace{
				Event: func(e transport.Event) { events = append(events, e) },
				AttemptStart: func(ctx context.Context, a transport.AttemptStart) context.Context {
					starts = append(starts, a)
					return ctx
				},
			},
		})
		req := newRequest(t, http.MethodGet, "http://a.test/x?q=secret", nil)
		resp, err := (&http.Client{Transport: tr, Jar: jar}).Do(req)
		require.NoError(t, err)
		_ = resp.Body.Close()
		assert.Equal(t, "http://b.test/pub/done", resp.Request.URL.String())
		assert.Empty(t, jar.Cookies(&url.URL{Scheme: "http", Host: "a.test", Path: "/"}))
		assert.Equal(t, "http://a.test/x?q=secret", req.URL.String(), "the caller's request stays")

		require.Len(t, events, 3)
		assert.Equal(t, []string{"", "http://b.test"}, []string{events[0].Alternate, events[1].Alternate})
		assert.Equal(t, []string{"http://a.test", "http://a.test", "http://b.test"}, []string{events[0].Host, events[1].Host, events[2].Host})
		assert.Equal(t, "a.test", events[1].Request.URL.Host)
		assert.Equal(t, []string{"", "http://b.test", ""}, []string{starts[0].Alternate, starts[1].Alternate, starts[2].Alternate})
		assert.Contains(t, log.String(), "alternate=http://b.test")
		assert.NotContains(t, log.String(), "secret")
		for _, line := range strings.Split(strings.TrimSpace(log.String()), "\n") {
			at := "http://a.test"
			if strings.Contains(line, "alternate=http://b.test") {
				at = "http://b.test"
			}
			assert.Contains(t, line, " msg=\""+at+" ")
			assert.Contains(t, line, " host="+at+" ")
		}

		resp = mustRoundTrip(t, tr, newRequest(t, http.MethodGet, "http://a.test/y", nil))
		_ = resp.Body.Close()
		assert.Equal(t, "http://b.test/pub/y", resp.Request.URL.String())
		assert.Equal(t, "http://b.test/pub/done", resp.Header.Get("Location"))
		assert.Empty(t, resp.Header["Set-Cookie"])
		h := transport.HistoryOf(resp).Attempts
		require.Len(t, h, 2)
		assert.Equal(t, "http://b.test", h[1].Alternate)
	})
}

// A rule for several hosts has no alternates, because these hosts do not serve the same.
func TestAlternatesAreOfASingleHost(t *testing.T) {
	a := policy.Rule{Alternates: policy.Alternates{Bases: []string{"https://b.test"}}}
	_, err := transport.New(transport.Config{Rule: a})
	require.EqualError(t, err, "Rule.Alternates.Bases: stand in the rule of all hosts; other hosts serve something else, so write them into Hosts")
	_, err = transport.New(transport.Config{Hosts: map[string]policy.Rule{"*.a.test": a}})
	require.EqualError(t, err, `Hosts["*.a.test"].Alternates.Bases: stand in the rule of a pattern with a wildcard; other hosts serve something else, so write an entry for each host`)
	_, err = transport.New(transport.Config{Hosts: map[string]policy.Rule{"a.test": {Alternates: policy.Alternates{Bases: []string{"b.test"}}}}})
	require.EqualError(t, err, `Hosts["a.test"].Alternates.Bases: "b.test" does not begin with http:// or https://`)
}

// An alternate that is down as well is skipped if there is another, and is tried once per
// second. If all are down, the attempts go round with waits.
func TestSecondAlternate(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRegions()
		tr := r.transport(t, policy.Rule{Attempts: 4, Backoff: backoff.Constant(time.Second)}, "http://c.test/x")
		r.set("a.test", refuses)
		r.set("b.test", status(503))
		for range 10 {
			assert.Equal(t, map[string]int{"200 c.test": 1}, answersOf(t, tr, 1, "http://a.test/"))
		}
		assert.Len(t, r.at("c.test", 0), 10)
		assert.LessOrEqual(t, len(r.at("b.test", 0)), 6)
		r.set("c.test", refuses)
		from := r.now()
		_, err := tr.RoundTrip(newRequest(t, http.MethodGet, "http://a.test/", nil))
		require.Error(t, err)
		assert.GreaterOrEqual(t, r.now()-from, time.Second, "the fourth attempt waits")
	})
}

// The body of a request reaches each endpoint whole.
func TestAlternateGetsTheBody(t *testing.T) {
	bubble(t, func(t *testing.T) {
		for _, body := range []io.Reader{strings.NewReader("hello"), io.MultiReader(strings.NewReader("hello"))} {
			bodies := map[string]string{}
			base := rt(func(req *http.Request) (*http.Response, error) {
				b, err := io.ReadAll(req.Body)
				_ = req.Body.Close()
				bodies[req.URL.Host] = string(b)
				if req.URL.Host == "a.test" {
					return nil, syscall.ECONNREFUSED
				}
				return newResponse(req, 200, http.NoBody), err
			})
			tr := mustNew(t, transport.Config{Base: base, Hosts: map[string]policy.Rule{"a.test": {Alternates: policy.Alternates{Bases: []string{"http://b.test"}}}}})
			resp := mustRoundTrip(t, tr, newRequest(t, http.MethodPost, "http://a.test/", body))
			assert.Equal(t, 200, resp.StatusCode)
			assert.Equal(t, map[string]string{"a.test": "hello", "b.test": "hello"}, bodies)
		}
	})
}

// The rule of a path, or of a single request, may have alternates as well.
func TestAlternatesOfAPathAndOfARequest(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRegions()
		r.set("a.test", refuses)
		a := policy.Rule{Alternates: policy.Alternates{Bases: []string{"http://b.test"}}}
		tr := mustNew(t, transport.Config{Base: r, Rule: policy.Rule{Attempts: 2, Backoff: backoff.Constant(0)}, Hosts: map[string]policy.Rule{"GET a.test/x/": a}})
		for _, row := range []struct {
			method, url string
			ctx         context.Context
			want        int
		}{
			{http.MethodGet, "http://a.test/x/1", t.Context(), 1},
			{http.MethodGet, "http://a.test/y", t.Context(), 0},
			{http.MethodPut, "http://a.test/x/1", t.Context(), 0},
			{http.MethodGet, "http://a.test/y", transport.WithRule(t.Context(), a), 1},
			{http.MethodGet, "http://a.test/x/1", transport.WithRule(t.Context(), policy.Rule{Alternates: policy.Alternates{Bases: []string{}}}), 0},
		} {
			from := len(r.at("b.test", 0))
			_ = closing(tr.RoundTrip(newRequest(t, row.method, row.url, nil).WithContext(row.ctx)))
			assert.Equal(t, row.want, len(r.at("b.test", 0))-from, "%s %s", row.method, row.url)
		}
	})
}

// The alternates of WithRule serve the same as the host of its request. A redirect to another
// host has the same context, and does not go there.
func TestAlternatesOfARequestThatIsRedirected(t *testing.T) {
	for to, want := range map[string]int{"http://c.test/x?code=1": 0, "http://a.test/x": 1} {
		bubble(t, func(t *testing.T) {
			r := newRegions()
			r.set("c.test", refuses)
			r.set("a.test", func(req *http.Request) (*http.Response, error) {
				if req.URL.Path == "/x" {
					return play(req, refuses)
				}
				return play(req, status(302, "Location: "+to))
			})
			tr := mustNew(t, transport.Config{Base: r, Rule: policy.Rule{Attempts: 2, Backoff: backoff.Constant(0)}})
			ctx := transport.WithRule(t.Context(), policy.Rule{Alternates: policy.Alternates{Bases: []string{"http://b.test"}}})
			_ = closing((&http.Client{Transport: tr}).Do(newRequest(t, http.MethodGet, "http://a.test/", nil).WithContext(ctx)))
			assert.Len(t, r.at("b.test", 0), want, to)
		})
	}
}

// The rule is asked once for the cost of a request, wherever its attempts go.
func TestCostIsAskedOnceForAllEndpoints(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRegions()
		r.set("a.test", refuses)
		asked := 0
		tr := mustNew(t, transport.Config{Base: r, Hosts: map[string]policy.Rule{
			"a.test": {Alternates: policy.Alternates{Bases: []string{"http://b.test"}}, Cost: func(*http.Request) int { asked++; return 2 }},
			"b.test": {Rate: policy.Rate{PerSecond: 10}},
		}})
		resp := mustRoundTrip(t, tr, newRequest(t, http.MethodGet, "http://a.test/", nil))
		_ = resp.Body.Close()
		assert.Len(t, r.at("b.test", 0), 1)
		assert.Equal(t, 1, asked)
	})
}
