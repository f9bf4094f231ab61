// Between two attempts: the response is discarded, and the next attempt waits in the line of the host while its schedule goes on.

package transport

import (
	"cmp"
	"math/rand/v2"
	"net/http"
	"time"

	"github.com/aplomb-go/aplomb/internal/attempt"
	"github.com/aplomb-go/aplomb/internal/exchange"
	"github.com/aplomb-go/aplomb/internal/host/instant"
	"github.com/aplomb-go/aplomb/internal/host/line"
	"github.com/aplomb-go/aplomb/internal/replay"
)

// between discards the response at hand, waits, and gets the body of the next attempt. If there will be no such attempt,
// it returns the caller's result. The discarded response is kept meanwhile, if its rest fits within the bounds of the drain
// and of the memory for such responses. The caller gets it, if the request waits in vain in the line or if the caller's
// GetBody fails. Without it the caller gets an error, with the header of that response.
func (x *retrier) between(d *decision) (resp *http.Response, err error, ends bool) {
	last, status := x.last.Resp, x.last.Status()
	kept := attempt.Keep(x.Ctx, last, d.at.Add(d.drain), &x.t.responses)
	x.last.Resp = nil
	defer func() { kept.End(resp != nil) }()
	if x.t.logger != nil {
		requestLog{x}.waits(d.waitedFor(), d.delay)
	}
	if err := x.Sleep(time.Until(d.at.Add(d.delay)), nil); err != nil {
		return nil, x.refuse(&exchange.Rejection{Err: err}), true
	}
	var no *exchange.Rejection
	if x.sent > 0 { // else a request begins
		no = x.awaitTurn(d, status)
	}
	reason, err := ReasonNotReplayable, d.err
	switch {
	case no != nil && (no.Err != nil || x.Ctx.Err() != nil):
		return nil, x.refuse(no), true
	case no != nil:
		x.holdInVain()
		reason, _ = x.reasonFor(no)
	case x.body == nil:
		return nil, nil, false
	default:
		switch why := x.body.GetBody(x.Ctx); why {
		case nil:
			return nil, nil, false
		case replay.ErrEnded:
			return nil, x.refuse(&exchange.Rejection{Err: attempt.ContextErr(x.Ctx)}), true
		default:
			err = &bodyError{last: d.err, why: why}
		}
	}
	x.next.cancel(&x.Request)
	if x.reason = reason; len(x.history) > 0 { // else a body was cut
		at := &x.history[len(x.history)-1] // the hooks were told that there would be a retry
		at.Err, at.Delay, at.Reason = err, 0, reason
	}
	requestLog{x}.notSent(History{Reason: reason, held: x.held}, err)
	requestLog{x}.failed(err)
	if kept.Response != nil {
		return x.markResponse(kept.Response, reason), nil, true
	}
	e := x.newError(reason, err)
	if last != nil {
		e.Header = last.Header
	}
	return nil, e, true
}

// awaitTurn waits until the host has room for the next attempt, for as long as the schedule of the request would have gone on. d
// and status are those of the attempt before it, or nil and 0.
func (x *retrier) awaitTurn(d *decision, status int) *exchange.Rejection {
	place := line.Place{Sent: x.sent}
	if d != nil {
		place.Failed, place.Scope = cmp.Or(x.last.SentAt, x.last.DoneAt), x.LineScope(status)
	}
	if x.next.turn.Try(&x.Request, place) {
		return nil
	}
	now := x.Registry.Now()
	if x.ends == 0 {
		x.plan(x, d, now)
	}
	latest := x.ends
	if d != nil && len(x.steps) == 0 { // the last attempt may wait once more as long as it has
		latest = max(latest, instant.After(now, d.delay))
	}
	if until, ok := x.Ctx.Deadline(); ok {
		at := x.Registry.InstantOf(until)
		latest = min(latest, at.Add(-min(at.Sub(now)/4, time.Second)))
	}
	if most := x.Rule.Policy.MaxElapsedTime; most > 0 && x.sent > 0 {
		latest = min(latest, instant.After(x.start, most))
	}
	no := x.next.turn.Await(&x.Request, place, latest, &x.queued)
	waited := x.Registry.Now().Sub(now)
	for len(x.steps) > 0 && waited >= x.steps[0] {
		waited -= x.steps[0]
		x.steps = x.steps[1:]
		x.leftOut++
	}
	return no
}

// plan finds out how long the schedule of the request goes on: for the back-offs of the attempts after the next, and the time
// that these attempts would take, which is AttemptTimeout or that of the last. A request that sends nothing yet has the
// back-offs of all.
func (s *schedule) plan(x *retrier, d *decision, now instant.Instant) {
	rule, asked, late := &x.Rule.Policy, time.Duration(0), false
	took, prev := max(rule.AttemptTimeout, 0), x.prev
	if d != nil {
		asked, late = d.retryAfter, d.err != nil && attempt.IsLate(x.Ctx, d.err)
		if took == 0 && x.last.SentAt != 0 {
			took = x.last.Took()
		}
	}
	s.ends = now
	most := rule.MaxAttempts
	if x.sent == 0 {
		most = max(most, 2)
	}
	for n := x.sent + 1; n < most; n++ {
		wait := rule.Backoff.Delay(n-1, prev)
		if wait < 0 {
			break
		}
		prev = wait
		if longest := rule.Backoff.Delay(silentAfter, wait); late && longest > wait {
			wait += time.Duration(rand.Float64() * float64(longest-wait))
		}
		s.steps = append(s.steps, took+max(wait, asked))
		s.ends = instant.After(s.ends, took+max(wait, asked))
	}
}
