package classify

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/textproto"
	"net/url"
	"os"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestErrors is the table of made-up errors, one per guard.
func TestErrors(t *testing.T) {
	opError := func(op string, err error) error { return &net.OpError{Op: op, Net: "tcp", Err: err} }
	for _, tt := range []struct {
		name string
		err  error
		kind Kind
		want Verdict
	}{
		{"no error", nil, NoError, Unknown},
		{"canceled, but not by the caller", context.Canceled, Canceled, Ambiguous},
		{"a shared dial that is canceled", opError("dial", context.Canceled), Canceled, Refused},
		{"a source of tokens that is canceled", &url.Error{Op: "Post", URL: "http://tokens.invalid", Err: context.Canceled}, Canceled, Ambiguous},

		{"pitfall 20: an attempt's deadline", context.DeadlineExceeded, Timeout, Ambiguous},
		{"an i/o deadline", os.ErrDeadlineExceeded, Timeout, Ambiguous},
		{"a read timeout", opError("read", os.ErrDeadlineExceeded), Timeout, Ambiguous},
		{"ETIMEDOUT of a connection in use", opError("read", os.NewSyscallError("read", syscall.ETIMEDOUT)), Timeout, Ambiguous},
		{"a timeout that url.Error does not see", &url.Error{Op: "Get", Err: fmt.Errorf("in vain: %w", timeout{true})}, Timeout, Ambiguous},
		{"a Timeout method that says no", timeout{false}, Other, Final},

		{"pitfall 25: NXDOMAIN", opError("dial", &net.DNSError{Err: "no such host", IsNotFound: true}), DNS, Final},
		{"NXDOMAIN, said to be temporary", &net.DNSError{IsNotFound: true, IsTemporary: true}, DNS, Final},
		{"a name server that fails for now", opError("dial", &net.DNSError{Err: "server misbehaving", IsTemporary: true}), DNS, Refused},
		{"a name server that does not respond", opError("dial", &net.DNSError{Err: "i/o timeout", IsTimeout: true}), DNS, Refused},
		{"any other resolver error", &net.DNSError{Err: "bad name"}, DNS, Final},

		{"connection refused", opError("dial", os.NewSyscallError("connect", syscall.ECONNREFUSED)), Dial, Refused},
		{"connection refused, bare", fmt.Errorf("tunnel: %w", syscall.ECONNREFUSED), Dial, Refused},
		{"a datagram refused later on", opError("read", syscall.ECONNREFUSED), Reset, Ambiguous},
		{"a dial timeout", opError("dial", timeout{true}), Dial, Refused},
		{"a dial deadline", opError("dial", context.DeadlineExceeded), Dial, Refused},
		{"ETIMEDOUT of a dial", opError("dial", os.NewSyscallError("connect", syscall.ETIMEDOUT)), Dial, Refused},
		{"no route", opError("dial", os.NewSyscallError("connect", syscall.EHOSTUNREACH)), Dial, Refused},
		{"out of ports", opError("dial", os.NewSyscallError("connect", syscall.EADDRNOTAVAIL)), Dial, Refused},
		{"a proxy that refuses", opError("proxyconnect", opError("dial", syscall.ECONNREFUSED)), Dial, Refused},
		{"a SOCKS proxy that cannot reach the host", opError("socks connect", errors.New("unknown error host unreachable")), Dial, Refused},
		{"a bad address", opError("dial", &net.AddrError{Err: "missing port"}), Dial, Final},
		{"a bad network", opError("dial", net.UnknownNetworkError("tcp9")), Dial, Final},
		{"a bad literal", opError("dial", &net.ParseError{Type: "IP address"}), Dial, Final},

		{"an untrusted certificate", &tls.CertificateVerificationError{Err: x509.UnknownAuthorityError{}}, TLS, Final},
		{"an untrusted certificate of a proxy", opError("proxyconnect", x509.UnknownAuthorityError{}), TLS, Final},
		{"another host's certificate", x509.HostnameError{Certificate: &x509.Certificate{}, Host: "h"}, TLS, Final},
		{"an expired certificate", x509.CertificateInvalidError{Reason: x509.Expired}, TLS, Final},
		{"an alert received", opError("remote error", tls.AlertError(40)), TLS, Final},
		{"an alert sent", opError("local error", errors.New("tls: no application protocol")), TLS, Final},
		{"an alert about a damaged record, sent", opError("local error", errors.New("tls: bad record MAC")), Reset, Ambiguous},
		{"an alert about a damaged record, received", opError("remote error", tls.AlertError(22)), Reset, Ambiguous},
		{"an alert that may belong to a handshake", opError("remote error", tls.AlertError(80)), TLS, Final},
		{"the same after the handshake", shaken{opError("remote error", tls.AlertError(80))}, Reset, Ambiguous},
		{"an alert about a certificate after the handshake", shaken{opError("remote error", tls.AlertError(116))}, TLS, Final},
		{"an alert of QUIC", tls.AlertError(40), TLS, Final},
		{"not TLS", tls.RecordHeaderError{Msg: "first record does not look like a TLS handshake"}, TLS, Final},
		{"plain HTTP on an HTTPS port", &url.Error{Op: "Get", Err: http.ErrSchemeMismatch}, TLS, Final},

		{"the end, early", io.EOF, Reset, Ambiguous},
		{"the end, in the middle", fmt.Errorf("body: %w", io.ErrUnexpectedEOF), Reset, Ambiguous},
		{"a pipe's end", io.ErrClosedPipe, Reset, Ambiguous},
		{"closed here", opError("read", net.ErrClosed), Reset, Ambiguous},
		{"reset", opError("read", os.NewSyscallError("read", syscall.ECONNRESET)), Reset, Ambiguous},
		{"reset, bare", syscall.ECONNRESET, Reset, Ambiguous},
		{"broken pipe", opError("write", os.NewSyscallError("write", syscall.EPIPE)), Reset, Ambiguous},
		{"broken pipe, bare", syscall.EPIPE, Reset, Ambiguous},
		{"aborted", syscall.ECONNABORTED, Reset, Ambiguous},

		{"a malformed field", fmt.Errorf("broken: %w", textproto.ProtocolError("malformed MIME header line")), Protocol, Ambiguous},

		{"an error that nobody knows", errors.New("surprise"), Other, Final},
		{"pitfall 24: words prove nothing", errors.New("connection reset by peer"), Other, Final},
		{"several at once", errors.Join(errors.New("surprise"), io.EOF), Reset, Ambiguous},
		{"several at once, by text", errors.Join(errors.New("surprise"), errors.New("tls: nonsense")), TLS, Final},
	} {
		t.Run(tt.name, func(t *testing.T) {
			assertJudged(t, tt.err, tt.kind, tt.want)
			assert.Equal(t, tt.kind, KindOf(tt.err))
			if tt.err != nil {
				assertJudged(t, &url.Error{Op: "Get", URL: "http://h", Err: tt.err}, tt.kind, tt.want)
			}
		})
	}
}

