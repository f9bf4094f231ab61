package debug

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/url"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/aplomb-go/aplomb/classify"
	"github.com/aplomb-go/aplomb/internal/testkit"
	"github.com/aplomb-go/aplomb/policy"
	"github.com/aplomb-go/aplomb/policy/backoff"
	"github.com/aplomb-go/aplomb/transport"
)

// A base answers requests.
type base func(*http.Request) (*http.Response, error)

func (b base) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.Body != nil {
		_ = req.Body.Close()
	}
	return b(req)
}

// status answers with a status and header fields in turn.
func status(code int, header ...string) (*http.Response, error) {
	h := http.Header{}
	for i := 0; i < len(header); i += 2 {
		h.Set(header[i], header[i+1])
	}
	return &http.Response{StatusCode: code, Header: h, Body: http.NoBody}, nil
}

// show returns a page of a handler.
func show(h http.Handler, method, target, host string) *httptest.ResponseRecorder {
	req := httptest.NewRequest(method, target, nil)
	req.Host = host
	w := httptest.NewRecorder()
	h.ServeHTTP(w, req)
	return w
}

// shown returns what the page shows.
func shown(t *testing.T, d *Page, tr *transport.Transport) (s state) {
	t.Helper()
	w := show(d.Handler(tr), http.MethodGet, "/?format=json", "localhost")
	require.NoError(t, json.Unmarshal(w.Body.Bytes(), &s), w.Body)
	return s
}

func do(t *testing.T, tr *transport.Transport, method, url string) {
	t.Helper()
	req := testkit.Must(http.NewRequestWithContext(t.Context(), method, url, nil))(t)
	if resp, err := tr.RoundTrip(req); err == nil {
		_ = resp.Body.Close()
	}
}

// watched returns a page, and a Transport that tells it what happens.
func watched(c transport.Config) (*Page, *transport.Transport) {
	d := new(Page)
	c.Traces = []*transport.Trace{d.Trace()}
	return d, transport.MustNew(c)
}

// always answers with a status.
func always(code int) base {
	return func(*http.Request) (*http.Response, error) { return status(code) }
}

// A web page can make its own name lead to this machine.
func TestOnlyForItsNames(t *testing.T) {
	d := &Page{AllowedHosts: []string{"Metrics.internal", "proxy.svc", ""}}
	h := d.Handler(transport.Default())
	d.AllowedHosts[0] = "evil.example" // the handler has a copy
	for host, want := range map[string]int{
		"127.0.0.1:8081": 200, "127.0.0.1": 200, "[::1]:8081": 200, "::1": 200, "192.0.2.1": 200,
		"localhost": 200, "LOCALHOST:8081": 200, "localhost.:1": 200, "metrics.internal:8081": 200, "proxy.svc": 200,
		"evil.example": 403, "evil.example:8081": 403, "localhost.evil.example": 403, "127.0.0.1.evil.example": 403, "xproxy.svc": 403, "": 403,
		"localhost:1:1": 403, "[localhost": 200, "a@localhost": 403, "localhost/": 403,
	} {
		for _, target := range []string{"/", "/debug/aplomb", "/?format=json"} {
			assert.Equal(t, want, show(h, http.MethodGet, target, host).Code, "%q %s", host, target)
		}
	}
}

func TestHandler(t *testing.T) {
	h := new(Page).Handler(transport.Default())
	w := show(h, http.MethodGet, "/any", "localhost")
	assert.Equal(t, "text/html; charset=utf-8", w.Header().Get("Content-Type"))
	assert.Contains(t, w.Header().Get("Content-Security-Policy"), "default-src 'none'")
	assert.Equal(t, "no-store", w.Header().Get("Cache-Control"))
	w = show(h, http.MethodGet, "/any?format=json", "localhost")
	assert.Equal(t, "application/json", w.Header().Get("Content-Type"))
	assert.Equal(t, "same-origin", w.Header().Get("Cross-Origin-Resource-Policy"))
	assert.Empty(t, w.Header().Get("Access-Control-Allow-Origin"))
	w = show(h, http.MethodPost, "/any", "localhost")
	assert.Equal(t, http.StatusMethodNotAllowed, w.Code)
	assert.Equal(t, "GET, HEAD", w.Header().Get("Allow"))
	assert.Panics(t, func() { new(Page).Handler(nil) })
}

