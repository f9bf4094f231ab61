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
		kind ErrorType
		want Class
	}{
		{"no error", nil, "", Unknown},
		{"canceled, but not by the caller", context.Canceled, ErrorCanceled, Ambiguous},
		{"a shared dial that is canceled", opError("dial", context.Canceled), ErrorCanceled, Refused},
		{"a source of tokens that is canceled", &url.Error{Op: "Post", URL: "http://tokens.invalid", Err: context.Canceled}, ErrorCanceled, Ambiguous},

		{"pitfall 20: an attempt's deadline", context.DeadlineExceeded, ErrorTimeout, Ambiguous},
		{"an i/o deadline", os.ErrDeadlineExceeded, ErrorTimeout, Ambiguous},
		{"a read timeout", opError("read", os.ErrDeadlineExceeded), ErrorTimeout, Ambiguous},
		{"ETIMEDOUT of a connection in use", opError("read", os.NewSyscallError("read", syscall.ETIMEDOUT)), ErrorTimeout, Ambiguous},
		{"a timeout that url.Error does not see", &url.Error{Op: "Get", Err: fmt.Errorf("in vain: %w", timeout{true})}, ErrorTimeout, Ambiguous},
		{"the Timeout of a client", late{errors.New("net/http: request canceled (Client.Timeout exceeded while awaiting headers)")}, ErrorTimeout, Ambiguous},
		{"a Timeout method that says no", timeout{false}, ErrorOther, Final},

		{"pitfall 25: NXDOMAIN", opError("dial", &net.DNSError{Err: "no such host", IsNotFound: true}), ErrorDNS, Final},
		{"NXDOMAIN, said to be temporary", &net.DNSError{IsNotFound: true, IsTemporary: true}, ErrorDNS, Final},
		{"a name server that fails for now", opError("dial", &net.DNSError{Err: "server misbehaving", IsTemporary: true}), ErrorDNS, Refused},
		{"a name server that does not respond", opError("dial", &net.DNSError{Err: "i/o timeout", IsTimeout: true}), ErrorDNS, Refused},
		{"any other resolver error", &net.DNSError{Err: "bad name"}, ErrorDNS, Final},

		{"connection refused", opError("dial", os.NewSyscallError("connect", syscall.ECONNREFUSED)), ErrorDial, Refused},
		{"connection refused, bare", fmt.Errorf("tunnel: %w", syscall.ECONNREFUSED), ErrorDial, Refused},
		{"a datagram refused later on", opError("read", syscall.ECONNREFUSED), ErrorReset, Ambiguous},
		{"a dial timeout", opError("dial", timeout{true}), ErrorDial, Refused},
		{"a dial deadline", opError("dial", context.DeadlineExceeded), ErrorDial, Refused},
		{"ETIMEDOUT of a dial", opError("dial", os.NewSyscallError("connect", syscall.ETIMEDOUT)), ErrorDial, Refused},
		{"no route", opError("dial", os.NewSyscallError("connect", syscall.EHOSTUNREACH)), ErrorDial, Refused},
		{"out of ports", opError("dial", os.NewSyscallError("connect", syscall.EADDRNOTAVAIL)), ErrorDial, Refused},
		{"a proxy that refuses", opError("proxyconnect", opError("dial", syscall.ECONNREFUSED)), ErrorDial, Refused},
		{"a SOCKS proxy that cannot reach the host", opError("socks connect", errors.New("unknown error host unreachable")), ErrorDial, Refused},
		{"a bad address", opError("dial", &net.AddrError{Err: "missing port"}), ErrorDial, Final},
		{"a bad network", opError("dial", net.UnknownNetworkError("tcp9")), ErrorDial, Final},
		{"a bad literal", opError("dial", &net.ParseError{Type: "IP address"}), ErrorDial, Final},

		{"an untrusted certificate", &tls.CertificateVerificationError{Err: x509.UnknownAuthorityError{}}, ErrorTLS, Final},
		{"an untrusted certificate of a proxy", opError("proxyconnect", x509.UnknownAuthorityError{}), ErrorTLS, Final},
		{"another host's certificate", x509.HostnameError{Certificate: &x509.Certificate{}, Host: "h"}, ErrorTLS, Final},
		{"an expired certificate", x509.CertificateInvalidError{Reason: x509.Expired}, ErrorTLS, Final},
		{"an alert received", opError("remote error", tls.AlertError(40)), ErrorTLS, Final},
		{"an alert sent", opError("local error", errors.New("tls: no application protocol")), ErrorTLS, Final},
		{"an alert about a damaged record, sent", opError("local error", errors.New("tls: bad record MAC")), ErrorReset, Ambiguous},
		{"an alert about a damaged record, received", opError("remote error", tls.AlertError(22)), ErrorReset, Ambiguous},
		{"an alert that may belong to a handshake", opError("remote error", tls.AlertError(80)), ErrorTLS, Final},
		{"the same after the handshake", shaken{opError("remote error", tls.AlertError(80))}, ErrorReset, Ambiguous},
		{"an alert about a certificate after the handshake", shaken{opError("remote error", tls.AlertError(116))}, ErrorTLS, Final},
		{"an alert of QUIC", tls.AlertError(40), ErrorTLS, Final},
		{"not TLS", tls.RecordHeaderError{Msg: "first record does not look like a TLS handshake"}, ErrorTLS, Final},
		{"plain HTTP on an HTTPS port", &url.Error{Op: "Get", Err: http.ErrSchemeMismatch}, ErrorTLS, Final},

		{"the end, early", io.EOF, ErrorReset, Ambiguous},
		{"the end, in the middle", fmt.Errorf("body: %w", io.ErrUnexpectedEOF), ErrorReset, Ambiguous},
		{"a pipe's end", io.ErrClosedPipe, ErrorReset, Ambiguous},
		{"closed here", opError("read", net.ErrClosed), ErrorReset, Ambiguous},
		{"reset", opError("read", os.NewSyscallError("read", syscall.ECONNRESET)), ErrorReset, Ambiguous},
		{"reset, bare", syscall.ECONNRESET, ErrorReset, Ambiguous},
		{"broken pipe", opError("write", os.NewSyscallError("write", syscall.EPIPE)), ErrorReset, Ambiguous},
		{"broken pipe, bare", syscall.EPIPE, ErrorReset, Ambiguous},
		{"aborted", syscall.ECONNABORTED, ErrorReset, Ambiguous},

		{"a malformed field", fmt.Errorf("broken: %w", textproto.ProtocolError("malformed MIME header line")), ErrorProtocol, Ambiguous},

		{"an error that nobody knows", errors.New("surprise"), ErrorOther, Final},
		{"pitfall 24: words prove nothing", errors.New("connection reset by peer"), ErrorOther, Final},
		{"an error that nobody knows, before any response", unanswered{errors.New("surprise")}, ErrorOther, Ambiguous},
		{"a proxy's answer", unanswered{errors.New("Proxy Authentication Required")}, ErrorOther, Final},
		{"an error that says what it is, before any response", unanswered{opError("dial", &net.AddrError{Err: "missing port"})}, ErrorDial, Final},
		{"several at once", errors.Join(errors.New("surprise"), io.EOF), ErrorReset, Ambiguous},
		{"several at once, by text", errors.Join(errors.New("surprise"), errors.New("tls: nonsense")), ErrorTLS, Final},
	} {
		t.Run(tt.name, func(t *testing.T) {
			assertJudged(t, tt.err, tt.kind, tt.want)
			assert.Equal(t, tt.kind, ErrorTypeOf(tt.err))
			if tt.err != nil {
				assertJudged(t, &url.Error{Op: "Get", URL: "http://h", Err: tt.err}, tt.kind, tt.want)
			}
		})
	}
}

