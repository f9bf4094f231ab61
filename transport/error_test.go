package transport_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

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
		{transport.Error{Reason: transport.ReasonAttempts, Attempts: sent(reset, reset), Err: reset}, "gave up after 2 attempts: connection reset by peer"},
		{transport.Error{Reason: transport.ReasonAttempts, Attempts: sent(503, reset), Err: reset}, "gave up after 2 attempts, last status 503: connection reset by peer"},
		{transport.Error{Reason: transport.ReasonCanceled, Attempts: sent(503, 502, 503), Err: context.DeadlineExceeded}, "gave up after 3 attempts, last status 503: context deadline exceeded"},
		{transport.Error{Reason: transport.ReasonCanceled, Attempts: sent(503), Err: context.Canceled}, "gave up after 1 attempt, last status 503: context canceled"},
		{transport.Error{Reason: transport.ReasonCanceled, Attempts: sent(503), Err: over}.Ended(context.DeadlineExceeded), "gave up after 1 attempt, last status 503: context deadline exceeded: the job is over"},
		{transport.Error{Reason: transport.ReasonCanceled, Attempts: sent(reset), Err: context.DeadlineExceeded}, "gave up after 1 attempt, last error connection reset by peer: context deadline exceeded"},
		{transport.Error{Reason: transport.ReasonCanceled, Attempts: sent(503, io.ErrClosedPipe), Err: io.ErrClosedPipe}.Ended(context.DeadlineExceeded), "gave up after 2 attempts, last status 503 (deadline exceeded): io: read/write on closed pipe"},
		{transport.Error{Reason: transport.ReasonCanceled, Attempts: sent(503, io.ErrClosedPipe), Err: io.ErrClosedPipe}.Ended(context.Canceled), "gave up after 2 attempts, last status 503 (canceled): io: read/write on closed pipe"},
		{transport.Error{Reason: transport.ReasonCanceled, Attempts: sent(503), Err: transport.ErrRequestCanceled}, "gave up after 1 attempt, last status 503: net/http: request canceled"},
		{transport.Error{Reason: transport.ReasonCanceled, Err: context.DeadlineExceeded}, "not sent: context deadline exceeded"},
		{transport.Error{Reason: transport.ReasonCanceled, Limit: "gate", Err: context.DeadlineExceeded}, "not sent while it waited for its turn (gate): context deadline exceeded"},
		{transport.Error{Reason: transport.ReasonTimeout, Attempts: sent(503, 502, 503), Err: context.DeadlineExceeded}, "gave up after 3 attempts, last status 503: context deadline exceeded"},
		{transport.Error{Reason: transport.ReasonTimeout, Attempts: sent(503, io.ErrClosedPipe), Err: io.ErrClosedPipe}.Ended(context.DeadlineExceeded), "gave up after 2 attempts, last status 503 (deadline exceeded): io: read/write on closed pipe"},
		{transport.Error{Reason: transport.ReasonTimeout, Limit: "gate", Err: context.DeadlineExceeded}, "not sent while it waited for its turn (gate): context deadline exceeded"},
		{transport.Error{Reason: transport.ReasonDeadline, Limit: "rate", Attempts: sent(503, reset), Err: reset}, "gave up after 2 attempts, last status 503 (deadline, rate): connection reset by peer"},
		{transport.Error{Reason: transport.ReasonCooldown, Limit: "cooldown", Attempts: sent(reset), Err: reset}, "gave up after 1 attempt (cooldown): connection reset by peer"},
		{transport.Error{Reason: transport.ReasonDeadline, Attempts: sent(503, reset), Err: reset}, "gave up after 2 attempts, last status 503 (deadline): connection reset by peer"},
		{transport.Error{Reason: transport.ReasonDeadline, Attempts: sent(503), Err: transport.ErrOverDeadline}, "gave up after 1 attempt, last status 503: its turn would come after the deadline"},
		{transport.Error{Reason: transport.ReasonDeadline, Err: transport.ErrOverDeadline}, "not sent: its turn would come after the deadline"},
		{transport.Error{Reason: transport.ReasonGateFull, Err: transport.ErrGateFull}, "not sent: too many requests in flight to the host"},
		{transport.Error{Reason: transport.ReasonBudget, Attempts: sent(reset), Err: reset}, "gave up after 1 attempt (budget): connection reset by peer"},
		{transport.Error{Reason: transport.ReasonNotIdempotent, Attempts: sent(503, reset), Err: reset}, "gave up after 2 attempts, last status 503 (not idempotent): connection reset by peer"},
		{transport.Error{Reason: transport.ReasonFinal, Attempts: sent(503, io.EOF), Err: io.EOF}, "gave up after 2 attempts, last status 503: EOF"},
		{transport.Error{Reason: transport.ReasonCooldown, Err: transport.ErrCooldown, Until: time.Unix(0, 0)}, "not sent, try again at 1970-01-01T00:00:00Z: the host asked for no requests until later"},
		{transport.Error{Reason: transport.ReasonMaxElapsed, Attempts: sent(503)}, "gave up after 1 attempt, last status 503 (max elapsed)"},
	} {
		assert.Equal(t, "transport: "+row.want, row.e.Error())
	}
}

// The error of the Transport also says how a wait ended.
func TestErrorsTellHowAWaitEnded(t *testing.T) {
	bubble(t, func(t *testing.T) {
		base := script(status(503))
		tr := over(t, transport.Config{Rule: policy.Rule{Backoff: backoff.Constant(time.Second), Attempts: 100, Budget: policy.Budget{Burst: policy.Off}}}, base)

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
		slow := over(t, transport.Config{Rule: policy.Rule{Backoff: backoff.Constant(time.Second)}}, numbered(func(req *http.Request, n int) (*http.Response, error) {
			if n > 1 {
				<-req.Context().Done()
				return nil, req.Context().Err()
			}
			return play(req, status(503))
		}))
		_, err = get(t, slow, ctx)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		assert.EqualError(t, err, "transport: gave up after 2 attempts, last status 503: context deadline exceeded")
	})
}