// The rows are the last decisions. A success on the first try is none. Decisions that are the
// same within a second are one row.
func TestDecisions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, tr := watched(transport.Config{Rule: policy.Rule{MaxAttempts: 2, RetryBudget: policy.RetryBudget{Enabled: policy.Off}, Backoff: backoff.Constant(2 * time.Second)},
			Base: base(func(req *http.Request) (*http.Response, error) {
				if req.URL.Path == "/fine" {
					return status(200)
				}
				var code int
				_, _ = fmt.Sscan(req.URL.Path[1:], &code)
				return status(code)
			})})
		do(t, tr, "GET", "http://api.test/fine")
		do(t, tr, "GET", "http://api.test/404")
		assert.Empty(t, shown(t, d, tr).Recent)
		do(t, tr, "GET", "http://api.test/503")
		do(t, tr, "GET", "http://api.test/401")
		for range 7 {
			do(t, tr, "POST", "http://api.test/503")
		}
		rows := shown(t, d, tr).Recent
		require.Len(t, rows, 4)
		assert.Equal(t, "503 retry 2", fmt.Sprint(rows[0].Outcome, " ", rows[0].Reason, " ", rows[0].Delay))
		assert.Equal(t, "503 max_attempts", fmt.Sprint(rows[1].Outcome, " ", rows[1].Reason))
		assert.Equal(t, "401 final", fmt.Sprint(rows[2].Outcome, " ", rows[2].Reason))
		assert.Equal(t, "POST 503 not_idempotent 7", fmt.Sprint(rows[3].Method, " ", rows[3].Outcome, " ", rows[3].Reason, " ", rows[3].Count))

		time.Sleep(time.Second) // the second is over
		do(t, tr, "POST", "http://api.test/503")
		assert.Len(t, shown(t, d, tr).Recent, 5)
		for i := range 300 {
			do(t, tr, "POST", fmt.Sprintf("http://api.test/%d", 502+i%2))
			time.Sleep(time.Second)
		}
		rows = shown(t, d, tr).Recent
		require.Len(t, rows, maxRecent)
		assert.Equal(t, "503", rows[maxRecent-1].Outcome)
		assert.Equal(t, 99*time.Second, rows[maxRecent-1].Time.Sub(rows[0].Time))
		h := shown(t, d, tr).Hosts
		require.Len(t, h, 1)
		assert.EqualValues(t, 1+7+1+300, h[0].Failed)
		assert.EqualValues(t, 1, h[0].retries(), "retries")
	})
}

// The changes of hosts are kept, with the kind of the error that caused them.
func TestChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		down := true
		d, tr := watched(transport.Config{Rule: policy.Rule{MaxAttempts: 1, ShareRetryAfter: policy.On}, Base: base(func(*http.Request) (*http.Response, error) {
			if down {
				return status(429, "Retry-After", "30")
			}
			return status(200)
		})})
		do(t, tr, "GET", "http://api.test/")
		down = false
		time.Sleep(31 * time.Second)
		do(t, tr, "GET", "http://api.test/")
		changes := shown(t, d, tr).Changes
		require.Len(t, changes, 2)
		assert.Equal(t, "throttled false", fmt.Sprint(changes[0].Reason, " ", changes[0].Better))
		assert.Contains(t, changes[0].Text, "http://api.test: throttled (429)")
		assert.Equal(t, "throttled true", fmt.Sprint(changes[1].Reason, " ", changes[1].Better))
		for i := range 3 * maxRecent {
			for range 3 {
				d.Trace().HostChange(t.Context(), transport.HostChange{Host: "http://a.test", Reason: transport.ReasonCircuitOpen, Err: fmt.Errorf("no: %w", syscall.ECONNREFUSED)})
				d.Trace().HostChange(t.Context(), transport.HostChange{Host: fmt.Sprintf("http://h%d.test", i), Reason: transport.ReasonQuota, Over: true})
			}
			time.Sleep(time.Minute)
		}
		changes = shown(t, d, tr).Changes
		require.Len(t, changes, maxRecent)
		assert.Contains(t, changes[0].Text, "http://a.test: host down (connection refused)")
		assert.Equal(t, 3, changes[0].Count)
	})
}

