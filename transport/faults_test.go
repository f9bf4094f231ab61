// What becomes of each fault of a real server, over a real http.Transport, and of those that only HTTP/2 has?

package transport_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
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

// TestFaultsThenAResponse: each row is what a server does to the first requests;
// then it responds. A GET gets the response. A POST, which the server may have
// acted on, meets the first fault and no more.
func TestFaultsThenAResponse(t *testing.T) {
	const chunked = "HTTP/1.1 503 Busy\r\nTransfer-Encoding: chunked\r\n\r\n"
	for _, row := range []struct {
		name  string
		steps []ts.Step
		kind  classify.ErrorType // of the first fault
	}{
		{"503 twice", []ts.Step{ts.Status(503), ts.Status(503)}, ""},
		{"429, 500, 502, 504, 408", []ts.Step{ts.Status(429), ts.Status(500), ts.Status(502), ts.Status(504), ts.Status(408)}, ""},
		{"103 before a 503", []ts.Step{ts.Status(503).Info(103)}, ""},
		{"a reset before the headers", []ts.Step{ts.ResetBeforeHeaders()}, classify.ErrorReset},
		{"a reset in the headers", []ts.Step{ts.ResetInHeaders()}, classify.ErrorReset},
		{"FIN before the headers", []ts.Step{ts.CloseBeforeHeaders()}, classify.ErrorReset},
		{"FIN in the headers", []ts.Step{ts.CloseInHeaders()}, classify.ErrorReset},
		{"a malformed status line", []ts.Step{ts.BadStatusLine()}, classify.ErrorProtocol},
		{"no HTTP at all", []ts.Step{ts.Raw("220 mail.fault.test ESMTP\r\n")}, classify.ErrorProtocol},
		{"a 503 with a malformed chunk", []ts.Step{ts.Raw(chunked + "no size\r\n")}, ""},
		{"a 503 reset in its body", []ts.Step{ts.Status(503).Body("busy").CutAt(2, ts.Reset)}, ""},
		{"a 503 cut off in its body", []ts.Step{ts.Status(503).Body("busy").CutAt(2, ts.Close)}, ""},
		{"a 503 that ends with the connection", []ts.Step{ts.Status(503).Body("busy").UntilClose()}, ""},
		{"a 503 half closed", []ts.Step{ts.Status(503).Body("busy").Then(ts.HalfClose)}, ""},
		// Resets come on fresh connections: on kept ones net/http itself repeats a GET.
		{"everything in turn", []ts.Step{ts.ResetBeforeHeaders(), ts.Status(503), ts.BadStatusLine(), ts.CloseInHeaders(), ts.Status(429)}, classify.ErrorReset},
	} {
		t.Run(row.name, func(t *testing.T) {
			at(t, http1, func(t *testing.T, cfg ts.Config) {
				s := set(t, cfg, quick, append(row.steps, ts.OK("hello"))...)
				got := s.send(http.MethodGet, nil)
				require.NoError(t, got.err)
				assert.Equal(t, 200, got.status)
				assert.Equal(t, "hello", got.body)
				assert.Len(t, s.seen.events(), len(row.steps)+1)
				assert.Equal(t, row.kind, classify.ErrorTypeOf(s.seen.events()[0].Err))
			})
			at(t, http1, func(t *testing.T, cfg ts.Config) {
				s := set(t, cfg, quick, append(row.steps, ts.OK("hello"))...)
				got := s.send(http.MethodPost, strings.NewReader("an order"))
				assert.Equal(t, 1, s.Arrivals(), "requests that arrived")
				assert.Equal(t, []transport.Reason{transport.ReasonNotIdempotent}, s.seen.reasons())
				if row.kind != "" {
					assert.Error(t, got.err)
					assert.Zero(t, got.status)
				}
				s.lastBody("an order")
			})
		})
	}
}

// A response that breaks off after its headers is the caller's: what was read of
// it may have been used already. If it may not be fetched again, it ends there.
func TestFaultsInASuccessfulBody(t *testing.T) {
	for name, step := range map[string]ts.Step{
		"a malformed chunk": ts.BadChunk(),
		"a reset":           ts.OK("hello, world").CutAt(5, ts.Reset),
		"a FIN":             ts.OK("hello, world").CutAt(5, ts.Close),
	} {
		runAt(t, name, http1, func(t *testing.T, cfg ts.Config) {
			s := set(t, cfg, policy.Rule{MaxRefetch: policy.Off}.Or(quick), step, ts.OK("hello, world"))
			got := s.send(http.MethodGet, nil)
			assert.Equal(t, 200, got.status)
			assert.Equal(t, "hello", got.body)
			assert.Error(t, got.err)
			assert.Equal(t, 1, s.Arrivals(), "requests that arrived")
		})
	}
}

