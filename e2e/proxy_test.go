// httputil.ReverseProxy over aplomb, and a plain client of the proxy.

package e2e

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/aplomb-go/aplomb/internal/testkit"
	"github.com/aplomb-go/aplomb/policy"
	"github.com/aplomb-go/aplomb/policy/backoff"
	"github.com/aplomb-go/aplomb/transport"
)

func proxyClient() client {
	return client{
		name:    "httputil.ReverseProxy",
		off:     hasNone,
		needs:   "`ReplayBuffer` for the largest body, because what a proxy passes on has no `GetBody`",
		rule:    policy.Rule{ReplayBuffer: 2 << 20},
		size:    1 << 20,
		resumes: true,
		serve:   func(testing.TB, string) http.Handler { return newStore(content(1 << 20)) },
		open: func(t testing.TB, s setup) session {
			return storeSession(newProxy(t, s))
		},
	}
}

// storeSession uses a store. A response with an error status is its own error.
func storeSession(hc *http.Client, url string) session {
	return session{
		download: func(ctx context.Context) error {
			return are(content(1 << 20))(fetch(ctx, hc, http.MethodGet, url+"/"+object, nil))
		},
		upload: func(ctx context.Context, b []byte) error {
			return are(sum(b))(fetch(ctx, hc, http.MethodPut, url+"/other", b))
		},
		own: asError[statusError],
	}
}

// newProxy starts a proxy that sends by the client's transport. It returns a plain
// client of the proxy, and the proxy's URL.
func newProxy(t testing.TB, s setup) (*http.Client, string) {
	target := testkit.Must(url.Parse(s.url))(t)
	ts := httptest.NewServer(&httputil.ReverseProxy{
		Rewrite:   func(r *httputil.ProxyRequest) { r.SetURL(target) },
		Transport: s.http.Transport,
		ErrorLog:  log.New(io.Discard, "", 0),
	})
	ts.Config.ErrorLog = log.New(io.Discard, "", 0)
	t.Cleanup(ts.Close)
	plain := &http.Transport{}
	t.Cleanup(plain.CloseIdleConnections)
	return &http.Client{Transport: plain, Timeout: s.http.Timeout}, ts.URL
}

// Trailers, flushed parts and upgrades pass a proxy over aplomb, after a refusal
// that a proxy without it hands to the client.
func TestProxyStreams(t *testing.T) {
	arrived := make(chan struct{})
	mux := http.NewServeMux()
	mux.Handle("/echo", fakeSockets(0))
	mux.HandleFunc("/parts", func(w http.ResponseWriter, req *http.Request) {
		w.Header().Set("Trailer", "X-Count")
		for i := range 3 {
			_, _ = fmt.Fprintf(w, "part %d\n", i)
			_ = http.NewResponseController(w).Flush()
			select {
			case <-arrived: // sends the next part only now
			case <-req.Context().Done():
				return
			}
		}
		w.Header().Set("X-Count", "3")
	})
	s := newServer(t, func(string) http.Handler { return mux })
	w := newNetwork(t, s.url)
	s.answer(busyUntil(2))
	hc, at := newProxy(t, setup{http: &http.Client{Transport: base(t, w, false)}, url: s.url})
	_, err := fetch(bounded(t), hc, http.MethodGet, at+"/parts", nil)
	require.Equal(t, statusError(http.StatusServiceUnavailable), err)

	under, r := under(t, base(t, w, false), policy.Rule{}, nil)
	hc, at = newProxy(t, setup{http: under, url: s.url})
	t.Run("parts and trailers", func(t *testing.T) {
		s.answer(busyUntil(2))
		req := testkit.Must(http.NewRequestWithContext(bounded(t), http.MethodGet, at+"/parts", nil))(t)
		resp := testkit.Must(hc.Do(req))(t)
		defer func() { _ = resp.Body.Close() }()
		body := bufio.NewReader(resp.Body)
		for i := range 3 {
			text := testkit.Must(body.ReadString('\n'))(t)
			assert.Equal(t, fmt.Sprintf("part %d\n", i), text)
			arrived <- struct{}{}
		}
		_, err = body.ReadByte()
		require.ErrorIs(t, err, io.EOF)
		assert.Equal(t, "3", resp.Trailer.Get("X-Count"))
	})
	t.Run("upgrade", func(t *testing.T) {
		s.answer(busyUntil(2))
		c := testkit.Must(dial(bounded(t), setup{http: hc, url: at}, "/echo"))(t)
		defer func() { _ = c.CloseNow() }()
		for i := range 10 {
			want := fmt.Sprint("message ", i)
			require.NoError(t, c.Write(bounded(t), 1, []byte(want)))
			_, got, err := c.Read(bounded(t))
			require.NoError(t, err)
			assert.Equal(t, want, string(got))
		}
		assert.Equal(t, 2, s.seen(), "requests that arrived")
	})
	assert.Len(t, r.told(), 2, "attempts told")
}

// When the proxy's client goes away, the wait for the next attempt ends. If it did
// not, the proxy would never stop.
func TestProxyClientGoesAway(t *testing.T) {
	s := newServer(t, func(string) http.Handler { return http.NotFoundHandler() })
	s.answer(unavailable)
	ctx, leave := context.WithCancel(t.Context())
	under, r := under(t, base(t, newNetwork(t, s.url), false), policy.Rule{Backoff: backoff.Constant(time.Hour)},
		func(int, transport.AttemptEnd) { leave() })
	hc, at := newProxy(t, setup{http: under, url: s.url})
	_, err := fetch(ctx, hc, http.MethodGet, at, nil)
	require.ErrorIs(t, err, context.Canceled)
	assert.Equal(t, 1, s.seen(), "requests that arrived")
	require.NotEmpty(t, r.told())
	assert.Equal(t, time.Hour, r.told()[0].Attempt.Delay)
}
