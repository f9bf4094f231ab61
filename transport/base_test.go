// The default base transport.

package transport_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/aplomb-go/aplomb/faults"
	"github.com/aplomb-go/aplomb/internal/testserver"
	"github.com/aplomb-go/aplomb/transport"
)

// A deadWire is a connection that dies without a word: bytes go out, and none come in.
type deadWire struct {
	net.Conn
	dead   *atomic.Bool
	closed *atomic.Int32
}

func (w deadWire) Read(p []byte) (int, error) {
	for {
		n, err := w.Conn.Read(p)
		if err != nil || !w.dead.Load() {
			return n, err
		}
	}
}

func (w deadWire) Close() error {
	w.closed.Add(1)
	return w.Conn.Close()
}

// A deafWire is a connection to a server that gets no PING of HTTP/2.
type deafWire struct{ net.Conn }

func (w deafWire) Write(p []byte) (int, error) {
	if len(p) == 17 && p[2] == 8 && p[3] == 6 { // a frame of 8 bytes of type 6
		return len(p), nil
	}
	return w.Conn.Write(p)
}

// A server that computes for a minute, and answers no PING meanwhile, answers a POST.
func TestASlowServerThatAnswersNoPing(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := testserver.NewNet()
		s := testserver.Start(t, testserver.Config{Net: n, HTTP2: true}, testserver.OK("made").Delay(time.Minute))
		base := transport.NewBase()
		base.DialContext = func(ctx context.Context, network, addr string) (net.Conn, error) {
			conn, err := n.DialContext(ctx, network, addr)
			return deafWire{conn}, err
		}
		base.Protocols = new(http.Protocols)
		base.Protocols.SetUnencryptedHTTP2(true)
		defer base.CloseIdleConnections()
		resp := mustRoundTrip(t, over(t, transport.Config{}, base), newRequest(t, http.MethodPost, s.URL, nil))
		assert.Equal(t, "made", mustRead(t, resp))
	})
}

// A stream that waits on an HTTP/2 connection that died ends when the health check of the
// default base has failed. Without the check it waits for ever. A connection that is only
// silent stays.
func TestDefaultBaseChecksTheHealthOfConnections(t *testing.T) {
	for _, row := range []struct {
		name  string
		check bool
		dies  bool
		ended time.Duration // 0: not within an hour
	}{
		{"the connection dies", true, true, transport.PingAfter + transport.PingTimeout},
		{"the connection dies, and nobody checks", false, true, 0},
		{"the connection is silent", true, false, 0},
	} {
		inBubble(t, row.name, func(t *testing.T) {
			n := testserver.NewNet()
			s := testserver.Start(t, testserver.Config{Net: n, HTTP2: true}, testserver.OK("well"), testserver.Hang())
			var dead atomic.Bool
			var closed atomic.Int32
			base := transport.NewBase()
			if !row.check {
				base.HTTP2 = nil
			}
			base.DialContext = func(ctx context.Context, network, addr string) (net.Conn, error) {
				conn, err := n.DialContext(ctx, network, addr)
				if err != nil {
					return nil, err
				}
				return deadWire{conn, &dead, &closed}, nil
			}
			base.Protocols = new(http.Protocols)
			base.Protocols.SetUnencryptedHTTP2(true)
			defer base.CloseIdleConnections()

			resp := mustRoundTrip(t, base, newRequest(t, http.MethodGet, s.URL, nil))
			_, err := io.Copy(io.Discard, resp.Body)
			require.NoError(t, err)
			dead.Store(row.dies)

			ctx := expires(t, time.Hour)
			start := time.Now()
			_, err = base.RoundTrip(newRequest(t, http.MethodGet, s.URL, nil).WithContext(ctx))
			require.Error(t, err)
			if row.ended == 0 {
				require.ErrorIs(t, err, context.DeadlineExceeded)
				return
			}
			assert.Equal(t, row.ended, time.Since(start))
			assert.NotErrorIs(t, err, context.DeadlineExceeded)
			assert.Positive(t, closed.Load(), "the connection is given up")
		})
	}
}

