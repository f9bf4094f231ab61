package failover_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/aplomb-go/aplomb/failover"
	"github.com/aplomb-go/aplomb/internal/testkit"
	"github.com/aplomb-go/aplomb/policy"
	"github.com/aplomb-go/aplomb/policy/backoff"
	"github.com/aplomb-go/aplomb/policy/profile"
	"github.com/aplomb-go/aplomb/transport"
)

// All faults come at once, with field and value.
func TestNew(t *testing.T) {
	_, err := failover.New()
	assert.EqualError(t, err, "endpoints: are none")

	_, err = failover.New(
		failover.Endpoint{URL: "https://a.test", Transport: (*http.Transport)(nil), Timeout: 5},
		failover.Endpoint{URL: "http://b.test", Transport: http.DefaultTransport, Timeout: math.MaxInt64 - 1},
		failover.Endpoint{URL: "ftp://c.test"},
		failover.Endpoint{URL: "https://user:secret@d.test/x?a=b#c", Transport: rt(nil)},
		failover.Endpoint{URL: "https://e.test?key=secret", Transport: http.DefaultTransport},
		failover.Endpoint{URL: "https://f.test#secret", Transport: http.DefaultTransport},
		failover.Endpoint{URL: "https://", Transport: http.DefaultTransport},
		failover.Endpoint{URL: "https://h.test/ secret", Transport: http.DefaultTransport},
	)
	require.ErrorAs(t, err, new(*policy.FieldError))
	all := strings.Split(err.Error(), "\n")
	assert.Equal(t, []string{
		"endpoints[0].Transport: (*http.Transport)(nil) is nil",
		"endpoints[0].Timeout: 5ns is less than a microsecond; did you mean 5s (5 * time.Second)?",
		"endpoints[1].URL: \"http://b.test\" is not https, as that of the first endpoint is",
		"endpoints[1].Timeout: 2562047h47m16.854775806s is more than ten years; was it multiplied by its unit twice?",
		"endpoints[2].URL: \"ftp://c.test\" does not begin with http:// or https://",
		"endpoints[2].Transport: is nil",
		"endpoints[3].URL: \"https://d.test/x\" has a user, a query or a fragment",
		"endpoints[3].Transport: (failover_test.rt)(nil) is nil",
		"endpoints[4].URL: \"https://e.test\" has a user, a query or a fragment",
		"endpoints[5].URL: \"https://f.test\" has a user, a query or a fragment",
		"endpoints[6].URL: \"https:\" has no host",
		"endpoints[7].URL: \"xxxxx\" is not a URL",
	}, all)

	_, err = (&failover.Transport{}).RoundTrip(newRequest(t, http.MethodGet, "http://a.test", nil))
	assert.EqualError(t, err, "failover: a zero Transport; make one with New")
}

// The endpoints of a caller's slice may change after New.
func TestNewCopies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, _ := two(t, refuses, nil)
		all := []failover.Endpoint{{URL: "http://a.test", Transport: r}, {URL: "http://b.test", Transport: r, Allow: []string{"Range"}}}
		tr := mustNew(t, all...)
		all[1].URL, all[1].Allow[0] = "http://c.test", "Other"
		req := newRequest(t, http.MethodGet, "http://a.test/", nil)
		req.Header.Set("Range", "bytes=5-")
		assert.Equal(t, "200 b.test", ask(tr, req))
	})
}

