package transport_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"net/http/httptrace"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/iotest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/aplomb-go/aplomb/classify"
	"github.com/aplomb-go/aplomb/faults"
	"github.com/aplomb-go/aplomb/policy"
	"github.com/aplomb-go/aplomb/policy/backoff"
	"github.com/aplomb-go/aplomb/policy/profile"
	"github.com/aplomb-go/aplomb/transport"
)

func TestRetriesWithTheFormulasWaits(t *testing.T) {
	bubble(t, func(t *testing.T) {
		base := script(status(503), faults.Fail(syscall.ECONNRESET), status(429), status(500), status(200))
		resp := mustGet(t, over(t, transport.Config{Rule: exact}, base))
		assert.Equal(t, 200, resp.StatusCode)
		assert.Equal(t, []time.Duration{0, 1 * time.Second, 3 * time.Second, 7 * time.Second, 15 * time.Second}, base.arrivals())
	})
}

func TestGivesUpWithTheLastResponse(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := 0
		base := rt(func(req *http.Request) (*http.Response, error) {
			n++
			return newResponse(req, 503, io.NopCloser(strings.NewReader(fmt.Sprint("response ", n)))), nil
		})
		resp := mustGet(t, over(t, transport.Config{Rule: exact}, base))
		assert.Equal(t, 503, resp.StatusCode)
		assert.Equal(t, "response 6", mustRead(t, resp))
		reason, attempts, ok := unretried(resp)
		require.True(t, ok)
		assert.Equal(t, transport.ReasonMaxAttempts, reason)
		assert.Len(t, attempts, 6, "attempts")
		assert.Equal(t, 1, attempts[0].Number)
		assert.Equal(t, 503, attempts[0].Status)
		assert.Equal(t, time.Second, attempts[0].Delay)
		assert.Zero(t, attempts[5].Delay)
		assert.Equal(t, 30*time.Second, attempts[5].Start.Sub(attempts[1].Start))
	})
}

func TestGivesUpWithTheLastError(t *testing.T) {
	bubble(t, func(t *testing.T) {
		last := &net.OpError{Op: "read", Net: "tcp", Err: syscall.ECONNRESET}
		base := script(status(503), faults.Fail(io.ErrUnexpectedEOF), faults.Fail(last))
		tr := over(t, transport.Config{Rule: policy.Rule{MaxAttempts: 3}.Or(exact)}, base)
		_, err := get(t, tr, t.Context())
		e := errorAs[*transport.Error](t, err)
		assert.Equal(t, transport.ReasonMaxAttempts, e.Reason)
		assert.Len(t, e.Attempts, 3, "attempts")
		assert.Equal(t, 503, e.Attempts[0].Status)
		assert.ErrorIs(t, err, syscall.ECONNRESET)
		assert.NotErrorIs(t, err, io.ErrUnexpectedEOF)
		op := errorAs[*net.OpError](t, err)
		assert.Same(t, last, op)
		assert.Equal(t, "transport: gave up after 3 attempts, last status 503: read tcp: connection reset by peer", err.Error())
	})
}

type timeoutError struct{}

func (*timeoutError) Error() string   { return "i/o timeout" }
func (*timeoutError) Timeout() bool   { return true }
func (*timeoutError) Temporary() bool { return true }

// A base that asks a second server may have sent the request, although its error is that of a dial, or its
// response says that nothing was done.
func TestBaseThatAsksASecondServer(t *testing.T) {
	for name, outcome := range map[string]func(*http.Request) (*http.Response, error){
		"a dial after a connection": func(req *http.Request) (*http.Response, error) {
			trace := httptrace.ContextClientTrace(req.Context())
			trace.GetConn("h.test:80")
			trace.GotConn(httptrace.GotConnInfo{})
			trace.GetConn("other.test:80")
			return nil, errRefused
		},
		"a redirection": func(req *http.Request) (*http.Response, error) {
			followed := req.Clone(req.Context())
			followed.Response = new(http.Response)
			return newResponse(followed, 421, http.NoBody), nil
		},
	} {
		inBubble(t, name, func(t *testing.T) {
			base := script(outcome, status(200))
			tr := over(t, transport.Config{Rule: policy.Rule{AttemptTimeout: time.Hour}}, base)
			_ = closing(tr.RoundTrip(newRequest(t, http.MethodPost, "http://h.test/", nil)))
			base.sent(t, 1)
		})
	}
}

