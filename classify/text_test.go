package classify

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/net/http/httpproxy"
	"golang.org/x/net/http2"

	"github.com/aplomb-go/aplomb/internal/testkit"
	"github.com/aplomb-go/aplomb/internal/trait"
)

// TestPhrases provokes every error that text.go knows by its text, from the
// standard library itself. It fails when a release of Go changes the words, and
// when a phrase is added without a way to provoke it.
func TestPhrases(t *testing.T) {
	provoked := map[string]bool{}
	for _, tt := range phraseTests {
		t.Run(tt.phrase, func(t *testing.T) {
			// Where net/http's two goroutines of a connection both fail, either
			// error may be the one that is told: the other is soon seen, too.
			err := tt.provoke(t)
			for range 50 {
				if err == nil || strings.Contains(err.Error(), tt.phrase) {
					break
				}
				err = tt.provoke(t)
			}
			require.Error(t, err)
			require.ErrorContains(t, err, tt.phrase)
			kind, is := byPhrase(tt.phrase)
			require.NotEmpty(t, kind, "not in the table")
			assertJudged(t, err, kind, is)
		})
		for _, p := range phrases {
			if strings.HasPrefix(strings.TrimPrefix(tt.phrase, "net/"), p.text) {
				provoked[p.text] = true
				break
			}
		}
	}
	for _, p := range phrases {
		assert.True(t, provoked[p.text], "nothing provokes %q", p.text)
	}
}

