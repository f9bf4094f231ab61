package transport_test

import (
	"context"
	"errors"
	"io"
	"maps"
	"net/http"
	"net/url"
	"os"
	"strings"
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