// Hosts in trouble come before those with many requests, and the rest is left out.
func TestManyHosts(t *testing.T) {
	d, tr := watched(transport.Config{Rule: policy.Rule{ShareRetryAfter: policy.On}, Base: base(func(req *http.Request) (*http.Response, error) {
		if req.URL.Host == "h777.test" {
			return status(429, "Retry-After", "3600")
		}
		return status(200)
	})})
	for i := range 1200 {
		do(t, tr, "GET", fmt.Sprintf("http://h%03d.test/", i))
	}
	for range 2 {
		do(t, tr, "GET", "http://h007.test/")
	}
	s := shown(t, d, tr)
	require.Len(t, s.Hosts, maxHosts)
	assert.Equal(t, 1100, s.More)
	assert.EqualValues(t, 1202, s.Total.Requests, "requests counted")
	names := map[string]host{}
	for i, h := range s.Hosts {
		names[h.Host] = h
		assert.True(t, i == 0 || s.Hosts[i-1].Host < h.Host)
	}
	assert.EqualValues(t, 3, names["http://h007.test"].Requests)
	assert.Equal(t, 1, names["http://h777.test"].ThrottledKeys)
}

// The page of a program with any number of hosts is soon made: a host that is left out is looked at and
// no more.
func TestHostsThatAreLeftOutCostLittle(t *testing.T) {
	const n = 20_000
	d, tr := watched(transport.Config{Base: always(200)})
	for i := range n {
		do(t, tr, "GET", fmt.Sprintf("http://h%d.test/", i))
	}
	bytes := func(f func()) float64 {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		f()
		runtime.ReadMemStats(&after)
		return float64(after.TotalAlloc - before.TotalAlloc)
	}
	snapshot, page := bytes(func() { tr.Snapshot() }), bytes(func() { d.state(tr, time.Time{}) })
	assert.LessOrEqual(t, (page-snapshot)/n, 200.0, "bytes of the page per host, beside the snapshot")
}

// The hosts on the page are those that come first if all are sorted.
func TestBusiest(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	for _, n := range []int{0, 1, maxHosts - 1, maxHosts, maxHosts + 1, 1000} {
		all := make([]transport.HostState, n)
		for i := range all {
			all[i] = transport.HostState{Host: fmt.Sprintf("h%04d", i), Requests: rng.Uint64N(20), RetryBudget: float64(rng.IntN(20))}
		}
		sorted := slices.Clone(all)
		slices.SortStableFunc(sorted, func(a, b transport.HostState) int {
			if trouble(&a) != trouble(&b) {
				return map[bool]int{true: -1, false: 1}[trouble(&a)]
			}
			return cmp.Compare(b.Requests, a.Requests)
		})
		want, got := map[string]bool{}, map[string]bool{}
		for _, h := range sorted[:min(n, maxHosts)] {
			want[h.Host] = true
		}
		best := busiest(all)
		for _, h := range best {
			got[h.Host] = true
		}
		assert.Equal(t, want, got)
		assert.True(t, slices.IsSortedFunc(best, func(a, b *transport.HostState) int { return cmp.Compare(a.Host, b.Host) }))
	}
}

// Each setting is shown with its source.
func TestRulesHaveSources(t *testing.T) {
	d, tr := watched(transport.Config{Base: always(200),
		Rule:  policy.Rule{MaxAttempts: 3, MaxElapsedTime: time.Minute},
		Hosts: map[string]policy.Rule{"*.example.com": {AttemptTimeout: time.Second, MaxElapsedTime: -1, Classify: classify.Refusals}},
	})
	do(t, tr, "GET", "http://other.test/")
	do(t, tr, "GET", "http://api.example.com/")
	hosts := shown(t, d, tr).Hosts
	require.Len(t, hosts, 2)
	own, other := hosts[0].Rule, hosts[1].Rule
	require.Len(t, own, 3)
	assert.Equal(t, section{`Config.Hosts["*.example.com"]`, []string{"Classify: classify.Refusals, classify.Default", "AttemptTimeout: 1s", "MaxElapsedTime: off"}}, own[0])
	assert.Equal(t, section{"Config.Rule", []string{"MaxAttempts: 3"}}, own[1])
	assert.Equal(t, "default", own[2].Source)
	assert.Contains(t, own[2].Settings, "ShareRetryAfter: off")
	require.Len(t, other, 2)
	assert.Equal(t, section{"Config.Rule", []string{"MaxAttempts: 3", "MaxElapsedTime: 1m0s"}}, other[0])
}

// A wordy back-off has a secret.
type wordy struct{ Token string }

func (w wordy) Delay(int, time.Duration) time.Duration { return time.Microsecond }
func (w wordy) String() string                         { return w.Token }