var phraseTests = []struct {
	phrase  string
	provoke func(*testing.T) error
}{
	{"http: nil Request.URL", wrong(overTransport, func(r *http.Request) { r.URL = nil })},
	{"http: nil Request.Header", wrong(overTransport, func(r *http.Request) { r.Header = nil })},
	{"net/http: invalid header ", wrong(overTransport, badHeader)},
	{"net/http: invalid trailer ", wrong(overTransport, badTrailer)},
	{"net/http: invalid method ", wrong(overTransport, badMethod)},
	{"unsupported protocol scheme ", wrong(overTransport, func(r *http.Request) { r.URL.Scheme = "gopher" })},
	{"http: no Host in request URL", wrong(overTransport, func(r *http.Request) { r.URL.Host = "" })},
	{"refusing to use HTTP_PROXY value in CGI environment; ", func(t *testing.T) error {
		_, err := (&httpproxy.Config{HTTPProxy: "http://p.test", CGI: true}).ProxyFunc()(request(t, "GET", "http://h.test/", nil).URL)
		return err
	}},
	{"http: invalid header ", wrong(clientConn, badHeader)},
	{"http: invalid trailer ", wrong(clientConn, badTrailer)},
	{"http: invalid method ", wrong(clientConn, badMethod)},

	{"http: Request.Write on Request with no Host or URL set", func(*testing.T) error {
		return (&http.Request{}).Write(io.Discard)
	}},
	{"http: invalid Host header", func(t *testing.T) error {
		r := request(t, "GET", "http://127.0.0.1/", nil)
		r.Host = "two words"
		return r.WriteProxy(io.Discard)
	}},
	{"net/http: can't write control character in Request.URL", func(t *testing.T) error {
		r := request(t, "GET", listen(t, discard), nil)
		r.URL.Opaque = "/\x00"
		return send(transport(t), r)
	}},
	{"http: Request.ContentLength=", func(t *testing.T) error {
		r := request(t, "POST", listen(t, discard), nil)
		r.ContentLength = 5
		return send(transport(t), r)
	}},
	{"http: ContentLength=", func(t *testing.T) error {
		r := request(t, "POST", listen(t, discard), unknownLength("abc"))
		r.ContentLength = 5
		return send(transport(t), r)
	}},
	{"request header list larger than peer's advertised limit", func(t *testing.T) error {
		target := listen(t, func(c net.Conn) {
			h2 := serveHTTP2(c, http2.Setting{ID: http2.SettingMaxHeaderListSize, Val: 10})
			for h2.headers() {
				h2.respond()
			}
		})
		tr := transportHTTP2(t)
		if err := send(tr, request(t, "GET", target, nil)); err != nil {
			return err
		}
		return send(tr, request(t, "GET", target, nil)) // the setting came before the response
	}},
	{"stopped after 10 redirects", func(t *testing.T) error {
		c := http.Client{Transport: responds(302, "Location", "/again")}
		return do(&c, request(t, "GET", "http://127.0.0.1/", nil))
	}},
	{"failed to parse Location header ", func(t *testing.T) error {
		c := http.Client{Transport: responds(302, "Location", ":")}
		return do(&c, request(t, "GET", "http://127.0.0.1/", nil))
	}},

	{"Request Timeout", byProxy("408 Request Timeout")},
	{"Request Time-out", byProxy("408 Request Time-out")},
	{"Too Many Requests", byProxy("429 Too Many Requests")},
	{"Internal Server Error", byProxy("500 Internal Server Error")},
	{"Bad Gateway", byProxy("502 Bad Gateway")},
	{"Service Unavailable", byProxy("503 Service Unavailable")},
	{"Service Temporarily Unavailable", byProxy("503 Service Temporarily Unavailable")},
	{"Gateway Timeout", byProxy("504 Gateway Timeout")},
	{"Gateway Time-out", byProxy("504 Gateway Time-out")},

	{`malformed HTTP response "\x15\x03`, raw("\x15\x03\x03\x00\x02\x02\x0a")},
	{"malformed HTTP response ", raw("ICY\r\n\r\n")},
	{"malformed HTTP status code ", raw("HTTP/1.1 2xx OK\r\n\r\n")},
	{"malformed HTTP version ", raw("HTTP/one 200 OK\r\n\r\n")},
	{"unsupported transfer encoding: ", raw("HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n")},
	{"too many transfer encodings: ", raw("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n")},
	{"http: message cannot contain multiple Content-Length headers; ", raw("HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n")},
	{"invalid empty Content-Length ", raw("HTTP/1.1 200 OK\r\nContent-Length: \r\n\r\n")},
	{"bad Content-Length ", raw("HTTP/1.1 200 OK\r\nContent-Length: many\r\n\r\n")},
	{"net/http: server response headers exceeded ", func(t *testing.T) error {
		tr := transport(t)
		tr.MaxResponseHeaderBytes = 100
		target := listen(t, says11("HTTP/1.1 200 OK\r\nX: "+strings.Repeat("x", 10_000)+"\r\n\r\n"))
		return send(tr, request(t, "GET", target, nil))
	}},
	{"http2: response header list larger than advertised limit", func(t *testing.T) error {
		target := listen(t, met(func(h2 *http2Server) {
			h2.respond(bytes.Repeat(append([]byte{0, 1, 'x', 100}, strings.Repeat("x", 100)...), 100)...)
			discard(h2.conn)
		}))
		tr := transportHTTP2(t)
		tr.MaxResponseHeaderBytes = 8000
		return send(tr, request(t, "GET", target, nil))
	}},
	{"connection error: HTTP_1_1_REQUIRED", func(t *testing.T) error { return errors.New("connection error: HTTP_1_1_REQUIRED") }},
	{"connection error: ", byHTTP2(func(h2 *http2Server) { _ = h2.WriteRawFrame(http2.FrameSettings, 0, h2.stream, nil) })},
	{"http2: frame too large", byHTTP2(func(h2 *http2Server) {
		_, _ = h2.conn.Write([]byte{0xff, 0xff, 0xff, byte(http2.FrameHeaders), 0, 0, 0, 0, 1})
	})},

	{"net/http: request canceled while waiting for connection", func(t *testing.T) error {
		cancel := make(chan struct{})
		tr := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			close(cancel)
			<-ctx.Done()
			return nil, ctx.Err()
		}}
		r := request(t, "GET", "http://127.0.0.1/", nil)
		cancelWith(r, cancel)
		return send(tr, r)
	}},
	{"net/http: request canceled", func(t *testing.T) error {
		cancel := make(chan struct{})
		r := request(t, "GET", listen(t, func(c net.Conn) {
			_, _ = http.ReadRequest(bufio.NewReader(c))
			close(cancel)
			discard(c)
		}), nil)
		cancelWith(r, cancel)
		return send(transport(t), r)
	}},

	{"net/http: TLS handshake timeout", func(t *testing.T) (err error) {
		synctest.Test(t, func(t *testing.T) {
			tr := pipeTransport(discard)
			tr.TLSHandshakeTimeout = time.Minute
			err = send(tr, request(t, "GET", "https://host.invalid/", nil))
		})
		return err
	}},
	{"tls: ", func(t *testing.T) error {
		c, _ := net.Pipe()
		return tls.Client(c, &tls.Config{MinVersion: tls.VersionTLS12}).HandshakeContext(t.Context())
	}},
	{"x509: ", func(*testing.T) error {
		_, err := x509.ParseCertificate([]byte("nonsense"))
		return err
	}},

	{"no acceptable authentication methods", throughSOCKS(nil, "\x05\xff")},
	{"invalid username/password", throughSOCKS(url.UserPassword("", "secret"), "\x05\x02")},
	{"username/password authentication failed", throughSOCKS(url.UserPassword("me", "secret"), "\x05\x02", "\x01\x01")},
	{"unknown error connection not allowed by ruleset", throughSOCKS(nil, "\x05\x00", "\x05\x02\x00\x01\x00\x00\x00\x00\x00\x00")},

	{"http: server closed idle connection", closedIdle},
	{"net/http: cannot rewind body after connection loss", func(t *testing.T) error {
		tr := &http.Transport{}
		tr.RegisterProtocol("http", roundTripper(func(r *http.Request) (*http.Response, error) {
			_, _ = io.Copy(io.Discard, r.Body)
			return nil, http.ErrSkipAltProtocol
		}))
		return send(tr, request(t, "POST", "http://127.0.0.1/", unknownLength("abc")))
	}},
	{"http2: client connection lost", func(t *testing.T) (err error) {
		synctest.Test(t, func(t *testing.T) {
			tr := pipeTransport(discard)
			tr.Protocols = onlyHTTP2()
			tr.HTTP2 = &http.HTTP2Config{SendPingTimeout: time.Minute, PingTimeout: time.Minute}
			err = send(tr, request(t, "GET", "http://host.invalid/", nil))
		})
		return err
	}},
	{"http2: client connection force closed via ClientConn.Close", func(t *testing.T) error {
		ready := make(chan struct{})
		cc := clientConnHTTP2(t, met(func(h2 *http2Server) {
			close(ready)
			discard(h2.conn)
		}))
		go func() {
			<-ready
			_ = cc.Close()
		}()
		return send(cc, request(t, "GET", "http://127.0.0.1/", nil))
	}},
	{"http2: server sent GOAWAY and closed the connection; ", byHTTP2(func(h2 *http2Server) { _ = h2.WriteGoAway(h2.stream, 0, nil) })},
	{"http2: Transport received Server's graceful shutdown GOAWAY", func(t *testing.T) error {
		cc := clientConnHTTP2(t, met(func(h2 *http2Server) {
			_ = h2.WriteGoAway(0, 0, nil)
			discard(h2.conn)
		}))
		return send(cc, request(t, "GET", "http://127.0.0.1/", nil))
	}},
	{"http2: Transport received GOAWAY from server ErrCode:HTTP_1_1_REQUIRED", byHTTP2(func(h2 *http2Server) {
		_ = h2.WriteGoAway(0, http2.ErrCodeHTTP11Required, nil)
		discard(h2.conn)
	})},
	{"http2: Transport received GOAWAY from server ErrCode:", byHTTP2(func(h2 *http2Server) {
		_ = h2.WriteGoAway(0, http2.ErrCodeEnhanceYourCalm, nil)
		discard(h2.conn)
	})},
	{"http2: client conn not usable", func(t *testing.T) error {
		cc := clientConnHTTP2(t, met(func(h2 *http2Server) {
			_ = h2.WriteGoAway(h2.stream, 0, nil)
			h2.respond()
			discard(h2.conn)
		}))
		require.NoError(t, send(cc, request(t, "GET", "http://127.0.0.1/", nil)))
		return send(cc, request(t, "GET", "http://127.0.0.1/", nil))
	}},
	{"http2: client conn could not be established", func(t *testing.T) error {
		closed := make(chan struct{})
		tr := &http.Transport{Protocols: onlyHTTP2()}
		tr.DialContext = func(context.Context, string, string) (net.Conn, error) {
			c, server := net.Pipe()
			go func() {
				_, _ = server.Read(make([]byte, 1<<10)) // the preface and all that comes with it
				_ = server.Close()
			}()
			return &watchedConn{Conn: c, onClose: sync.OnceFunc(func() { close(closed) })}, nil
		}
		cc, err := tr.NewClientConn(t.Context(), "http", "host.invalid:80")
		if err != nil {
			return err
		}
		<-closed // the read loop has found out
		return send(cc, request(t, "GET", "http://host.invalid/", nil))
	}},
}