// What happened at the first endpoint says whether the request goes to the next.
func TestGoesOn(t *testing.T) {
	const get, put, post, del = http.MethodGet, http.MethodPut, http.MethodPost, http.MethodDelete
	for _, row := range []struct {
		method string
		a      http.RoundTripper
		ctx    func(context.Context) context.Context
		want   string
	}{
		{method: get, a: refuses, want: "200 b.test"},
		{method: get, a: resets, want: "200 b.test"},
		{method: get, a: hangs, want: "200 b.test"},
		{method: get, a: status(500), want: "200 b.test"},
		{method: get, a: status(503), want: "200 b.test"},
		{method: get, a: fail(&net.DNSError{Err: "no such host", IsNotFound: true}), want: "200 b.test"},
		{method: get, a: fail(errors.New("unknown")), want: "200 b.test"},
		{method: get, a: fail(errors.New(`net/http: invalid header field name "a b"`)), want: `net/http: invalid header field name "a b"`},
		{method: get, a: status(200), want: "200 a.test"},
		{method: get, a: status(404), want: "404 a.test"},
		{method: get, a: status(429), want: "429 a.test"},
		{method: get, a: status(501), want: "501 a.test"},
		{method: get, a: status(503), ctx: transport.WithoutRetries, want: "503 a.test"},
		{method: put, a: status(503), want: "200 b.test"},
		{method: del, a: resets, want: "200 b.test"},
		{method: post, a: refuses, want: "200 b.test"},
		{method: post, a: status(503), want: "503 a.test"},
		{method: post, a: resets, want: "connection reset by peer"},
		{method: post, a: resets, ctx: transport.WithIdempotent, want: "200 b.test"},
		{method: post, a: refuses, ctx: transport.WithoutRetries, want: "connection refused"},
	} {
		synctest.Test(t, func(t *testing.T) {
			r, tr := two(t, row.a, nil)
			req := newRequest(t, row.method, "http://a.test/x", strings.NewReader("body"))
			if row.method == get {
				req = newRequest(t, row.method, "http://a.test/x", nil)
			}
			if row.ctx != nil {
				req = req.WithContext(row.ctx(req.Context()))
			}
			assert.Contains(t, ask(tr, req), row.want, "%+v", row)
			for _, a := range append(r.at("a.test", 0), r.at("b.test", 0)...) {
				if row.method != get {
					assert.Equal(t, "body", a.body, "%+v", row)
				}
			}
		})
	}
}

// Each attempt of a Transport of ours counts. Its limits may refuse to send a request at all.
func TestGoesOnFromOurs(t *testing.T) {
	for name, row := range map[string]struct {
		rule policy.Rule
		a    http.RoundTripper
		want string
	}{
		"refused":           {policy.Rule{}, refuses, "200 b.test"},
		"503":               {profile.API(), status(503), "503 a.test"},
		"503 that waits":    {profile.API(), status(503, "Retry-After: 60"), "200 b.test"},
		"first lost":        {policy.Rule{IdempotencyKey: policy.UUIDKey}, sequence(resets, refuses), "connection refused"},
		"all refused":       {policy.Rule{IdempotencyKey: policy.UUIDKey}, sequence(refuses, refuses), "200 b.test"},
		"idempotent":        {policy.Rule{Idempotent: func(*http.Request) bool { return true }}, resets, "200 b.test"},
		"timed, idempotent": {policy.Rule{Idempotent: func(*http.Request) bool { return true }, AttemptTimeout: time.Minute}, hangs, "200 b.test"},
	} {
		bubble(t, name, func(t *testing.T) {
			r := newRegions()
			r.set("a.test", row.a)
			rule := row.rule
			rule.MaxAttempts, rule.Backoff = 2, backoff.Constant(time.Second)
			ours := transport.MustNew(transport.Config{Base: r, Rule: rule})
			tr := pair(t, ours, ours)
			assert.Contains(t, ask(tr, newRequest(t, http.MethodPost, "http://a.test/x", strings.NewReader("body"))), row.want)
		})
	}
}

// sequence answers in turn, and repeats the last answer for ever.
func sequence(answers ...http.RoundTripper) http.RoundTripper {
	var n atomic.Int32
	return rt(func(req *http.Request) (*http.Response, error) {
		return answers[min(int(n.Add(1)), len(answers))-1].RoundTrip(req)
	})
}

