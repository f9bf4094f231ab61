// Timeouts and the context of an attempt, and the waits before the next.

package transport_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/aplomb-go/aplomb/classify"
	"github.com/aplomb-go/aplomb/faults"
	"github.com/aplomb-go/aplomb/internal/replay"
	ts "github.com/aplomb-go/aplomb/internal/testserver"
	"github.com/aplomb-go/aplomb/internal/trait"
	"github.com/aplomb-go/aplomb/policy"
	"github.com/aplomb-go/aplomb/policy/backoff"
	"github.com/aplomb-go/aplomb/policy/profile"
	"github.com/aplomb-go/aplomb/transport"
)

// Where net/http alone fails at once, a retry that meets silence ends, too. The first attempt is not
// bounded, and neither is the time of an upload or of a response's body.
func TestRetryIntoSilenceIsBounded(t *testing.T) {
	const each = transport.LaterTimeout
	hang, late := faults.Hang(), func(d time.Duration) faults.Step { return faults.Status(200).Body("news").Delay(d) }
	for _, row := range []struct {
		name     string
		rule     policy.Rule
		deadline time.Duration
		steps    []answer
		took     time.Duration // that the base has the request
		attempts int
		err      bool
	}{
		{"three attempts", policy.Rule{}, 0, []answer{faults.ConnReset(), hang}, 2 * each, 3, true},
		{"an answer in time", policy.Rule{}, 0, []answer{faults.ConnReset(), late(each - 1)}, each - 1, 2, false},
		{"an answer too late, and then one in time", policy.Rule{}, 0, []answer{faults.ConnReset(), late(each + 1), late(time.Second)}, each + time.Second, 3, false},
		{"the first attempt", policy.Rule{}, 0, []answer{late(time.Hour)}, time.Hour, 1, false},
		{"a deadline", policy.Rule{}, time.Hour, []answer{faults.ConnReset(), hang}, time.Hour, 2, true},
		{"AttemptTimeout", policy.Rule{AttemptTimeout: time.Hour}, 0, []answer{faults.ConnReset(), hang}, 2 * time.Hour, 3, true},
		{"AttemptTimeout off", policy.Rule{AttemptTimeout: policy.Off}, 0, []answer{faults.ConnReset(), hang}, 2 * each, 3, true},
		{"ConnectTimeout", policy.Rule{ConnectTimeout: time.Second}, 0, []answer{faults.ConnReset(), hang}, 2 * each, 3, true},
		{"Stall", policy.Rule{StallTimeout: time.Minute}, 0, []answer{faults.ConnReset(), hang}, 2 * time.Minute, 3, true},
		{"a slow body", policy.Rule{}, 0, []answer{faults.ConnReset(), faults.Status(200).Body("news").Drip(1, each)}, 4 * each, 2, false},
	} {
		inBubble(t, row.name, func(t *testing.T) {
			ctx := t.Context()
			if row.deadline > 0 {
				var cancel context.CancelFunc
				ctx, cancel = context.WithTimeout(ctx, row.deadline)
				defer cancel()
			}
			server, start := script(row.steps...), time.Now()
			resp, err := get(t, over(t, transport.Config{Rule: policy.Rule{MaxAttempts: 3}.Or(row.rule).Or(quick)}, server), ctx)
			if !row.err {
				require.NoError(t, err)
				assert.Equal(t, "news", mustRead(t, resp))
			} else {
				assert.True(t, trait.Timeout(err), err)
			}
			assert.InDelta(t, float64(row.took), float64(time.Since(start)), float64(time.Second))
			server.sent(t, row.attempts)
		})
	}
}