func TestPOST(t *testing.T) {
	for _, row := range []struct {
		name     string
		rule     policy.Rule
		on       func(context.Context) context.Context
		header   string
		first    answer
		attempts int
	}{
		{"503 may have been acted on", policy.Rule{}, nil, "", status(503), 1},
		{"429 too", policy.Rule{}, nil, "", status(429, "Retry-After: 1"), 1},
		{"a reset too", policy.Rule{}, nil, "", faults.Fail(syscall.ECONNRESET), 1},
		{"a dial that failed never left", policy.Rule{}, nil, "", faults.Fail(&net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}), 2},
		{"421", policy.Rule{}, nil, "", status(421), 2},
		{"425", policy.Rule{}, nil, "", status(425), 2},
		{"Idempotency-Key", policy.Rule{}, nil, "Idempotency-Key", status(503), 2},
		{"the caller says so", policy.Rule{}, transport.WithIdempotent, "", status(503), 2},
		{"the rule says so", policy.Rule{Idempotent: func(*http.Request) bool { return true }}, nil, "", status(503), 2},
		{"Refusals: 429", policy.Rule{Classify: classify.Refusals}, nil, "", status(429), 2},
		{"Refusals: 503 with a wait", policy.Rule{Classify: classify.Refusals}, nil, "", status(503, "Retry-After: 1"), 2},
		{"Refusals: 503 without", policy.Rule{Classify: classify.Refusals}, nil, "", status(503), 1},
		{"Refusals: a reset", policy.Rule{Classify: classify.Refusals}, nil, "", faults.Fail(syscall.ECONNRESET), 1},
		{"202 with Retry-After is polling", policy.Rule{}, nil, "", status(202, "Retry-After: 1"), 1},
	} {
		inBubble(t, row.name, func(t *testing.T) {
			base := script(row.first, status(200))
			req := newRequest(t, http.MethodPost, "http://h.test/", strings.NewReader("text"))
			if row.on != nil {
				req = req.WithContext(row.on(req.Context()))
			}
			if row.header != "" {
				req.Header.Set(row.header, "1")
			}
			resp, _ := over(t, transport.Config{Rule: row.rule}, base).RoundTrip(req)
			if resp != nil {
				_ = resp.Body.Close()
			}
			base.sent(t, row.attempts)
			for _, b := range base.bodies {
				assert.Equal(t, "text", b)
			}
		})
	}
}

// A request with a proof that counts once is sent again only if it never left. The second response
// would say that the proof was used, and hide the first with its wait.
func TestSingleUse(t *testing.T) {
	rules := map[string]policy.Rule{"default": {}, "API": profile.API(), "Service": profile.Service(), "hedge": {Hedge: policy.Hedge{Delay: time.Millisecond, UnsafeMethods: policy.On}}}
	refused := faults.Fail(&net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED})
	for name, rule := range rules {
		for _, method := range []string{http.MethodGet, http.MethodPut, http.MethodPost} {
			for what, row := range map[string]struct {
				answer answer
				sent   int
				allow  bool // says that the proof counts again
			}{
				"429":          {answer: status(429, "Retry-After: 1"), sent: 1},
				"503":          {answer: status(503, "Retry-After: 1"), sent: 1},
				"425":          {answer: status(425), sent: 1},
				"reset":        {answer: faults.ConnReset(), sent: 1},
				"slow":         {answer: status(200).Delay(500 * time.Millisecond), sent: 1},
				"cut":          {answer: status(200).Header("ETag", `"v"`).CutAt(3), sent: 1},
				"never left":   {answer: refused, sent: 2},
				"counts again": {answer: status(503, "Retry-After: 1"), sent: 2, allow: true},
			} {
				inBubble(t, name+"/"+method+"/"+what, func(t *testing.T) {
					base := script(row.answer, status(200))
					req := headed(t, method, "http://a.test/", "DPoP: proof")
					if row.allow {
						req = req.WithContext(transport.WithIdempotent(req.Context()))
					}
					resp, err := mustNew(t, transport.Config{Base: base, Rule: rule}).RoundTrip(req)
					if err == nil {
						_, err = io.Copy(io.Discard, resp.Body)
						_ = resp.Body.Close()
					}
					base.sent(t, row.sent)
					switch {
					case row.sent > 1:
						assert.NoError(t, err)
					case resp != nil && resp.StatusCode >= 400:
						assert.Equal(t, transport.ReasonNotIdempotent, transport.ReasonOf(resp, nil))
					}
				})
			}
		}
	}
}

func TestServersWait(t *testing.T) {
	for _, row := range []struct {
		name   string
		rule   policy.Rule
		after  string
		reason transport.Reason
		least  time.Duration
		most   time.Duration
	}{
		{"longer than the back-off", exact, "10", transport.ReasonRetry, 10 * time.Second, 11 * time.Second},
		{"shorter", exact, "0", transport.ReasonRetry, time.Second, time.Second},
		{"too long: stop at once", exact, "61", transport.ReasonThrottled, 0, 0},
		{"too long: wait", policy.Rule{MaxRetryAfter: policy.Off}.Or(exact), "3600", transport.ReasonRetry, time.Hour, time.Hour + time.Second},
		{"another bound", policy.Rule{MaxRetryAfter: 5 * time.Second}.Or(exact), "6", transport.ReasonThrottled, 0, 0},
		{"no bound", policy.Rule{MaxRetryAfter: -1}.Or(exact), "3600", transport.ReasonRetry, time.Hour, time.Hour + time.Second},
		{"hints are off", policy.Rule{RetryAfter: func(classify.Outcome) (time.Duration, bool) { return 0, true }}.Or(exact), "3600", transport.ReasonRetry, time.Second, time.Second},
		{"nonsense", exact, "10000000000", transport.ReasonThrottled, 0, 0},
	} {
		inBubble(t, row.name, func(t *testing.T) {
			var seen recorder
			start := time.Now()
			tr := over(t, transport.Config{Rule: row.rule}, script(status(503, "Retry-After: "+row.after), status(200)))
			resp := mustGetWith(t, tr, seen.on(t.Context()))
			assert.Equal(t, row.reason, seen.reasons()[0])
			assert.GreaterOrEqual(t, time.Since(start), row.least)
			assert.LessOrEqual(t, time.Since(start), row.most)
			if row.reason == transport.ReasonRetry {
				assert.Equal(t, 200, resp.StatusCode)
			} else {
				assert.Equal(t, 503, resp.StatusCode)
				reason, _, ok := unretried(resp)
				assert.True(t, ok)
				assert.Equal(t, row.reason, reason)
			}
		})
	}
}