// The rest of the URL follows the URL of the endpoint. What is escaped stays escaped.
func TestURLs(t *testing.T) {
	for _, row := range [][4]string{ // two bases, a URL, and where it goes
		{"http://a.test", "http://b.test", "http://a.test/x/y?q=1", "http://b.test/x/y?q=1"},
		{"http://a.test/", "http://b.test/", "http://a.test/x", "http://b.test/x"},
		{"http://a.test", "http://b.test/pub", "http://a.test", "http://b.test/pub"},
		{"http://a.test", "http://b.test/pub/", "http://a.test/x/", "http://b.test/pub/x/"},
		{"http://a.test/v1", "http://b.test/api/v1", "http://a.test/v1/x?q=1", "http://b.test/api/v1/x?q=1"},
		{"http://a.test/v1/", "http://b.test", "http://a.test/v1", "http://b.test"},
		{"http://a.test", "http://b.test/a%2Fb/", "http://a.test/x", "http://b.test/a%2Fb/x"},
		{"http://a.test/p%2Fq", "http://b.test", "http://a.test/p%2Fq/x%2Fy%20z?a=b%20c&d", "http://b.test/x%2Fy%20z?a=b%20c&d"},
		{"http://A.test:80", "http://b.test:8443/pub", "http://a.test//x", "http://b.test:8443/pub//x"},
		{"http://a.test", "https://[::1]:8443", "http://a.test:80/%e4", "https://[::1]:8443/%e4"},
		// URLs of no endpoint go to the first RoundTripper as they are, and nowhere else.
		{"http://a.test/v1", "http://b.test", "http://a.test/v10/x", "http://a.test/v10/x"},
		{"http://a.test/v1", "http://b.test", "http://a.test/x", "http://a.test/x"},
		{"http://a.test/p%2Fq", "http://b.test", "http://a.test/p/q/x", "http://a.test/p/q/x"},
		{"http://a.test", "http://b.test", "http://c.test/x", "http://c.test/x"},
		{"http://a.test", "http://b.test", "https://a.test/x", "https://a.test/x"},
		{"http://a.test", "http://b.test", "http://a.test:8080/x", "http://a.test:8080/x"},
	} {
		synctest.Test(t, func(t *testing.T) {
			var last string
			base := rt(func(req *http.Request) (*http.Response, error) {
				last = req.URL.String()
				assert.Contains(t, []string{"", req.URL.Host}, req.Host)
				return nil, syscall.ECONNREFUSED
			})
			tr := mustNew(t, failover.Endpoint{URL: row[0], Transport: base}, failover.Endpoint{URL: row[1], Transport: base, Allow: []string{"q", "a", "d"}})
			req := newRequest(t, http.MethodGet, row[2], nil)
			_, err := tr.RoundTrip(req)
			assert.Error(t, err)
			assert.Equal(t, row[3], last)
			assert.Equal(t, row[2], req.URL.String(), "the request's own URL stays")
		})
	}
}

// A request for another URL is not changed, and neither is one that goes to the last endpoint that it
// may go to.
func TestUnchanged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var got *http.Request
		base := rt(func(req *http.Request) (*http.Response, error) {
			got = req
			return status(200).RoundTrip(req)
		})
		tr := pair(t, base, base)
		for _, url := range []string{"http://c.test/", "http://a.test/?token=x"} {
			req := newRequest(t, http.MethodGet, url, nil)
			_, err := do(tr, req)
			assert.NoError(t, err)
			assert.Same(t, req, got)
		}
	})
}

// What no server could get goes to the first RoundTripper, which says so.
func TestWrongRequests(t *testing.T) {
	ours := transport.MustNew(transport.Config{})
	tr := pair(t, ours, ours)
	req := newRequest(t, http.MethodPost, "http://a.test", nil)
	noURL, noHeader, nilBody := *req, *req, *req
	noURL.URL, noHeader.Header, nilBody.Body = nil, nil, (*closer)(nil)
	for want, req := range map[string]*http.Request{"nil request": nil, "nil Request.URL": &noURL, "nil Request.Header": &noHeader, "Request.Body is a nil": &nilBody} {
		_, err := tr.RoundTrip(req)
		assert.ErrorContains(t, err, want)
	}
}

// If the next endpoint fails as well, or answers that it does not have the resource, the client or the
// method, the caller gets the outcome of the first, whose body is unread.
func TestFirstOutcome(t *testing.T) {
	for _, b := range []http.RoundTripper{
		refuses, hangs, status(500), status(503),
		status(401), status(403), status(404), status(405), status(410), status(501),
	} {
		for want, a := range map[string]http.RoundTripper{"503 a.test": status(503), "connection refused": refuses} {
			synctest.Test(t, func(t *testing.T) {
				r, _ := two(t, a, b)
				ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
				defer cancel()
				tr := mustNew(t, endpoint("a.test", r), endpoint("b.test", r),
					endpoint("c.test", fail(syscall.ECONNREFUSED)))
				assert.Contains(t, ask(tr, newRequest(t, http.MethodGet, "http://a.test/", nil).WithContext(ctx)), want)
				assert.Len(t, r.at("b.test", 0), 1)
			})
		}
	}
	for _, code := range []int{200, 302, 400, 409, 429} { // these are answers
		synctest.Test(t, func(t *testing.T) {
			_, tr := two(t, refuses, status(code))
			assert.Equal(t, fmt.Sprint(code, " b.test"), get(t, tr, "http://a.test/"))
		})
	}
}