type timeout struct{ is bool }

func (timeout) Error() string   { return "slow" }
func (e timeout) Timeout() bool { return e.is }

// TestRealErrors provokes errors that are told apart by type, from the standard
// library itself.
func TestRealErrors(t *testing.T) {
	for _, tt := range []struct {
		name    string
		provoke func(*testing.T) error
		kind    Kind
		want    Verdict
	}{
		{"connection refused", func(t *testing.T) error {
			return send(transport(t), request(t, "GET", closedPort(t), nil))
		}, Dial, Refused},
		{"a proxy's connection refused", func(t *testing.T) error {
			tr := transport(t)
			tr.Proxy = http.ProxyURL(request(t, "GET", closedPort(t), nil).URL)
			return send(tr, request(t, "GET", "http://host.invalid/", nil))
		}, Dial, Refused},
		{"a port that no address has", func(t *testing.T) error {
			return send(transport(t), request(t, "GET", "http://127.0.0.1:99999/", nil))
		}, Dial, Final},
		{"a dial timeout", func(t *testing.T) error {
			tr := transport(t)
			tr.DialContext = (&net.Dialer{Timeout: time.Nanosecond}).DialContext
			return send(tr, request(t, "GET", "http://127.0.0.1:1/", nil))
		}, Dial, Refused},

		{"an untrusted certificate", func(t *testing.T) error {
			return send(transport(t), request(t, "GET", tlsServer(t).URL, nil))
		}, TLS, Final},
		{"an untrusted certificate of a proxy", func(t *testing.T) error {
			tr := transport(t)
			tr.Proxy = http.ProxyURL(request(t, "GET", tlsServer(t).URL, nil).URL)
			return send(tr, request(t, "GET", "http://host.invalid/", nil))
		}, TLS, Final},
		{"another host's certificate", func(t *testing.T) error {
			s := tlsServer(t)
			tr := s.Client().Transport.(*http.Transport)
			tr.TLSClientConfig.ServerName = "other.invalid"
			return send(tr, request(t, "GET", s.URL, nil))
		}, TLS, Final},
		{"a protocol version alert", func(t *testing.T) error {
			s := tlsServer(t)
			tr := s.Client().Transport.(*http.Transport)
			tr.TLSClientConfig.MaxVersion = tls.VersionTLS12
			return send(tr, request(t, "GET", s.URL, nil))
		}, TLS, Final},
		{"plain HTTP on an HTTPS port", func(t *testing.T) error {
			s := httptest.NewServer(http.NotFoundHandler())
			t.Cleanup(s.Close)
			return send(transport(t), request(t, "GET", strings.Replace(s.URL, "http:", "https:", 1), nil))
		}, TLS, Final},
		{"a handshake cut off: nobody can tell", func(t *testing.T) error {
			target := listen(t, func(c net.Conn) { _, _ = c.Read(make([]byte, 1)) })
			return send(transport(t), request(t, "GET", strings.Replace(target, "http:", "https:", 1), nil))
		}, Reset, Ambiguous},

		{"the end instead of a response", by(func(c net.Conn) { _, _ = http.ReadRequest(bufio.NewReader(c)) }), Reset, Ambiguous},
		{"a reset instead of a response", by(func(c net.Conn) {
			_, _ = c.Read(make([]byte, 1))
			_ = c.(*net.TCPConn).SetLinger(0)
		}), Reset, Ambiguous},
		{"a malformed field", raw("HTTP/1.1 200 OK\r\nno colon\r\n\r\n"), Protocol, Ambiguous},

		{"no headers in time", func(t *testing.T) (err error) {
			synctest.Test(t, func(t *testing.T) {
				tr := pipeTransport(discard)
				tr.ResponseHeaderTimeout = time.Minute
				err = send(tr, request(t, "GET", "http://host.invalid/", nil))
			})
			return err
		}, Timeout, Ambiguous},
		{"no headers in time, HTTP/2", func(t *testing.T) (err error) {
			synctest.Test(t, func(t *testing.T) {
				tr := pipeTransport(discard)
				tr.Protocols = onlyHTTP2()
				tr.ResponseHeaderTimeout = time.Minute
				err = send(tr, request(t, "GET", "http://host.invalid/", nil))
				tr.CloseIdleConnections()
			})
			return err
		}, Timeout, Ambiguous},
	} {
		t.Run(tt.name, func(t *testing.T) {
			err := tt.provoke(t)
			require.Error(t, err)
			assertJudged(t, err, tt.kind, tt.want)
		})
	}
}