// TestPhrasesAreNotSoughtInWrappers: the text of a URL or of a message around
// the error is the caller's, also where it begins like one of the phrases.
func TestPhrasesAreNotSoughtInWrappers(t *testing.T) {
	err := &url.Error{Op: "Get", URL: "http: no Host in request URL", Err: io.EOF}
	assert.Equal(t, ErrorReset, ErrorTypeOf(err))
	assert.Equal(t, ErrorOther, ErrorTypeOf(errors.New("mine: http: no Host in request URL")))
	assertJudged(t, fmt.Errorf("tls: %w", &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}), ErrorDial, Refused)
	assertJudged(t, fmt.Errorf("connection error: %w", context.Canceled), ErrorCanceled, Ambiguous)
}

// TestHTTP2Streams: what a reset of one stream proves.
func TestHTTP2Streams(t *testing.T) {
	reset := func(code http2.ErrCode) func(*http2Server) {
		return func(h2 *http2Server) {
			_ = h2.WriteRSTStream(h2.stream, code)
			discard(h2.conn)
		}
	}
	for code, want := range map[http2.ErrCode]Class{
		http2.ErrCodeProtocol: Ambiguous, http2.ErrCodeInternal: Ambiguous, http2.ErrCodeCancel: Ambiguous,
		http2.ErrCodeEnhanceYourCalm: Ambiguous, http2.ErrCodeRefusedStream: Refused, http2.ErrCodeHTTP11Required: Final,
	} {
		name, kind := code.String(), ErrorReset
		if want == Final {
			kind = ErrorProtocol
		}
		t.Run(name, func(t *testing.T) {
			err := send(clientConnHTTP2(t, met(reset(code))), request(t, "GET", "http://127.0.0.1/", nil))
			require.ErrorContains(t, err, name)
			assertJudged(t, err, kind, want)
		})
		t.Run(name+" after the body", func(t *testing.T) {
			err := http2Error(t, "POST", unknownLength("abc"), reset(code))
			require.ErrorContains(t, err, name)
			assertJudged(t, err, kind, want)
		})
		t.Run(name+" of golang.org/x/net", func(t *testing.T) {
			assertJudged(t, errors.New("stream error: stream ID 5; "+name+"; received from peer"), kind, want)
		})
	}
	t.Run("graceful GOAWAY after the body", func(t *testing.T) {
		err := http2Error(t, "POST", unknownLength("abc"), func(h2 *http2Server) {
			_ = h2.WriteGoAway(0, 0, nil)
			discard(h2.conn)
		})
		require.ErrorContains(t, err, "cannot retry err [http2: Transport received Server's graceful shutdown GOAWAY]")
		assertJudged(t, err, ErrorReset, Refused)
	})
	t.Run("a cause that nobody knows", func(t *testing.T) {
		assertJudged(t, errors.New("http2: Transport: cannot retry err [surprise] after Request.Body was written;"+
			" define Request.GetBody to avoid this error"), ErrorReset, Ambiguous)
	})
}