// Never a sleep that cannot end in an attempt.
func TestDeadlineIsSeenBeforeTheSleep(t *testing.T) {
	bubble(t, func(t *testing.T) {
		ctx := expires(t, 2500*time.Millisecond)
		start := time.Now()
		base := script(status(503))
		resp := mustGetWith(t, over(t, transport.Config{Rule: exact}, base), ctx)
		assert.Equal(t, 503, resp.StatusCode)
		base.sent(t, 2, "after 1 s; another 2 s would pass the deadline")
		assert.Equal(t, time.Second, time.Since(start))
		reason, _, _ := unretried(resp)
		assert.Equal(t, transport.ReasonDeadline, reason)
	})
}

func TestElapsed(t *testing.T) {
	bubble(t, func(t *testing.T) {
		start := time.Now()
		base := script(status(503))
		resp := mustGet(t, over(t, transport.Config{Rule: policy.Rule{MaxElapsedTime: 7 * time.Second}.Or(exact)}, base))
		reason, _, _ := unretried(resp)
		assert.Equal(t, transport.ReasonMaxElapsedTime, reason)
		base.sent(t, 4, "at 0, 1, 3 and 7 s")
		assert.Equal(t, 7*time.Second, time.Since(start))
	})
}

// Every wait ends at once when the context does, with its error and cause.
func TestCancelDuringTheWait(t *testing.T) {
	cause := errors.New("the user went home")
	bubble(t, func(t *testing.T) {
		ctx, cancel := context.WithCancelCause(t.Context())
		start := time.Now()
		time.AfterFunc(1500*time.Millisecond, func() { cancel(cause) })
		var seen recorder
		_, err := get(t, over(t, transport.Config{Rule: exact}, script(status(503))), seen.on(ctx))
		assert.Equal(t, 1500*time.Millisecond, time.Since(start))
		assert.ErrorIs(t, err, context.Canceled)
		assert.ErrorIs(t, err, cause)
		e := errorAs[*transport.Error](t, err)
		assert.Equal(t, transport.ReasonCanceled, e.Reason)
		assert.Len(t, e.Attempts, 2, "attempts")
		assert.Equal(t, []transport.Reason{transport.ReasonRetry, transport.ReasonRetry, transport.ReasonCanceled}, seen.reasons())
		assert.False(t, e.Timeout())
	})
}

// Request.Cancel ends every wait as the end of the context does: for a drain, for
// a look into a body, for a busy body.
func TestRequestCancelEndsEveryWait(t *testing.T) {
	silent := func(code int) answer {
		return func(req *http.Request) (*http.Response, error) {
			r, _ := io.Pipe()
			return newResponse(req, code, r), nil
		}
	}
	early := func(req *http.Request) (*http.Response, error) {
		go func() {
			_, _ = req.Body.Read(make([]byte, 1))
			_ = req.Body.Close()
		}()
		time.Sleep(time.Millisecond)
		return play(req, status(503))
	}
	for name, row := range map[string]struct {
		rule policy.Rule
		base answer
	}{
		"a drain":      {policy.Rule{Backoff: backoff.Constant(0)}, silent(503)},
		"a look":       {policy.Rule{Classify: classify.OnBody(classify.Ambiguous, "x")}, silent(400)},
		"a busy body":  {policy.Rule{Backoff: backoff.Constant(0)}, early},
		"the back-off": {exact, status(503)},
	} {
		inBubble(t, name, func(t *testing.T) {
			r, w := io.Pipe()
			req := newRequest(t, http.MethodGet, "http://h.test/", nil)
			if name == "a busy body" {
				req = newRequest(t, http.MethodPut, "http://h.test/", r)
			}
			cancels(req, 100*time.Millisecond)
			start, attempts := time.Now(), 0
			resp, err := over(t, transport.Config{Rule: row.rule}, rt(func(req *http.Request) (*http.Response, error) {
				attempts++
				return play(req, row.base)
			})).RoundTrip(req)
			assert.Equal(t, 100*time.Millisecond, time.Since(start))
			count(t, 1, attempts, "request sent")
			if err == nil {
				_ = resp.Body.Close()
			}
			_ = w.Close()
		})
	}
}