func closedPort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, l.Close())
	return "http://" + l.Addr().String()
}

func tlsServer(t *testing.T) *httptest.Server {
	t.Helper()
	s := httptest.NewUnstartedServer(http.NotFoundHandler())
	s.Config.ErrorLog = discardLog
	s.TLS = &tls.Config{MinVersion: tls.VersionTLS13}
	s.StartTLS()
	t.Cleanup(s.Close)
	return s
}

// TestCallerEnded: after the end of the caller's own context every error is
// final, and no classifier of kinds can make it otherwise.
func TestCallerEnded(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	r := request(t, "GET", "http://127.0.0.1/", nil).WithContext(ctx)
	all := []Kind{Canceled, Timeout, DNS, Dial, TLS, Reset, Protocol, Other}
	outcomes := map[string]Outcome{
		"pitfall 20: a timeout": {Request: r, Err: context.DeadlineExceeded},
		"a refusal":             {Request: r, Err: &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}},
		"the caller's cause":    {Request: r, Err: errors.New("user pressed a key")},
	}
	for name, o := range outcomes {
		assert.NotEqual(t, Final, First(OnError(Ambiguous, all...), Default)(o), name)
	}
	cancel()
	for name, o := range outcomes {
		assert.Equal(t, Final, Default(o), name)
		assert.Equal(t, Final, First(OnError(Ambiguous, all...), Default)(o), name)
	}
}

func TestKindText(t *testing.T) {
	for k, want := range []string{"none", "canceled", "timeout", "dns", "dial", "tls", "reset", "protocol", "other"} {
		assert.Equal(t, want, Kind(k).String())
	}
	assert.Equal(t, "Kind(200)", Kind(200).String())
}

// shaken is an error after a TLS handshake.
type shaken struct{ error }

func (shaken) HandshakeDone() bool { return true }
func (s shaken) Unwrap() error     { return s.error }
