// The contract of http.RoundTripper, and what else holds for any base, any rule and anywhere.

package transport_test

import (
	"context"
	"errors"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"net/url"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/aplomb-go/aplomb/classify"
	"github.com/aplomb-go/aplomb/faults"
	"github.com/aplomb-go/aplomb/policy"
	"github.com/aplomb-go/aplomb/policy/backoff"
	"github.com/aplomb-go/aplomb/transport"
)

// configs are the configurations under which the contract must hold.
var configs = map[string]transport.Config{
	"default":         {},
	"no wait":         {Rule: quick},
	"no retries":      {Rule: policy.Rule{MaxAttempts: 1}},
	"attempt timeout": {Rule: policy.Rule{AttemptTimeout: 5 * time.Second, Backoff: backoff.Constant(time.Second)}},
	"limits":          {Rule: policy.Rule{MaxElapsedTime: time.Minute, RateLimit: policy.RateLimit{PerSecond: 100, Burst: 3}}},
	"no buffer":       {Rule: policy.Rule{ReplayBuffer: -1}},
	"custom":          {Rule: policy.Rule{Classify: classify.Refusals, Backoff: backoff.Constant(time.Millisecond)}, Traces: []*transport.Trace{{AttemptEnd: func(context.Context, transport.AttemptEnd) {}}}},
	"host rule":       {Hosts: map[string]policy.Rule{"*.test": quick}},
}

// contract runs f under each configuration, in virtual time.
func contract(t *testing.T, f func(t *testing.T, c transport.Config)) {
	for name, c := range configs {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) { f(t, c) })
		})
	}
}

// "RoundTrip executes a single HTTP transaction, returning a Response for the
// provided Request." — in the end, one response for one request.
func TestContractReturnsTheResponse(t *testing.T) {
	contract(t, func(t *testing.T, c transport.Config) {
		tr := over(t, c, script(status(200)))
		resp := mustRoundTrip(t, tr, newRequest(t, http.MethodGet, "http://h.test/", nil))
		assert.Equal(t, 200, resp.StatusCode)
		assert.Equal(t, "body of OK", mustRead(t, resp))
		assert.NoError(t, resp.Body.Close())
	})
}

// "RoundTrip must return err == nil if it obtained a response, regardless of
// the response's HTTP status code."
func TestContractResponseMeansNoError(t *testing.T) {
	contract(t, func(t *testing.T, c transport.Config) {
		for _, code := range []int{200, 204, 301, 304, 400, 401, 403, 404, 408, 421, 425, 429, 500, 501, 502, 503, 504, 505, 511, 520, 599, 999} {
			resp, err := over(t, c, script(status(code))).RoundTrip(newRequest(t, http.MethodGet, "http://h.test/", nil))
			require.NoError(t, err, code)
			assert.Equal(t, code, resp.StatusCode)
			text, err := io.ReadAll(resp.Body)
			assert.NoError(t, err)
			if code != http.StatusNoContent && code != http.StatusNotModified {
				assert.Equal(t, "body of "+http.StatusText(code), string(text), "its body is unread")
			}
		}
	})
}

// "A non-nil err should be reserved for failure to obtain a response."
func TestContractErrorMeansNoResponse(t *testing.T) {
	contract(t, func(t *testing.T, c transport.Config) {
		for _, err := range []error{syscall.ECONNRESET, io.ErrUnexpectedEOF, errors.New("custom"), context.Canceled} {
			resp, got := over(t, c, script(faults.Fail(err))).RoundTrip(newRequest(t, http.MethodGet, "http://h.test/", nil))
			assert.Nil(t, resp)
			assert.ErrorIs(t, got, err)
		}
	})
}

// "RoundTrip should not attempt to interpret the response", nor redirects,
// authentication or cookies.
func TestContractDoesNotInterpret(t *testing.T) {
	contract(t, func(t *testing.T, c transport.Config) {
		base := script(status(302, "Location: http://elsewhere/", "Set-Cookie: a=b"))
		resp := mustRoundTrip(t, over(t, c, base), newRequest(t, http.MethodGet, "http://h.test/", nil))
		assert.Equal(t, 302, resp.StatusCode)
		base.sent(t, 1)
		assert.Equal(t, "a=b", resp.Header.Get("Set-Cookie"))
	})
}