func TestAttemptTimeout(t *testing.T) {
	rule := policy.Rule{AttemptTimeout: time.Second, Backoff: backoff.Constant(time.Second), MaxAttempts: 3}
	hang := faults.Hang()
	inBubble(t, "is not the caller's cancellation, and is retried", func(t *testing.T) {
		start := time.Now()
		base := script(hang, status(200))
		var seen recorder
		resp := mustGetWith(t, over(t, transport.Config{Rule: rule}, base), seen.on(t.Context()))
		assert.Equal(t, 200, resp.StatusCode)
		assert.Equal(t, 2*time.Second, time.Since(start))
		assert.NotEmpty(t, mustRead(t, resp))
		assert.ErrorIs(t, seen.all[0].Err, policy.ErrAttemptTimeout)
		assert.Equal(t, classify.Ambiguous, seen.all[0].Class)
	})
	inBubble(t, "is named in the error", func(t *testing.T) {
		_, err := get(t, over(t, transport.Config{Rule: rule}, script(hang)), t.Context())
		assert.ErrorIs(t, err, policy.ErrAttemptTimeout)
		assert.ErrorIs(t, err, context.DeadlineExceeded)
		assert.NotErrorIs(t, err, context.Canceled)
		assert.ErrorContains(t, err, "no response within the attempt's 1s")
		e := errorAs[*transport.Error](t, err)
		assert.True(t, e.Timeout())
	})
	inBubble(t, "the caller's deadline is the caller's", func(t *testing.T) {
		ctx := expires(t, 500*time.Millisecond)
		base := script(hang)
		_, err := get(t, over(t, transport.Config{Rule: rule}, base), ctx)
		assert.ErrorIs(t, err, context.DeadlineExceeded)
		assert.NotErrorIs(t, err, policy.ErrAttemptTimeout)
		base.sent(t, 1)
	})
	inBubble(t, "does not run while the request's body is sent", func(t *testing.T) {
		var seen recorder
		start := time.Now()
		tr := over(t, transport.Config{Rule: rule}, numbered(func(req *http.Request, n int) (*http.Response, error) {
			for { // an upload of 10 s, then a response that takes too long once
				if _, err := req.Body.Read(make([]byte, 1)); err != nil {
					break
				}
				select {
				case <-time.After(2 * time.Second):
				case <-req.Context().Done():
					t.Error("timed out while sending")
				}
			}
			_ = req.Body.Close()
			if n == 1 {
				return play(req, hang)
			}
			return play(req, status(200))
		}))
		req := newRequest(t, http.MethodPut, "http://h.test/", nil)
		req.Body = seekable("12345")
		resp := mustRoundTrip(t, tr, req.WithContext(seen.on(req.Context())))
		assert.Equal(t, 200, resp.StatusCode)
		assert.Equal(t, []transport.Reason{transport.ReasonRetry, transport.ReasonFinal}, seen.reasons())
		assert.Equal(t, 22*time.Second, time.Since(start))
	})
	inBubble(t, "runs before the body is asked for", func(t *testing.T) {
		start := time.Now()
		tr := over(t, transport.Config{Rule: policy.Rule{MaxAttempts: 1}.Or(rule)}, rt(func(req *http.Request) (*http.Response, error) {
			defer func() { _ = req.Body.Close() }()
			return play(req, hang) // as in a dial that does not end
		}))
		_, err := tr.RoundTrip(newRequest(t, http.MethodPut, "http://h.test/", strings.NewReader("12345")))
		assert.ErrorIs(t, err, policy.ErrAttemptTimeout)
		assert.Equal(t, time.Second, time.Since(start))
	})
	inBubble(t, "a late response is a timeout", func(t *testing.T) {
		late := oneShot("late")
		base := script(func(req *http.Request) (*http.Response, error) {
			<-req.Context().Done()
			return newResponse(req, 200, late), nil
		}, status(200))
		resp := mustGet(t, over(t, transport.Config{Rule: rule}, base))
		base.sent(t, 2)
		count(t, 1, late.closed(), "body closed")
		_ = resp.Body.Close()
	})
}

// An upgraded connection belongs to the caller: its body keeps io.Writer and
// is not cut when the attempt's context would end.
func TestUpgradesAreUntouched(t *testing.T) {
	for _, rule := range []policy.Rule{{}, {AttemptTimeout: time.Second}, {Classify: classify.OnBody(classify.Ambiguous, "x", 101, 200)}} {
		bubble(t, func(t *testing.T) {
			var ctx context.Context
			conn := &rwc{}
			tr := over(t, transport.Config{Rule: rule}, rt(func(req *http.Request) (*http.Response, error) {
				ctx = req.Context()
				if req.Method == http.MethodConnect { // a base need not say to which request a response belongs
					return &http.Response{StatusCode: 200, Header: http.Header{}, Body: conn}, nil
				}
				return newResponse(req, 101, conn), nil
			}))
			for _, method := range []string{http.MethodGet, http.MethodConnect} {
				caller, cancel := context.WithCancel(t.Context())
				req := newRequest(t, method, "http://h.test/", nil).WithContext(caller)
				req.Header.Set("Upgrade", "websocket")
				resp := mustRoundTrip(t, tr, req)
				assert.Same(t, conn, resp.Body, method)
				time.Sleep(time.Minute)
				assert.NoError(t, ctx.Err())
				cancel()
			}
		})
	}
}