// The page shows no secret, wherever a caller or a server has put one.
func TestNoSecrets(t *testing.T) {
	const secret = "s3cr3t"
	var n int
	answers := []func() (*http.Response, error){
		func() (*http.Response, error) { return nil, errors.New("dial " + secret) },
		func() (*http.Response, error) {
			return nil, &url.Error{Op: secret, URL: "http://u:" + secret + "@h.test/" + secret + "?" + secret, Err: errors.New(secret)}
		},
		func() (*http.Response, error) {
			return status(503, "Retry-After", "0", "Set-Cookie", secret, "Location", "http://"+secret+"@h.test/", "RateLimit", secret, "X-"+secret, secret)
		},
		func() (*http.Response, error) {
			return &http.Response{StatusCode: 500, Status: "500 " + secret, Proto: secret, Header: http.Header{}, Trailer: http.Header{secret: {secret}}, Body: io.NopCloser(strings.NewReader(secret))}, nil
		},
		func() (*http.Response, error) { return status(429, "Retry-After", secret) },
		func() (*http.Response, error) { return status(401, "WWW-Authenticate", secret) },
	}
	d, tr := watched(transport.Config{
		Base: base(func(*http.Request) (*http.Response, error) { n++; return answers[n%len(answers)]() }),
		Rule: policy.Rule{
			MaxAttempts: 2, RetryBudget: policy.RetryBudget{Enabled: policy.Off}, Backoff: wordy{secret}, Concurrency: policy.Concurrency{Enabled: policy.On, Max: 100}, QuotaPacing: policy.On,
			ThrottleKey: func(*http.Request) string { return secret },
		}})
	for range 3 * len(answers) {
		for _, u := range []*url.URL{
			{Scheme: "http", Host: "a.test", User: url.UserPassword("u", secret), Path: "/" + secret, RawQuery: secret + "=" + secret, Fragment: secret},
			{Scheme: "http", Host: "u:" + secret + "@b.test", Path: "/"},
			{Scheme: "http", Host: "c.test/" + secret, Path: "/"},
			{Scheme: "http", Host: "d.test?" + secret, Path: "/"},
			{Scheme: "http", Host: "e.test", Opaque: "//e.test/" + secret},
		} {
			req := (&http.Request{Method: "GET", URL: u, Host: secret, Header: http.Header{
				"Authorization": {"Bearer " + secret}, "Cookie": {secret}, "X-" + secret: {secret}, "Idempotency-Key": {secret},
			}, Body: io.NopCloser(strings.NewReader(secret)), Trailer: http.Header{secret: {secret}}}).WithContext(t.Context())
			if n%2 == 0 {
				req.Method = strings.ToUpper(secret)
			}
			if resp, err := tr.RoundTrip(req); err == nil {
				_ = resp.Body.Close()
			}
		}
	}
	require.NotEmpty(t, shown(t, d, tr).Recent)
	d.Trace().HostChange(t.Context(), transport.HostChange{Host: "http://a.test", Reason: transport.ReasonCircuitOpen, Err: fmt.Errorf("no: %w", &url.Error{Op: "Get", URL: "http://" + secret, Err: errors.New(secret)})})
	for _, target := range []string{"/", "/?format=json", "/" + secret + "?format=json&" + secret} {
		text := strings.ToLower(show(d.Handler(tr), http.MethodGet, target, "localhost").Body.String())
		if i := strings.Index(text, secret); i >= 0 {
			t.Errorf("%s has a secret: …%s", target, text[max(0, i-60):i+len(secret)])
		}
	}
	w := show(d.Handler(tr), http.MethodGet, "/"+secret, secret+".test")
	assert.Equal(t, http.StatusForbidden, w.Code)
	assert.NotContains(t, w.Body.String(), secret)
}

// The page can be read while requests are under way.
func TestConcurrent(t *testing.T) {
	d, tr := watched(transport.Config{Rule: policy.Rule{MaxAttempts: 1}, Base: always(503)})
	testkit.Together(8, func(i int) {
		for n := range 50 {
			if i < 4 {
				do(t, tr, "GET", fmt.Sprintf("http://h%d.test/", i))
			} else if n < 5 {
				shown(t, d, tr)
			}
		}
	})
	s := shown(t, d, tr)
	assert.EqualValues(t, 200, s.Total.Failed, "failures")
	sum := 0
	for _, r := range s.Recent {
		sum += r.Count
	}
	assert.Equal(t, 200, sum)
}