// TestStaleConnection: a kept connection is found closed.
func TestStaleConnection(t *testing.T) {
	const text = "a body that is sent again"
	for name, body := range bodies(t, text) {
		for _, method := range []string{http.MethodPut, http.MethodPost} {
			t.Run(name+"/"+method, func(t *testing.T) {
				// The server's FIN is there before the request is sent.
				at(t, http1, func(t *testing.T, cfg ts.Config) {
					s := set(t, cfg, quick, ts.OK("first").Then(ts.Close), ts.OK("second"))
					require.NoError(t, s.send(http.MethodGet, nil).err)
					require.NoError(t, s.WaitUntil(t.Context(), func() bool { return s.Open() == 0 }))
					if cfg.Net != nil {
						synctest.Wait() // over TCP net/http may not have read the FIN yet
					}
					got := s.send(method, body())
					assert.LessOrEqual(t, s.Arrivals(), 2, "requests that arrived")
					if method == http.MethodPut || cfg.Net != nil {
						require.NoError(t, got.err)
						assert.Equal(t, "second", got.body)
						s.lastBody(text)
					}
				})
				// It crosses the request: only the server knows what was done.
				at(t, http1, func(t *testing.T, cfg ts.Config) {
					s := set(t, cfg, quick, ts.OK("first"), ts.CloseBeforeHeaders(), ts.OK("second"))
					require.NoError(t, s.send(http.MethodGet, nil).err)
					got := s.send(method, body())
					s.lastBody(text)
					if method == http.MethodPost {
						assert.Error(t, got.err)
						assert.Equal(t, 2, s.Arrivals(), "requests that arrived")
						return
					}
					require.NoError(t, got.err)
					assert.Equal(t, "second", got.body)
					assert.Equal(t, 3, s.Arrivals(), "requests that arrived")
				})
			})
		}
	}
}

// TestHangs: a server that says nothing costs an attempt's timeout, no more.
func TestHangs(t *testing.T) {
	rule := policy.Rule{AttemptTimeout: 3 * time.Second, MaxAttempts: 3}.Or(exact)
	inMemory(t, http1, func(t *testing.T, cfg ts.Config) {
		s := set(t, cfg, rule, ts.Hang(), ts.OK("hello").CutHeaders(ts.Stall), ts.OK("hello"))
		got := s.send(http.MethodGet, nil)
		require.NoError(t, got.err)
		assert.Equal(t, "hello", got.body)
		assert.GreaterOrEqual(t, got.elapsed, 3*time.Second+time.Second+3*time.Second+2*time.Second)
		assert.LessOrEqual(t, got.elapsed, 3*time.Second+8*time.Second+3*time.Second+8*time.Second, "a random time after silence")
		synctest.Wait()
		assert.True(t, s.Log()[0].Left, "the attempt was cut off, not left behind")
	})
	inMemory(t, http1, func(t *testing.T, cfg ts.Config) { // for ever
		s := set(t, cfg, rule, ts.Hang())
		got := s.send(http.MethodGet, nil)
		assert.ErrorIs(t, got.err, policy.ErrAttemptTimeout)
		assert.Equal(t, 3, s.Arrivals(), "requests that arrived")
		synctest.Wait()
		assert.Zero(t, s.Open(), "no connection is left behind")
	})
	inMemory(t, http1, func(t *testing.T, cfg ts.Config) { // a POST may have been acted on
		s := set(t, cfg, rule, ts.Hang())
		got := s.send(http.MethodPost, strings.NewReader("an order"))
		assert.ErrorIs(t, got.err, policy.ErrAttemptTimeout)
		assert.Equal(t, 3*time.Second, got.elapsed)
		assert.Equal(t, 1, s.Arrivals(), "requests that arrived")
	})
	inMemory(t, http1, func(t *testing.T, cfg ts.Config) { // a response in time that takes long to read
		s := set(t, cfg, rule, ts.OK(strings.Repeat("x", 10)).Drip(1, time.Minute).Delay(2*time.Second))
		got := s.send(http.MethodGet, nil)
		require.NoError(t, got.err)
		assert.Len(t, got.body, 10)
		assert.Equal(t, 1, s.Arrivals(), "requests that arrived")
	})
}