// An endpoint that may have acted on a request that must not be acted on twice has the last word. The
// refusal of the first would say that nobody has acted.
func TestWhoMayHaveActedHasTheLastWord(t *testing.T) {
	for want, b := range map[string]http.RoundTripper{"connection reset": resets, "500 b.test": status(500)} {
		synctest.Test(t, func(t *testing.T) {
			r, _ := two(t, refuses, b)
			tr := r.transport(t, "a.test", "b.test", "c.test")
			assert.Contains(t, ask(tr, newRequest(t, http.MethodPost, "http://a.test/", nil)), want)
			assert.Empty(t, r.at("c.test", 0))
		})
	}
}

// A response that nobody gets is read to its end and closed, within bounds. That of the first endpoint
// stays open until another one has the answer. A body that net/http decompresses may end with its context only.
func TestDiscards(t *testing.T) {
	zipped := func() *closer { return &closer{lock: make(chan struct{}, 1)} }
	for name, row := range map[string]struct {
		body          func() *closer
		took, timeout time.Duration
	}{
		"small":                   {body: func() *closer { return &closer{Reader: strings.NewReader("error page")} }},
		"endless":                 {body: func() *closer { return &closer{Reader: zeros{}} }},
		"stalled":                 {body: newStalled, took: 10 * time.Millisecond},
		"panics":                  {body: func() *closer { c := newStalled(); c.bad = "close"; return c }, took: 10 * time.Millisecond},
		"gzipped":                 {body: zipped, took: 10 * time.Millisecond},
		"gzipped, without a span": {body: zipped, timeout: policy.Off},
		"no reader":               {},
	} {
		bubble(t, name, func(t *testing.T) {
			var body *closer
			closedAtB := false
			a := rt(func(req *http.Request) (*http.Response, error) {
				resp := &http.Response{StatusCode: 503, Header: http.Header{}, Request: req}
				if row.body != nil {
					body = row.body()
					resp.Body = body
				}
				if body != nil && body.lock != nil {
					resp.Uncompressed = true
					body.Reader = readerFunc(func([]byte) (int, error) { <-req.Context().Done(); return 0, io.EOF })
				}
				return resp, nil
			})
			b := rt(func(req *http.Request) (*http.Response, error) {
				closedAtB = body != nil && body.closed.Load()
				return status(200).RoundTrip(req)
			})
			tr := mustNew(t, failover.Endpoint{URL: "http://a.test", Transport: a, Timeout: row.timeout}, endpoint("b.test", b))
			start := time.Now()
			assert.Equal(t, "200 b.test", get(t, tr, "http://a.test/"))
			assert.Equal(t, row.took, time.Since(start))
			assert.False(t, closedAtB)
			if synctest.Wait(); body != nil {
				assert.True(t, body.closed.Load())
				assert.LessOrEqual(t, body.read.Load(), int64(80<<10))
			}
		})
	}
}

// A closer is a body that knows what was done with it.
type closer struct {
	io.Reader
	wake   chan struct{} // is closed by Close; nil: nobody waits
	lock   chan struct{} // Close waits for a Read; nil: it does not
	bad    any           // Close panics with it; nil: it does not
	read   atomic.Int64
	closed atomic.Bool
}

func (c *closer) Read(p []byte) (int, error) {
	if c.lock != nil {
		c.lock <- struct{}{}
		defer func() { <-c.lock }()
	}
	n, err := c.Reader.Read(p)
	c.read.Add(int64(n))
	return n, err
}

