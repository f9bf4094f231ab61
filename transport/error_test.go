// The texts of errors, the errors of single attempts, TLS alerts, and secrets.

package transport_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"net/url"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/aplomb-go/aplomb/classify"
	"github.com/aplomb-go/aplomb/faults"
	"github.com/aplomb-go/aplomb/internal/testkit"
	"github.com/aplomb-go/aplomb/policy"
	"github.com/aplomb-go/aplomb/policy/backoff"
	"github.com/aplomb-go/aplomb/retry"
	"github.com/aplomb-go/aplomb/transport"
)

// The text of an error names the last status and why there was no further
// attempt, each of them once.
func TestErrorTexts(t *testing.T) {
	sent := func(outcomes ...any) (all []transport.Attempt) {
		for i, o := range outcomes {
			a := transport.Attempt{Number: i + 1}
			a.Status, _ = o.(int)
			a.Err, _ = o.(error)
			all = append(all, a)
		}
		return all
	}
	reset := syscall.ECONNRESET
	for _, row := range []struct {
		e    transport.Error
		want string
	}{
		{transport.Error{History: transport.History{Reason: transport.ReasonMaxAttempts, Attempts: sent(reset, reset)}, Err: reset}, "gave up after 2 attempts: connection reset by peer"},
		{transport.Error{History: transport.History{Reason: transport.ReasonMaxAttempts, Attempts: sent(503, reset)}, Err: reset}, "gave up after 2 attempts, last status 503: connection reset by peer"},
		{transport.Error{History: transport.History{Reason: transport.ReasonCanceled, Attempts: sent(503, 502, 503)}, Err: context.DeadlineExceeded}, "gave up after 3 attempts, last status 503 (canceled): context deadline exceeded"},
		{transport.Error{History: transport.History{Reason: transport.ReasonCanceled, Attempts: sent(503)}, Err: context.Canceled}, "not retried, last status 503 (canceled): context canceled"},
		{transport.Error{History: transport.History{Reason: transport.ReasonCanceled, Attempts: sent(reset)}, Err: context.DeadlineExceeded}, "not retried, last error connection reset by peer (canceled): context deadline exceeded"},
		{transport.Error{History: transport.History{Reason: transport.ReasonCanceled}, Err: context.DeadlineExceeded}, "not sent: the caller hung up: context deadline exceeded"},
		{transport.Error{History: transport.History{Reason: transport.ReasonCanceled}, Err: context.Canceled}.HeldBy(transport.ReasonRateLimit), "not sent: the caller hung up, waited 1s for the rate limit: context canceled"},
		{transport.Error{History: transport.History{Reason: transport.ReasonRateLimit, Attempts: sent(503, reset)}, Err: reset}, "gave up after 2 attempts, last status 503 (rate limit): connection reset by peer"},
		{transport.Error{History: transport.History{Reason: transport.ReasonRateLimit, Attempts: sent(503)}, Err: transport.ErrLate}, "not retried, last status 503 (rate limit): its turn would come after the deadline"},
		{transport.Error{History: transport.History{Reason: transport.ReasonDeadline}, Err: transport.ErrLate}, "not sent: the caller's deadline leaves no time: its turn would come after the deadline"},
		{transport.Error{History: transport.History{Reason: transport.ReasonConcurrency}}, "not sent: too many requests are in flight"},
		{transport.Error{History: transport.History{Reason: transport.ReasonRetryBudget, Attempts: sent(reset)}, Err: reset}, "not retried (retry budget): connection reset by peer"},
		{transport.Error{History: transport.History{Reason: transport.ReasonFinal, Attempts: sent(503, io.EOF)}, Err: io.EOF}, "gave up after 2 attempts, last status 503: EOF"},
		{transport.Error{History: transport.History{Reason: transport.ReasonThrottled, Until: time.Unix(0, 0)}, Err: transport.ErrLate}, "not sent: the server asked for a longer wait, next try at 1970-01-01T00:00:00Z: its turn would come after the deadline"},
		{transport.Error{History: transport.History{Reason: transport.ReasonMaxElapsedTime, Attempts: sent(503)}}, "not retried, last status 503 (max elapsed time)"},
	} {
		assert.Equal(t, "transport: "+row.want, row.e.Error())
	}
}

