// The texts of errors, and TLS alerts.

package transport_test

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
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
	over := transport.ContextError(context.DeadlineExceeded, errors.New("the job is over"))
	for _, row := range []struct {
		e    transport.Error
		want string
	}{
		{transport.Error{History: transport.History{Reason: transport.ReasonMaxAttempts, Attempts: sent(reset, reset)}, Err: reset}, "gave up after 2 attempts: connection reset by peer"},
		{transport.Error{History: transport.History{Reason: transport.ReasonMaxAttempts, Attempts: sent(503, reset)}, Err: reset}, "gave up after 2 attempts, last status 503: connection reset by peer"},
		{transport.Error{History: transport.History{Reason: transport.ReasonCanceled, Attempts: sent(503, 502, 503)}, Err: context.DeadlineExceeded}, "gave up after 3 attempts, last status 503: context deadline exceeded"},
		{transport.Error{History: transport.History{Reason: transport.ReasonCanceled, Attempts: sent(503)}, Err: context.Canceled}, "not retried, last status 503: context canceled"},
		{transport.Error{History: transport.History{Reason: transport.ReasonCanceled, Attempts: sent(503)}, Err: over}.Ended(context.DeadlineExceeded), "not retried, last status 503: context deadline exceeded: the job is over"},
		{transport.Error{History: transport.History{Reason: transport.ReasonCanceled, Attempts: sent(reset)}, Err: context.DeadlineExceeded}, "not retried, last error connection reset by peer: context deadline exceeded"},
		{transport.Error{History: transport.History{Reason: transport.ReasonCanceled, Attempts: sent(503, io.ErrClosedPipe)}, Err: io.ErrClosedPipe}.Ended(context.DeadlineExceeded), "gave up after 2 attempts, last status 503 (deadline exceeded): io: read/write on closed pipe"},
		{transport.Error{History: transport.History{Reason: transport.ReasonCanceled, Attempts: sent(503, io.ErrClosedPipe)}, Err: io.ErrClosedPipe}.Ended(context.Canceled), "gave up after 2 attempts, last status 503 (canceled): io: read/write on closed pipe"},
		{transport.Error{History: transport.History{Reason: transport.ReasonCanceled, Attempts: sent(503)}, Err: transport.ErrRequestCanceled}, "not retried, last status 503: net/http: request canceled"},
		{transport.Error{History: transport.History{Reason: transport.ReasonCanceled}, Err: context.DeadlineExceeded}, "not sent: context deadline exceeded"},
		{transport.Error{History: transport.History{Reason: transport.ReasonCanceled}, Err: context.Canceled}.HeldBy(transport.ReasonRateLimit), "not sent while it waited for its turn (rate limit): context canceled"},
		{transport.Error{History: transport.History{Reason: transport.ReasonDeadline, Attempts: sent(503, 502, 503)}, Err: context.DeadlineExceeded}, "gave up after 3 attempts, last status 503: context deadline exceeded"},
		{transport.Error{History: transport.History{Reason: transport.ReasonDeadline, Attempts: sent(503, io.ErrClosedPipe)}, Err: io.ErrClosedPipe}.Ended(context.DeadlineExceeded), "gave up after 2 attempts, last status 503 (deadline exceeded): io: read/write on closed pipe"},
		{transport.Error{History: transport.History{Reason: transport.ReasonConcurrency}, Err: context.DeadlineExceeded}, "not sent: too many requests are in flight: context deadline exceeded"},
		{transport.Error{History: transport.History{Reason: transport.ReasonDeadline, Attempts: sent(503, io.EOF)}, Err: context.DeadlineExceeded}.Ended(context.Canceled), "gave up after 2 attempts, last status 503: context deadline exceeded"},
		{transport.Error{History: transport.History{Reason: transport.ReasonDeadline, Attempts: sent(503)}, Err: transport.ErrRequestCanceled}.Ended(context.Canceled), "not retried, last status 503 (deadline exceeded): net/http: request canceled"},
		{transport.Error{History: transport.History{Reason: transport.ReasonRateLimit, Attempts: sent(503, reset)}, Err: reset}, "gave up after 2 attempts, last status 503 (rate limit): connection reset by peer"},
		{transport.Error{History: transport.History{Reason: transport.ReasonDeadline, Attempts: sent(503, reset)}, Err: reset}, "gave up after 2 attempts, last status 503 (deadline): connection reset by peer"},
		{transport.Error{History: transport.History{Reason: transport.ReasonRateLimit, Attempts: sent(503)}, Err: transport.ErrLate}, "not retried, last status 503 (rate limit): its turn would come after the deadline"},
		{transport.Error{History: transport.History{Reason: transport.ReasonDeadline}, Err: transport.ErrLate}, "not sent: its turn would come after the deadline"},
		{transport.Error{History: transport.History{Reason: transport.ReasonConcurrency}}, "not sent: too many requests are in flight"},
		{transport.Error{History: transport.History{Reason: transport.ReasonRetryBudget, Attempts: sent(reset)}, Err: reset}, "not retried (retry budget): connection reset by peer"},
		{transport.Error{History: transport.History{Reason: transport.ReasonNotIdempotent, Attempts: sent(503, reset)}, Err: reset}, "gave up after 2 attempts, last status 503 (not idempotent): connection reset by peer"},
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
		assert.EqualError(t, err, "transport: gave up after 5 attempts, last status 503: context canceled")

		// The deadline was not known when the wait began.
		ctx, end := context.WithCancelCause(t.Context())
		time.AfterFunc(1500*time.Millisecond, func() { end(errors.New("the job is over")) })
		_, err = get(t, tr, ctx)
		assert.EqualError(t, err, "transport: gave up after 2 attempts, last status 503: context canceled: the job is over")

		// The base returns the response at the instant of the deadline.
		ctx, stop := context.WithTimeout(t.Context(), 1500*time.Millisecond)
		defer stop()
		slow := over(t, transport.Config{Rule: policy.Rule{Backoff: backoff.Constant(time.Second)}}, script(status(503), faults.Hang()))
		_, err = get(t, slow, ctx)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		assert.EqualError(t, err, "transport: gave up after 2 attempts, last status 503: context deadline exceeded")
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
