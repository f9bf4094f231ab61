// An attempt that may not go yet: it waits in the line of the host while its schedule goes on.

package transport

import (
	"cmp"
	"math/rand/v2"
	"time"

	"github.com/aplomb-go/aplomb/internal/attempt"
	"github.com/aplomb-go/aplomb/internal/host/instant"
	"github.com/aplomb-go/aplomb/internal/host/line"
	"github.com/aplomb-go/aplomb/internal/limit"
)

// A schedule is the rest of the attempts of a request, from the first time on that it stands in a line.
type schedule struct {
	until time.Time       // when the last of them would begin; zero: the request has not stood in a line
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
	if x.until.IsZero() {
		x.plan(x, d, now)
	}
	latest := x.until
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
		x.report.leftOut++
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
	s.until = now
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
		s.until = s.until.Add(took + max(wait, asked))
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