// "RoundTrip should not modify the request, except for consuming and closing
// the Request's Body."
func TestContractDoesNotModifyTheRequest(t *testing.T) {
	contract(t, func(t *testing.T, c transport.Config) {
		for name, payload := range map[string]func() io.Reader{
			"no body":   func() io.Reader { return nil },
			"GetBody":   func() io.Reader { return strings.NewReader("text") },
			"one shot":  func() io.Reader { return oneShot("text") },
			"seekable":  func() io.Reader { return seekable("text") },
			"http none": func() io.Reader { return http.NoBody },
		} {
			req := newRequest(t, http.MethodPut, "http://user@h.test/path?q=1", payload())
			req.Header.Set("X-Own", "1")
			before, header, u := *req, maps.Clone(req.Header), *req.URL
			base := script(status(503), faults.Fail(syscall.ECONNRESET), status(429, "Retry-After: 1"), status(200))
			_ = closing(over(t, c, base).RoundTrip(req))
			assert.Equal(t, header, req.Header, name)
			assert.Equal(t, u, *req.URL, name)
			assert.Equal(t, before.ContentLength, req.ContentLength, name)
			assert.True(t, before.Body == req.Body, name)
			assert.Equal(t, before.GetBody == nil, req.GetBody == nil, name)
			assert.True(t, before.Context() == req.Context(), name)
			for i, sent := range base.reqs[1:] {
				assert.NotSame(t, req, sent, "resend %d", i+1)
			}
		}
	})
}

// "RoundTrip must always close the body, including on errors", also when
// nothing is sent.
func TestContractClosesTheBody(t *testing.T) {
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	contract(t, func(t *testing.T, c transport.Config) {
		for name, base := range map[string]*origin{
			"success":        script(status(200)),
			"final status":   script(status(404)),
			"retried":        script(status(503), status(200)),
			"all fail":       script(status(503)),
			"errors":         script(faults.Fail(syscall.ECONNRESET)),
			"final error":    script(faults.Fail(errors.New("no"))),
			"over the limit": script(status(503, "Retry-After: 9999")),
		} {
			for _, method := range []string{http.MethodPut, http.MethodPost} {
				one, seek := oneShot("text"), seekable("text")
				for _, b := range []*body{one, &seek.body} {
					var r io.ReadCloser = one
					if b != one {
						r = seek
					}
					req := newRequest(t, method, "http://h.test/", nil)
					req.Body = r
					_ = closing(over(t, c, base).RoundTrip(req))
					synctest.Wait()
					count(t, 1, b.closed(), "body closed", "%s %s", method, name)
				}
			}
		}
		b := oneShot("text")
		req := newRequest(t, http.MethodPut, "http://h.test/", nil).WithContext(ended)
		req.Body = b
		_, err := over(t, c, rt(func(r *http.Request) (*http.Response, error) {
			_ = r.Body.Close()
			return nil, r.Context().Err()
		})).RoundTrip(req)
		assert.ErrorIs(t, err, context.Canceled)
		count(t, 1, b.closed(), "body closed", "context ended before")
	})
}

// "Callers should not mutate or reuse the request until the Response's Body
// has been closed", and "RoundTrip may be called concurrently".
func TestContractConcurrentUse(t *testing.T) {
	contract(t, func(t *testing.T, c transport.Config) {
		var n atomic.Int64
		tr := over(t, c, rt(func(req *http.Request) (*http.Response, error) {
			if req.Body != nil {
				text, _ := io.ReadAll(req.Body)
				_ = req.Body.Close()
				assert.Equal(t, "text", string(text))
			}
			if n.Add(1)%3 == 0 {
				return play(req, status(503))
			}
			return play(req, status(200))
		}))
		together(50, func(i int) {
			var b io.Reader
			switch i % 3 {
			case 0:
				b = oneShot("text")
			case 1:
				b = strings.NewReader("text")
			}
			resp, err := tr.RoundTrip(newRequest(t, http.MethodPut, "http://h.test/", b))
			if assert.NoError(t, err) {
				_ = resp.Body.Close()
			}
		})
	})
}