// The error of the Transport also says how a wait ended.
func TestErrorsTellHowAWaitEnded(t *testing.T) {
	bubble(t, func(t *testing.T) {
		base := script(status(503))
		tr := over(t, transport.Config{Rule: policy.Rule{Backoff: backoff.Constant(time.Second), MaxAttempts: 100, RetryBudget: policy.RetryBudget{Enabled: policy.Off}}}, base)

		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(4500*time.Millisecond, cancel)
		_, err := get(t, tr, ctx)
		assert.EqualError(t, err, "transport: gave up after 5 attempts, last status 503 (canceled): context canceled")

		// The deadline was not known when the wait began.
		ctx, end := context.WithCancelCause(t.Context())
		time.AfterFunc(1500*time.Millisecond, func() { end(errors.New("the job is over")) })
		_, err = get(t, tr, ctx)
		assert.EqualError(t, err, "transport: gave up after 2 attempts, last status 503 (canceled): context canceled: the job is over")

		// The base returns the response at the instant of the deadline.
		ctx, stop := context.WithTimeout(t.Context(), 1500*time.Millisecond)
		defer stop()
		slow := over(t, transport.Config{Rule: policy.Rule{Backoff: backoff.Constant(time.Second)}}, script(status(503), faults.Hang()))
		_, err = get(t, slow, ctx)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		assert.EqualError(t, err, "transport: gave up after 2 attempts, last status 503 (deadline): context deadline exceeded")
	})
}

// alert is an error as crypto/tls reports an alert of the peer.
func alert(code uint8) error {
	return &net.OpError{Op: "remote error", Net: "tcp", Err: tls.AlertError(code)}
}

const (
	unexpectedMessage, internalError = 10, 80
	badCertificate, protocolVersion  = 42, 70
)

// The body of a response comes after the handshake. So an alert cuts the connection, unless it is
// about certificates or the two configurations. The reader gets the base's own error.
func TestAlertInABody(t *testing.T) {
	for code, whole := range map[uint8]bool{unexpectedMessage: true, internalError: true, badCertificate: false, protocolVersion: false} {
		inBubble(t, alert(code).Error(), func(t *testing.T) {
			own := alert(code)
			base := script(cutWith(own, "01234", `ETag: "v1"`), func(req *http.Request) (*http.Response, error) {
				return newResponse(req, 206, testkit.CutAt("56789", io.EOF), `ETag: "v1"`, "Content-Range: bytes 5-9/10"), nil
			})
			got := do(over(t, transport.Config{Rule: quick}, base), getRequest(t, "http://h.test/"))
			if whole {
				assert.NoError(t, got.err)
				assert.Equal(t, "0123456789", got.body)
			} else {
				assert.True(t, got.err == own, "%T", got.err)
				assert.Equal(t, "01234", got.body)
			}
		})
	}
}

// If an attempt surely had a connection, an alert came after its handshake. Without that it may be
// the response to the handshake, which the next would get as well.
func TestAlertAfterTheHandshake(t *testing.T) {
	for name, row := range map[string]struct {
		code     uint8
		got      bool
		attempts int
	}{
		"after":              {internalError, true, 2},
		"perhaps in it":      {internalError, false, 1},
		"about certificates": {badCertificate, true, 1},
	} {
		inBubble(t, name, func(t *testing.T) {
			own := alert(row.code)
			base := rt(func(req *http.Request) (*http.Response, error) {
				if trace := httptrace.ContextClientTrace(req.Context()); row.got {
					trace.GetConn("h.test:443")
					trace.GotConn(httptrace.GotConnInfo{})
				}
				return nil, own
			})
			seen := &recorder{}
			rule := policy.Rule{ConnectTimeout: time.Minute, MaxAttempts: 2}.Or(quick)
			_, err := mustNew(t, transport.Config{Base: base, Rule: rule, Traces: []*transport.Trace{seen.trace()}}).RoundTrip(getRequest(t, "https://h.test/"))
			require.ErrorIs(t, err, own)
			require.Len(t, seen.all, row.attempts, "events")
			assert.True(t, seen.all[0].Err == own, "%T", seen.all[0].Err)
			assert.Equal(t, map[int]classify.Class{1: classify.Final, 2: classify.Ambiguous}[row.attempts], seen.all[0].Class)
		})
	}
}

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
			text: "not retried (not replayable): read tcp: connection reset by peer; the request's body cannot be sent again: it is larger than ReplayBuffer (1048576 bytes), and it has neither GetBody nor Seek"},
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

// marker is the secret of these tests.
const marker = "s3cret"

// written returns all texts that a Transport writes about a request to u if its attempts
// fail with err. They are the text of the error, the log, the hooks and the snapshot.
func written(t testing.TB, u *url.URL, err error) string {
	t.Helper()
	var log testkit.Text
	var hosts []string
	tr := mustNew(t, transport.Config{
		Base:   script(status(503), faults.Fail(err)),
		Rule:   policy.Rule{MaxAttempts: 3, Classify: always}.Or(quick),
		Logger: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug})),
		Traces: []*transport.Trace{&transport.Trace{AttemptEnd: func(_ context.Context, e transport.AttemptEnd) { hosts = append(hosts, e.Host) }}},
	})
	req := &http.Request{Method: http.MethodGet, URL: u, Header: http.Header{}}
	_, got := tr.RoundTrip(req.WithContext(t.Context()))
	require.Error(t, got)
	resume := transport.BodyError(req, got, err)
	e, ok := errors.AsType[*transport.Error](got)
	require.True(t, ok, "%T", got)
	copied := *e
	return fmt.Sprintln(got, log.String(), hosts, tr.Snapshot().Hosts, resume, transport.Explain(nil, got)) +
		fmt.Sprintf("%#v %#v %v %+v %#v", got, resume, copied, copied, copied)
}

