package transport_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/aplomb-go/aplomb/classify"
	"github.com/aplomb-go/aplomb/internal/testserver"
	"github.com/aplomb-go/aplomb/policy"
	"github.com/aplomb-go/aplomb/transport"
)

func TestStalledBodyIsResumed(t *testing.T) {
	inMemory(t, anyHTTP, func(t *testing.T, cfg testserver.Config) {
		body := testserver.Pattern(100_000)
		content := testserver.Content(body, `"v1"`)
		s := set(t, cfg, policy.Rule{StallTimeout: 20 * time.Second}.Or(exact), content.CutAt(10_000, testserver.Stall), content)
		start := time.Now()
		got := s.send(http.MethodGet, nil)
		require.NoError(t, got.err)
		assert.Equal(t, testserver.Hash(body), testserver.Hash([]byte(got.body)))
		assert.Equal(t, 21*time.Second, time.Since(start), "the stall, and a back-off")
		s.tr.CloseIdleConnections()
	})
}

func TestStalledHeadersAreRetried(t *testing.T) {
	inMemory(t, anyHTTP, func(t *testing.T, cfg testserver.Config) {
		s := set(t, cfg, policy.Rule{StallTimeout: 20 * time.Second}.Or(exact), testserver.Hang(), testserver.OK("hello"))
		got := s.send(http.MethodGet, nil)
		require.NoError(t, got.err)
		assert.GreaterOrEqual(t, got.elapsed, 21*time.Second)
		assert.LessOrEqual(t, got.elapsed, 28*time.Second)
		s.tr.CloseIdleConnections()
	})
}

// TestInterimResponses: interim responses are progress, but end neither the AttemptTimeout nor the bound
// of headers that net/http has.
func TestInterimResponses(t *testing.T) {
	const pause = 200 * time.Millisecond
	for _, row := range []struct {
		name            string
		rule            policy.Rule
		interims, bytes int           // each with so many bytes in a field
		before          time.Duration // the first
		hook            bool          // the caller's own
		took            time.Duration
		is              error // nil: there is a response, unless there are too many bytes
		large           bool
	}{
		{name: "progress", rule: policy.Rule{StallTimeout: 500 * time.Millisecond}, interims: 10, took: 10 * pause},
		{name: "progress, and the caller's hook", rule: policy.Rule{StallTimeout: 500 * time.Millisecond}, interims: 10, hook: true, took: 10 * pause},
		{name: "a stall before them", rule: policy.Rule{StallTimeout: 500 * time.Millisecond}, before: time.Second, interims: 10, took: 500 * time.Millisecond, is: policy.ErrStallTimeout},
		{name: "a long AttemptTimeout", rule: policy.Rule{StallTimeout: 500 * time.Millisecond, AttemptTimeout: time.Minute}, interims: 10, took: 10 * pause},
		{name: "AttemptTimeout", rule: policy.Rule{StallTimeout: 500 * time.Millisecond, AttemptTimeout: 1100 * time.Millisecond}, interims: 10, took: 1100 * time.Millisecond, is: policy.ErrAttemptTimeout},
		{name: "AttemptTimeout alone", rule: policy.Rule{AttemptTimeout: 1100 * time.Millisecond}, interims: 10, took: 1100 * time.Millisecond, is: policy.ErrAttemptTimeout},
		{name: "for ever", rule: policy.Rule{StallTimeout: 500 * time.Millisecond}, interims: 1000, bytes: 1000, took: 63 * pause, large: true},
		{name: "for ever, and the caller's hook", rule: policy.Rule{StallTimeout: 500 * time.Millisecond}, interims: 100, bytes: 1000, hook: true, took: 100 * pause},
	} {
		for _, h2 := range []bool{false, true} {
			for _, method := range []string{http.MethodGet, http.MethodPut, http.MethodPost} {
				inBubble(t, fmt.Sprintf("%s/h2=%v/%s", row.name, h2, method), func(t *testing.T) {
					network, at := testserver.NewNet(), "h.test:80"
					l, err := network.Listen(at)
					require.NoError(t, err)
					var protocols http.Protocols
					protocols.SetHTTP1(!h2)
					protocols.SetUnencryptedHTTP2(h2)
					var sent, seen atomic.Int32
					server := &http.Server{Protocols: &protocols, Handler: http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
						sent.Add(1)
						_, _ = io.Copy(io.Discard, req.Body)
						time.Sleep(row.before)
						for range row.interims {
							if req.Context().Err() != nil {
								return
							}
							w.Header().Set("X-Pad", strings.Repeat("x", row.bytes))
							w.WriteHeader(http.StatusProcessing)
							time.Sleep(pause)
						}
					})}
					go func() { _ = server.Serve(l) }()
					base := &http.Transport{DialContext: network.DialContext, Protocols: &protocols, MaxResponseHeaderBytes: 1 << 16}
					tr := mustNew(t, transport.Config{Base: base, Rule: policy.Rule{MaxAttempts: 1}.Or(row.rule)})
					req := newRequest(t, method, "http://"+at, strings.NewReader("x"))
					if row.hook {
						req = req.WithContext(httptrace.WithClientTrace(req.Context(), &httptrace.ClientTrace{
							Got1xxResponse: func(int, textproto.MIMEHeader) error { seen.Add(1); return nil },
						}))
					}
					start := time.Now()
					resp, err := tr.RoundTrip(req)
					assert.Equal(t, row.took, time.Since(start))
					switch {
					case row.large:
						assert.ErrorContains(t, err, "server response headers exceeded 65536 bytes")
						assert.Equal(t, classify.ErrorProtocol, classify.ErrorTypeOf(err))
					case row.is != nil:
						assert.ErrorIs(t, err, row.is)
					default:
						require.NoError(t, err)
						assert.Equal(t, http.StatusOK, resp.StatusCode)
						assert.NoError(t, resp.Body.Close())
					}
					count(t, 1, sent.Load(), "requests that arrived")
					if row.hook {
						count(t, row.interims, seen.Load(), "interim responses that the caller saw")
					}
					tr.CloseIdleConnections()
					assert.NoError(t, server.Close())
					time.Sleep(time.Minute)
				})
			}
		}
	}
}
