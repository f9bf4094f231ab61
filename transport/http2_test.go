// What becomes of the faults that only HTTP/2 has?

package transport_test

import (
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/aplomb-go/aplomb/classify"
	"github.com/aplomb-go/aplomb/internal/soak"
	ts "github.com/aplomb-go/aplomb/internal/testserver"
	"github.com/aplomb-go/aplomb/policy"
	"github.com/aplomb-go/aplomb/transport"
)

// repeat makes a script of n times the same step.
func repeat(n int, step ts.Step, then ...ts.Step) []ts.Step {
	all := make([]ts.Step, n, n+len(then))
	for i := range all {
		all[i] = step
	}
	return append(all, then...)
}

// TestHTTP2Retries: an ordinary retry, over one connection.
func TestHTTP2Retries(t *testing.T) {
	inMemory(t, http2, func(t *testing.T, cfg ts.Config) {
		s := set(t, cfg, exact, ts.Status(503).Body(strings.Repeat("x", 100_000)), ts.Status(429).Header("Retry-After", "5"), ts.OK("hello"))
		got := s.send(http.MethodGet, nil)
		require.NoError(t, got.err)
		assert.Equal(t, "hello", got.body)
		assert.GreaterOrEqual(t, got.elapsed, 6*time.Second)
		assert.LessOrEqual(t, got.elapsed, 7*time.Second)
		for _, a := range s.Log() {
			assert.Equal(t, "HTTP/2.0", a.Proto)
		}
		assert.Equal(t, 1, s.Conns(), "a stream costs no connection, however long the response is that was given up")
	})
}

// TestHTTP2Refused: REFUSED_STREAM and a GOAWAY below the stream are the
// server's word that it did nothing, so that a POST is sent again, too, also
// when net/http, which repeats such requests by itself, has given up, or cannot
// because the body is gone.
func TestHTTP2Refused(t *testing.T) {
	const hidden = 8 // what net/http sends for one attempt at most, over one connection
	for _, row := range []struct {
		name  string
		step  ts.Step
		times int
	}{
		{"once", ts.RefuseStream(), 1},
		{"beyond net/http's own patience", ts.RefuseStream(), hidden + 2},
		{"GOAWAY", ts.GoAway(ts.NoError), 1},
		{"GOAWAY again and again", ts.GoAway(ts.NoError), hidden + 2},
		{"GOAWAY with a code", ts.GoAway(ts.EnhanceYourCalm), 3},
	} {
		for name, body := range bodies(t, "an order") {
			runInMemory(t, row.name+"/"+name, http2, func(t *testing.T, cfg ts.Config) {
				rule := policy.Rule{MaxAttempts: 100}.Or(quick)
				s := set(t, cfg, rule, repeat(row.times, row.step, ts.OK("done"))...)
				got := s.send(http.MethodPost, body())
				require.NoError(t, got.err)
				assert.Equal(t, "done", got.body)
				assert.Equal(t, row.times+1, s.Arrivals())
				s.lastBody("an order")
				for _, e := range s.seen.events() {
					if e.Err != nil {
						assert.Equal(t, classify.Refused, e.Class, "%v", e.Err)
					}
				}
			})
		}
	}
}

// If a server ends each new connection with GOAWAY, net/http makes the next one at once, and does not
// count. Package documentation says so.
func TestGoAwayOfEachConnection(t *testing.T) {
	const times = 500
	inMemory(t, http2, func(t *testing.T, cfg ts.Config) {
		s := set(t, cfg, quick, repeat(times, ts.GoAway(ts.NoError), ts.OK("done"))...)
		got := s.send(http.MethodGet, nil)
		require.NoError(t, got.err)
		assert.Equal(t, "done", got.body)
		assert.Equal(t, times+1, s.Arrivals())
		assert.Equal(t, []transport.Reason{transport.ReasonFinal}, s.seen.reasons(), "it is one attempt")
	})
}

// TestHTTP2Ambiguous: an end that says nothing about what was done before it. A
// GET is sent again, a POST is not.
func TestHTTP2Ambiguous(t *testing.T) {
	for name, step := range map[string]ts.Step{
		"RST_STREAM INTERNAL_ERROR":        ts.RSTStream(ts.InternalError),
		"RST_STREAM CANCEL":                ts.RSTStream(ts.Cancel),
		"RST_STREAM ENHANCE_YOUR_CALM":     ts.RSTStream(ts.EnhanceYourCalm),
		"GOAWAY that names the stream":     ts.GoAwayProcessed(ts.InternalError),
		"graceful, but without a response": ts.GoAwayProcessed(ts.NoError),
		"a reset of the connection":        ts.ResetBeforeHeaders(),
		"FIN":                              ts.CloseBeforeHeaders(),
		"bytes that are not HTTP/2":        ts.Raw("HTTP/1.1 200 OK\r\n\r\n"),
	} {
		t.Run(name, func(t *testing.T) {
			at(t, http2, func(t *testing.T, cfg ts.Config) {
				s := set(t, cfg, quick, step, step, ts.OK("done"))
				got := s.send(http.MethodGet, nil)
				require.NoError(t, got.err)
				assert.Equal(t, "done", got.body)
				assert.Equal(t, []transport.Reason{transport.ReasonRetry, transport.ReasonRetry, transport.ReasonFinal}, s.seen.reasons())
			})
			at(t, http2, func(t *testing.T, cfg ts.Config) {
				s := set(t, cfg, quick, step, ts.OK("done"))
				got := s.send(http.MethodPost, reader(strings.NewReader("an order")))
				assert.Error(t, got.err)
				assert.Equal(t, 1, s.Arrivals(), "requests that arrived")
				assert.Equal(t, []transport.Reason{transport.ReasonNotIdempotent}, s.seen.reasons())
			})
		})
	}
}

