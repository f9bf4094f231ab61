package transport_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/aplomb-go/aplomb/classify"
	"github.com/aplomb-go/aplomb/faults"
	"github.com/aplomb-go/aplomb/policy"
	"github.com/aplomb-go/aplomb/policy/backoff"
	"github.com/aplomb-go/aplomb/retry"
	"github.com/aplomb-go/aplomb/transport"
)

// If a retry was due, the error of a single attempt says why there was none. Otherwise it answers as the
// error in it does.
func TestSingleErrorsHaveTheirReason(t *testing.T) {
	reset := &net.OpError{Op: "read", Net: "tcp", Err: syscall.ECONNRESET}
	timeout := &net.OpError{Op: "read", Net: "tcp", Err: &timeoutError{}}
	long := func() io.Reader { return struct{ io.Reader }{strings.NewReader(strings.Repeat("x", 2<<20))} }
	for name, row := range map[string]struct {
		method string
		body   io.Reader
		rule   policy.Rule
		ctx    func(context.Context) context.Context
		fails  error
		want   transport.Reason
		text   string
		story  string
	}{
		"a lost response to a POST": {method: http.MethodPost, fails: reset, want: transport.ReasonNotIdempotent, text: "not retried (not idempotent): read tcp: connection reset by peer",
			story: "POST http://h.test/\n  attempt 1, at 0s: connection reset by peer\n  failed: the server may have acted, and must not act twice"},
		"a POST that took too long": {method: http.MethodPost, fails: timeout, want: transport.ReasonNotIdempotent, text: "not retried (not idempotent): read tcp: i/o timeout"},
		"one attempt is the rule's": {method: http.MethodGet, rule: policy.Rule{MaxAttempts: 1}, fails: reset, want: transport.ReasonRetriesOff, text: "not retried (retries off): read tcp: connection reset by peer",
			story: "GET http://h.test/\n  attempt 1, at 0s: connection reset by peer\n  failed: one attempt is allowed"},
		"or the caller's": {method: http.MethodGet, ctx: transport.WithoutRetries, fails: timeout, want: transport.ReasonRetriesOff, text: "not retried (retries off): read tcp: i/o timeout"},
		"a body that is read once": {method: http.MethodPut, body: long(), fails: reset, want: transport.ReasonNotReplayable,
			text: "not retried (not replayable): the request's body cannot be sent again: it is larger than ReplayBuffer (1048576 bytes), and it has neither GetBody nor Seek; the attempt failed: read tcp: connection reset by peer"},
		"a cancellation that is not the caller's": {method: http.MethodPost, fails: context.Canceled, want: transport.ReasonNotIdempotent, text: "not retried (not idempotent): context canceled"},
	} {
		inBubble(t, name, func(t *testing.T) {
			tr := over(t, transport.Config{Rule: row.rule}, rt(func(req *http.Request) (*http.Response, error) {
				if req.Body != nil {
					_, _ = io.Copy(io.Discard, req.Body)
					_ = req.Body.Close()
				}
				return nil, row.fails
			}))
			req := newRequest(t, row.method, "http://h.test/", row.body)
			if row.ctx != nil {
				req = req.WithContext(row.ctx(req.Context()))
			}
			_, err := tr.RoundTrip(req)
			e := errorAs[*transport.Error](t, err)
			assert.EqualError(t, err, "transport: "+row.text)
			assert.Equal(t, row.want, transport.ReasonOf(nil, err))
			assert.ErrorIs(t, err, row.fails)
			assert.Len(t, e.Attempts, 1)
			assert.Equal(t, row.want, e.Attempts[0].Reason)
			assert.False(t, e.GaveUp())
			var is net.Error
			times := errors.As(row.fails, &is) && is.Timeout()
			assert.Equal(t, times, e.Timeout())
			assert.Equal(t, times, e.Temporary())
			if row.story != "" {
				assert.Equal(t, row.story, transport.Explain(nil, err))
			}
		})
	}
}

// Errors after which no retry was due are the base transport's own, and so are those that net/http compares.
func TestFinalErrorsAreUntouched(t *testing.T) {
	reset := &net.OpError{Op: "read", Net: "tcp", Err: syscall.ECONNRESET}
	again := policy.Rule{Classify: func(o classify.Outcome) classify.Class {
		if o.Err != nil {
			return classify.Ambiguous
		}
		return classify.Unknown
	}}
	for name, row := range map[string]struct {
		rule  policy.Rule
		fails error
	}{
		"a wrong certificate":                 {fails: x509.UnknownAuthorityError{}},
		"no TLS":                              {fails: tls.RecordHeaderError{Msg: "x"}},
		"no TLS, which the rule calls no end": {rule: again, fails: tls.RecordHeaderError{Msg: "x"}},
		"a protocol that is left to net/http": {rule: again, fails: http.ErrSkipAltProtocol},
	} {
		inBubble(t, name, func(t *testing.T) {
			_, err := over(t, transport.Config{Rule: row.rule}, script(faults.Fail(row.fails))).RoundTrip(newRequest(t, http.MethodPost, "http://h.test/", nil))
			assert.True(t, err == row.fails, "%T", err)
		})
	}
	inBubble(t, "the caller has gone", func(t *testing.T) {
		for _, rule := range []policy.Rule{{}, again} {
			for _, end := range []func(context.Context) (context.Context, context.CancelFunc){
				context.WithCancel, func(ctx context.Context) (context.Context, context.CancelFunc) {
					return context.WithTimeout(ctx, time.Second)
				},
			} {
				ctx, cancel := end(t.Context())
				defer time.AfterFunc(time.Second, cancel).Stop()
				_, err := over(t, transport.Config{Rule: rule}, script(faults.Hang())).RoundTrip(newRequest(t, http.MethodPost, "http://h.test/", nil).WithContext(ctx))
				assert.True(t, err == ctx.Err() && err != nil, "%T", err)
			}
		}
	})
	inBubble(t, "the client's own time is over", func(t *testing.T) {
		tr := over(t, transport.Config{}, rt(func(req *http.Request) (*http.Response, error) {
			<-req.Context().Done()
			time.Sleep(time.Millisecond) // so that the client's own timer has fired
			return nil, req.Context().Err()
		}))
		_, err := (&http.Client{Transport: tr, Timeout: time.Second}).Post("http://h.test/", "", nil)
		assert.EqualError(t, err, `Post "http://h.test/": context deadline exceeded (Client.Timeout exceeded while awaiting headers)`)
	})
	inBubble(t, "a limit withheld the retry", func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		_, err := get(t, over(t, transport.Config{}, script(faults.Fail(reset))), ctx)
		e := errorAs[*transport.Error](t, err)
		assert.Equal(t, transport.ReasonDeadline, e.Reason)
		assert.True(t, e.GaveUp())
		assert.ErrorIs(t, err, syscall.ECONNRESET)
		assert.NotErrorIs(t, err, context.DeadlineExceeded, "as a plain transport would respond")
	})
}

