package transport_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	ts "github.com/aplomb-go/aplomb/internal/testserver"
	"github.com/aplomb-go/aplomb/policy"
	"github.com/aplomb-go/aplomb/transport"
)

// A request whose own body fails is sent once, and its caller gets that error. The host, its
// gate, its connections and its budget are not to blame, whatever the error looks like.
func TestSourceOfAnUploadFails(t *testing.T) {
	gated := policy.Gate{Max: 100, Start: 100}
	rules := map[string]policy.Rule{
		"default":     {Gate: gated},
		"API":         policy.Rule{Gate: gated}.Or(policy.API()),
		"Service":     policy.Rule{Gate: gated}.Or(policy.Service()),
		"one attempt": {Gate: gated, Attempts: 1},
	}
	causes := map[string]error{
		"an error of its own": errors.New("disk error"),
		"unexpected EOF":      io.ErrUnexpectedEOF,
		"reset":               &net.OpError{Op: "read", Net: "tcp", Err: syscall.ECONNRESET},
		"refused":             &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED},
		"timeout":             os.ErrDeadlineExceeded,
	}
	for name, rule := range rules {
		t.Run(name, func(t *testing.T) {
			inMemory(t, slices.Concat(http1, http2), func(t *testing.T, cfg ts.Config) {
				for what, cause := range causes {
					cfg.Net = ts.NewNet()
					s := set(t, cfg, rule, ts.OK("hello"))
					source := func() (io.ReadCloser, error) {
						return io.NopCloser(io.MultiReader(strings.NewReader(strings.Repeat("x", 2000)), iotest.ErrReader(cause))), nil
					}
					for i := range 40 {
						method := []string{http.MethodPut, http.MethodPost}[i%2]
						body, _ := source()
						req := s.request(method, body)
						if req.ContentLength = 100_000; i%4 > 1 {
							req.GetBody = source
						}
						got := s.do(req)
						require.ErrorIs(t, got.err, cause, "%s: %s %d", what, method, i)
						assert.Equal(t, transport.ReasonFinal, s.seen.last(), "%s: %s %d", what, method, i)
						time.Sleep(75 * time.Millisecond)
					}
					state := s.tr.Snapshot()[0]
					assert.False(t, state.GateClosed, what)
					assert.Zero(t, state.Lanes, what)
					assert.EqualValues(t, 40, state.Requests, what)
					for _, e := range s.seen.events() {
						assert.Equal(t, 1, e.Attempt.Number, "%s: an attempt after the source had failed", what)
					}
				}
			})
		})
	}
}

// A body of an earlier attempt that fails when its connection breaks was closed by the base
// transport, so it is the connection that failed.
func TestSourceIsClosedByTheBase(t *testing.T) {
	bubble(t, func(t *testing.T) {
		pr, pw := io.Pipe()
		defer func() { _ = pw.Close() }()
		base := script(status(200))
		broken := rt(func(req *http.Request) (*http.Response, error) {
			if base.attempts() > 0 {
				return base.RoundTrip(req)
			}
			_, _ = base.RoundTrip(newRequest(t, http.MethodGet, "http://example.com/", nil))
			read := make(chan struct{})
			go func() {
				defer close(read)
				_, _ = io.Copy(io.Discard, req.Body)
			}()
			time.Sleep(time.Second)
			_ = req.Body.Close()
			<-read
			return nil, &net.OpError{Op: "write", Net: "tcp", Err: syscall.ECONNRESET}
		})
		seen := &recorder{}
		tr := mustNew(t, transport.Config{Base: broken, Trace: seen.trace()})
		req := newRequest(t, http.MethodPut, "http://example.com/", pr)
		req.GetBody = func() (io.ReadCloser, error) { return oneShot("again"), nil }
		resp, err := tr.RoundTrip(req)
		require.NoError(t, err)
		assert.NoError(t, resp.Body.Close())
		assert.Equal(t, []transport.Reason{transport.ReasonRetry, transport.ReasonFinal}, seen.reasons())
	})
}

// The base transport may close the body during a Read and wait for its end, as net/http does if a
// stream of HTTP/2 is reset. A request that is sent once only is not held up by that.
func TestCloseEndsTheReadOfASingleAttempt(t *testing.T) {
	for name, ctx := range map[string]func(context.Context) context.Context{
		"one attempt": func(ctx context.Context) context.Context { return ctx },
		"Once":        transport.Once,
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				source, w := io.Pipe()
				defer func() { _ = w.Close() }()
				base := rt(func(req *http.Request) (*http.Response, error) {
					read := make(chan struct{})
					go func() {
						defer close(read)
						_, _ = io.Copy(io.Discard, req.Body)
					}()
					synctest.Wait()
					_ = req.Body.Close()
					<-read
					return nil, io.ErrUnexpectedEOF
				})
				rule := policy.Rule{}
				if name == "one attempt" {
					rule.Attempts = 1
				}
				req := newRequest(t, http.MethodPut, "http://example.com/", source)
				start := time.Now()
				_, err := mustNew(t, transport.Config{Base: base, Rule: rule}).RoundTrip(req.WithContext(ctx(req.Context())))
				assert.ErrorIs(t, err, io.ErrUnexpectedEOF)
				assert.Zero(t, time.Since(start))
			})
		})
	}
}
