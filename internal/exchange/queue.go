// How a request waits in a queue, and why it may not.

package exchange

import (
	"time"

	"github.com/aplomb-go/aplomb/internal/host/instant"
	"github.com/aplomb-go/aplomb/internal/host/queue"
)

// A Rejection says why a request does not go, or not again. A nil rejection lets it
// go.
type Rejection struct {
	Why   Why
	Err   error     // of the caller's context
	Until time.Time // when a new request makes sense; zero: not known
	Limit string    // that the request waited for; empty: none
}

// A Why is the kind of a rejection.
type Why uint8

const (
	WhyGone    Why = iota // the caller's context has ended
	WhyLate               // its turn would come after the caller's deadline
	WhyOverdue            // its turn would come later than the rule allows
	WhyFull               // the rule says FailFast
)

// A Queue is where a request may have to wait.
type Queue interface {
	// Enter and Leave are those of the machine behind it.
	Enter(now instant.Instant, w *queue.Waiter) queue.Answer
	Leave(w *queue.Waiter)
	// NewWaiter returns a waiter for the request.
	NewWaiter() *queue.Waiter
	// Rejects reports whether the rule says that the request fails instead of waiting.
	Rejects(a *queue.Answer) bool
}

// Wait waits in a queue until the request may go, and returns the answer that lets
// it go. latest is when it has to go at the latest, or 0. w is the waiter that the queue has to see
// at the first question, or nil. For most requests a waiter is only made if they have to wait.
//
// A rejected request leaves the queue before anybody is told. It also leaves if
// the caller's context or a Trace panics, because a waiter that nobody drives would
// stop the requests behind it.
func (r *Request) Wait(q Queue, w *queue.Waiter, now, latest instant.Instant) (a queue.Answer, waited bool, no *Rejection) {
	defer func() {
		if w != nil {
			q.Leave(w)
		}
	}()
	for ; ; now = r.Registry.Now() {
		switch a = q.Enter(now, w); {
		case a.Verb == queue.Go:
			return a, waited, nil
		case q.Rejects(&a):
			return a, waited, &Rejection{Why: WhyFull, Until: r.Registry.TimeOf(a.Until)}
		}
		if a.Down {
			a.Until = 0 // a probe is no turn
		}
		if no := r.TooLate(r.Registry.TimeOf(now), r.Registry.TimeOf(a.Until), latest); no != nil {
			if a.Open > 0 {
				no.Until = r.Registry.TimeOf(a.Open) // spreads the requests that come back then
			}
			return a, waited, no
		}
		waited = true
		if w == nil {
			w = q.NewWaiter()
			continue // asks again, and takes its place in the queue
		}
		if err := r.Sleep(min(a.Ask.Sub(now), r.patience(latest)), w.Ready); err != nil {
			return a, waited, &Rejection{Err: err}
		}
	}
}

// SendAtLatest returns when the request has to go at the latest, in the time of the host's
// machines: at its deadline, or at latest. It is zero if nothing bounds it.
func (r *Request) SendAtLatest(latest instant.Instant) (at instant.Instant) {
	if until, ok := r.Ctx.Deadline(); ok {
		at = r.Registry.InstantOf(until)
	}
	if latest != 0 && (at == 0 || latest < at) {
		at = latest
	}
	return at
}

// patience returns how long the request may wait for its turn.
func (r *Request) patience(latest instant.Instant) time.Duration {
	if latest == 0 {
		return instant.Forever
	}
	return latest.Sub(r.Registry.Now()) + 1
}

// TooLate rejects a request whose turn comes after the caller's deadline, and a
// retry whose turn comes after latest, if that is not 0. A zero turn means now.
func (r *Request) TooLate(now, turn time.Time, latest instant.Instant) *Rejection {
	if until, ok := r.Ctx.Deadline(); ok && turn.After(now) && !turn.Before(until) {
		return &Rejection{Why: WhyLate, Until: turn}
	}
	if turn.Before(now) {
		turn = now
	}
	if latest != 0 && r.Registry.InstantOf(turn) > latest {
		return &Rejection{Why: WhyOverdue, Until: turn}
	}
	return nil
}
