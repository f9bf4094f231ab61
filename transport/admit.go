// May this attempt go now?

package transport

import (
	"math"
	"time"

	"golang.org/x/time/rate"
)

// admit waits until the host's limits let an attempt go. It refuses at once,
// without sending, where its turn would come after the deadline.
func (x *exchange) admit() error {
	if x.rule.limiter == nil {
		return nil
	}
	now := time.Now()
	r := x.rule.limiter.ReserveN(now, 1)
	wait := r.DelayFrom(now)
	if wait <= 0 {
		return nil
	}
	if until, ok := x.ctx.Deadline(); ok && now.Add(wait).After(until) {
		r.CancelAt(now)
		err := x.refuse(Deadline, ErrOverDeadline)
		err.Until = now.Add(wait)
		return err
	}
	if err := x.sleep(wait); err != nil {
		r.CancelAt(time.Now()) // the turn goes to the next in line
		return x.refuse(Canceled, err)
	}
	return nil
}

// refuse ends the request without a further send, and tells the observers.
func (x *exchange) refuse(reason Reason, err error) *Error {
	x.tell(nil, &decision{
		Attempt: Attempt{Number: x.sent, Err: err, Time: time.Now()},
		reason:  reason,
	})
	return x.newError(reason, err)
}

// turn returns how long it is until the limiter lets another send go, without
// taking that turn.
func turn(l *rate.Limiter, now time.Time) time.Duration {
	missing := 1 - l.TokensAt(now)
	if missing <= 0 {
		return 0
	}
	seconds := missing / float64(l.Limit())
	return time.Duration(min(seconds*float64(time.Second), math.MaxInt64/2))
}
