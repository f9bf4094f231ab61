// Package http3 tests the transport over quic-go's http3.Transport.
package http3

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/quic-go/quic-go"
	"github.com/quic-go/quic-go/http3"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/aplomb-go/aplomb/classify"
	"github.com/aplomb-go/aplomb/internal/soak"
	"github.com/aplomb-go/aplomb/internal/testkit"
	"github.com/aplomb-go/aplomb/policy"
	"github.com/aplomb-go/aplomb/policy/backoff"
	"github.com/aplomb-go/aplomb/transport"
)

// certificate returns a certificate for 127.0.0.1 and the pool that trusts it.
func certificate() (tls.Certificate, *x509.CertPool) {
	s := httptest.NewTLSServer(nil)
	defer s.Close()
	pool := x509.NewCertPool()
	pool.AddCert(s.Certificate())
	return s.TLS.Certificates[0], pool
}

// A site is an HTTP/3 server and a client for it.
type site struct {
	url    string
	base   *http3.Transport // may be changed before the first request
	client *http.Client

	mu     sync.Mutex
	reqs   []*http.Request // as the server saw them
	events []transport.AttemptEnd
}

// serve starts a server on the loopback interface. handler gets the number of
// the request, from 1.
func serve(t *testing.T, rule policy.Rule, handler func(n int, w http.ResponseWriter, req *http.Request)) *site {
	t.Helper()
	t.Setenv("QUIC_GO_DISABLE_RECEIVE_BUFFER_WARNING", "true")
	cert, pool := certificate()
	conn := testkit.Must(net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)}))(t)
	s := &site{url: "https://" + conn.LocalAddr().String()}
	server := &http3.Server{
		TLSConfig: http3.ConfigureTLSConfig(&tls.Config{Certificates: []tls.Certificate{cert}}),
		Handler: http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
			s.mu.Lock()
			s.reqs = append(s.reqs, req.Clone(context.WithoutCancel(req.Context())))
			n := len(s.reqs)
			s.mu.Unlock()
			handler(n, w, req)
		}),
	}
	server.ConnContext = func(ctx context.Context, c *quic.Conn) context.Context { return context.WithValue(ctx, connKey{}, c) }
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = server.Serve(conn) // its error is that of Close
	}()
	s.base = &http3.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}, QUICConfig: &quic.Config{}}
	tr := transport.MustNew(transport.Config{
		Base: s.base,
		Rule: rule.Or(policy.Rule{Backoff: backoff.Constant(0), RetryBudget: policy.RetryBudget{Enabled: policy.Off}}),
		Traces: []*transport.Trace{&transport.Trace{AttemptEnd: func(_ context.Context, e transport.AttemptEnd) {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.events = append(s.events, e)
		}}},
	})
	s.client = &http.Client{Transport: tr}
	t.Cleanup(func() {
		assert.NoError(t, s.base.Close())
		assert.NoError(t, server.Close())
		<-done
		_ = conn.Close()
	})
	return s
}

func (s *site) do(t *testing.T, method, path, body string) (*http.Response, []byte, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute) // ends a test that hangs
	t.Cleanup(cancel)
	var sent io.Reader
	if body != "" {
		sent = strings.NewReader(body)
	}
	req := testkit.Must(http.NewRequestWithContext(ctx, method, s.url+path, sent))(t)
	resp, err := s.client.Do(req)
	if err != nil {
		return nil, nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	got, err := io.ReadAll(resp.Body)
	return resp, got, err
}

// seen returns the requests that the server saw.
func (s *site) seen() []*http.Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]*http.Request(nil), s.reqs...)
}

// told returns all events so far.
func (s *site) told() []transport.AttemptEnd {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]transport.AttemptEnd(nil), s.events...)
}

// connKey is the context key of a request's connection at the server.
type connKey struct{}

// reset resets the request's stream with a code of RFC 9114. Nothing of the
// response's body may have been written before.
func reset(w http.ResponseWriter, code http3.ErrCode) {
	stream, err := w.(http3.HTTPStreamer).HTTPStream()
	if err != nil {
		panic(err)
	}
	stream.CancelRead(quic.StreamErrorCode(code))
	stream.CancelWrite(quic.StreamErrorCode(code))
}