func (c *closer) Close() error {
	if c.lock != nil {
		c.lock <- struct{}{}
		defer func() { <-c.lock }()
	}
	if !c.closed.Swap(true) && c.wake != nil {
		close(c.wake)
	}
	if c.bad != nil {
		panic(c.bad)
	}
	return nil
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { return len(p), nil }

// newStalled returns a body whose Read ends with its Close.
func newStalled() *closer {
	c := &closer{wake: make(chan struct{})}
	c.Reader = readerFunc(func([]byte) (int, error) { <-c.wake; return 0, io.ErrUnexpectedEOF })
	return c
}

type readerFunc func(p []byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

// So is a response of the next endpoint that nobody gets.
func TestDiscardsTheNext(t *testing.T) {
	for _, code := range []int{404, 503} {
		for _, down := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				r, tr := two(t, refuses, nil)
				if down {
					takeDown(t, tr)
				}
				body := &closer{Reader: strings.NewReader("page")}
				r.set("b.test", with(code, body))
				get(t, tr, "http://a.test/")
				assert.True(t, body.closed.Load())
				assert.Equal(t, int64(4), body.read.Load())
			})
		}
	}
}

// The caller sees where a response comes from. Its Location means the same as at that endpoint, and its
// cookies are not those of the first.
func TestResponseOfAnotherEndpoint(t *testing.T) {
	for name, row := range map[string]struct {
		b        string
		cookies  bool
		location string
	}{
		"another host": {"http://b.test/pub", false, "http://b.test/pub/done"},
		"another path": {"http://a.test/pub", true, "http://a.test/pub/done"},
		"another port": {"http://a.test:8080", false, "http://a.test:8080/done"},
	} {
		bubble(t, name, func(t *testing.T) {
			own := http.Header{"Location": {"done"}, "Set-Cookie": {"a=b"}, "X-Other": {"x"}}
			base := rt(func(req *http.Request) (*http.Response, error) {
				if !strings.HasPrefix(req.URL.String(), row.b) {
					return nil, syscall.ECONNREFUSED
				}
				resp, err := status(302).RoundTrip(req)
				resp.Header = own
				return resp, err
			})
			tr := mustNew(t, endpoint("a.test", base), failover.Endpoint{URL: row.b, Transport: base})
			resp := testkit.Must(tr.RoundTrip(newRequest(t, http.MethodGet, "http://a.test/x", nil)))(t)
			_ = resp.Body.Close()
			assert.Equal(t, row.b+"/x", resp.Request.URL.String())
			assert.Equal(t, row.location, resp.Header.Get("Location"))
			assert.Equal(t, row.cookies, resp.Header.Get("Set-Cookie") != "")
			assert.Equal(t, "x", resp.Header.Get("X-Other"))
			assert.Len(t, own, 3, "the base may keep its own header")
		})
	}
	bubble(t, "of the first", func(t *testing.T) {
		_, tr := two(t, status(302, "Location: done", "Set-Cookie: a=b"), nil)
		req := newRequest(t, http.MethodGet, "http://a.test/x", nil)
		resp := testkit.Must(tr.RoundTrip(req))(t)
		_ = resp.Body.Close()
		assert.Equal(t, http.Header{"Location": {"done"}, "Set-Cookie": {"a=b"}}, resp.Header)
		assert.Same(t, req, resp.Request)
	})
}

// HistoryOf and Explain tell of the endpoint whose outcome it is.
func TestHistory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRegions()
		ours := transport.MustNew(transport.Config{Base: r, Rule: policy.Rule{MaxAttempts: 2, Backoff: backoff.Constant(time.Second)}})
		tr := pair(t, ours, ours)
		r.set("a.test", refuses)
		r.set("b.test", sequence(status(503), status(200)))
		resp := testkit.Must(tr.RoundTrip(newRequest(t, http.MethodGet, "http://a.test/x", nil)))(t)
		_ = resp.Body.Close()
		assert.Len(t, transport.HistoryOf(resp, nil).Attempts, 2, "attempts")
		text := transport.Explain(resp, nil)
		assert.True(t, strings.HasPrefix(text, "GET http://b.test/x\n  attempt 1"), text)

		r.set("a.test", status(503))
		r.set("b.test", status(404))
		resp = testkit.Must(tr.RoundTrip(newRequest(t, http.MethodGet, "http://a.test/x", nil)))(t)
		_ = resp.Body.Close()
		assert.Equal(t, transport.ReasonMaxAttempts, transport.HistoryOf(resp, nil).Reason)
		assert.True(t, strings.HasPrefix(transport.Explain(resp, nil), "GET http://a.test/x\n"))

		r.set("a.test", hangs)
		r.set("b.test", hangs)
		ctx, cancel := context.WithTimeout(t.Context(), 4*time.Second)
		defer cancel()
		_, err := tr.RoundTrip(newRequest(t, http.MethodGet, "http://a.test/x", nil).WithContext(ctx))
		assert.ErrorIs(t, err, context.DeadlineExceeded)
		assert.NotEmpty(t, transport.Explain(nil, err))
	})
}