// TestNothingWritten: a connection on which the first Write fails. Its two loops
// learn of the end in either order, and one of them hides that nothing was
// written.
func TestNothingWritten(t *testing.T) {
	for range 1000 {
		tr := &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) {
			c, server := net.Pipe()
			t.Cleanup(func() { _ = server.Close() })
			return &watchedConn{Conn: c, writeErr: &net.OpError{Op: "write", Net: "tcp", Err: errors.New("gone")}}, nil
		}}
		err := send(tr, request(t, "POST", "http://127.0.0.1/", nil))
		require.Error(t, err)
		if trait.Wraps(err, isNothingWritten) {
			assertJudged(t, err, ErrorReset, Refused)
			return
		}
		assertJudged(t, err, ErrorReset, Ambiguous)
	}
	t.Fatal("net/http never said that nothing was written")
}

func assertJudged(t *testing.T, err error, kind ErrorType, v Class) {
	t.Helper()
	gotKind, got := judge(err)
	assert.Equal(t, kind, gotKind, "%T %v", err, err)
	assert.Equal(t, v, got, "%T %v", err, err)
}

// closedIdle has the server close an idle connection between the moment at
// which the transport picks it for a request and that at which it uses it.
func closedIdle(t *testing.T) error {
	for range 1000 {
		var server net.Conn
		closed := make(chan struct{})
		tr := &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) {
			var c net.Conn
			c, server = net.Pipe()
			go func() {
				_, _ = http.ReadRequest(bufio.NewReader(server))
				_, _ = io.WriteString(server, "HTTP/1.1 204 No Content\r\n\r\n")
			}()
			return &watchedConn{Conn: c, onClose: sync.OnceFunc(func() { close(closed) })}, nil
		}}
		require.NoError(t, send(tr, request(t, "GET", "http://127.0.0.1/", nil)))
		r := request(t, "POST", "http://127.0.0.1/", unknownLength("abc"))
		err := send(tr, r.WithContext(httptrace.WithClientTrace(r.Context(), &httptrace.ClientTrace{
			GotConn: func(httptrace.GotConnInfo) {
				_ = server.Close()
				<-closed // by the read loop, which has met the end
			},
		})))
		// The connection's two loops learn of the end in either order; the other
		// order leads to a failed Write.
		if err != nil && err.Error() == "http: server closed idle connection" {
			return err
		}
		tr.CloseIdleConnections()
	}
	return nil
}