// attempt returns the end of an attempt with a status, or with an error if the status is 0.
func attempt(host string, kind transport.AttemptKind, status int, reason transport.Reason) *transport.AttemptEnd {
	e := &transport.AttemptEnd{Host: host, Attempt: transport.Attempt{Kind: kind, Status: status, Delay: time.Second, Reason: reason}}
	e.Response, e.Err = result(status)
	return e
}

func result(status int) (*http.Response, error) {
	if status == 0 {
		return nil, syscall.ECONNREFUSED
	}
	return &http.Response{StatusCode: status}, nil
}

func TestCounts(t *testing.T) {
	var counts tally
	for _, e := range []*transport.AttemptEnd{
		attempt("h", transport.AttemptFirst, 200, transport.ReasonFinal),
		attempt("h", transport.AttemptFirst, 503, transport.ReasonRetry),
		attempt("h", transport.AttemptRetry, 0, transport.ReasonMaxAttempts),
		attempt("h", transport.AttemptHedge, 0, transport.ReasonOutrun),
	} {
		counts.attempt(e)
	}
	asked := attempt("h", transport.AttemptRetry, 503, transport.ReasonRetry)
	asked.RetryAfter, asked.Delay = 2*time.Second, 2500*time.Millisecond // with a jitter
	counts.attempt(asked)
	for status, reason := range map[int]transport.Reason{200: transport.ReasonFinal, 404: transport.ReasonFinal, 503: transport.ReasonDeadline, 429: transport.ReasonThrottled, 0: transport.ReasonMaxAttempts} {
		e := transport.RequestEnd{Host: "h", Reason: reason}
		e.Response, e.Err = result(status)
		counts.request(&e)
	}
	counts.request(&transport.RequestEnd{Host: "h", Reason: transport.ReasonCanceled, Err: context.Canceled})
	counts.request(&transport.RequestEnd{Host: "h", Reason: transport.ReasonRateLimit, Waited: time.Second}) // not sent
	counts.body(&transport.BodyEnd{Host: "h", Err: io.ErrUnexpectedEOF})
	counts.body(&transport.BodyEnd{Host: "h", Err: context.Canceled})
	c := counts.all()["h"]
	assert.Equal(t, map[string]uint64{"first": 2, "retry": 2, "hedge": 1}, c.Kinds)
	assert.Equal(t, map[string]uint64{"200": 1, "503": 2, "connection_refused": 2}, c.Outcomes)
	assert.EqualValues(t, 3, c.retries(), "retries")
	assert.EqualValues(t, 5, c.Failed, "failures")
	assert.Equal(t, map[string]times{"retry": {4, 4}, "throttled": {1, 2.5}, "rate_limit": {1, 1}}, c.Waited)
	c.Kinds["first"] = 99 // it is a copy
	assert.EqualValues(t, 2, counts.all()["h"].Kinds["first"])
	counts.attempt(attempt("h", transport.AttemptFirst, 404, transport.ReasonFinal))
}

// Requests that are not sent and bodies that fail have rows as well.
func TestRowsWithoutAnAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, tr := watched(transport.Config{Rule: policy.Rule{Backoff: backoff.Constant(time.Minute)},
			Base: base(func(req *http.Request) (*http.Response, error) {
				if req.Method == http.MethodPost {
					resp, err := status(200)
					resp.ContentLength, resp.Body = 10, io.NopCloser(iotest.ErrReader(syscall.ECONNRESET))
					return resp, err
				}
				return status(503)
			})})
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		for _, method := range []string{"GET", "GET", "POST"} {
			req := testkit.Must(http.NewRequestWithContext(ctx, method, "http://api.test/", nil))(t)
			if resp, err := tr.RoundTrip(req); err == nil {
				_, err = io.ReadAll(resp.Body)
				require.Error(t, err)
			}
			if ctx.Err() != nil && method == "GET" && len(shown(t, d, tr).Recent) == 3 {
				ctx = t.Context()
			}
		}
		var rows []string
		for _, r := range shown(t, d, tr).Recent {
			rows = append(rows, fmt.Sprint(r.Number, r.Kind, " ", r.Outcome, " ", r.Reason))
		}
		assert.Equal(t, []string{"1first 503 retry", "1 canceled canceled", "0 canceled canceled", "0body reset not_resumable"}, rows)
	})
}