// CloseIdleConnections reaches each RoundTripper once, whatever type it has.
func TestCloseIdleConnections(t *testing.T) {
	a, b, n := &idler{}, &idler{}, 0
	f := idlerFunc(func() { n++ })
	tr := mustNew(t,
		endpoint("a.test", a), endpoint("b.test", b),
		endpoint("c.test", a), endpoint("d.test", f),
		endpoint("e.test", f), failover.Endpoint{URL: "http://f.test", Transport: rt(a.RoundTrip)},
	)
	tr.CloseIdleConnections()
	assert.Equal(t, []int{1, 1, 2}, []int{a.n, b.n, n}, "functions can't be compared")
}

type idler struct {
	http.Transport
	n int
}

func (i *idler) CloseIdleConnections() { i.n++ }

type idlerFunc func()

func (f idlerFunc) CloseIdleConnections()                         { f() }
func (idlerFunc) RoundTrip(*http.Request) (*http.Response, error) { return nil, io.EOF }

// A RoundTripper that panics or breaks its contract leaves nothing behind.
func TestBrokenRoundTripper(t *testing.T) {
	bubble(t, "panics", func(t *testing.T) {
		r, tr := two(t, refuses, nil)
		gets(t, tr, 5, "200 b.test")
		time.Sleep(2 * time.Second)
		for _, base := range []http.RoundTripper{rt(func(*http.Request) (*http.Response, error) { panic("base") }), fail(badError{})} {
			r.set("a.test", base)
			for range 2 { // the probe that panics is over
				assert.PanicsWithValue(t, "base", func() { get(t, tr, "http://a.test/") })
			}
		}
	})
	bubble(t, "both", func(t *testing.T) {
		body := &closer{Reader: strings.NewReader("x")}
		_, tr := two(t, rt(func(req *http.Request) (*http.Response, error) {
			resp, _ := status(503).RoundTrip(req)
			resp.Body = body
			return resp, syscall.ECONNREFUSED
		}), nil)
		assert.Equal(t, "200 b.test", get(t, tr, "http://a.test/"))
		assert.True(t, body.closed.Load())
	})
	bubble(t, "neither", func(t *testing.T) {
		_, tr := two(t, rt(func(*http.Request) (*http.Response, error) { return nil, nil }), nil)
		_, err := (&http.Client{Transport: tr}).Do(newRequest(t, http.MethodGet, "http://a.test/", nil))
		assert.ErrorContains(t, err, "nil *Response with a nil error")
	})
}

// A badError cannot say whether it is a timeout.
type badError struct{}

func (badError) Error() string   { return "bad" }
func (badError) Timeout() bool   { panic("base") }
func (badError) Temporary() bool { return true }

// Many requests at once, some of whose callers leave, over endpoints that come and go.
func TestConcurrently(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRegions()
		ours := transport.MustNew(transport.Config{Base: r, Rule: policy.Rule{MaxAttempts: 2, Backoff: backoff.Constant(10 * time.Millisecond)}})
		tr := mustNew(t, failover.Endpoint{URL: "http://a.test", Transport: ours, Timeout: 50 * time.Millisecond},
			failover.Endpoint{URL: "http://b.test", Transport: r, Timeout: 50 * time.Millisecond}, endpoint("c.test", ours))
		var all sync.WaitGroup
		for i := range 50 {
			all.Go(func() {
				for j := range 20 {
					ctx, cancel := context.WithTimeout(t.Context(), time.Duration(20+i*5)*time.Millisecond)
					resp, err := tr.RoundTrip(newRequest(t, http.MethodPut, "http://a.test/", strings.NewReader("body")).WithContext(ctx))
					if err == nil {
						go cancel()
						_, _ = io.Copy(io.Discard, resp.Body)
						_ = resp.Body.Close()
					}
					cancel()
					r.set([]string{"a.test", "b.test"}[i%2], []http.RoundTripper{nil, hangs, refuses, status(503)}[(i+j)%4])
				}
			})
		}
		all.Wait()
	})
}