// "The Request's URL and Header fields must be initialized." A clear error,
// never a panic, and the body closed.
func TestContractBadRequests(t *testing.T) {
	contract(t, func(t *testing.T, c transport.Config) {
		base := script(status(200))
		tr := over(t, c, base)
		_, err := tr.RoundTrip(nil)
		assert.EqualError(t, err, "transport: nil request")
		_, err = tr.RoundTrip(&http.Request{})
		assert.EqualError(t, err, "transport: nil Request.URL")
		b := oneShot("text")
		_, err = tr.RoundTrip(&http.Request{URL: &url.URL{Scheme: "http", Host: "h"}, Body: b})
		assert.EqualError(t, err, "transport: nil Request.Header")
		count(t, 1, b.closed(), "body closed")
		_, err = tr.RoundTrip(&http.Request{Body: b})
		assert.EqualError(t, err, "transport: nil Request.URL")
		count(t, 2, b.closed(), "body closed")

		req := newRequest(t, http.MethodPut, "http://h.test", nil)
		req.Body = (*os.File)(nil)
		_, err = tr.RoundTrip(req)
		assert.EqualError(t, err, "transport: Request.Body is a nil *os.File; leave Body nil for a request without a body")
		req.Body = (*body)(nil)
		_, err = tr.RoundTrip(req)
		assert.ErrorContains(t, err, "is a nil *transport_test.body")
		base.sent(t, 0)
	})
}

// A base transport that breaks the contract costs a clear error.
func TestContractOfTheBase(t *testing.T) {
	contract(t, func(t *testing.T, c transport.Config) {
		_, err := over(t, c, rt(func(*http.Request) (*http.Response, error) { return nil, nil })).
			RoundTrip(newRequest(t, http.MethodGet, "http://h.test", nil))
		assert.ErrorContains(t, err, "neither a response nor an error")

		both := oneShot("")
		resp, err := over(t, c, rt(func(req *http.Request) (*http.Response, error) {
			return newResponse(req, 200, both), errors.New("and an error")
		})).RoundTrip(newRequest(t, http.MethodGet, "http://h.test", nil))
		assert.Nil(t, resp)
		assert.ErrorContains(t, err, "and an error")
		count(t, 1, both.closed(), "body closed")

		for _, code := range []int{200, 503} { // a response without a Body
			resp, err = over(t, c, rt(func(req *http.Request) (*http.Response, error) {
				return &http.Response{StatusCode: code}, nil
			})).RoundTrip(newRequest(t, http.MethodGet, "http://h.test", nil))
			require.NoError(t, err)
			assert.Equal(t, code, resp.StatusCode)
		}
	})
}

// The base transport does not hear of a request whose context has ended.
func TestContractOfAnEndedContext(t *testing.T) {
	contract(t, func(t *testing.T, c transport.Config) {
		over, cancel := context.WithCancelCause(t.Context())
		reason := errors.New("the job is over")
		cancel(reason)
		late, stop := context.WithDeadline(t.Context(), time.Now())
		defer stop()
		for ctx, want := range map[context.Context]error{over: reason, late: context.DeadlineExceeded} {
			for _, method := range []string{http.MethodGet, http.MethodPost} {
				base, text := script(status(200)), oneShot("text")
				c.Base = base
				resp, err := mustNew(t, c).RoundTrip(newRequest(t, method, "http://h.test/", text).WithContext(ctx))
				assert.Nil(t, resp)
				assert.ErrorIs(t, err, ctx.Err())
				assert.ErrorIs(t, err, want)
				_, ours := errors.AsType[*transport.Error](err)
				assert.False(t, ours, "the error of the context is untouched")
				assert.Equal(t, ctx.Err() == context.DeadlineExceeded, os.IsTimeout(err))
				base.sent(t, 0)
				assert.NotZero(t, text.closed(), "its body is closed")
			}
		}
	})
}

// A retry that follows without a wait is not sent for a caller who has gone either.
func TestNoRetryForACallerWhoHasGone(t *testing.T) {
	bubble(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		base := script(status(503), status(200))
		req := newRequest(t, http.MethodPut, "http://h.test/", oneShot("text")).WithContext(ctx)
		req.GetBody = func() (io.ReadCloser, error) {
			cancel() // while the retry is prepared
			return oneShot("text"), nil
		}
		_, err := over(t, transport.Config{Rule: quick}, base).RoundTrip(req)
		assert.ErrorIs(t, err, context.Canceled)
		base.sent(t, 1)
	})
}

// The same holds for a request whose Cancel is closed.
func TestClosedCancelIsSeenAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T) {
		canceled := make(chan struct{})
		close(canceled)
		base := script(status(200))
		req := newRequest(t, http.MethodGet, "http://h.test/", nil)
		//lint:ignore SA1019 old callers still set Request.Cancel
		req.Cancel = canceled
		_, err := over(t, transport.Config{Rule: policy.Rule{Concurrency: policy.Concurrency{Max: 5}}}, base).RoundTrip(req)
		assert.ErrorContains(t, err, "request canceled")
		base.sent(t, 0)
	})
}