// A success that took far longer than the others of its host stands beside the failures.
func TestSlowSuccess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		took := 100 * time.Millisecond
		d, tr := watched(transport.Config{Base: base(func(*http.Request) (*http.Response, error) {
			time.Sleep(took)
			return status(200)
		})})
		get := func(d time.Duration) {
			took = d
			do(t, tr, "GET", "http://api.test/")
		}
		get(time.Second) // the first cannot be slow, because there is nothing to compare it with
		for range 9 {
			get(100 * time.Millisecond)
		}
		get(900 * time.Millisecond)
		assert.Empty(t, shown(t, d, tr).Recent, "as long as 4.7 others")
		get(2 * time.Second)
		s := shown(t, d, tr)
		require.Len(t, s.Recent, 1)
		assert.Equal(t, "200 final true 2", fmt.Sprint(s.Recent[0].Outcome, " ", s.Recent[0].Reason, " ", s.Recent[0].Slow, " ", s.Recent[0].Took))
		h := s.Hosts[0]
		assert.EqualValues(t, 1, h.Slow)
		assert.EqualValues(t, 12, h.Took.N)
		assert.InDelta(t, 4.8, h.Took.Sum, 1e-9)
	})
}

// A success that waited for the program's own limit is slow as well, and so is the first. While requests wait, the page does not
// say that all is well.
func TestSlowForALimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, tr := watched(transport.Config{Rule: policy.Rule{RateLimit: policy.RateLimit{PerSecond: 0.5, Burst: 1}}, Base: base(func(*http.Request) (*http.Response, error) {
			time.Sleep(10 * time.Millisecond)
			return status(200)
		})})
		var all sync.WaitGroup
		for range 4 {
			all.Go(func() { do(t, tr, "GET", "http://api.test/") })
		}
		time.Sleep(time.Second)
		s := shown(t, d, tr)
		assert.Empty(t, s.Recent)
		assert.Equal(t, 3, s.Total.Waiting)
		all.Wait()
		s = shown(t, d, tr)
		var rows []string
		for _, r := range s.Recent {
			rows = append(rows, fmt.Sprint(r.Slow, " ", math.Round(r.Waited), " ", r.Limit))
		}
		assert.Equal(t, []string{"true 2 rate_limit", "true 4 rate_limit", "true 6 rate_limit"}, rows)
		assert.Zero(t, s.Total.Waiting)
		assert.EqualValues(t, 3, s.Hosts[0].Slow)
		assert.InDelta(t, 12, s.Hosts[0].Waited["rate_limit"].Sum, 0.1)
	})
}

// A host that is down has no circuit without a circuit breaker.
func TestDownIsNoCircuit(t *testing.T) {
	d := new(Page)
	waits := attempt("http://a.test", transport.AttemptRetry, 200, transport.ReasonFinal)
	waits.Request, waits.Waited, waits.WaitedFor = &http.Request{}, time.Minute, transport.ReasonCircuitOpen
	d.Trace().AttemptEnd(t.Context(), *waits)
	d.Trace().HostChange(t.Context(), transport.HostChange{Host: "http://a.test", Reason: transport.ReasonCircuitOpen})
	text, err := json.Marshal(struct{ Counts, Recent, Changes any }{d.counts.all(), d.recent.rows, d.recent.changes})
	require.NoError(t, err)
	assert.NotContains(t, string(text), "circuit")
	assert.EqualValues(t, 60, d.counts.all()["http://a.test"].Waited["down"].Sum)
}

// The host without an event for the longest time makes room.
func TestHostsAreBounded(t *testing.T) {
	var counts tally
	for i := range maxCounted + 5 {
		for _, host := range []string{"busy", fmt.Sprint("h", i)} {
			counts.attempt(attempt(host, transport.AttemptFirst, 200, transport.ReasonFinal))
		}
	}
	all := counts.all()
	assert.Len(t, all, maxCounted)
	assert.EqualValues(t, maxCounted+5, all["busy"].Kinds["first"])
	assert.NotContains(t, all, "h0")
	assert.Contains(t, all, fmt.Sprint("h", maxCounted+4))
}

func TestOutcome(t *testing.T) {
	for want, err := range map[string]error{
		"none":               nil,
		"not_sent":           fmt.Errorf("no: %w", transport.ErrNotSent),
		"connection_refused": fmt.Errorf("no: %w", syscall.ECONNREFUSED),
		"_OTHER":             errors.New("no"),
	} {
		assert.Equal(t, want, outcome(nil, err))
	}
	assert.Equal(t, "503", outcome(&http.Response{StatusCode: 503}, nil))
}
