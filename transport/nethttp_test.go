// Tests of net/http itself that a Transport above net/http must pass as well, over the same
// servers. Each has the name that it has there.

package transport_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/aplomb-go/aplomb/policy"
	"github.com/aplomb-go/aplomb/transport"
)

// nethttp runs a test over HTTP/1.1 and HTTP/2, without a Transport, with the default rule, with a
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