// Only a body that could be continued after a cut is wrapped.
func TestPlainBodiesAreNotWrapped(t *testing.T) {
	own := oneShot("text")
	text, tag := "Content-Type: text/plain", `ETag: "v1"`
	for _, row := range []struct {
		name   string
		rule   policy.Rule
		method string
		code   int
		header string
		ctx    func(context.Context) context.Context
	}{
		{"a POST", policy.Rule{}, http.MethodPost, 200, text, nil},
		{"a redirect", policy.Rule{}, http.MethodGet, 302, "Location: /", nil},
		{"a 404", policy.Rule{}, http.MethodGet, 404, tag, nil},
		{"a 101", policy.Rule{}, http.MethodGet, 101, tag, nil},
		{"an empty one", policy.Rule{}, http.MethodGet, 200, "Content-Length: 0", nil},
		{"an event stream", policy.Rule{}, http.MethodGet, 200, "Content-Type: text/event-stream; charset=utf-8", nil},
		{"lines of JSON", policy.Rule{}, http.MethodGet, 200, "Content-Type: application/x-ndjson", nil},
		{"fetching again is off", policy.Rule{MaxRefetch: policy.Off}, http.MethodGet, 200, text, nil},
		{"resuming is off", policy.Rule{Resume: policy.Off}, http.MethodGet, 200, text, nil},
		{"resuming is off, with a validator", policy.Rule{Resume: policy.Off, MaxRefetch: policy.Off}, http.MethodGet, 200, tag, nil},
		{"retries are off", policy.Rule{MaxAttempts: 1}, http.MethodGet, 200, text, nil},
		{"retries are off, with a validator", policy.Rule{MaxAttempts: 1}, http.MethodGet, 200, tag, nil},
		{"a request that is sent once", policy.Rule{}, http.MethodGet, 200, text, transport.WithoutRetries},
		{"a request that is sent once, with a validator", policy.Rule{}, http.MethodGet, 200, tag, transport.WithoutRetries},
	} {
		t.Run(row.name, func(t *testing.T) {
			tr := over(t, transport.Config{Rule: row.rule}, rt(func(req *http.Request) (*http.Response, error) {
				resp := newResponse(req, row.code, own, row.header)
				if resp.Header.Get("Content-Length") != "" {
					resp.ContentLength = 0
				}
				return resp, nil
			}))
			req := newRequest(t, row.method, "http://h.test/", nil)
			if row.ctx != nil {
				req = req.WithContext(row.ctx(req.Context()))
			}
			assert.Same(t, own, mustRoundTrip(t, tr, req).Body)
		})
	}
}

type rwc struct{ io.ReadWriter }

func (*rwc) Close() error { return nil }

// Given a base that is slow to notice Request.Cancel, when the channel was closed before
// the first attempt failed, then there is no second attempt.
func TestNoRetryAfterRequestCancel(t *testing.T) {
	for range 20 { // the goroutine that listens to the channel may be fast
		cancel := make(chan struct{})
		base := script(func(*http.Request) (*http.Response, error) {
			close(cancel)
			return nil, syscall.ECONNRESET
		}, status(200))
		req := newRequest(t, http.MethodGet, "http://h.test/", nil)
		//lint:ignore SA1019 still honoured
		req.Cancel = cancel
		_, err := over(t, transport.Config{Rule: policy.Rule{Backoff: backoff.Constant(0)}}, base).RoundTrip(req)
		assert.ErrorIs(t, err, syscall.ECONNRESET)
		base.sent(t, 1)
	}
}

// Retries are not multiplied, whichever way the inner outcome comes.
func TestNestedTransports(t *testing.T) {
	for name, first := range map[string]answer{"response": status(503), "error": faults.Fail(syscall.ECONNRESET)} {
		for _, depth := range []int{2, 3} {
			inBubble(t, fmt.Sprint(name, depth), func(t *testing.T) {
				base := script(first)
				var tr http.RoundTripper = base
				for range depth {
					tr = over(t, transport.Config{Rule: quick}, tr)
				}
				var seen recorder
				resp, err := get(t, tr, seen.on(t.Context()))
				base.sent(t, 6)
				assert.Equal(t, transport.ReasonNested, seen.last())
				if err == nil {
					reason, attempts, ok := unretried(resp)
					assert.True(t, ok)
					assert.Equal(t, transport.ReasonMaxAttempts, reason)
					assert.Len(t, attempts, 6, "attempts")
				}
			})
		}
	}
	inBubble(t, "what is not idempotent inside may be outside", func(t *testing.T) {
		base := script(status(503), status(200))
		inner := over(t, transport.Config{Rule: quick}, base)
		outer := over(t, transport.Config{Rule: policy.Rule{Idempotent: func(*http.Request) bool { return true }}.Or(quick)}, inner)
		resp := mustRoundTrip(t, outer, newRequest(t, http.MethodPost, "http://h.test", nil))
		assert.Equal(t, 200, resp.StatusCode)
	})
	inBubble(t, "an inner one without retries has not given up", func(t *testing.T) {
		base := script(status(503), status(200))
		inner := over(t, transport.Config{Rule: policy.Rule{MaxAttempts: 1}}, base)
		resp := mustGet(t, over(t, transport.Config{Rule: quick}, inner))
		assert.Equal(t, 200, resp.StatusCode)
	})
	inBubble(t, "a limit below stops the next layer, too, if its error is final", func(t *testing.T) {
		base := script(faults.Fail(syscall.ECONNRESET), faults.Fail(&transport.Error{History: transport.History{Reason: transport.ReasonMaxElapsedTime}, Err: transport.ErrOverdue}))
		_, err := get(t, over(t, transport.Config{Rule: quick}, base), t.Context())
		e := errorAs[*transport.Error](t, err)
		assert.Equal(t, transport.ReasonNested, e.Reason)
		assert.True(t, e.GaveUp())
	})
	inBubble(t, "the wait of an attempt that the outer one ended is kept", func(t *testing.T) {
		base := script(status(429, "Retry-After: 20"), status(200))
		inner := over(t, transport.Config{Rule: quick}, base)
		rule := policy.Rule{AttemptTimeout: 5 * time.Second}.Or(quick)
		var seen recorder
		resp := mustGet(t, over(t, transport.Config{Rule: rule, Traces: []*transport.Trace{seen.trace()}}, inner))
		assert.Equal(t, 200, resp.StatusCode)
		base.sent(t, 2)
		assert.GreaterOrEqual(t, base.arrivals()[1], 20*time.Second)
		assert.ErrorIs(t, seen.all[0].Err, policy.ErrAttemptTimeout)
		assert.Equal(t, 15*time.Second, seen.all[0].RetryAfter)
	})
}

