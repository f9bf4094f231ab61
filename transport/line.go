// Between two attempts: the response is discarded, and the next attempt waits in the line of the host while its schedule goes on.

package transport

import (
	"cmp"
	"io"
	"math/rand/v2"
	"net/http"
	"time"

	"github.com/aplomb-go/aplomb/internal/attempt"
	"github.com/aplomb-go/aplomb/internal/host/instant"
	"github.com/aplomb-go/aplomb/internal/host/line"
	"github.com/aplomb-go/aplomb/internal/limit"
	"github.com/aplomb-go/aplomb/internal/replay"
)

// between discards the response at hand, waits, and gets the body of the next attempt. If there will be none, it returns what the
// caller gets.
func (x *retrier) between(d *decision) (resp *http.Response, err error, ends bool) {
	status, header, kept := x.last.Status(), http.Header(nil), x.discard(d)
	if kept.Response == nil && x.last.Resp != nil {
		header = x.last.Resp.Header
	}
	x.last.Resp = nil
	defer func() { kept.End(resp != nil) }()
	if err := x.Sleep(time.Until(d.at.Add(d.delay)), nil); err != nil {
		return nil, x.refuse(&limit.Rejection{Err: err}), true
	}
	if x.sent > 0 {
		if no := x.awaitTurn(d, status); no != nil {
			if no.Err != nil || x.Ctx.Err() != nil {
				return nil, x.refuse(no), true
			}
			x.holdInVain()
			reason, _ := x.reasonFor(no)
			resp, err = x.endWith(reason, kept, header, d.err)
			return resp, err, true
		}
	}
	if !d.getsBody {
		return nil, nil, false
	}
	switch why := x.body.GetBody(x.Ctx); why {
	case nil:
		return nil, nil, false
	case replay.ErrEnded:
		return nil, x.refuse(&limit.Rejection{Err: attempt.ContextErr(x.Ctx)}), true
	default:
		failed := &bodyError{last: d.err, why: why, status: status}
		resp, err = x.endWith(ReasonNotReplayable, kept, header, failed)
		return resp, err, true
	}
}

// discard drains the response at hand within bounds, and closes it. The caller may still get it, if
// the request waits in vain for its next attempt or if the caller's GetBody fails. So discard keeps it, if
// its rest fits within the bounds of the drain and of the memory for such responses.
func (x *retrier) discard(d *decision) attempt.Kept {
	until := d.at.Add(d.drain)
	if x.sent > 0 {
		return attempt.KeepWithin(x.Ctx, x.last.Resp, until, &x.t.responses)
	}
	attempt.DrainWithin(x.Ctx, x.last.Resp, until, io.Discard)
	return attempt.Kept{}
}

// endWith ends a call for which there is no attempt after all, although a retry was decided. The caller gets the last response if
// it was kept. Otherwise the caller gets an error, with the header of that response.
func (x *retrier) endWith(reason Reason, kept attempt.Kept, header http.Header, err error) (*http.Response, error) {
	x.permit.Cancel(&x.Request)
	x.endsWith(reason, err)
	if kept.Response != nil {
		return x.markResponse(kept.Response, reason), nil
	}
	e := x.newError(reason, err)
	e.Header = header
	return nil, e
}

// A schedule is the rest of the attempts of a request, from the first time on that it stands in a line.
type schedule struct {
	ends  time.Time       // when the last of them would begin; zero: the request has not stood in a line
	steps []time.Duration // from each attempt to the next
}

// awaitTurn waits until the host has room for the next attempt, for as long as the schedule of the request would have gone on. d
// and status are those of the attempt before it, or nil and 0.
func (x *retrier) awaitTurn(d *decision, status int) *limit.Rejection {
	place := line.Place{Sent: x.sent}
	if d != nil {
		place.Failed, place.Scope = cmp.Or(x.last.SentAt, x.last.DoneAt), x.LineScope(status)
	}
	if x.permit.TryLine(&x.Request, place) {
		return nil
	}
	now := time.Now()
	if x.ends.IsZero() {
		x.plan(x, d, now)
	}
	latest := x.ends
	if d != nil && len(x.steps) == 0 { // the last attempt may wait once more as long as it has
		latest = later(latest, now.Add(d.delay))
	}
	if until, ok := x.Ctx.Deadline(); ok {
		latest = earlier(latest, until.Add(-min(until.Sub(now)/4, time.Second)))
	}
	if most := x.Rule.Policy.MaxElapsedTime; most > 0 && x.sent > 0 {
		latest = earlier(latest, x.Registry.TimeOf(instant.After(x.start, most)))
	}
	no := x.permit.AwaitLine(&x.Request, place, x.Registry.InstantOf(latest))
	waited := time.Since(now)
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
func (s *schedule) plan(x *retrier, d *decision, now time.Time) {
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
		s.ends = s.ends.Add(took + max(wait, asked))
	}
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}