// TestTLSFaultsAreFinal: trying again would meet them again.
func TestTLSFaultsAreFinal(t *testing.T) {
	for name, fault := range map[string]ts.TLS{
		"untrusted issuer":           ts.Untrusted,
		"expired":                    ts.Expired,
		"another host's certificate": ts.WrongHost,
		"plain HTTP on a TLS port":   ts.PlainAnswer,
	} {
		runAt(t, name, []protocol{{"http1", ts.Config{TLS: fault}}, {"http2", ts.Config{TLS: fault, HTTP2: true}}}, func(t *testing.T, cfg ts.Config) {
			s := set(t, cfg, quick, ts.OK("hello"))
			got := s.send(http.MethodGet, nil)
			assert.Error(t, got.err)
			assert.Equal(t, classify.ErrorTLS, classify.ErrorTypeOf(got.err))
			assert.Equal(t, []transport.Reason{transport.ReasonFinal}, s.seen.reasons())
			assert.Equal(t, 1, s.Conns(), "connections")
			var e *transport.Error
			assert.False(t, errors.As(got.err, &e), "the error is untouched")
		})
	}
	runInMemory(t, "a client certificate is missing", []protocol{{"http1", ts.Config{TLS: ts.ClientCertificate}}}, func(t *testing.T, cfg ts.Config) {
		s := set(t, cfg, quick, ts.OK("hello"))
		got := s.send(http.MethodGet, nil)
		assert.Equal(t, classify.ErrorTLS, classify.ErrorTypeOf(got.err), "%v", got.err)
		assert.Equal(t, 1, s.Conns(), "connections")
	})
}

// TestTLSHandshakeThatHangs: nothing was sent, so a POST is sent again as well.
func TestTLSHandshakeThatHangs(t *testing.T) {
	inMemory(t, []protocol{{"http1", ts.Config{TLS: ts.HangingHandshake}}}, func(t *testing.T, cfg ts.Config) {
		s := set(t, cfg, policy.Rule{MaxAttempts: 3}.Or(exact))
		s.base.TLSHandshakeTimeout = 5 * time.Second
		got := s.send(http.MethodPost, reader(strings.NewReader("an order")))
		assert.Equal(t, classify.ErrorTLS, classify.ErrorTypeOf(got.err))
		assert.Equal(t, 3, s.Conns(), "connections")
		assert.Equal(t, 18*time.Second, got.elapsed)
		var timeout net.Error
		require.ErrorAs(t, got.err, &timeout)
		assert.True(t, timeout.Timeout())
		e := errorAs[*transport.Error](t, got.err)
		assert.Equal(t, transport.ReasonMaxAttempts, e.Reason)
	})
}

// TestNamesAndRoutes: a name that does not exist is final; a name server that
// failed, and a network that cannot be reached, are for the moment.
func TestNamesAndRoutes(t *testing.T) {
	inMemory(t, http1, func(t *testing.T, cfg ts.Config) {
		s := set(t, cfg, quick, ts.OK("done"))
		got := s.do(newRequest(t, http.MethodGet, "http://nowhere.test/", nil))
		dns := errorAs[*net.DNSError](t, got.err)
		assert.True(t, dns.IsNotFound)
		assert.Equal(t, 1, cfg.Net.Dials(), "dials")
	})
	for name, fault := range map[string]error{
		"temporary":    &net.DNSError{Err: "server misbehaving", Name: "fault.test", IsTemporary: true},
		"slow":         &net.DNSError{Err: "i/o timeout", Name: "fault.test", IsTimeout: true},
		"no route":     syscall.EHOSTUNREACH,
		"network down": syscall.ENETUNREACH,
	} {
		runInMemory(t, name, http1, func(t *testing.T, cfg ts.Config) {
			s := set(t, cfg, exact, ts.OK("done"))
			cfg.Net.Fail("fault.test", fault)
			got := s.do(s.whenRetried(3, func() { cfg.Net.Fail("fault.test", nil) }))
			require.NoError(t, got.err)
			assert.Equal(t, "done", got.body)
			assert.Equal(t, 1, s.Arrivals(), "requests that arrived")
			s.lastBody("an order")
		})
	}
}