func TestRateLimit(t *testing.T) {
	bubble(t, func(t *testing.T) {
		base := script(status(200))
		tr := over(t, transport.Config{Rule: policy.Rule{RateLimit: policy.RateLimit{PerSecond: 2, Burst: 3}}}, base)
		for range 5 {
			mustGet(t, tr)
		}
		assert.Equal(t, []time.Duration{0, 0, 0, 500 * time.Millisecond, time.Second}, base.arrivals())
	})
	bubble(t, func(t *testing.T) { // refused at once, with all that a deadline's end would say
		tr := over(t, transport.Config{Rule: policy.Rule{RateLimit: policy.RateLimit{PerSecond: 0.1}}}, script(status(200)))
		mustGet(t, tr)
		ctx := expires(t, 5*time.Second)
		start := time.Now()
		b := oneShot("text")
		req := newRequest(t, http.MethodPut, "http://h.test/", b).WithContext(ctx)
		var seen recorder
		_, err := tr.RoundTrip(req.WithContext(seen.on(ctx)))
		assert.Zero(t, time.Since(start))
		assert.ErrorIs(t, err, context.DeadlineExceeded)
		assert.ErrorIs(t, err, transport.ErrNotSent)
		e := errorAs[*transport.Error](t, err)
		assert.True(t, e.Timeout())
		assert.Empty(t, e.Attempts)
		assert.Equal(t, start.Add(10*time.Second), e.Until)
		count(t, 1, b.closed(), "body closed")
		assert.Equal(t, []transport.Reason{transport.ReasonRateLimit}, seen.reasons())
		assert.ErrorIs(t, seen.all[0].Err, context.DeadlineExceeded, "the hooks hear of its end")
		time.Sleep(10 * time.Second) // the turn that was not used is free
		_, err = get(t, tr, t.Context())
		assert.NoError(t, err)
		assert.Equal(t, start.Add(10*time.Second), time.Now())
	})
	bubble(t, func(t *testing.T) { // retries take turns too, and hosts do not share them
		start := time.Now()
		tr := over(t, transport.Config{Rule: policy.Rule{RateLimit: policy.RateLimit{PerSecond: 1}}.Or(quick)}, script(status(503), status(503), status(200)))
		mustGet(t, tr)
		assert.Equal(t, 2*time.Second, time.Since(start))
		mustRoundTrip(t, tr, newRequest(t, http.MethodGet, "http://other.test/", nil))
		assert.Equal(t, 2*time.Second, time.Since(start))
	})
}

func TestUpdateKeepsHostState(t *testing.T) {
	bubble(t, func(t *testing.T) {
		base := script(status(200), status(200), status(503))
		tr := over(t, transport.Config{Rule: policy.Rule{RateLimit: policy.RateLimit{PerSecond: 1}}}, base)
		mustGet(t, tr)
		require.NoError(t, tr.Update(policy.Rule{}, nil), "for a moment")
		require.NoError(t, tr.Update(policy.Rule{RateLimit: policy.RateLimit{PerSecond: 2}}, nil))
		start := time.Now()
		mustGet(t, tr)
		assert.Equal(t, 500*time.Millisecond, time.Since(start), "the new rate, the old tokens")
		require.NoError(t, tr.Update(policy.Rule{}, map[string]policy.Rule{"h.test": {MaxAttempts: 2}}))
		assert.Error(t, tr.Update(policy.Rule{RateLimit: policy.RateLimit{PerSecond: -1}, MaxAttempts: 1 << 40}, nil))
		mustGet(t, tr)
		base.sent(t, 4, "a bad Update changes nothing")
	})
}

// stalledBody is a response's body whose Read blocks until Close, as that of a
// server that stops in the middle of an error page.
type stalledBody struct {
	closed chan struct{}
	once   sync.Once
}