// If a stream is reset, the server may have acted, unless the code says that it
// did not.
func TestHTTP3ResetStreams(t *testing.T) {
	for _, row := range []struct {
		name, method string
		code         http3.ErrCode
		attempts     int // that the server sees
	}{
		{"an idempotent request", http.MethodGet, http3.ErrCodeInternalError, 2},
		{"a cancelled request", http.MethodGet, http3.ErrCodeRequestCanceled, 2},
		{"an idempotent request with a body", http.MethodPut, http3.ErrCodeInternalError, 2},
		{"a code that nobody knows", http.MethodDelete, 0x1234, 2},
		{"a request that the server may have acted on", http.MethodPost, http3.ErrCodeInternalError, 1},
		{"a request that HTTP/3 is not for", http.MethodGet, http3.ErrCodeVersionFallback, 1},
	} {
		t.Run(row.name, func(t *testing.T) {
			s := serve(t, policy.Rule{}, func(n int, w http.ResponseWriter, req *http.Request) {
				if n == 1 {
					reset(w, row.code)
					return
				}
				body, _ := io.ReadAll(req.Body)
				_, _ = fmt.Fprintf(w, "got %q", body)
			})
			body := ""
			if row.method == http.MethodPut || row.method == http.MethodPost {
				body = "text"
			}
			_, got, err := s.do(t, row.method, "/", body)
			assert.Len(t, s.seen(), row.attempts, "requests sent")
			if row.attempts == 1 {
				assert.Error(t, err)
				return
			}
			require.NoError(t, err)
			assert.Equal(t, fmt.Sprintf("got %q", body), string(got))
		})
	}
}

// quic-go sends a rejected request once more. If that attempt is rejected as
// well, the Transport sends the request again, whatever its method.
func TestHTTP3RejectedRequests(t *testing.T) {
	s := serve(t, policy.Rule{}, func(n int, w http.ResponseWriter, req *http.Request) {
		if n <= 4 {
			reset(w, http3.ErrCodeRequestRejected)
			return
		}
		body, _ := io.ReadAll(req.Body)
		_, _ = w.Write(body)
	})
	_, got, err := s.do(t, http.MethodPost, "/", "text")
	require.NoError(t, err)
	assert.Equal(t, "text", string(got))
	assert.Len(t, s.seen(), 5, "requests sent")
	for _, e := range s.told()[:2] {
		assert.Equal(t, classify.Refused, e.Class, "%v", e.Err)
	}
}

// A handler that panics looks like a failure of the server.
func TestHTTP3AbortedHandler(t *testing.T) {
	s := serve(t, policy.Rule{}, func(n int, w http.ResponseWriter, _ *http.Request) {
		if n < 3 {
			panic(http.ErrAbortHandler)
		}
		_, _ = io.WriteString(w, "at last")
	})
	_, got, err := s.do(t, http.MethodGet, "/", "")
	require.NoError(t, err)
	assert.Equal(t, "at last", string(got))
	assert.Len(t, s.seen(), 3, "requests sent")
}

// A download is continued at the same byte if its stream or its connection is
// cut.
func TestHTTP3CutDownloads(t *testing.T) {
	content := make([]byte, 1<<20)
	_, _ = rand.Read(content)
	for name, cut := range map[string]func(*http3.Stream, *quic.Conn){
		"reset": func(s *http3.Stream, _ *quic.Conn) {
			s.CancelWrite(quic.StreamErrorCode(http3.ErrCodeInternalError))
		},
		"cancelled": func(s *http3.Stream, _ *quic.Conn) {
			s.CancelWrite(quic.StreamErrorCode(http3.ErrCodeRequestCanceled))
		},
		"end": func(s *http3.Stream, _ *quic.Conn) { _ = s.Close() }, // before its Content-Length
		"connection": func(_ *http3.Stream, c *quic.Conn) {
			_ = c.CloseWithError(quic.ApplicationErrorCode(http3.ErrCodeInternalError), "going away")
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := serve(t, policy.Rule{}, func(n int, w http.ResponseWriter, req *http.Request) {
				w.Header().Set("ETag", `"v1"`)
				if n > 2 {
					http.ServeContent(w, req, "", time.Time{}, bytes.NewReader(content))
					return
				}
				first := 0
				_, _ = fmt.Sscanf(req.Header.Get("Range"), "bytes=%d-", &first)
				w.Header().Set("Content-Length", fmt.Sprint(len(content)-first))
				status := http.StatusOK
				if req.Header.Get("Range") != "" {
					status = http.StatusPartialContent
					w.Header().Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", first, len(content)-1, len(content)))
				}
				w.WriteHeader(status)
				stream, err := w.(http3.HTTPStreamer).HTTPStream()
				if assert.NoError(t, err) {
					_, _ = stream.Write(content[first : first+300_000])
					cut(stream, req.Context().Value(connKey{}).(*quic.Conn))
				}
			})
			_, got, err := s.do(t, http.MethodGet, "/", "")
			require.NoError(t, err)
			assert.True(t, bytes.Equal(content, got), "%d bytes", len(got))
			seen := s.seen()
			require.GreaterOrEqual(t, len(seen), 3)
			for _, req := range seen[1:] {
				if assert.Contains(t, req.Header.Get("Range"), "bytes=") {
					assert.Equal(t, `"v1"`, req.Header.Get("If-Range"))
				}
			}
		})
	}
}