type unanswered struct{ error }

func (unanswered) Unanswered()     {}
func (e unanswered) Unwrap() error { return e.error }

// late is an error that only its Timeout method tells.
type late struct{ error }

func (late) Timeout() bool { return true }

type timeout struct{ is bool }

func (timeout) Error() string   { return "slow" }
func (e timeout) Timeout() bool { return e.is }

// TestRealErrors provokes errors that are told apart by type, from the standard
// library itself.
func TestRealErrors(t *testing.T) {
	for _, tt := range []struct {
		name    string
		provoke func(*testing.T) error
		kind    ErrorType
		want    Class
	}{
		{"connection refused", func(t *testing.T) error { return get(t, transport(t), closedPort(t)) }, ErrorDial, Refused},
		{"a proxy's connection refused", func(t *testing.T) error {
			tr := transport(t)
			tr.Proxy = http.ProxyURL(request(t, "GET", closedPort(t), nil).URL)
			return get(t, tr, "http://host.invalid/")
		}, ErrorDial, Refused},
		{"a port that no address has", func(t *testing.T) error { return get(t, transport(t), "http://127.0.0.1:99999/") }, ErrorDial, Final},
		{"a dial timeout", func(t *testing.T) error {
			tr := transport(t)
			tr.DialContext = (&net.Dialer{Timeout: time.Nanosecond}).DialContext
			return get(t, tr, "http://127.0.0.1:1/")
		}, ErrorDial, Refused},

		{"an untrusted certificate", func(t *testing.T) error { return get(t, transport(t), tlsServer(t).URL) }, ErrorTLS, Final},
		{"an untrusted certificate of a proxy", func(t *testing.T) error {
			tr := transport(t)
			tr.Proxy = http.ProxyURL(request(t, "GET", tlsServer(t).URL, nil).URL)
			return get(t, tr, "http://host.invalid/")
		}, ErrorTLS, Final},
		{"another host's certificate", func(t *testing.T) error {
			s := tlsServer(t)
			tr := s.Client().Transport.(*http.Transport)
			tr.TLSClientConfig.ServerName = "other.invalid"
			return get(t, tr, s.URL)
		}, ErrorTLS, Final},
		{"a protocol version alert", func(t *testing.T) error {
			s := tlsServer(t)
			tr := s.Client().Transport.(*http.Transport)
			tr.TLSClientConfig.MaxVersion = tls.VersionTLS12
			return get(t, tr, s.URL)
		}, ErrorTLS, Final},
		{"plain HTTP on an HTTPS port", func(t *testing.T) error {
			s := httptest.NewServer(http.NotFoundHandler())
			t.Cleanup(s.Close)
			return get(t, transport(t), strings.Replace(s.URL, "http:", "https:", 1))
		}, ErrorTLS, Final},
		{"a handshake cut off: nobody can tell", func(t *testing.T) error {
			target := listen(t, func(c net.Conn) { _, _ = c.Read(make([]byte, 1)) })
			return get(t, transport(t), strings.Replace(target, "http:", "https:", 1))
		}, ErrorReset, Ambiguous},

		{"the end instead of a response", by(func(c net.Conn) { _, _ = http.ReadRequest(bufio.NewReader(c)) }), ErrorReset, Ambiguous},
		{"a reset instead of a response", by(func(c net.Conn) {
			_, _ = c.Read(make([]byte, 1))
			_ = c.(*net.TCPConn).SetLinger(0)
		}), ErrorReset, Ambiguous},
		{"a malformed field", raw("HTTP/1.1 200 OK\r\nno colon\r\n\r\n"), ErrorProtocol, Ambiguous},

		{"no headers in time", noHeaders(nil), ErrorTimeout, Ambiguous},
		{"no headers in time, HTTP/2", noHeaders(onlyHTTP2()), ErrorTimeout, Ambiguous},
	} {
		t.Run(tt.name, func(t *testing.T) {
			err := tt.provoke(t)
			require.Error(t, err)
			assertJudged(t, err, tt.kind, tt.want)
		})
	}
}

func get(t *testing.T, tr *http.Transport, url string) error {
	return send(tr, request(t, "GET", url, nil))
}

func noHeaders(over *http.Protocols) func(*testing.T) error {
	return func(t *testing.T) (err error) {
		synctest.Test(t, func(t *testing.T) {
			tr := pipeTransport(discard)
			tr.Protocols, tr.ResponseHeaderTimeout = over, time.Minute
			err = get(t, tr, "http://host.invalid/")
			tr.CloseIdleConnections()
		})
		return err
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
	all := []ErrorType{ErrorCanceled, ErrorTimeout, ErrorDNS, ErrorDial, ErrorTLS, ErrorReset, ErrorProtocol, ErrorOther}
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

// shaken is an error after a TLS handshake.
type shaken struct{ error }

func (shaken) HandshakeDone() bool { return true }
func (s shaken) Unwrap() error     { return s.error }
