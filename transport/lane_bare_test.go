// Hosts whose base transport alone would do well. Lanes must not be worse.

package transport_test

import (
	"context"
	"crypto/x509"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/aplomb-go/aplomb/transport"
)

// within sends a request that has so much time, and reads the response.
func within(t *testing.T, tr http.RoundTripper, method, url string, d time.Duration) error {
	ctx, cancel := context.WithTimeout(t.Context(), d)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader("order"))
	require.NoError(t, err)
	resp, err := tr.RoundTrip(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	_, err = io.Copy(io.Discard, resp.Body)
	return err
}

// failures returns how many of 20 requests fail.
func failures(t *testing.T, tr http.RoundTripper, method, url string, each time.Duration) (n int) {
	for range 20 {
		if err := within(t, tr, method, url, each); err != nil {
			t.Log(method, err)
			n++
		}
	}
	return n
}

// slowly answers /slow never, /sick with a 503, and the rest at once.
func slowly(w http.ResponseWriter, r *http.Request) {
	switch r.URL.Path {
	case "/slow":
		_, _ = io.Copy(io.Discard, r.Body)
		<-r.Context().Done()
	case "/sick":
		w.WriteHeader(http.StatusServiceUnavailable)
	}
}

// A base without settings of its own speaks HTTP/2, and so do its lanes: after a deadline and
// after responses of a bad server.
func TestLanesOfAPlainBaseSpeakHTTP2(t *testing.T) {
	s := httptest.NewUnstartedServer(http.HandlerFunc(slowly))
	s.EnableHTTP2 = true
	s.StartTLS()
	t.Cleanup(s.Close)
	for _, path := range []string{"/slow", "/sick"} {
		base := &http.Transport{MaxIdleConnsPerHost: 100}
		base.Clone() // net/http decides about HTTP/2 before the certificate is here
		base.TLSClientConfig.RootCAs = x509.NewCertPool()
		base.TLSClientConfig.RootCAs.AddCert(s.Certificate())
		tr := mustNew(t, transport.Config{Base: base})
		for range 10 {
			err := within(t, tr, http.MethodPost, s.URL+path, 300*time.Millisecond)
			assert.Equal(t, path == "/slow", err != nil)
		}
		assert.Zero(t, failures(t, tr, http.MethodGet, s.URL, 2*time.Second), path)
		assert.Zero(t, failures(t, tr, http.MethodPost, s.URL, 2*time.Second), path)
		tr.CloseIdleConnections()
	}
}

// A scheme of its own, registered with the base, has no lanes.
func TestLanesOfASchemeOfItsOwn(t *testing.T) {
	path := filepath.Join(t.TempDir(), "socket")
	l, err := net.Listen("unix", path)
	require.NoError(t, err)
	s := httptest.NewUnstartedServer(http.HandlerFunc(slowly))
	s.Listener = l
	s.Start()
	t.Cleanup(s.Close)
	inner := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", path)
	}}
	base := new(http.Transport)
	base.RegisterProtocol("http+unix", rt(func(req *http.Request) (*http.Response, error) {
		req = req.Clone(req.Context())
		req.URL.Scheme = "http"
		return inner.RoundTrip(req)
	}))
	tr := mustNew(t, transport.Config{Base: base})
	assert.Error(t, within(t, tr, http.MethodGet, "http+unix://daemon/slow", 300*time.Millisecond))
	assert.Zero(t, failures(t, tr, http.MethodGet, "http+unix://daemon/", 2*time.Second))
	inner.CloseIdleConnections()
}
