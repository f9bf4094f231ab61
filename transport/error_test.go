package transport

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
)

// The text of an error names the last status and why there was no further
// attempt, each of them once.
func TestErrorTexts(t *testing.T) {
	sent := func(outcomes ...any) (all []Attempt) {
		for i, o := range outcomes {
			a := Attempt{Number: i + 1}
			a.Status, _ = o.(int)
			a.Err, _ = o.(error)
			all = append(all, a)
		}
		return all
	}
	reset := syscall.ECONNRESET
	over := &contextError{context.DeadlineExceeded, errors.New("the job is over")}
	for _, row := range []struct {
		e    Error
		want string
	}{
		{Error{Reason: ReasonAttempts, Attempts: sent(reset, reset), Err: reset}, "gave up after 2 attempts: connection reset by peer"},
		{Error{Reason: ReasonAttempts, Attempts: sent(503, reset), Err: reset}, "gave up after 2 attempts, last status 503: connection reset by peer"},
		{Error{Reason: ReasonCanceled, Attempts: sent(503, 502, 503), Err: context.DeadlineExceeded}, "gave up after 3 attempts, last status 503: context deadline exceeded"},
		{Error{Reason: ReasonCanceled, Attempts: sent(503), Err: context.Canceled}, "gave up after 1 attempt, last status 503: context canceled"},
		{Error{Reason: ReasonCanceled, Attempts: sent(503), Err: over, ended: context.DeadlineExceeded}, "gave up after 1 attempt, last status 503: context deadline exceeded: the job is over"},
		{Error{Reason: ReasonCanceled, Attempts: sent(reset), Err: context.DeadlineExceeded}, "gave up after 1 attempt, last error connection reset by peer: context deadline exceeded"},
		{Error{Reason: ReasonCanceled, Attempts: sent(503, io.ErrClosedPipe), Err: io.ErrClosedPipe, ended: context.DeadlineExceeded}, "gave up after 2 attempts, last status 503 (deadline exceeded): io: read/write on closed pipe"},
		{Error{Reason: ReasonCanceled, Attempts: sent(503, io.ErrClosedPipe), Err: io.ErrClosedPipe, ended: context.Canceled}, "gave up after 2 attempts, last status 503 (canceled): io: read/write on closed pipe"},
		{Error{Reason: ReasonCanceled, Attempts: sent(503), Err: errRequestCanceled}, "gave up after 1 attempt, last status 503: request canceled"},
		{Error{Reason: ReasonCanceled, Err: context.DeadlineExceeded}, "not sent: context deadline exceeded"},
		{Error{Reason: ReasonCanceled, Limit: "gate", Err: context.DeadlineExceeded}, "not sent while it waited for its turn (gate): context deadline exceeded"},
		{Error{Reason: ReasonTimeout, Attempts: sent(503, 502, 503), Err: context.DeadlineExceeded}, "gave up after 3 attempts, last status 503: context deadline exceeded"},
		{Error{Reason: ReasonTimeout, Attempts: sent(503, io.ErrClosedPipe), Err: io.ErrClosedPipe, ended: context.DeadlineExceeded}, "gave up after 2 attempts, last status 503 (deadline exceeded): io: read/write on closed pipe"},
		{Error{Reason: ReasonTimeout, Limit: "gate", Err: context.DeadlineExceeded}, "not sent while it waited for its turn (gate): context deadline exceeded"},
		{Error{Reason: ReasonDeadline, Limit: "rate", Attempts: sent(503, reset), Err: reset}, "gave up after 2 attempts, last status 503 (deadline, rate): connection reset by peer"},
		{Error{Reason: ReasonCooldown, Limit: "cooldown", Attempts: sent(reset), Err: reset}, "gave up after 1 attempt (cooldown): connection reset by peer"},
		{Error{Reason: ReasonDeadline, Attempts: sent(503, reset), Err: reset}, "gave up after 2 attempts, last status 503 (deadline): connection reset by peer"},
		{Error{Reason: ReasonDeadline, Attempts: sent(503), Err: ErrOverDeadline}, "gave up after 1 attempt, last status 503: its turn would come after the deadline"},
		{Error{Reason: ReasonDeadline, Err: ErrOverDeadline}, "not sent: its turn would come after the deadline"},
		{Error{Reason: ReasonGateFull, Err: ErrGateFull}, "not sent: too many requests in flight to the host"},
		{Error{Reason: ReasonBudget, Attempts: sent(reset), Err: reset}, "gave up after 1 attempt (budget): connection reset by peer"},
		{Error{Reason: ReasonNotIdempotent, Attempts: sent(503, reset), Err: reset}, "gave up after 2 attempts, last status 503 (not idempotent): connection reset by peer"},
		{Error{Reason: ReasonFinal, Attempts: sent(503, io.EOF), Err: io.EOF}, "gave up after 2 attempts, last status 503: EOF"},
		{Error{Reason: ReasonCooldown, Err: ErrCooldown, Until: time.Unix(0, 0)}, "not sent, try again at 1970-01-01T00:00:00Z: the host asked for no requests until later"},
		{Error{Reason: ReasonMaxElapsed, Attempts: sent(503)}, "gave up after 1 attempt, last status 503 (max elapsed)"},
	} {
		assert.Equal(t, "transport: "+row.want, row.e.Error())
	}
}

// The error of the Transport also says how a wait ended.
func TestErrorsTellHowAWaitEnded(t *testing.T) {
	bubble(t, func(t *testing.T) {
		base := script(status(503))
		tr := over(t, Config{Rule: policy.Rule{Backoff: backoff.Constant(time.Second), Attempts: 100, Budget: policy.Budget{Burst: policy.Off}}}, base)

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
		slow := over(t, Config{Rule: policy.Rule{Backoff: backoff.Constant(time.Second)}}, rt(func(req *http.Request) (*http.Response, error) {
			if AttemptNumber(req.Context()) > 1 {
				<-req.Context().Done()
				return nil, req.Context().Err()
			}
			return status(503)(req)
		}))
		_, err = get(t, slow, ctx)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		assert.EqualError(t, err, "transport: gave up after 2 attempts, last status 503: context deadline exceeded")
	})
}
