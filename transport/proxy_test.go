// A proxy that responds to a request instead of the server.

package transport_test

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/aplomb-go/aplomb/internal/testserver"
	"github.com/aplomb-go/aplomb/policy"
	"github.com/aplomb-go/aplomb/policy/backoff"
	"github.com/aplomb-go/aplomb/transport"
)

// A response of a proxy does not come from the server. Any method is sent again, because
// nothing of the request has left. Over a base around net/http, which may make such an
// error of a server's response, only an idempotent request is.
func TestProxyRefusesConnect(t *testing.T) {
	for _, row := range []struct {
		code     int
		method   string
		base     string
		attempts int
	}{
		{503, http.MethodGet, "default", 3}, {503, http.MethodPost, "default", 3},
		{429, http.MethodPost, "default", 3}, {502, http.MethodPost, "default", 3},
		{407, http.MethodGet, "default", 1}, {403, http.MethodGet, "default", 1}, {501, http.MethodGet, "default", 1},
		{503, http.MethodGet, "user's", 3}, {504, http.MethodGet, "user's", 3},
		{503, http.MethodPost, "user's", 3}, {502, http.MethodPost, "user's", 3}, {429, http.MethodPost, "user's", 3},
		{408, http.MethodPost, "user's", 3}, {500, http.MethodPost, "user's", 3},
		{407, http.MethodGet, "user's", 1}, {407, http.MethodPost, "user's", 1}, {403, http.MethodPost, "user's", 1},
		{503, http.MethodGet, "wrapped", 3}, {503, http.MethodPost, "wrapped", 1},
	} {
		t.Run(fmt.Sprint(row.code, " ", row.method, " base: ", row.base), func(t *testing.T) {
			var attempts atomic.Int32
			proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				attempts.Add(1)
				w.WriteHeader(row.code)
			}))
			defer proxy.Close()
			u, err := url.Parse(proxy.URL)
			require.NoError(t, err)
			own := &http.Transport{}
			if row.base == "default" {
				own = transport.NewBase()
			}
			own.Proxy = http.ProxyURL(u)
			var base http.RoundTripper = own
			if row.base == "wrapped" {
				base = rt(own.RoundTrip)
			}
			tr := mustNew(t, transport.Config{Base: base, Rule: policy.Rule{MaxAttempts: 3, Backoff: backoff.Constant(0)}})
			req := newRequest(t, row.method, "https://host.invalid/", strings.NewReader("text"))
			_, err = tr.RoundTrip(req)
			require.Error(t, err)
			count(t, row.attempts, attempts.Load(), "CONNECT sent", err)
			assert.ErrorContains(t, err, http.StatusText(row.code))
		})
	}
}

// An error that only looks like that of a proxy does not make a POST safe.
func TestNoProxyRefused(t *testing.T) {
	text := errors.New("Bad Gateway")
	proxied := &http.Transport{Proxy: http.ProxyFromEnvironment}
	for _, row := range []struct {
		name string
		base http.RoundTripper
		url  string
		err  error
		want bool
	}{
		{"the error of a proxy", proxied, "https://h.test/", text, true},
		{"a final error of a proxy", proxied, "https://h.test/", errors.New("Forbidden"), false},
		{"an error that wraps the error of a proxy", proxied, "https://h.test/", fmt.Errorf("net/http: HTTP/1.x transport connection broken: %w", text), false},
		{"the error of a proxy among several", proxied, "https://h.test/", errors.Join(text), false},
		{"a reset", proxied, "https://h.test/", syscall.ECONNRESET, false},
		{"a proxy for plain HTTP", proxied, "http://h.test/", text, false},
		{"a base without a proxy", &http.Transport{}, "https://h.test/", text, false},
		{"a base around net/http", rt(proxied.RoundTrip), "https://h.test/", text, false},
	} {
		req := newRequest(t, http.MethodPost, row.url, nil)
		assert.Equal(t, row.want, over(t, transport.Config{}, row.base).RefusedByProxy(req, row.err), row.name)
	}
}

// A request waits as long as a proxy asks it to.
func TestProxyAsksToWait(t *testing.T) {
	bubble(t, func(t *testing.T) {
		proxy := testserver.Start(t, testserver.Config{Net: testserver.NewNet()}, testserver.Status(503).Header("Retry-After", "20"))
		u, err := url.Parse(proxy.URL)
		require.NoError(t, err)
		base := transport.NewBase()
		base.DialContext, base.Proxy = proxy.Transport().DialContext, http.ProxyURL(u)
		tr := over(t, transport.Config{Rule: policy.Rule{MaxAttempts: 2}.Or(quick)}, base)
		_, err = tr.RoundTrip(newRequest(t, http.MethodPost, "https://host.invalid/", nil))
		require.Error(t, err)
		log := proxy.Log()
		require.Len(t, log, 2)
		assert.GreaterOrEqual(t, log[1].Time.Sub(log[0].Time), 20*time.Second)
		tr.CloseIdleConnections()
	})
}