// TestEarlyResponses: the server responds before the upload ends, and does
// something to the rest of it. The resend is whole, whatever the body is.
func TestEarlyResponses(t *testing.T) {
	text := strings.Repeat("0123456789abcdef", 20_000) // more than every buffer on the way
	for _, row := range []struct {
		name string
		end  ts.End
	}{
		{"reads the rest", ts.Keep}, {"closes", ts.Close}, {"resets", ts.Reset}, {"stalls", ts.Stall}, {"half closes", ts.HalfClose},
	} {
		for _, after := range []int64{0, 1000, 200_000} {
			for name, body := range bodies(t, text) {
				runAt(t, row.name+"/"+name, http1[:1], func(t *testing.T, cfg ts.Config) {
					busy := ts.Status(503).Body("busy").Early(after).Then(row.end)
					if row.end == ts.Stall { // or the kernel may take the rest, and net/http the connection for sound
						busy = busy.Header("Connection", "close")
					}
					s := set(t, cfg, quick, busy, ts.OK("done"))
					got := s.send(http.MethodPut, body())
					require.NoError(t, got.err)
					assert.Equal(t, "done", got.body)
					s.lastBody(text)
				})
			}
		}
	}
}

// TestEarlyResponseWhileTheBodyWaits: the upload waits for its source when the
// response comes. A source that goes on in time costs nothing; one that does not
// costs the retry, not the response.
func TestEarlyResponseWhileTheBodyWaits(t *testing.T) {
	for _, row := range []struct {
		name  string
		pause time.Duration
		want  string
	}{
		{"half a second", 500 * time.Millisecond, "done"},
		{"for long", time.Hour, "busy"},
	} {
		runInMemory(t, row.name, http1[:1], func(t *testing.T, cfg ts.Config) {
			s := set(t, cfg, quick, ts.Status(503).Body("busy").Early(1), ts.OK("done"))
			pr, pw := io.Pipe()
			var wg sync.WaitGroup
			wg.Go(func() {
				_, _ = pw.Write([]byte("first "))
				time.Sleep(row.pause)
				_, _ = pw.Write([]byte("second"))
				_ = pw.Close()
			})
			got := s.send(http.MethodPut, pr)
			require.NoError(t, got.err)
			assert.Equal(t, row.want, got.body)
			assert.LessOrEqual(t, got.elapsed, time.Second)
			if row.want == "done" {
				s.lastBody("first second")
			} else {
				assert.Equal(t, []transport.Reason{transport.ReasonNotReplayable}, s.seen.reasons())
			}
			wg.Wait()
		})
	}
}

// TestConnectionsAreReused: an error page of up to 64 KiB costs a caller with a deadline no connection.
func TestConnectionsAreReused(t *testing.T) {
	retries := soak.Size(20, 100)
	rule := policy.Rule{MaxAttempts: retries + 1}.Or(quick)
	for _, row := range []struct {
		name  string
		step  ts.Step
		conns int
	}{
		{"no body", ts.Status(503), 1},
		{"a short one", ts.Status(503).Body("busy"), 1},
		{"64 KiB", ts.Status(503).Body(strings.Repeat("x", 64<<10)), 1},
		{"64 KiB in chunks", ts.Status(503).Body(strings.Repeat("x", 64<<10)).Chunked(), 1},
		{"compressed", ts.Status(503).Body(strings.Repeat("x", 60<<10)).Gzip(), 1},
		{"more", ts.Status(503).Body(strings.Repeat("x", 64<<10+1)), retries + 1},
	} {
		runAt(t, row.name, http1[:1], func(t *testing.T, cfg ts.Config) {
			s := set(t, cfg, rule, row.step)
			onePool(s.base)
			s.tr = mustNew(t, transport.Config{Base: s.base, Rule: rule, Traces: []*transport.Trace{s.seen.trace()}})
			ctx := expires(t, time.Hour)
			got := s.do(s.request(http.MethodGet, nil).WithContext(ctx))
			assert.Equal(t, 503, got.status)
			assert.Equal(t, transport.ReasonMaxAttempts, got.reason)
			assert.Equal(t, retries+1, s.Arrivals())
			assert.Equal(t, row.conns, s.Conns())
		})
	}
}