// setDefaultTransport replaces http.DefaultTransport for a test.
func setDefaultTransport(t *testing.T, rt http.RoundTripper) {
	before := http.DefaultTransport
	http.DefaultTransport = rt
	t.Cleanup(func() { http.DefaultTransport = before })
}

// What a program sets in http.DefaultTransport is in force for the default base, also if the Transport
// was made before.
func TestTheDefaultBaseIsACopyOfHTTPs(t *testing.T) {
	s := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "hello") }))
	defer s.Close()
	roots := x509.NewCertPool()
	roots.AddCert(s.Certificate())
	get := func(tr *transport.Transport) string {
		defer tr.CloseIdleConnections()
		resp := mustRoundTrip(t, tr, newRequest(t, http.MethodGet, s.URL, nil))
		return mustRead(t, resp)
	}
	company := http.DefaultTransport.(*http.Transport).Clone()
	setDefaultTransport(t, company)

	early := transport.Default()
	company.TLSClientConfig = &tls.Config{RootCAs: roots}
	assert.Equal(t, "hello", get(early), "made before the certificates were known, and asked for nothing yet")
	assert.Equal(t, "hello", get(transport.Default()))

	dialled := 0
	company.DialContext = func(ctx context.Context, network, addr string) (net.Conn, error) {
		dialled++
		return new(net.Dialer).DialContext(ctx, network, addr)
	}
	assert.Equal(t, "hello", get(transport.Default()))
	assert.Equal(t, 1, dialled, "dials by the program's own function")

	base := transport.Default().Base().(*http.Transport)
	assert.NotSame(t, company, base)
	assert.Equal(t, 4, base.MaxIdleConnsPerHost)
	assert.NotZero(t, base.HTTP2.SendPingTimeout)
	assert.Nil(t, company.HTTP2, "the original does not change")
	assert.Zero(t, company.MaxIdleConnsPerHost)

	company.MaxIdleConnsPerHost, company.HTTP2 = 7, &http.HTTP2Config{SendPingTimeout: time.Hour}
	base = transport.Default().Base().(*http.Transport)
	assert.Equal(t, 7, base.MaxIdleConnsPerHost)
	assert.Equal(t, &http.HTTP2Config{SendPingTimeout: time.Hour}, base.HTTP2)

	own := transport.NewBase()
	assert.Equal(t, "hello", get(transport.Wrap(own)), "a copy as well")
	assert.Equal(t, 7, own.MaxIdleConnsPerHost)
	assert.Same(t, company, transport.Wrap(company).Base(), "a base of the program's own is not copied")

	company.RegisterProtocol("http", script(faults.Status(204)))
	assert.Same(t, company, transport.Default().Base(), "a copy would not know the protocol")
	assert.Nil(t, transport.NewBase().TLSClientConfig, "it begins with another transport")
	assert.NotNil(t, transport.NewBase().Proxy)
}

// around is a RoundTripper around another.
type around struct{ http.RoundTripper }

// An http.DefaultTransport that is no *http.Transport is the base as it is. If it leads back to the
// Transport, a request fails at once.
func TestADefaultTransportOfAnotherType(t *testing.T) {
	setDefaultTransport(t, script(faults.Status(503), faults.Status(200)))
	req := newRequest(t, http.MethodGet, "http://h.test/", nil)
	resp, err := mustNew(t, transport.Config{Rule: quick}).RoundTrip(req)
	require.NoError(t, err)
	assert.Equal(t, 200, resp.StatusCode)
	assert.Same(t, req.URL, resp.Request.URL)

	for _, wrap := range []func(http.RoundTripper) http.RoundTripper{
		func(rt http.RoundTripper) http.RoundTripper { return rt },
		func(rt http.RoundTripper) http.RoundTripper { return around{rt} },
	} {
		tr := mustNew(t, transport.Config{Rule: quick})
		http.DefaultTransport = wrap(tr)
		for range 2 {
			b := oneShot("x")
			_, err = tr.RoundTrip(newRequest(t, http.MethodPut, "http://h.test/", b))
			require.ErrorContains(t, err, "Config.Base has to be set")
			count(t, 1, b.closed(), "body closed")
			var e *transport.Error
			assert.False(t, errors.As(err, &e), "it is not sent again")
		}
	}
}