// A retried upload of which the server takes nothing ends, because over net/http alone the caller would
// know of the failure. Each piece is progress, however slow. The first attempt is not bounded.
func TestRetriedUploadIntoSilence(t *testing.T) {
	const size = 100 << 10
	for _, row := range []struct {
		name     string
		rule     policy.Rule
		deadline time.Duration
		first    bool          // it is the first attempt that meets silence
		pause    time.Duration // after each piece that the server takes; 0: it takes one only
		took     time.Duration
		is       error // nil: the upload succeeds
	}{
		{name: "default", took: 30 * time.Second, is: policy.ErrAttemptTimeout},
		{name: "a deadline", deadline: time.Hour, took: 30 * time.Second, is: policy.ErrAttemptTimeout},
		{name: "a short AttemptTimeout", rule: policy.Rule{AttemptTimeout: time.Second}, took: 10 * time.Second, is: policy.ErrAttemptTimeout},
		{name: "a long AttemptTimeout", rule: policy.Rule{AttemptTimeout: time.Minute}, deadline: time.Hour, took: time.Minute, is: policy.ErrAttemptTimeout},
		{name: "a StallTimeout", rule: policy.Rule{StallTimeout: 2 * time.Minute}, took: 2 * time.Minute, is: policy.ErrStallTimeout},
		{name: "a slow link", pause: 29 * time.Second, took: 25 * 29 * time.Second},
		{name: "a slow link, a short AttemptTimeout", rule: policy.Rule{AttemptTimeout: time.Second}, pause: 9 * time.Second, took: 25 * 9 * time.Second},
		{name: "the first attempt", rule: policy.Rule{AttemptTimeout: time.Second}, deadline: time.Hour, first: true, took: time.Hour, is: context.DeadlineExceeded},
	} {
		for name, body := range bodies(t, strings.Repeat("x", size)) {
			inBubble(t, row.name+"/"+name, func(t *testing.T) {
				ctx := t.Context()
				if row.deadline > 0 {
					var cancel context.CancelFunc
					ctx, cancel = context.WithTimeout(ctx, row.deadline)
					defer cancel()
				}
				slow := func(req *http.Request) (*http.Response, error) {
					defer func() { _ = req.Body.Close() }()
					for p := make([]byte, 32<<10); ; {
						if _, err := req.Body.Read(p); err == io.EOF {
							return play(req, status(200))
						}
						if row.pause == 0 {
							<-req.Context().Done()
							return nil, context.Cause(req.Context())
						}
						time.Sleep(row.pause)
					}
				}
				base := numbered(func(req *http.Request, n int) (*http.Response, error) {
					if n == 1 && !row.first {
						_, _ = io.Copy(io.Discard, req.Body)
						_ = req.Body.Close()
						return play(req, status(503))
					}
					return slow(req)
				})
				tr := mustNew(t, transport.Config{Base: base, Rule: policy.Rule{MaxAttempts: 2, ReplayBuffer: size}.Or(row.rule).Or(quick)})
				start := time.Now()
				resp, err := tr.RoundTrip(newRequest(t, http.MethodPut, "http://h.test/", body()).WithContext(ctx))
				assert.ErrorIs(t, err, row.is)
				assert.Equal(t, row.is == nil, resp != nil && resp.StatusCode == http.StatusOK)
				assert.InDelta(t, float64(row.took), float64(time.Since(start)), float64(time.Second))
			})
		}
	}
}

// The bound of a retry does not run while its upload is sent, and hooks know it.
func TestBoundOfARetryLeavesTimeForTheUpload(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var deadlines []time.Time
		start := time.Now()
		server := script(faults.ConnReset(), func(req *http.Request) (*http.Response, error) {
			_, err := io.Copy(io.Discard, req.Body)
			require.NoError(t, err)
			return play(req, status(200))
		})
		trace := &transport.Trace{AttemptStart: func(ctx context.Context, a transport.AttemptStart) context.Context {
			deadlines = append(deadlines, a.Deadline)
			return ctx
		}}
		req := newRequest(t, http.MethodPut, "http://h.test/", nil)
		req.GetBody = func() (io.ReadCloser, error) {
			return io.NopCloser(readFunc(func([]byte) (int, error) {
				time.Sleep(time.Hour)
				return 0, io.EOF
			})), nil
		}
		req.Body, _ = req.GetBody()
		tr := over(t, transport.Config{Rule: quick, Traces: []*transport.Trace{trace}}, server)
		assert.Equal(t, http.StatusOK, mustRoundTrip(t, tr, req).StatusCode)
		assert.Equal(t, 2*time.Hour, time.Since(start), "by each attempt")
		assert.Equal(t, make([]time.Time, 2), deadlines, "nobody knows how long the upload takes")

		deadlines, start = nil, time.Now()
		_ = mustGet(t, over(t, transport.Config{Rule: quick, Traces: []*transport.Trace{trace}}, script(faults.ConnReset(), status(200))))
		assert.Equal(t, []time.Time{{}, start.Add(transport.LaterTimeout)}, deadlines)
	})
}