// TestErrorBodiesDoNotHoldTheRetryUp: one that has no end, and one that stalls.
func TestErrorBodiesDoNotHoldTheRetryUp(t *testing.T) {
	const slow = 250 * time.Millisecond // the most that a discarded response costs
	page := strings.Repeat("x", 1000)
	// testserver's endless response is a 200; here it is a failure.
	rule := policy.Rule{Classify: classify.OnStatus(classify.Ambiguous, 200)}.Or(quick)
	peeking := policy.Rule{Classify: classify.OnBody(classify.Refused, "no such words")}.Or(quick)
	for _, row := range []struct {
		name string
		rule policy.Rule
		step ts.Step
		most time.Duration
	}{
		{"endless", rule, ts.Endless(), 0},
		{"endless and slow", rule, ts.Endless().Drip(100, 100*time.Millisecond), slow},
		{"stalled", quick, ts.Status(503).Body(page).CutAt(10, ts.Stall), slow},
		{"stalled at once", quick, ts.Status(503).Body(page).CutAt(0, ts.Stall), slow},
		{"stalled and compressed", quick, ts.Status(503).Body(page).Gzip().CutAt(15, ts.Stall), slow},
		{"stalled before a body classifier", peeking, ts.Status(503).Body(page).CutAt(10, ts.Stall), time.Second + slow},
	} {
		runInMemory(t, row.name, append(http1, http2...), func(t *testing.T, cfg ts.Config) {
			s := set(t, cfg, row.rule, row.step, ts.Status(204))
			s.base.MaxConnsPerHost = 1
			got := s.send(http.MethodGet, nil)
			require.NoError(t, got.err)
			assert.Equal(t, 204, got.status)
			assert.LessOrEqual(t, got.elapsed, row.most)
		})
	}
}

// TestOneConnectionIsEnough: with a single connection allowed, an attempt must
// have given its own back before the next one can be sent.
func TestOneConnectionIsEnough(t *testing.T) {
	text := strings.Repeat("0123456789abcdef", 20_000)
	for name, step := range map[string]ts.Step{
		"503":                 ts.Status(503).Body("busy"),
		"a long 503":          ts.Status(503).Body(strings.Repeat("x", 1<<20)),
		"a reset":             ts.ResetBeforeHeaders(),
		"a reset in a 503":    ts.Status(503).Body("busy").CutAt(2, ts.Reset),
		"an early 503":        ts.Status(503).Early(1000).Then(ts.Close),
		"a 503 that stalls":   ts.Status(503).Body("busy").CutAt(2, ts.Stall),
		"an early one too":    ts.Status(503).Early(1000).Then(ts.Stall),
		"a response too late": ts.Hang(),
	} {
		for kind, body := range bodies(t, text) {
			runInMemory(t, name+"/"+kind, http1[:1], func(t *testing.T, cfg ts.Config) {
				rule := policy.Rule{AttemptTimeout: 5 * time.Second}.Or(quick)
				s := set(t, cfg, rule, step, step, ts.OK("done"))
				s.base.MaxConnsPerHost = 1
				got := s.send(http.MethodPut, body())
				require.NoError(t, got.err)
				assert.Equal(t, "done", got.body)
				s.lastBody(text)
			})
		}
	}
}

// TestFilesAreSentAgainWithoutBuffering: a large file goes out a second time
// and costs no memory.
func TestFilesAreSentAgainWithoutBuffering(t *testing.T) {
	const size = 32 << 20
	file := filepath.Join(t.TempDir(), "large")
	large := bytes.Repeat(ts.Pattern(1<<20), size>>20)
	require.NoError(t, os.WriteFile(file, large, 0o600))
	want := ts.Hash(large)
	f, err := os.Open(file)
	require.NoError(t, err)

	s := set(t, ts.Config{}, quick, ts.Status(503), ts.OK("done"))
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	req := s.request(http.MethodPut, f)
	req.ContentLength = size
	got := s.do(req)
	runtime.ReadMemStats(&after)
	require.NoError(t, got.err)
	assert.Equal(t, "done", got.body)
	for _, a := range s.Log() {
		assert.EqualValues(t, size, a.BodyLength)
		assert.Equal(t, want, a.BodySHA256)
	}
	assert.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(8<<20), "all that was ever allocated, the server's part included")
	_, err = f.Stat()
	assert.ErrorIs(t, err, os.ErrClosed, "the file is closed at the end")
}