func newStalledBody() *stalledBody { return &stalledBody{closed: make(chan struct{})} }

func (b *stalledBody) Read([]byte) (int, error) {
	<-b.closed
	return 0, errors.New("read of a closed body")
}

func (b *stalledBody) Close() error {
	b.once.Do(func() { close(b.closed) })
	return nil
}

// TestDrainIsPartOfTheDecision: given responses whose bodies stall, when the time
// left is shorter than the usual drain, then the drain leaves time for the next
// attempt.
func TestDrainIsPartOfTheDecision(t *testing.T) {
	inBubble(t, "no retry starts later than Elapsed allows", func(t *testing.T) {
		base := script(func(req *http.Request) (*http.Response, error) { return newResponse(req, 503, newStalledBody()), nil })
		resp := mustGet(t, over(t, transport.Config{Rule: policy.Rule{Backoff: backoff.Constant(0), MaxElapsedTime: 100 * time.Millisecond}}, base))
		assert.Equal(t, 503, resp.StatusCode)
		assert.NoError(t, resp.Body.Close())
		last := slices.Max(base.arrivals())
		assert.LessOrEqual(t, last, 100*time.Millisecond)
		assert.Positive(t, last, "there was a retry")
	})
	for _, left := range []time.Duration{2, 20, 110, 260, 600} {
		left *= time.Millisecond
		inBubble(t, "the retry has most of "+left.String(), func(t *testing.T) {
			tr := mustNew(t, transport.Config{
				Base: numbered(func(req *http.Request, n int) (*http.Response, error) {
					if n == 1 {
						return newResponse(req, 503, newStalledBody()), nil
					}
					return play(req, status(200).Delay(left/2))
				}),
				Rule: policy.Rule{Backoff: backoff.Constant(0)},
			})
			ctx := expires(t, left)
			resp := mustGetWith(t, tr, ctx)
			assert.Equal(t, 200, resp.StatusCode)
			assert.NoError(t, resp.Body.Close())
		})
	}
}

// MaxElapsedTime counts from the first attempt, and not from a wait before it.
func TestMaxElapsedCountsFromTheFirstAttempt(t *testing.T) {
	bubble(t, func(t *testing.T) {
		base := script(status(429, "Retry-After: 10"), status(503), status(200))
		tr := over(t, transport.Config{Rule: policy.Rule{ShareRetryAfter: policy.On, MaxElapsedTime: 5 * time.Second}.Or(exact)}, base)
		resp, err := get(t, tr, transport.WithoutRetries(t.Context())) // begins a hold
		require.NoError(t, err)
		_ = resp.Body.Close()
		start := time.Now()
		assert.Equal(t, 200, responds(t, tr, http.MethodGet, "http://h.test/"))
		assert.Greater(t, time.Since(start), 10*time.Second)
		base.sent(t, 3)
	})
}

// An empty method means GET, both in texts and for the decision to retry.
func TestEmptyMethodIsGET(t *testing.T) {
	base := script(faults.Fail(syscall.ECONNRESET))
	req := newRequest(t, http.MethodGet, "http://h.test/", nil)
	req.Method = ""
	_, err := over(t, transport.Config{Rule: quick}, base).RoundTrip(req)
	assert.Contains(t, transport.Explain(nil, err), "GET http://h.test/\n")
	assert.Greater(t, base.attempts(), 1)
}

// A caller may send the request of a given-up response again, with its history in
// the context. The new response has a history of its own.
func TestHistoryOfAnEarlierResponse(t *testing.T) {
	const text = "0123456789"
	tr := over(t, transport.Config{Rule: policy.Rule{MaxAttempts: 2}.Or(quick)}, script(status(503), status(503),
		func(req *http.Request) (*http.Response, error) {
			cut := io.MultiReader(strings.NewReader(text[:5]), iotest.ErrReader(io.ErrUnexpectedEOF))
			return newResponse(req, 200, io.NopCloser(cut), `Etag: "a"`), nil
		},
		func(req *http.Request) (*http.Response, error) {
			return newResponse(req, 206, io.NopCloser(strings.NewReader(text[5:])), `Etag: "a"`, "Content-Range: bytes 5-9/10"), nil
		}))
	failed := mustRoundTrip(t, tr, newRequest(t, http.MethodGet, "http://h.test/", nil))
	_, _, gaveUp := unretried(failed)
	require.True(t, gaveUp)
	resp := mustRoundTrip(t, tr, failed.Request.Clone(failed.Request.Context()))
	assert.Equal(t, text, mustRead(t, resp))
	_, _, gaveUp = unretried(resp)
	assert.False(t, gaveUp)
}

// A RoundTripper around a Transport may copy the response.
func TestHistoryOfACopiedResponse(t *testing.T) {
	inner := over(t, transport.Config{Rule: policy.Rule{MaxAttempts: 2}.Or(quick)}, script(status(503)))
	copies := rt(func(req *http.Request) (*http.Response, error) {
		resp, err := inner.RoundTrip(req)
		if err != nil {
			return nil, err
		}
		c := *resp
		return &c, nil
	})
	resp, err := (&http.Client{Transport: copies, Timeout: time.Minute}).Get("http://h.test/")
	require.NoError(t, err)
	defer func() { _ = resp.Body.Close() }()
	reason, _, ok := unretried(resp)
	assert.True(t, ok)
	assert.Equal(t, transport.ReasonMaxAttempts, reason)
}