// --- provoking

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func responds(code int, key, value string) http.RoundTripper {
	return roundTripper(func(r *http.Request) (*http.Response, error) {
		return &http.Response{StatusCode: code, Header: http.Header{key: {value}}, Body: http.NoBody, Request: r}, nil
	})
}

func request(t *testing.T, method, target string, body io.Reader) *http.Request {
	t.Helper()
	return testkit.Must(http.NewRequestWithContext(t.Context(), method, target, body))(t)
}

// unknownLength is a body for which net/http makes neither length nor GetBody.
func unknownLength(s string) io.Reader { return io.NopCloser(strings.NewReader(s)) }

// wrong sends a request that was changed in the wrong way.
func wrong(over func(*testing.T) http.RoundTripper, change func(*http.Request)) func(*testing.T) error {
	return func(t *testing.T) error {
		r := request(t, "GET", "http://127.0.0.1/", nil)
		change(r)
		return send(over(t), r)
	}
}

func overTransport(*testing.T) http.RoundTripper { return &http.Transport{} }

func badHeader(r *http.Request)  { r.Header["X"] = []string{"a\nb"} }
func badTrailer(r *http.Request) { r.Trailer = http.Header{"X": {"a\nb"}} }
func badMethod(r *http.Request)  { r.Method = "TWO WORDS" }

// cancelWith uses the old way to cancel, which net/http still reports in its own
// words.
func cancelWith(r *http.Request, cancel <-chan struct{}) {
	//lint:ignore SA1019 the deprecated field is what leads to the error
	r.Cancel = cancel
}

func send(rt http.RoundTripper, r *http.Request) error {
	resp, err := rt.RoundTrip(r)
	if err == nil {
		_, _ = io.Copy(io.Discard, resp.Body)
		_ = resp.Body.Close()
	}
	return err
}

func do(c *http.Client, r *http.Request) error {
	resp, err := c.Do(r)
	if err == nil {
		_ = resp.Body.Close()
	}
	return err
}

func transport(t *testing.T) *http.Transport {
	tr := &http.Transport{}
	t.Cleanup(tr.CloseIdleConnections)
	return tr
}

func onlyHTTP2() *http.Protocols {
	p := &http.Protocols{}
	p.SetUnencryptedHTTP2(true)
	return p
}

func transportHTTP2(t *testing.T) *http.Transport {
	tr := transport(t)
	tr.Protocols = onlyHTTP2()
	return tr
}

// listen serves every connection with f, and closes it afterwards; the result
// is the server's URL.
func listen(t *testing.T, f func(net.Conn)) string {
	t.Helper()
	l := testkit.Must(net.Listen("tcp", "127.0.0.1:0"))(t)
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				f(c)
			}()
		}
	}()
	return "http://" + l.Addr().String()
}

func discard(c net.Conn) { _, _ = io.Copy(io.Discard, c) }

// says11 responds to the first request with the given bytes.
func says11(response string) func(net.Conn) {
	return func(c net.Conn) {
		_, _ = http.ReadRequest(bufio.NewReader(c))
		_, _ = io.WriteString(c, response)
		discard(c)
	}
}

// by provokes the error of a server.
func by(serve func(net.Conn)) func(*testing.T) error {
	return func(t *testing.T) error { return send(transport(t), request(t, "GET", listen(t, serve), nil)) }
}