// The time of an attempt stands still while net/http waits for the response to Expect: 100-continue, which
// a server may ignore (RFC 9110 §10.1.1).
func TestTimeOfAnExpectation(t *testing.T) {
	const each = time.Second // the AttemptTimeout
	for name, row := range map[string]struct {
		plain     bool          // there is no expectation
		base      time.Duration // the ExpectContinueTimeout
		around    bool          // another base is around net/http
		continues time.Duration // until the 100; 0: the server ignores the expectation
		answers   bool          // there is a response when the server has the body
		size      int
		took      time.Duration
	}{
		"ignored":                  {base: time.Second, answers: true, took: time.Second},
		"ignored, and silence":     {base: time.Second, took: 2 * time.Second},
		"ignored by a large body":  {base: time.Second, size: 100 << 10, took: 2 * time.Second},
		"100, and silence":         {base: time.Second, continues: 300 * time.Millisecond, took: 1300 * time.Millisecond},
		"100, and a response":      {base: time.Second, continues: 300 * time.Millisecond, answers: true, took: 300 * time.Millisecond},
		"a short wait":             {base: 200 * time.Millisecond, took: 1200 * time.Millisecond},
		"no wait":                  {took: time.Second},
		"a long wait":              {base: 5 * time.Second, answers: true, took: 5 * time.Second},
		"a base that nobody knows": {base: 5 * time.Second, around: true, took: 2 * time.Second},
		"no expectation":           {plain: true, base: time.Second, took: time.Second},
	} {
		inBubble(t, name, func(t *testing.T) {
			near, far := net.Pipe()
			go func() {
				r := bufio.NewReader(far)
				req, err := http.ReadRequest(r)
				if err != nil {
					return
				}
				if row.continues > 0 {
					time.Sleep(row.continues)
					_, _ = io.WriteString(far, "HTTP/1.1 100 Continue\r\n\r\n")
				}
				if _, err = io.Copy(io.Discard, req.Body); err == nil && row.answers {
					_, _ = io.WriteString(far, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
				}
				_, _ = io.Copy(io.Discard, r)
			}()
			h := &http.Transport{ExpectContinueTimeout: row.base, DialContext: func(context.Context, string, string) (net.Conn, error) { return near, nil }}
			var base http.RoundTripper = h
			if row.around {
				base = rt(h.RoundTrip)
			}
			req := newRequest(t, http.MethodPut, "http://h.test/", strings.NewReader(strings.Repeat("x", max(row.size, 1))))
			if !row.plain {
				req.Header.Set("Expect", "100-continue")
			}
			start := time.Now()
			resp, err := mustNew(t, transport.Config{Base: base, Rule: policy.Rule{AttemptTimeout: each, MaxAttempts: 1}}).RoundTrip(req)
			assert.Equal(t, row.took, time.Since(start))
			if row.answers {
				require.NoError(t, err)
				assert.NoError(t, resp.Body.Close())
			} else {
				assert.ErrorIs(t, err, policy.ErrAttemptTimeout)
			}
			h.CloseIdleConnections()
			_ = near.Close()
		})
	}
}

// An attempt leaves nothing behind in the caller's context, which may live longer. Its
// timer is stopped.
func TestAttemptLeavesNothingInItsContext(t *testing.T) {
	read := func(resp *http.Response) { _, _ = io.Copy(io.Discard, resp.Body) }
	shut := func(resp *http.Response) { _ = resp.Body.Close() }
	rows := map[string]struct {
		response answer
		end      func(*http.Response)
	}{
		"read":               {status(200), read},
		"closed":             {status(200), shut},
		"no body":            {faults.Status(204), func(*http.Response) {}},
		"error":              {faults.Fail(io.ErrUnexpectedEOF), nil},
		"response and error": {func(req *http.Request) (*http.Response, error) { return newResponse(req, 200, oneShot("")), io.EOF }, nil},
		"nothing":            {func(*http.Request) (*http.Response, error) { return nil, nil }, nil},
		"too late":           {deaf(2 * time.Minute), shut},
		"panic":              {func(*http.Request) (*http.Response, error) { panic("base") }, nil},
		"Goexit":             {func(*http.Request) (*http.Response, error) { runtime.Goexit(); return nil, nil }, nil},
		"response, error and a panic of Close": {func(req *http.Request) (*http.Response, error) {
			return newResponse(req, 200, badBody{nil, func() { panic("close") }}), io.EOF
		}, nil},
		"panic of Close": {func(req *http.Request) (*http.Response, error) {
			return newResponse(req, 200, badBody{nil, func() { panic("close") }}), nil
		}, shut},
		"tunnel": {func(req *http.Request) (*http.Response, error) { return newResponse(req, 101, oneShot("")), nil }, shut},
	}
	rules := map[string]policy.Rule{
		"attempt timeout": {AttemptTimeout: time.Minute},
		"stall":           {AttemptTimeout: -1, StallTimeout: time.Minute},
		"hedge":           {AttemptTimeout: -1, Hedge: policy.Hedge{Delay: time.Second}},
	}
	for name, row := range rows {
		for kind, rule := range rules {
			inBubble(t, name+", "+kind, func(t *testing.T) {
				rule.MaxAttempts = 2
				ctx := &countingCtx{Context: t.Context(), done: make(chan struct{})}
				req := headed(t, http.MethodGet, "http://h.test/").WithContext(ctx)
				if name == "tunnel" {
					req.Header.Set("Upgrade", "websocket")
				}
				tr := over(t, transport.Config{Rule: rule}, rt(func(req *http.Request) (*http.Response, error) {
					req.Context().Done()
					return play(req, row.response)
				}))
				var ended sync.WaitGroup
				ended.Go(func() {
					defer func() { _ = recover() }()
					if resp, err := tr.RoundTrip(req); err == nil {
						row.end(resp)
					}
				})
				ended.Wait()
				if name == "too late" {
					time.Sleep(time.Hour) // until the loser of a race has its answer
				}
				synctest.Wait()
				assert.Zero(t, ctx.n.Load())
			})
		}
	}
}

func TestStalledBodyIsResumed(t *testing.T) {
	inMemory(t, anyHTTP, func(t *testing.T, cfg ts.Config) {
		body := ts.Pattern(100_000)
		content := ts.Content(body, `"v1"`)
		s := set(t, cfg, policy.Rule{StallTimeout: 20 * time.Second}.Or(exact), content.CutAt(10_000, ts.Stall), content)
		start := time.Now()
		got := s.send(http.MethodGet, nil)
		require.NoError(t, got.err)
		assert.Equal(t, ts.Hash(body), ts.Hash([]byte(got.body)))
		assert.Equal(t, 21*time.Second, time.Since(start), "the stall, and a back-off")
		s.tr.CloseIdleConnections()
	})
}

func TestStalledHeadersAreRetried(t *testing.T) {
	inMemory(t, anyHTTP, func(t *testing.T, cfg ts.Config) {
		s := set(t, cfg, policy.Rule{StallTimeout: 20 * time.Second}.Or(exact), ts.Hang(), ts.OK("hello"))
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
					network, at := ts.NewNet(), "h.test:80"
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

// The caller's deadline ends a request for an upgrade with context.DeadlineExceeded.
func TestDeadlineOfAnUpgrade(t *testing.T) {
	for name, rule := range map[string]policy.Rule{
		"plain":           {},
		"attempt timeout": {AttemptTimeout: time.Hour},
		"hedge":           {Hedge: policy.Hedge{Delay: time.Hour}},
	} {
		inBubble(t, name, func(t *testing.T) {
			ctx := expires(t, time.Second)
			tr := over(t, transport.Config{Rule: rule}, script(faults.Hang()))
			_, err := tr.RoundTrip(headed(t, http.MethodGet, "http://h.test/", "Upgrade: websocket").WithContext(ctx))
			assert.ErrorIs(t, err, context.DeadlineExceeded)
		})
	}
}

// Over HTTP/2 the response may end before the upload. The attempt's context lives
// until the upload has ended, and no longer.
func TestUploadOutlivesTheResponse(t *testing.T) {
	var ctx context.Context
	var body io.ReadCloser
	tr := over(t, transport.Config{Rule: policy.Rule{AttemptTimeout: time.Hour}}, rt(func(req *http.Request) (*http.Response, error) {
		ctx, body = req.Context(), req.Body
		_, _ = body.Read(make([]byte, 1))
		return play(req, faults.Status(200))
	}))
	mustRoundTrip(t, tr, newRequest(t, http.MethodPut, "http://h.test/", strings.NewReader(strings.Repeat("x", replay.Small+1))))
	require.NoError(t, ctx.Err())
	_, _ = io.Copy(io.Discard, body)
	_ = body.Close()
	assert.Error(t, ctx.Err())
}

// A tunnel ends with the context of its request, whatever timeouts the rule has.
func TestTunnelEndsWithItsContext(t *testing.T) {
	for name, d := range map[string]time.Duration{"no timeout": -1, "a timeout": time.Minute} {
		t.Run(name, func(t *testing.T) {
			ln, err := net.Listen("tcp", "127.0.0.1:0")
			require.NoError(t, err)
			defer func() { _ = ln.Close() }()
			go func() {
				c, err := ln.Accept()
				if err != nil {
					return
				}
				defer func() { _ = c.Close() }()
				in := bufio.NewReader(c)
				if _, err := http.ReadRequest(in); err == nil {
					_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\n\r\nhello")
					_, _ = io.Copy(io.Discard, in)
				}
			}()
			base := &http.Transport{}
			defer base.CloseIdleConnections()
			tr := over(t, transport.Config{Rule: policy.Rule{AttemptTimeout: d}.Or(quick)}, base)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			in, out := io.Pipe()
			defer func() { _ = out.Close() }()
			resp := mustRoundTrip(t, tr, newRequest(t, http.MethodConnect, "http://"+ln.Addr().String(), in).WithContext(ctx))
			defer func() { _ = resp.Body.Close() }()
			_, err = io.ReadFull(resp.Body, make([]byte, 5))
			require.NoError(t, err)
			ended := make(chan error, 1)
			go func() { _, err := resp.Body.Read(make([]byte, 1)); ended <- err }()
			cancel()
			select {
			case err := <-ended:
				assert.Error(t, err)
			case <-time.After(30 * time.Second):
				t.Error("the tunnel outlives its context")
			}
		})
	}
}

// A countingCtx counts the functions that wait for its end.
type countingCtx struct {
	context.Context
	n    atomic.Int32
	done chan struct{}
}

func (c *countingCtx) Done() <-chan struct{} { return c.done }
func (c *countingCtx) AfterFunc(func()) func() bool {
	c.n.Add(1)
	var once sync.Once
	return func() bool { once.Do(func() { c.n.Add(-1) }); return true }
}

// No retry starts later than MaxElapsedTime after the first attempt, although the GetBody of the
// caller takes the time that the decision had left.
func TestNoRetryStartsAfterMaxElapsed(t *testing.T) {
	for takes, attempts := range map[time.Duration]int{49 * time.Millisecond: 2, 51 * time.Millisecond: 1} {
		inBubble(t, takes.String(), func(t *testing.T) {
			base := script(faults.Fail(errRefused))
			req := newRequest(t, http.MethodPut, "http://h.test/", nil)
			req.Body = oneShot("text")
			req.GetBody = func() (io.ReadCloser, error) {
				time.Sleep(takes)
				return oneShot("text"), nil
			}
			rule := policy.Rule{MaxElapsedTime: 100 * time.Millisecond, MaxAttempts: 2, Backoff: backoff.Constant(50 * time.Millisecond)}
			_, err := over(t, transport.Config{Rule: rule}, base).RoundTrip(req)
			if e := errorAs[*transport.Error](t, err); attempts == 1 {
				assert.Equal(t, transport.ReasonMaxElapsedTime, e.Reason)
			}
			base.sent(t, attempts)
		})
	}
}

// The same holds if the retry waits for the idle connections of a silent base to be closed.
func TestNoRetryOverASilentBaseStartsAfterMaxElapsed(t *testing.T) {
	for most, attempts := range map[time.Duration]int{52 * time.Millisecond: 2, 50500 * time.Microsecond: 1} {
		inBubble(t, most.String(), func(t *testing.T) {
			var start time.Time
			base := rt(func(req *http.Request) (*http.Response, error) {
				switch {
				case req.URL.Path == "/well":
					return &http.Response{StatusCode: 200, ProtoMajor: 2, Body: http.NoBody, Request: req}, nil
				case start.IsZero():
					start = time.Now()
				default:
					assert.LessOrEqual(t, time.Since(start), most)
				}
				<-req.Context().Done()
				return nil, req.Context().Err()
			})
			rule := policy.Rule{MaxElapsedTime: most, MaxAttempts: 2, AttemptTimeout: 50 * time.Millisecond, Backoff: backoff.Constant(0)}
			tr := over(t, transport.Config{Rule: rule}, brittle{rt: base})
			assert.Equal(t, 200, responds(t, tr, http.MethodGet, "http://h.test/well"))
			_, err := tr.RoundTrip(getRequest(t, "http://h.test/"))
			assert.Len(t, errorAs[*transport.Error](t, err).Attempts, attempts, "attempts")
		})
	}
}

// TestWaitAfterSilence: after a timeout the retry comes at a random time up to the wait before the
// fourth retry. After anything else it comes as soon as the back-off says.
func TestWaitAfterSilence(t *testing.T) {
	rule := policy.Rule{AttemptTimeout: 2 * time.Second}.Or(exact) // 1 s before the second attempt
	for _, row := range []struct {
		name   string
		step   faults.Step
		took   time.Duration // by the first attempt
		longer bool
	}{
		{"no answer", faults.Hang(), 2 * time.Second, true},
		{"the base's own timeout", faults.Fail(os.ErrDeadlineExceeded), 0, true},
		{"503", faults.Status(503), 0, false},
		{"a late 504", faults.Status(504).Delay(time.Second), time.Second, false},
		{"a reset", faults.ConnReset(), 0, false},
		{"refused", faults.Fail(syscall.ECONNREFUSED), 0, false},
	} {
		inBubble(t, row.name, func(t *testing.T) {
			var least, most time.Duration = time.Hour, 0
			for range 50 {
				server := script(row.step, faults.Status(200))
				resp := mustGet(t, over(t, transport.Config{Rule: rule}, server))
				assert.Equal(t, http.StatusOK, resp.StatusCode)
				at := server.arrivals()
				require.Len(t, at, 2)
				wait := at[1] - at[0] - row.took
				least, most = min(least, wait), max(most, wait)
			}
			assert.GreaterOrEqual(t, least, time.Second)
			assert.LessOrEqual(t, most, 8*time.Second)
			if row.longer {
				assert.Less(t, least, 3*time.Second, "the times are spread")
				assert.Greater(t, most, 6*time.Second, "the times are spread")
			} else {
				assert.Equal(t, time.Second, most)
			}
		})
	}
}

// A hook knows the deadline of each attempt.
func TestDeadlineOfAnAttempt(t *testing.T) {
	bubble(t, func(t *testing.T) {
		for _, row := range []struct {
			name            string
			attempt, caller time.Duration // 0: none
			stall           time.Duration // 0: none
			body            io.Reader
			want            []time.Duration // from the start of each attempt; -1: none
		}{
			{"none", 0, 0, 0, nil, []time.Duration{-1, transport.LaterTimeout}},
			{"attempt", time.Second, 0, 0, nil, []time.Duration{time.Second, time.Second}},
			{"caller", 0, 5 * time.Second, 0, nil, []time.Duration{5 * time.Second, 4 * time.Second}},
			{"the earlier", 3 * time.Second, 3500 * time.Millisecond, 0, nil, []time.Duration{3 * time.Second, 2500 * time.Millisecond}},
			{"a stall", 0, 0, 200 * time.Millisecond, nil, []time.Duration{200 * time.Millisecond, 200 * time.Millisecond}},
			{"a stall before the attempt's end", 1200 * time.Millisecond, 0, 200 * time.Millisecond, nil, []time.Duration{200 * time.Millisecond, 200 * time.Millisecond}},
			{"a stall after the attempt's end", time.Second, 0, time.Minute, nil, []time.Duration{time.Second, time.Second}},
			{"a stall and a streamed body", 0, 0, 200 * time.Millisecond, io.MultiReader(strings.NewReader("x")), []time.Duration{-1, -1}},
			{"small body", time.Second, 0, 0, strings.NewReader("x"), []time.Duration{time.Second, time.Second}},
			{"large body", time.Second, 0, 0, strings.NewReader(strings.Repeat("x", 65<<10)), []time.Duration{-1, -1}},
			{"streamed body", time.Second, 0, 0, io.MultiReader(strings.NewReader("x")), []time.Duration{-1, -1}},
			{"streamed body with a caller", time.Second, 5 * time.Second, 0, io.MultiReader(strings.NewReader("x")), []time.Duration{5 * time.Second, 4 * time.Second}},
		} {
			var got []time.Duration
			trace := &transport.Trace{AttemptStart: func(ctx context.Context, a transport.AttemptStart) context.Context {
				left := time.Duration(-1)
				if !a.Deadline.IsZero() {
					left = a.Deadline.Sub(a.Start)
				}
				got = append(got, left)
				return ctx
			}}
			tr := mustNew(t, transport.Config{Base: script(status(503), status(200)), Traces: []*transport.Trace{trace}, Rule: policy.Rule{AttemptTimeout: row.attempt, StallTimeout: row.stall, Backoff: backoff.Constant(time.Second)}})
			ctx, cancel := t.Context(), context.CancelFunc(func() {})
			if row.caller > 0 {
				ctx, cancel = context.WithTimeout(ctx, row.caller)
			}
			finish(tr.RoundTrip(newRequest(t, http.MethodPut, "http://h.test/", row.body).WithContext(ctx)))
			cancel()
			assert.Equal(t, row.want, got, row.name)
		}
	})
}

// TestTimeAtADeadHost pins for how long a request to a dead host takes until it fails, alone and among others, as README.md
// and docs/settings.md say.
func TestTimeAtADeadHost(t *testing.T) {
	for name, row := range map[string]struct {
		rule        policy.Rule
		step        faults.Step
		least, most time.Duration // alone
		mostInLine  time.Duration
		others      int // per second
	}{
		"default":         {policy.Rule{}, faults.ConnRefused(), 31 * time.Second, 36 * time.Second, time.Minute, 20},
		"Service":         {profile.Service(), faults.ConnRefused(), 150 * time.Millisecond, 300 * time.Millisecond, 2 * time.Second, 20},
		"Service, silent": {profile.Service(), faults.Hang(), 3 * time.Second, 4 * time.Second, 4 * time.Second, 20},
		"API":             {profile.API(), faults.ConnRefused(), 31 * time.Second, 36 * time.Second, 3 * time.Minute, 5},
	} {
		for _, alone := range []bool{true, false} {
			inBubble(t, fmt.Sprintf("%s/alone=%v", name, alone), func(t *testing.T) {
				base, most := faults.New(nil, faults.Script(row.step)), row.mostInLine
				c, every := transport.Config{Base: base, Rule: row.rule}, time.Second/time.Duration(row.others)
				shared := mustNew(t, c)
				requests := int(2 * time.Minute / every)
				if alone {
					requests, most = 50, row.most
				}
				var all sync.WaitGroup
				for range requests {
					tr := shared
					if alone {
						tr = mustNew(t, c)
					}
					all.Go(func() {
						start := time.Now()
						_, _ = fetch(t, tr, t.Context(), "http://h.test/")
						assert.LessOrEqual(t, time.Since(start), most)
						assert.True(t, !alone || time.Since(start) >= row.least, time.Since(start))
					})
					if !alone {
						time.Sleep(every)
					}
				}
				all.Wait()
			})
		}
	}
}
