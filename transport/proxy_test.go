// A proxy that responds to a request instead of the server.

package transport

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/aplomb-go/aplomb/internal/testserver"
	"github.com/aplomb-go/aplomb/policy"
	"github.com/aplomb-go/aplomb/policy/backoff"
)

// A response of a proxy does not come from the server. Over the default base any
// method is sent again, because nothing of the request has left. Over another base
// only an idempotent request is.
func TestProxyRefusesConnect(t *testing.T) {
	for _, row := range []struct {
		code     int
		method   string
		own      bool // the default base
		attempts int
	}{
		{503, http.MethodGet, true, 3}, {503, http.MethodPost, true, 3},
		{429, http.MethodPost, true, 3}, {502, http.MethodPost, true, 3},
		{407, http.MethodGet, true, 1}, {403, http.MethodGet, true, 1}, {501, http.MethodGet, true, 1},
		{503, http.MethodGet, false, 3}, {504, http.MethodGet, false, 3}, {503, http.MethodPost, false, 1},
		{407, http.MethodGet, false, 1},
	} {
		t.Run(fmt.Sprint(row.code, " ", row.method, " own base: ", row.own), func(t *testing.T) {
			var attempts atomic.Int32
			proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				attempts.Add(1)
				w.WriteHeader(row.code)
			}))
			defer proxy.Close()
			u, err := url.Parse(proxy.URL)
			require.NoError(t, err)
			base := &http.Transport{}
			if row.own {
				base = defaultBase()
			}
			base.Proxy = http.ProxyURL(u)
			tr := mustNew(t, Config{Base: base, Rule: policy.Rule{Attempts: 3, Backoff: backoff.Constant(0)}})
			req, err := http.NewRequestWithContext(t.Context(), row.method, "https://host.invalid/", nil)
			require.NoError(t, err)
			_, err = tr.RoundTrip(req)
			require.Error(t, err)
			assert.EqualValues(t, row.attempts, attempts.Load(), "%v", err)
			assert.ErrorContains(t, err, http.StatusText(row.code))
		})
	}
}

// A request waits as long as a proxy asks it to.
func TestProxyAsksToWait(t *testing.T) {
	bubble(t, func(t *testing.T) {
		proxy := testserver.Start(t, testserver.Config{Net: testserver.NewNet()}, testserver.Status(503).Header("Retry-After", "20"))
		u, err := url.Parse(proxy.URL)
		require.NoError(t, err)
		base := defaultBase()
		base.DialContext, base.Proxy = proxy.Transport().DialContext, http.ProxyURL(u)
		tr := over(t, Config{Rule: policy.Rule{Attempts: 2}.Or(quick)}, base)
		_, err = tr.RoundTrip(newRequest(t, http.MethodPost, "https://host.invalid/", nil))
		require.Error(t, err)
		log := proxy.Log()
		require.Len(t, log, 2)
		assert.GreaterOrEqual(t, log[1].Time.Sub(log[0].Time), 20*time.Second)
		tr.CloseIdleConnections()
	})
}