// A response's Request is the caller's, as with a plain transport. After several attempts
// it is a copy, whose context has the history as well.
func TestContractResponseRequest(t *testing.T) {
	contract(t, func(t *testing.T, c transport.Config) {
		req := newRequest(t, http.MethodGet, "http://h.test", nil)
		req = req.WithContext(context.WithValue(t.Context(), callersKey{}, "a value"))
		resp, err := over(t, c, script(status(404))).RoundTrip(req)
		require.NoError(t, err)
		assert.Same(t, req, resp.Request)

		resp, err = over(t, c, script(status(503), status(404))).RoundTrip(req)
		require.NoError(t, err)
		assert.Equal(t, "a value", resp.Request.Context().Value(callersKey{}))
		assert.Equal(t, req, resp.Request.WithContext(req.Context()), "all else is the same")
	})
}

type callersKey struct{}

func TestZeroTransportIsAnError(t *testing.T) {
	b := oneShot("text")
	req := newRequest(t, http.MethodPut, "http://h.test", b)
	tr := new(transport.Transport)
	assert.ErrorContains(t, tr.Update(policy.Rule{}, nil), "make one with New or Default")
	_, err := tr.RoundTrip(req)
	assert.ErrorContains(t, err, "make one with New or Default")
	count(t, 1, b.closed(), "body closed")
}

// nethttp runs a test of net/http itself that a Transport above net/http must pass as well. Each has the name that it has there.
// It runs over HTTP/1.1 and HTTP/2, without a Transport, with the default rule, with a
// rule that has limits, and with a Transport around another. No rule waits.
func nethttp(t *testing.T, h http.HandlerFunc, test func(*testing.T, *http.Client, string)) {
	limits := policy.Rule{AttemptTimeout: time.Minute, RateLimit: policy.RateLimit{PerSecond: 1e6}, Concurrency: policy.Concurrency{Max: 50}}
	over := map[string]func(http.RoundTripper) http.RoundTripper{
		"bare": func(base http.RoundTripper) http.RoundTripper { return base },
		"default": func(base http.RoundTripper) http.RoundTripper {
			return mustNew(t, transport.Config{Base: base, Rule: quick})
		},
		"limits": func(base http.RoundTripper) http.RoundTripper {
			return mustNew(t, transport.Config{Base: base, Rule: limits.Or(quick)})
		},
		"nested": func(base http.RoundTripper) http.RoundTripper {
			return mustNew(t, transport.Config{Rule: quick, Base: mustNew(t, transport.Config{Base: base, Rule: quick})})
		},
	}
	for _, proto := range []string{"http1", "http2"} {
		srv := httptest.NewUnstartedServer(h)
		srv.EnableHTTP2 = proto == "http2"
		srv.StartTLS()
		t.Cleanup(srv.Close)
		for name, transportOver := range over {
			t.Run(proto+"/"+name, func(t *testing.T) {
				test(t, &http.Client{Transport: transportOver(srv.Client().Transport)}, srv.URL)
			})
		}
	}
}

func TestClientDoCanceledVsTimeout(t *testing.T) {
	nethttp(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "Hello, World!") }, func(t *testing.T, c *http.Client, url string) {
		for _, want := range []error{context.DeadlineExceeded, context.Canceled} {
			ctx, cancel := context.WithTimeout(t.Context(), -time.Nanosecond)
			if want == context.Canceled {
				ctx, cancel = context.WithCancel(t.Context())
				cancel()
			}
			defer cancel()
			err := doFails(t, c, newRequest(t, http.MethodGet, url, nil).WithContext(ctx))
			assert.Equal(t, want, err.Err)
			assert.Equal(t, want == context.DeadlineExceeded, err.Timeout())
			assert.Equal(t, want == context.DeadlineExceeded, errors.Is(err, context.DeadlineExceeded))
		}
	})
}

func TestClientRedirectsContext(t *testing.T) {
	nethttp(t, func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/", http.StatusTemporaryRedirect) }, func(t *testing.T, c *http.Client, url string) {
		ctx, cancel := context.WithCancel(t.Context())
		c.CheckRedirect = func(req *http.Request, _ []*http.Request) error {
			cancel()
			<-req.Context().Done()
			return nil
		}
		err := doFails(t, c, newRequest(t, http.MethodGet, url, nil).WithContext(ctx))
		assert.Equal(t, context.Canceled, err.Err)
	})
}

