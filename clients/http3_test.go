// HTTP/3 with a way back to HTTP/2, over the loopback interface.

package clients

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/quic-go/quic-go"
	"github.com/quic-go/quic-go/http3"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/aplomb-go/aplomb/policy"
	"github.com/aplomb-go/aplomb/transport"
)

// newHTTP3 returns a Transport that goes back to HTTP/2. docs/clients.md shows its Config.
func newHTTP3(trust *tls.Config, handshake time.Duration) *transport.Transport {
	return transport.MustNew(transport.Config{
		Base: &http3.Transport{TLSClientConfig: trust, QUICConfig: &quic.Config{HandshakeIdleTimeout: handshake}},
		NewPool: func(string) http.RoundTripper {
			return &http.Transport{TLSClientConfig: trust, ForceAttemptHTTP2: true}
		},
		Rule: policy.Rule{AttemptTimeout: 10 * time.Second},
	})
}

func TestHTTP3InTheDocs(t *testing.T) {
	code, err := os.ReadFile("http3_test.go")
	require.NoError(t, err)
	_, rest, _ := strings.Cut(string(code), "transport.MustNew(transport.Config{\n")
	config, _, _ := strings.Cut(rest, "\t})\n")
	text, err := os.ReadFile("../docs/clients.md")
	require.NoError(t, err)
	assert.Contains(t, string(text), "```\n"+strings.ReplaceAll("\n"+config, "\n\t\t", "\n")[1:]+"```\n")
}

// A dual server has a port of TCP, where it speaks HTTP/2, and may have the port of UDP with the
// same number, where it speaks HTTP/3.
type dual struct {
	url   string
	trust *tls.Config
	udp   *swallower

	mu   sync.Mutex
	seen []int // the major version of HTTP of each request
}

// A swallower is a port of UDP behind a firewall that may swallow all packets.
type swallower struct {
	net.PacketConn
	swallows atomic.Bool
}

func (s *swallower) ReadFrom(p []byte) (n int, from net.Addr, err error) {
	for {
		n, from, err = s.PacketConn.ReadFrom(p)
		if err != nil || !s.swallows.Load() {
			return n, from, err
		}
	}
}

func (s *swallower) WriteTo(p []byte, to net.Addr) (int, error) {
	if s.swallows.Load() {
		return len(p), nil
	}
	return s.PacketConn.WriteTo(p, to)
}

func newDual(t *testing.T) *dual {
	t.Helper()
	t.Setenv("QUIC_GO_DISABLE_RECEIVE_BUFFER_WARNING", "true")
	d := &dual{}
	server := httptest.NewUnstartedServer(d)
	server.EnableHTTP2 = true
	server.StartTLS()
	t.Cleanup(server.Close)
	d.url = server.URL
	roots := x509.NewCertPool()
	roots.AddCert(server.Certificate())
	d.trust = &tls.Config{RootCAs: roots}

	udp, err := net.ListenPacket("udp", server.Listener.Addr().String())
	require.NoError(t, err)
	d.udp = &swallower{PacketConn: udp}
	over3 := &http3.Server{TLSConfig: http3.ConfigureTLSConfig(&tls.Config{Certificates: server.TLS.Certificates}), Handler: d}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = over3.Serve(d.udp) // its error is that of Close
	}()
	t.Cleanup(func() {
		assert.NoError(t, over3.Close())
		<-done
		_ = udp.Close()
	})
	return d
}

func (d *dual) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	d.mu.Lock()
	d.seen = append(d.seen, req.ProtoMajor)
	d.mu.Unlock()
	_, _ = io.Copy(w, req.Body)
}

func (d *dual) versions() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return fmt.Sprint(d.seen)
}

// send sends a request over a Transport.
func (d *dual) send(t *testing.T, rt http.RoundTripper, method string, timeout time.Duration) error {
	t.Helper()
	ctx := transport.WithRule(bounded(t), policy.Rule{AttemptTimeout: timeout})
	req, err := http.NewRequestWithContext(ctx, method, d.url, strings.NewReader("text"))
	require.NoError(t, err)
	resp, err := (&http.Client{Transport: rt}).Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	assert.Equal(t, "text", string(text))
	return err
}

// Without HTTP/3 the first request to a host waits once for the handshake. It and all later ones go
// over HTTP/2, whatever their method.
func TestHTTP3FallsBack(t *testing.T) {
	for _, swallows := range []bool{false, true} {
		d := newDual(t)
		d.udp.swallows.Store(swallows)
		tr := newHTTP3(d.trust, map[bool]time.Duration{false: 10 * time.Second, true: 300 * time.Millisecond}[swallows])
		for range 3 {
			require.NoError(t, d.send(t, tr, http.MethodPost, 0))
		}
		assert.Equal(t, map[bool]string{false: "[3 3 3]", true: "[2 2 2]"}[swallows], d.versions())
		tr.CloseIdleConnections()
	}
}

// If HTTP/3 falls silent later, an idempotent request is sent again over HTTP/2 when its
// AttemptTimeout is over, and a POST fails. After two PUTs or four POSTs all requests go over HTTP/2.
func TestHTTP3FallsSilent(t *testing.T) {
	for _, method := range []string{http.MethodPut, http.MethodPost} {
		d := newDual(t)
		tr := newHTTP3(d.trust, 10*time.Second)
		require.NoError(t, d.send(t, tr, method, 0))
		d.udp.swallows.Store(true)
		for range map[string]int{http.MethodPut: 2, http.MethodPost: 4}[method] {
			err := d.send(t, tr, method, time.Second)
			assert.Equal(t, method == http.MethodPost, err != nil, "%v", err)
		}
		require.NoError(t, d.send(t, tr, http.MethodPost, 0))
		assert.Equal(t, map[string]string{http.MethodPut: "[3 2 2 2]", http.MethodPost: "[3 2]"}[method], d.versions())
		tr.CloseIdleConnections()
	}
}