// http.Client says more about a server that speaks plain HTTP, although the rule sends such requests again.
func TestPlainServerBehindHTTPS(t *testing.T) {
	tr := over(t, transport.Config{Rule: policy.Rule{Classify: classify.OnError(classify.Ambiguous, classify.ErrorTLS)}}, script(faults.Fail(tls.RecordHeaderError{RecordHeader: [5]byte([]byte("HTTP/"))})))
	_, err := (&http.Client{Transport: tr}).Post("https://h.test/", "", nil)
	assert.ErrorIs(t, err, http.ErrSchemeMismatch)
}

// What is around a Transport decides as if the error of a single attempt were the base transport's own.
func TestReasonsOfSingleErrorsDecideNothing(t *testing.T) {
	dial := &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}
	silent := &net.OpError{Op: "read", Net: "tcp", Err: &timeoutError{}}
	stream := errors.New("stream error: stream ID 1; INTERNAL_ERROR; received from peer")
	waits := func(o classify.Outcome) (time.Duration, bool) { return time.Minute, o.Err != nil }
	inner := map[string]policy.Rule{
		"retries are off": {MaxAttempts: 1, RetryAfter: waits},
		"not idempotent":  {Idempotent: func(*http.Request) bool { return false }, RetryAfter: waits},
		"calls it unsent": {MaxAttempts: 1, Classify: func(o classify.Outcome) classify.Class {
			if o.Err != nil {
				return classify.Refused
			}
			return classify.Unknown
		}},
	}
	for name, rule := range inner {
		for _, fails := range []error{syscall.ECONNRESET, dial, silent, stream, context.Canceled} {
			for _, method := range []string{http.MethodGet, http.MethodPost} {
				inBubble(t, fmt.Sprintf("%s/%v/%s", name, fails, method), func(t *testing.T) {
					var seen [2][]string
					for i, below := range []func(error) error{
						func(err error) error { return err },
						func(err error) error { // as it came to the Transport below
							if e, ok := errors.AsType[*transport.Error](err); ok && !e.GaveUp() {
								return e.Err
							}
							return err
						},
					} {
						under := over(t, transport.Config{Rule: rule}, script(faults.Fail(fails)))
						base := rt(func(req *http.Request) (*http.Response, error) {
							resp, err := under.RoundTrip(req)
							return resp, below(err)
						})
						var events recorder
						tr := over(t, transport.Config{
							Rule: policy.Rule{MaxAttempts: 3, Backoff: backoff.Constant(time.Second)}, Traces: []*transport.Trace{events.trace()},
							NewPool: func(string) http.RoundTripper { return base },
						}, base)
						req := newRequest(t, method, "http://h.test/", nil)
						_, err := tr.RoundTrip(req)
						require.Error(t, err)
						for _, e := range events.events() {
							seen[i] = append(seen[i], fmt.Sprint(e.Number, e.Class, e.Reason, e.Delay, e.RetryAfter, e.Pool))
						}
						_, err = under.RoundTrip(req)
						for _, by := range []http.RoundTripper{under, tr, base} {
							seen[i] = append(seen[i], fmt.Sprint(transport.MayGoElsewhere(by, req, nil, below(err), true)))
						}
						calls := 0
						_ = retry.Do(t.Context(), policy.Rule{MaxAttempts: 2, Backoff: backoff.Constant(0)}, nil, func(context.Context) error { calls++; return below(err) })
						seen[i] = append(seen[i], fmt.Sprint(calls, transport.HostState{Pool: hostState(t, tr, "http://h.test").Pool, Down: hostState(t, tr, "http://h.test").Down}))
					}
					assert.Equal(t, seen[1], seen[0])
				})
			}
		}
	}
	inBubble(t, "the reason of the outermost", func(t *testing.T) {
		under := over(t, transport.Config{Rule: policy.Rule{MaxAttempts: 1}}, script(faults.Fail(syscall.ECONNRESET)))
		_, err := over(t, transport.Config{}, under).RoundTrip(newRequest(t, http.MethodPost, "http://h.test/", nil))
		assert.Equal(t, transport.ReasonNotIdempotent, transport.ReasonOf(nil, err))
		assert.ErrorIs(t, err, syscall.ECONNRESET)
	})
}