func TestTransportCancelRequestBeforeDo(t *testing.T) {
	nethttp(t, func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }, func(t *testing.T, c *http.Client, url string) {
		req := newRequest(t, http.MethodGet, url, nil)
		canceled := make(chan struct{})
		close(canceled)
		//lint:ignore SA1019 old callers still set Request.Cancel
		req.Cancel = canceled
		err := doFails(t, c, req)
		assert.Regexp(t, "^net/http: request canceled( while waiting for connection)?$", err.Err.Error())
		assert.False(t, err.Timeout())
	})
}

// doFails returns the error of a request that fails.
func doFails(t *testing.T, c *http.Client, req *http.Request) *url.Error {
	t.Helper()
	resp, err := c.Do(req)
	require.Error(t, closing(resp, err))
	return errorAs[*url.Error](t, err)
}

func TestH12_HandlerWritesTooLittle(t *testing.T) {
	nethttp(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "3")
		_, _ = io.WriteString(w, "12") // one byte short
	}, func(t *testing.T, c *http.Client, url string) {
		resp, err := c.Get(url)
		require.NoError(t, err)
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		assert.Equal(t, io.ErrUnexpectedEOF, err)
		assert.Equal(t, "12", string(text))
	})
}

func TestTransportGzipShort(t *testing.T) {
	nethttp(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Encoding", "gzip")
		_, _ = w.Write([]byte{0x1f, 0x8b})
	}, func(t *testing.T, c *http.Client, url string) {
		resp, err := c.Get(url)
		require.NoError(t, err)
		defer resp.Body.Close()
		_, err = io.ReadAll(resp.Body)
		assert.Equal(t, io.ErrUnexpectedEOF, err)
	})
}