// TestUpgradesOverTheWire: a connection that the server hands over stays the
// caller's, beyond every timeout of an attempt, and retries come before it.
func TestUpgradesOverTheWire(t *testing.T) {
	rule := policy.Rule{AttemptTimeout: time.Minute}.Or(quick)
	at(t, http1, func(t *testing.T, cfg ts.Config) {
		s := set(t, cfg, rule, ts.Status(503), ts.SwitchProtocols("echo"))
		req := s.request(http.MethodGet, nil)
		req.Header.Set("Connection", "Upgrade")
		req.Header.Set("Upgrade", "echo")
		resp := mustRoundTrip(t, s.tr, req)
		require.Equal(t, http.StatusSwitchingProtocols, resp.StatusCode)
		conn, ok := resp.Body.(io.ReadWriteCloser)
		require.True(t, ok, "a %T cannot be written to", resp.Body)
		defer func() { _ = conn.Close() }()
		if cfg.Net != nil {
			time.Sleep(time.Hour) // virtual
		}
		_, err := conn.Write([]byte("echo"))
		require.NoError(t, err)
		response := make([]byte, 4)
		_, err = io.ReadFull(conn, response)
		require.NoError(t, err)
		assert.Equal(t, "echo", string(response))
	})
}

// TestCancelAfterAnAttemptsTimeout: a base that is slow to end leaves time for
// the caller to leave, too. Then it is the caller's end.
func TestCancelAfterAnAttemptsTimeout(t *testing.T) {
	bubble(t, func(t *testing.T) {
		gone := errors.New("the user went home")
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(1500*time.Millisecond, func() { cancel(gone) })
		var seen recorder
		tr := mustNew(t, transport.Config{
			Rule: policy.Rule{AttemptTimeout: time.Second}.Or(quick), Traces: []*transport.Trace{seen.trace()},
			Base: rt(func(req *http.Request) (*http.Response, error) {
				<-req.Context().Done()
				time.Sleep(time.Second)
				return nil, req.Context().Err()
			}),
		})
		_, err := fetch(t, tr, ctx, "http://h.test/")
		assert.ErrorIs(t, err, context.Canceled)
		assert.ErrorIs(t, err, gone)
		assert.NotErrorIs(t, err, policy.ErrAttemptTimeout)
		assert.Equal(t, []transport.Reason{transport.ReasonCanceled}, seen.reasons())
	})
}

// TestGivingUpAResponseIsPartOfTheWait: what it takes to read the old response's
// rest is not added to what is waited anyway.
func TestGivingUpAResponseIsPartOfTheWait(t *testing.T) {
	inMemory(t, http1[:1], func(t *testing.T, cfg ts.Config) {
		s := set(t, cfg, exact, ts.Status(503).Body("busy").CutAt(2, ts.Stall), ts.OK("hello"))
		got := s.send(http.MethodGet, nil)
		assert.Equal(t, "hello", got.body)
		assert.Equal(t, time.Second, got.elapsed)
	})
}

// TestPeekKeepsToTheAttemptsTimeout: a look at a stalled body, by a classifier or
// for a hint, takes no longer than the attempt might have, and at most a second.
func TestPeekKeepsToTheAttemptsTimeout(t *testing.T) {
	classifier := policy.Rule{Classify: classify.OnBody(classify.Refused, "no such words")}
	hint := policy.Rule{MaxAttempts: 1, RetryAfter: func(o classify.Outcome) (time.Duration, bool) { o.Peek(1 << 10); return 0, false }}
	for name, row := range map[string]struct {
		rule          policy.Rule
		timeout, want time.Duration
	}{
		"a classifier":                     {classifier, 100 * time.Millisecond, 100 * time.Millisecond},
		"a classifier, and a long attempt": {classifier, time.Minute, time.Second},
		"a hint":                           {hint, 100 * time.Millisecond, 100 * time.Millisecond},
		"a hint, and a long attempt":       {hint, time.Minute, time.Second},
	} {
		runInMemory(t, name, http1[:1], func(t *testing.T, cfg ts.Config) {
			code := map[bool]int{true: 404, false: 503}[row.rule.Classify != nil]
			rule := policy.Rule{AttemptTimeout: row.timeout}.Or(row.rule).Or(quick)
			s := set(t, cfg, rule, ts.Status(code).Body("nothing here").CutAt(2, ts.Stall))
			resp := mustRoundTrip(t, s.tr, s.request(http.MethodGet, nil))
			assert.Equal(t, code, resp.StatusCode)
			assert.Equal(t, row.want, time.Since(s.Log()[0].Time))
			_ = resp.Body.Close()
		})
	}
}

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