// An answer of JSON without a validator is fetched again and compared, wherever it is cut,
// also twice in a row. Without a length that needs 512 bytes.
func TestHTTP3CutAnswers(t *testing.T) {
	content := bytes.Repeat([]byte(`{"id":"0123456789"},`), 1000)
	const cuts = 2
	for _, length := range []bool{true, false} {
		t.Run(fmt.Sprintf("length=%v", length), func(t *testing.T) {
			var at atomic.Int64
			s := serve(t, policy.Rule{}, func(n int, w http.ResponseWriter, req *http.Request) {
				w.Header().Set("Content-Type", "application/json")
				if length {
					w.Header().Set("Content-Length", fmt.Sprint(len(content)))
				}
				if n%(cuts+1) == 0 {
					_, _ = w.Write(content)
					return
				}
				w.WriteHeader(http.StatusOK)
				w.(http.Flusher).Flush()
				stream, err := w.(http3.HTTPStreamer).HTTPStream()
				if assert.NoError(t, err) {
					_, _ = stream.Write(content[:int(at.Load())/(n%(cuts+1))])
					stream.CancelWrite(quic.StreamErrorCode(http3.ErrCodeInternalError))
				}
			})
			whole := 0
			for ; at.Load() < int64(len(content)); at.Add(int64(soak.Size(1999, 97))) {
				_, got, err := s.do(t, http.MethodGet, "/", "")
				if err != nil && !length && len(got) < 512 {
					continue // the reset of a stream drops what was not read yet, and so little may be of a stream
				}
				require.NoError(t, err, "at %d", at.Load())
				require.True(t, bytes.Equal(content, got), "%d bytes", len(got))
				whole++
			}
			assert.Greater(t, whole, 1)
		})
	}
}

// A connection that cannot be made is a reason to try again. An untrusted
// certificate is not. quic-go has the same error for a failed handshake and for
// a response that does not arrive, so a POST is not sent again.
func TestHTTP3Connections(t *testing.T) {
	t.Run("nobody is there", func(t *testing.T) {
		s := serve(t, policy.Rule{MaxAttempts: 2}, nil)
		// Nobody reads from this socket.
		silent := testkit.Must(net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)}))(t)
		defer func() { _ = silent.Close() }()
		s.url = "https://" + silent.LocalAddr().String()
		s.base.QUICConfig.HandshakeIdleTimeout = 50 * time.Millisecond
		_, _, err := s.do(t, http.MethodGet, "/", "")
		require.Error(t, err)
		_, _, err = s.do(t, http.MethodPost, "/", "text")
		require.Error(t, err)
		told := s.told()
		require.Len(t, told, 3)
		assert.Equal(t, transport.ReasonRetry, told[0].Reason)
		assert.Equal(t, classify.ErrorTimeout, classify.ErrorTypeOf(told[0].Err), "%v", told[0].Err)
		assert.Equal(t, transport.ReasonMaxAttempts, told[1].Reason)
		assert.Equal(t, transport.ReasonNotIdempotent, told[2].Reason)
	})
	t.Run("nobody trusts it", func(t *testing.T) {
		s := serve(t, policy.Rule{}, nil)
		s.base.TLSClientConfig.RootCAs = nil
		final(t, s)
	})
	t.Run("it speaks something else", func(t *testing.T) {
		s := serve(t, policy.Rule{}, nil)
		cert, pool := certificate()
		other, err := quic.ListenAddr("127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{cert}, NextProtos: []string{"other"}}, nil)
		require.NoError(t, err)
		defer func() { _ = other.Close() }()
		s.base.TLSClientConfig.RootCAs = pool
		s.url = "https://" + other.Addr().String()
		final(t, s) // the alert of the server
	})
	t.Run("it closes the connection", func(t *testing.T) {
		s := serve(t, policy.Rule{MaxAttempts: 2}, func(n int, w http.ResponseWriter, req *http.Request) {
			if n == 1 {
				_ = req.Context().Value(connKey{}).(*quic.Conn).CloseWithError(quic.ApplicationErrorCode(http3.ErrCodeNoError), "")
				return
			}
			_, _ = io.WriteString(w, "back")
		})
		_, got, err := s.do(t, http.MethodGet, "/", "")
		require.NoError(t, err)
		assert.Equal(t, "back", string(got))
	})
}

// final sends a request whose failure to make a secure connection is final.
func final(t *testing.T, s *site) {
	t.Helper()
	_, _, err := s.do(t, http.MethodGet, "/", "")
	require.Error(t, err)
	told := s.told()
	require.Len(t, told, 1)
	assert.Equal(t, transport.ReasonFinal, told[0].Reason)
	assert.Equal(t, classify.ErrorTLS, classify.ErrorTypeOf(told[0].Err), "%v", told[0].Err)
}

// An end of the caller's own context is reported as such.
func TestHTTP3CancelledByTheCaller(t *testing.T) {
	started := make(chan struct{})
	s := serve(t, policy.Rule{}, func(_ int, _ http.ResponseWriter, req *http.Request) {
		close(started)
		<-req.Context().Done()
	})
	ctx, cancel := context.WithCancel(t.Context())
	go func() { <-started; cancel() }()
	req := testkit.Must(http.NewRequestWithContext(ctx, http.MethodGet, s.url, nil))(t)
	_, err := s.client.Do(req)
	require.ErrorIs(t, err, context.Canceled)
	assert.Len(t, s.seen(), 1, "requests sent")
}