// A Transport that the tests of a program share is made in a bubble of testing/synctest, and used in
// others and outside. Whatever waits or is timed has its timers and channels from the bubble of its
// request. The times are short, because outside they pass in real time.
func TestTransportInBubblesAndOutside(t *testing.T) {
	const ms = time.Millisecond
	ok, body := faults.Status(200).Body("hello"), faults.Status(200).Header("Etag", `"v1"`).Body("0123456789")
	once := policy.Rule{MaxAttempts: 1, Resume: policy.Off}
	base := policy.Rule{Backoff: backoff.Constant(ms), RetryBudget: policy.RetryBudget{Enabled: policy.Off}}
	for name, row := range map[string]struct {
		rule    policy.Rule
		answers []answer // of each request, by its attempts
		want    error    // nil: each request gets "hello"
		pool    bool     // the host has other pools
		dead    bool     // they find no connection
		many    int      // requests at a time; 0: one
		upload  bool
		limit   time.Duration // Client.Timeout
	}{
		"a quick response":            {rule: policy.Rule{AttemptTimeout: time.Hour, ConnectTimeout: time.Hour, StallTimeout: time.Hour}, answers: []answer{ok}},
		"AttemptTimeout":              {rule: once.Or(policy.Rule{AttemptTimeout: 5 * ms}), answers: []answer{faults.Hang()}, want: policy.ErrAttemptTimeout},
		"the time of a retry":         {rule: policy.Rule{MaxAttempts: 2}, answers: []answer{faults.ConnReset(), ok}},
		"ConnectTimeout":              {rule: once.Or(policy.Rule{ConnectTimeout: 5 * ms}), answers: []answer{seeking}, want: context.DeadlineExceeded},
		"FirstEventTimeout":           {rule: once.Or(policy.Rule{FirstEventTimeout: 5 * ms}), answers: []answer{faults.Status(200).Header("Content-Type", "text/event-stream").Body("data: x\n\n").StallAt(3)}, want: policy.ErrAttemptTimeout},
		"a body that stalls":          {rule: once.Or(policy.Rule{StallTimeout: 5 * ms}), answers: []answer{body.StallAt(4)}, want: policy.ErrStallTimeout},
		"a body that is cut":          {answers: []answer{faults.Status(200).Body("hello").CutAt(2), ok}},
		"an upload":                   {rule: policy.Rule{AttemptTimeout: time.Hour, StallTimeout: time.Hour, ReplayBuffer: 1 << 20}, answers: []answer{faults.Status(503), ok}, upload: true},
		"retries":                     {answers: []answer{faults.ConnReset(), faults.Status(503).RetryAfter(0), ok}},
		"a body to be drained":        {answers: []answer{faults.Status(503).Body("later").Drip(1, ms), ok}},
		"a drain that hangs":          {answers: []answer{faults.Status(503).Body("later").StallAt(2), ok}},
		"a hedge":                     {rule: policy.Rule{Hedge: policy.Hedge{Delay: ms}}, answers: []answer{faults.Hang(), ok}},
		"a rate":                      {rule: policy.Rule{RateLimit: policy.RateLimit{PerSecond: 500, Burst: 1}}, answers: []answer{ok}, many: 3},
		"a limiter":                   {rule: policy.Rule{Concurrency: policy.Concurrency{Max: 1}}, answers: []answer{ok.Delay(ms)}, many: 3},
		"a limiter and a rate":        {rule: policy.Rule{Concurrency: policy.Concurrency{Max: 1}, RateLimit: policy.RateLimit{PerSecond: 500, Burst: 1}}, answers: []answer{ok.Delay(ms)}, many: 3},
		"a quota":                     {rule: policy.Rule{QuotaPacing: policy.On}, answers: []answer{ok.Header("X-RateLimit-Limit", "2").Header("X-RateLimit-Remaining", "0").Header("X-RateLimit-Reset", "0")}, many: 3},
		"a hold":                      {rule: policy.Rule{ShareRetryAfter: policy.On}, answers: []answer{faults.Status(429).RetryAfter(0), ok}, many: 3},
		"a Timeout of a client":       {answers: []answer{faults.Hang()}, limit: 5 * ms, want: context.DeadlineExceeded},
		"other pools":                 {rule: policy.Rule{AttemptTimeout: 5 * ms}, answers: []answer{faults.ConnReset(), faults.ConnReset(), ok}, pool: true, many: 3},
		"a pool without a connection": {answers: []answer{faults.ConnReset(), faults.ConnReset(), ok}, pool: true, dead: true},
	} {
		t.Run(name, func(t *testing.T) {
			server := rt(func(req *http.Request) (*http.Response, error) {
				defer func() { _, _ = readAndClose(req.Body) }()
				if count, ok := req.Context().Value(attemptsKey{}).(*attemptCount); ok {
					return play(req, row.answers[min(count.next(), len(row.answers)-1)])
				}
				return play(req, ok)
			})
			var tr *transport.Transport
			use := func(t *testing.T) {
				if tr == nil {
					config := transport.Config{Base: server, Rule: row.rule.Or(base)}
					if row.pool {
						config.NewPool = func(string) http.RoundTripper { return server }
					}
					if row.dead {
						config.NewPool = func(string) http.RoundTripper { return rt(unconnected) }
					}
					tr = mustNew(t, config)
				}
				client := &http.Client{Transport: tr, Timeout: row.limit}
				var all sync.WaitGroup
				for range 2 {
					for range max(row.many, 1) {
						all.Go(func() {
							req := getRequest(t, "http://h.test/").WithContext(context.WithValue(t.Context(), attemptsKey{}, new(attemptCount)))
							if row.upload {
								req.Method, req.Body = http.MethodPut, reader(strings.NewReader("news"))
							}
							got, err := readResponse(client.Do(req))
							if row.want != nil {
								assert.ErrorIs(t, err, row.want)
							} else if assert.NoError(t, err) {
								assert.Equal(t, "hello", got)
							}
						})
					}
					all.Wait()
				}
				got, err := readResponse(client.Do(getRequest(t, "http://h.test/"))) // ends before its timers fire
				assert.NoError(t, err)
				assert.Equal(t, "hello", got)
			}
			bubble(t, use)
			bubble(t, use)
			use(t)
			if row.rule.RateLimit == (policy.RateLimit{}) { // it counts from a time that is years ahead
				bubble(t, use)
			}
		})
	}
}

// seeking is a base that finds no connection.
func seeking(req *http.Request) (*http.Response, error) {
	httptrace.ContextClientTrace(req.Context()).GetConn("h.test:80")
	<-req.Context().Done()
	return nil, context.Cause(req.Context())
}

// unconnected is a base whose dials fail.
func unconnected(req *http.Request) (*http.Response, error) {
	httptrace.ContextClientTrace(req.Context()).GetConn("h.test:80")
	return nil, errRefused
}

type attemptsKey struct{}

// An attemptCount counts the attempts of a request.
type attemptCount struct {
	mu sync.Mutex
	n  int
}

func (c *attemptCount) next() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.n++
	return c.n - 1
}

func readAndClose(body io.ReadCloser) ([]byte, error) {
	if body == nil {
		return nil, nil
	}
	got, err := io.ReadAll(body)
	return got, errors.Join(err, body.Close())
}

func readResponse(resp *http.Response, err error) (string, error) {
	if err != nil {
		return "", err
	}
	got, err := readAndClose(resp.Body)
	return string(got), err
}