// A server's wait without a sensible end ends with the request.
func TestLongestHintEndsWithTheRequest(t *testing.T) {
	bubble(t, func(t *testing.T) {
		base := script(status(429))
		tr := over(t, transport.Config{Rule: policy.Rule{
			MaxRetryAfter: policy.Off,
			RetryAfter:    func(classify.Outcome) (time.Duration, bool) { return math.MaxInt64, true },
		}}, base)
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Hour, cancel)
		start := time.Now()
		_, err := get(t, tr, ctx)
		assert.ErrorIs(t, err, context.Canceled)
		assert.Equal(t, time.Hour, time.Since(start))
		base.sent(t, 1)
	})
}

// A hungBody is a body whose Read waits for the server, and whose Close waits
// for that Read.
type hungBody struct {
	server chan struct{} // closed when the server goes on
	mu     sync.Mutex    // held during a Read and a Close
}

func (b *hungBody) Read([]byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	<-b.server
	return 0, io.EOF
}

func (b *hungBody) Close() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	<-b.server
	return nil
}

// Given a 503 whose body can be neither read nor closed, when the request is
// sent again, then the retry is late by the time of the drain and no more.
func TestRetryAfterABodyThatCannotBeClosed(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := &hungBody{server: make(chan struct{})}
		start := time.Now()
		resp, err := get(t, over(t, transport.Config{Rule: quick}, script(func(req *http.Request) (*http.Response, error) {
			return newResponse(req, 503, b), nil
		}, status(200))), t.Context())
		require.NoError(t, err)
		assert.Equal(t, 200, resp.StatusCode)
		assert.Equal(t, transport.DrainTime, time.Since(start))
		close(b.server)
	})
}

// badBody misbehaves in Read and Close.
type badBody struct {
	read  func([]byte) (int, error)
	close func()
}

func (b badBody) Read(p []byte) (int, error) { return b.read(p) }
func (b badBody) Close() error               { b.close(); return nil }

// Given a body whose Read panics, when a classifier looks at it, the request
// goes on as it would for any other body that cannot be read.
func TestClassifierOfABadBody(t *testing.T) {
	bubble(t, func(t *testing.T) {
		bad := func(req *http.Request) (*http.Response, error) {
			return newResponse(req, 503, badBody{func([]byte) (int, error) { panic("bad body") }, func() {}}), nil
		}
		rule := policy.Rule{Classify: classify.OnBody(classify.Final, "x")}.Or(quick)
		base := script(bad, status(200))
		resp := mustGetWith(t, over(t, transport.Config{Rule: rule}, base), t.Context())
		assert.Equal(t, 200, resp.StatusCode)
		base.sent(t, 2)

		resp, err := get(t, over(t, transport.Config{Rule: policy.Rule{MaxAttempts: 1}.Or(rule)}, script(bad)), t.Context())
		require.NoError(t, err)
		assert.PanicsWithValue(t, "bad body", func() { _, _ = resp.Body.Read(make([]byte, 1)) }, "as without a look")
	})
}

// The decoder of a base may not be closed during a Read that the end of its context ends. After its text
// nothing else does, and a deaf base hears only a Close.
func TestDecoderIsNotClosedDuringARead(t *testing.T) {
	text := strings.Repeat("text", 200)
	for want, rule := range map[error]policy.Rule{
		policy.ErrStallTimeout: {StallTimeout: time.Second},
		io.ErrUnexpectedEOF:    {},                          // a cut, and then silence
		nil:                    {AttemptTimeout: time.Hour}, // an error page
	} {
		for _, deaf := range []bool{false, true} {
			inBubble(t, fmt.Sprint(want, deaf), func(t *testing.T) {
				base := numbered(func(req *http.Request, n int) (*http.Response, error) {
					if n > 1 && want == nil {
						return play(req, status(200).Body(text))
					}
					var reading, closed atomic.Bool
					source := io.MultiReader(strings.NewReader(text), readFunc(func([]byte) (int, error) {
						if n == 1 && want == io.ErrUnexpectedEOF {
							return 0, want
						}
						<-req.Context().Done()
						for deaf && !closed.Load() {
							time.Sleep(time.Second)
						}
						return 0, req.Context().Err()
					}))
					resp := newResponse(req, map[bool]int{true: 503, false: 200}[want == nil], badBody{func(p []byte) (int, error) {
						reading.Store(true)
						defer reading.Store(false)
						return source.Read(p)
					}, func() { assert.True(t, deaf || !reading.Load(), "a Close during a Read"); closed.Store(true) }})
					resp.Uncompressed = true
					return resp, nil
				})
				got := do(over(t, transport.Config{Rule: rule}, base), newRequest(t, http.MethodGet, "http://h.test/", nil))
				assert.ErrorIs(t, got.err, want)
				assert.Equal(t, text, got.body)
				time.Sleep(time.Hour)
			})
		}
	}
}