// The texts about a request hold no secret of its URL.
func TestRequestURLsAreRedacted(t *testing.T) {
	urls := []*url.URL{
		{Scheme: "http", Host: "h.test", Opaque: "//u:" + marker + "@h.test/path?" + marker},
		{Scheme: "http", Host: marker + "@h.test:8080", Path: "/path"},
		{Scheme: "http", Host: "h.test/" + marker},
		{Scheme: "http", Host: "h.test", User: url.UserPassword("u", marker), Path: "/a;b=" + marker, RawQuery: "key=" + marker, Fragment: marker},
	}
	for _, u := range urls {
		for _, err := range []error{
			io.ErrUnexpectedEOF,
			fmt.Errorf("cannot reach %s: %w", u, io.EOF),
			fmt.Errorf("cannot reach %q, nor (%v)", u, u),
			&url.Error{Op: "Get", URL: u.String(), Err: errors.New("redirected to http://other.test/?" + marker)},
			&url.Error{Op: "Get", URL: u.String(), Err: &url.Error{Op: "Get", URL: "http://h.test:port/?" + marker, Err: io.EOF}},
			errors.Join(&url.Error{Op: "Get", URL: u.Redacted(), Err: io.EOF}, &url.Error{Op: "Get", URL: u.String() + "&b=" + marker, Err: io.EOF}),
			// The errors of a dial name the host alone.
			&net.OpError{Op: "dial", Net: "tcp", Err: &net.DNSError{Name: u.Hostname(), Err: "no such host", IsNotFound: true}},
			fmt.Errorf("dial %s: refused", u.Host),
			fmt.Errorf("dial %q: refused", net.JoinHostPort(u.Hostname(), "80")),
		} {
			assert.NotContains(t, written(t, u, err), marker, "%#v and %q", u, err)
		}
	}
}

// net/http quotes a malformed header line. A server may repeat the query there, and make the line long.
func TestMalformedHeadersAreShortAndWithoutSecrets(t *testing.T) {
	u := &url.URL{Scheme: "http", Host: "h.test", Path: "/a", RawQuery: "key=" + marker}
	for _, line := range []string{
		"GET /a?key=" + marker, "no key=" + marker, "no such key " + marker,
		strings.Repeat("a", 8<<20) + marker, strings.Repeat("key="+marker+" ", 1<<20),
	} {
		text := written(t, u, textproto.ProtocolError("malformed MIME header line: "+line))
		assert.NotContains(t, text, marker, "%.40s", line)
		assert.Less(t, len(text), 1<<16, "%.40s", line)
	}
}

// always is a classifier that makes every error worth a retry.
func always(o classify.Outcome) classify.Class {
	if o.Err != nil {
		return classify.Ambiguous
	}
	return classify.Unknown
}

// TestNameOfAHostCostsNothing: each hook is told the name of its host, and building the name anew
// for each would cost an allocation.
func TestNameOfAHostCostsNothing(t *testing.T) {
	tr := mustNew(t, transport.Config{Base: newNoop()})
	mustRoundTrip(t, tr, getRequest(t, "https://api.example.com/v1/things"))
	s := tr.Hosts().Peek(&url.URL{Scheme: "https", Host: "api.example.com"})
	assert.Equal(t, "https://api.example.com", transport.SafeName(s))
	assert.Zero(t, testing.AllocsPerRun(100, func() { transport.SafeName(s) }))
}

// A base between two Transports may write a part of the URL that it has made into a text.
func TestURLOfATransportBelowIsHidden(t *testing.T) {
	below := over(t, transport.Config{Rule: policy.Rule{MaxAttempts: 1}}, script(faults.Fail(syscall.ECONNRESET)))
	tr := over(t, transport.Config{Rule: policy.Rule{MaxAttempts: 1}}, rt(func(req *http.Request) (*http.Response, error) {
		inner := req.Clone(req.Context())
		inner.URL.RawQuery = "key=SECRET"
		_, err := below.RoundTrip(inner)
		return nil, fmt.Errorf("call with key=SECRET: %w", err)
	}))
	req := newRequest(t, http.MethodGet, "http://h.test/", nil)
	_, err := tr.RoundTrip(req)
	for _, text := range []string{transport.SafeError(err, req.URL), transport.SafeError(err, nil), transport.Explain(nil, err)} {
		assert.NotContains(t, text, "SECRET")
	}
	assert.Contains(t, transport.SafeError(err, req.URL), "call with key=xxxxx")
}