func raw(response string) func(*testing.T) error { return by(says11(response)) }

// byHTTP2 provokes the error of a server of HTTP/2 that has got a request.
func byHTTP2(serve func(*http2Server)) func(*testing.T) error {
	return func(t *testing.T) error { return http2Error(t, "GET", nil, serve) }
}

func clientConn(t *testing.T) http.RoundTripper { return newClientConn(t, transport(t), discard) }

func clientConnHTTP2(t *testing.T, f func(net.Conn)) *http.ClientConn {
	return newClientConn(t, transportHTTP2(t), f)
}

func newClientConn(t *testing.T, tr *http.Transport, f func(net.Conn)) *http.ClientConn {
	cc := testkit.Must(tr.NewClientConn(t.Context(), "http", strings.TrimPrefix(listen(t, f), "http://")))(t)
	t.Cleanup(func() { _ = cc.Close() })
	return cc
}

// pipeTransport connects to f in memory.
func pipeTransport(f func(net.Conn)) *http.Transport {
	return &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) {
		c, server := net.Pipe()
		go f(server)
		return c, nil
	}}
}

// byProxy sends through a proxy that responds to CONNECT with the given status.
func byProxy(status string) func(*testing.T) error {
	return func(t *testing.T) error {
		proxy := testkit.Must(url.Parse(listen(t, says11("HTTP/1.1 "+status+"\r\n\r\n"))))(t)
		tr := transport(t)
		tr.Proxy = http.ProxyURL(proxy)
		return send(tr, request(t, "GET", "https://host.invalid/", nil))
	}
}

// throughSOCKS sends through a SOCKS proxy that responds to each message with the
// next of the given ones.
func throughSOCKS(user *url.Userinfo, replies ...string) func(*testing.T) error {
	return func(t *testing.T) error {
		proxy := listen(t, func(c net.Conn) {
			buf := make([]byte, 1<<10)
			for _, reply := range replies {
				if _, err := c.Read(buf); err != nil {
					return
				}
				_, _ = io.WriteString(c, reply)
			}
			discard(c)
		})
		u := testkit.Must(url.Parse(proxy))(t)
		u.Scheme, u.User = "socks5", user
		tr := transport(t)
		tr.Proxy = http.ProxyURL(u)
		return send(tr, request(t, "GET", "http://host.invalid/", nil))
	}
}

// A watchedConn tells when it is closed, and can fail to write.
type watchedConn struct {
	net.Conn
	onClose  func()
	writeErr error
}

func (c *watchedConn) Write(p []byte) (int, error) {
	if c.writeErr != nil {
		return 0, c.writeErr
	}
	return c.Conn.Write(p)
}

func (c *watchedConn) Close() error {
	err := c.Conn.Close()
	if c.onClose != nil {
		c.onClose()
	}
	return err
}

// --- HTTP/2, as far as a server needs it to fail

type http2Server struct {
	*http2.Framer
	conn   net.Conn
	stream uint32 // of the last HEADERS
}

// serveHTTP2 reads the preface and sends settings.
func serveHTTP2(c net.Conn, settings ...http2.Setting) *http2Server {
	_, _ = io.ReadFull(c, make([]byte, len(http2.ClientPreface)))
	h2 := &http2Server{http2.NewFramer(c, c), c, 0}
	_ = h2.WriteSettings(settings...)
	return h2
}

// respond sends a 200 with further fields.
func (h2 *http2Server) respond(fields ...byte) {
	_ = h2.WriteHeaders(http2.HeadersFrameParam{
		StreamID: h2.stream, BlockFragment: append([]byte{0x88}, fields...), EndHeaders: true, EndStream: true,
	})
}

// headers waits for the next request.
func (h2 *http2Server) headers() bool {
	for {
		f, err := h2.ReadFrame()
		if err != nil {
			return false
		}
		if f.Header().Type == http2.FrameHeaders {
			h2.stream = f.Header().StreamID
			return true
		}
	}
}

// met serves a connection of HTTP/2, and meets its first request with f.
func met(f func(*http2Server)) func(net.Conn) {
	return func(c net.Conn) {
		if h2 := serveHTTP2(c); h2.headers() {
			f(h2)
		}
	}
}

// http2Error sends a request that the server meets with f.
func http2Error(t *testing.T, method string, body io.Reader, f func(*http2Server)) error {
	return send(transportHTTP2(t), request(t, method, listen(t, met(f)), body))
}