// A graceful GOAWAY, with the response still to come, is no fault.
func TestHTTP2GracefulGoAway(t *testing.T) {
	at(t, http2, func(t *testing.T, cfg ts.Config) {
		s := set(t, cfg, quick, ts.OK("hello").AnnounceGoAway(), ts.OK("again"))
		assert.Equal(t, "hello", s.send(http.MethodGet, nil).body)
		assert.Equal(t, "again", s.send(http.MethodGet, nil).body)
		assert.Equal(t, []transport.Reason{transport.ReasonFinal, transport.ReasonFinal}, s.seen.reasons())
	})
}

// TestHTTP2EarlyResponses: the response or the stream's end comes before the upload
// ends. net/http then closes the body from another goroutine, maybe during a
// Read. The resend is whole.
func TestHTTP2EarlyResponses(t *testing.T) {
	text := strings.Repeat("0123456789abcdef", 20_000) // more than a stream's first window
	for name, step := range map[string]ts.Step{
		"reads the rest":          ts.Status(503).Body("busy"),
		"RST_STREAM NO_ERROR":     ts.Status(503).Body("busy").ThenRST(ts.NoError),
		"RST_STREAM CANCEL":       ts.Status(503).Body("busy").ThenRST(ts.Cancel),
		"no response, RST_STREAM": ts.RSTStream(ts.InternalError),
		"cut in the response":     ts.Status(503).Body("busy").RSTAt(2, ts.InternalError),
		"closes":                  ts.Status(503).Body("busy").Then(ts.Close),
		"resets":                  ts.Status(503).Body("busy").Then(ts.Reset),
	} {
		for _, after := range soak.Size([]int64{0, 200_000}, []int64{0, 1000, 200_000}) {
			for kind, body := range bodies(t, text) {
				runAt(t, name+"/"+kind, soak.Size(http2[1:], http2), func(t *testing.T, cfg ts.Config) {
					s := set(t, cfg, quick, step.Early(after), step.Early(after), ts.OK("done"))
					got := s.send(http.MethodPut, body())
					require.NoError(t, got.err)
					assert.Equal(t, "done", got.body)
					s.lastBody(text)
				})
			}
		}
	}
}

// TestHTTP2CloseDuringRead: the stream ends while the upload waits for its
// source: net/http closes the body during that Read. What the Read brings later
// is not lost.
func TestHTTP2CloseDuringRead(t *testing.T) {
	for name, step := range map[string]ts.Step{
		"a response": ts.Status(503).Body("busy").Early(6).ThenRST(ts.NoError),
		"RST_STREAM": ts.RSTStream(ts.InternalError).Early(6),
	} {
		runInMemory(t, name, http2, func(t *testing.T, cfg ts.Config) {
			s := set(t, cfg, quick, step, ts.OK("done"))
			pr, pw := io.Pipe()
			var wg sync.WaitGroup
			wg.Go(func() {
				for _, part := range []string{"first ", "second ", "third"} {
					_, err := pw.Write([]byte(part))
					assert.NoError(t, err)
					synctest.Wait()
					time.Sleep(500 * time.Millisecond)
				}
				_ = pw.Close()
			})
			got := s.send(http.MethodPut, pr)
			require.NoError(t, got.err)
			assert.Equal(t, "done", got.body)
			s.lastBody("first second third")
			wg.Wait()
		})
	}
}

// TestHTTP2ResponseDuringUpload: a response that comes, and ends, while the upload
// goes on is allowed. The upload goes on until the caller closes the response's
// body, as with a plain transport.
func TestHTTP2ResponseDuringUpload(t *testing.T) {
	for name, rule := range map[string]policy.Rule{"plain": {}, "attempt timeout": {AttemptTimeout: 10 * time.Second}} {
		runInMemory(t, name, http2, func(t *testing.T, cfg ts.Config) {
			s := set(t, cfg, rule, ts.OK("going on").Early(1))
			pr, pw := io.Pipe()
			go func() { _, _ = pw.Write([]byte("first ")) }()
			resp := mustRoundTrip(t, s.tr, s.request(http.MethodPut, pr))
			assert.Equal(t, "going on", mustRead(t, resp))
			time.Sleep(time.Second)
			_, err := pw.Write([]byte("second"))
			require.NoError(t, err)
			_ = pw.Close()
			synctest.Wait()
			s.lastBody("first second")
			_ = resp.Body.Close()
		})
	}
}
