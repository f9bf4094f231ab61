// The context of an attempt, which ends when the attempt takes too long.

package flight

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/aplomb-go/aplomb/internal/host/pool"
	"github.com/aplomb-go/aplomb/policy"
)

// Timeouts are the timeouts of a rule, with their errors. They are made once for a rule.
type Timeouts struct {
	After time.Duration // for the headers, from the start of an attempt or from the end of a body that takes time to send; not positive: off
	late  error         // if that takes longer

	quiet  time.Duration // without progress; not positive: off
	silent error         // if that takes longer

	Connect     time.Duration // until the attempt has a connection; not positive: off
	unconnected error         // if that takes longer

	event     time.Duration // from the headers of an event stream to its first event; not positive: off
	eventless error         // if that takes longer

	alarms *Alarms // for all attempts, and for their bodies
}

// TimeoutsOf returns the timeouts of a rule, which take their alarms from a list.
func TimeoutsOf(r *policy.Rule, alarms *Alarms) Timeouts {
	t := Timeouts{
		After: min(r.AttemptTimeout, lifetime), // so that no sum with a time on the clock is too large
		late:  &TimeoutError{"transport: no response within the attempt's %v", r.AttemptTimeout, policy.ErrAttemptTimeout},

		quiet:  min(r.Stall.Timeout, lifetime),
		silent: &TimeoutError{"transport: no progress for %v", r.Stall.Timeout, ErrStalled},

		Connect:     min(r.ConnectTimeout, lifetime),
		unconnected: &net.OpError{Op: "dial", Net: "tcp", Err: &TimeoutError{"no connection within %v", r.ConnectTimeout, errUnconnected}},

		event:     r.FirstEventTimeout,
		eventless: &TimeoutError{"transport: no event within %v after the headers", r.FirstEventTimeout, policy.ErrAttemptTimeout},

		alarms: alarms,
	}
	if t.quiet > 0 && (t.After <= 0 || t.quiet < t.After) {
		t.After, t.late = t.quiet, t.silent
	}
	return t
}

// On reports whether attempts are timed, so that they need a context of their own.
func (t *Timeouts) On() bool { return t.After > 0 || t.Connect > 0 || t.event > 0 }

// An attemptContext is the context of one attempt. It may be cancelled without the caller's
// context if the attempt is timed or runs beside another. Package context makes the context
// that is cancelled then, and only when somebody asks for its end. A base transport that answers
// from memory never does. If the caller's context never ends, a channel and the function of one
// child are enough, because nothing else ends the attempt.
//
// The time of each phase of a timed attempt is bounded (see phase.go). Later the same timer
// watches over the Reads of the response's body (see [watchedBody]).
type attemptContext struct {
	context.Context               // the caller's
	*Timeouts                     // nil: it ends with the caller's context only
	unlink          func() bool   // not nil: it is linked to the caller's by AfterFunc, not derived from it
	pool            *pool.Pool    // hears what comes; nil: nobody needs to know
	home            home          // whose clock the pool goes by
	began           time.Duration // when the attempt began, on the clock of the alarms

	mu     sync.Mutex      // guards the fields below, and those of the response's body
	own    context.Context // nil: nobody has asked for its end
	cancel context.CancelCauseFunc
	done   chan struct{} // is closed when it is cancelled; nil: own has that, or nobody has asked
	child  func()        // is told when it is cancelled; nil: there is none, or it is another's of own
	phase  phase
	full   bool         // it has had a child
	linked bool         // it had a connection, or needs no bound for the search
	alarm  *alarm       // for the end of the phase, or of a Read of the response's body; nil: it was not set
	upload *timedBody   // the request's body that is being sent
	body   *watchedBody // the response's body, if it may stall
}

func (a *attemptContext) Value(key any) any {
	if a.Timeouts != nil {
		a.mu.Lock()
		own := a.own
		a.mu.Unlock()
		if own != nil {
			return own.Value(key) // package context looks for its own contexts in this way
		}
	}
	return a.Context.Value(key)
}

func (a *attemptContext) Done() <-chan struct{} {
	if a.Timeouts == nil {
		return a.Context.Done()
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.done == nil && a.own == nil && a.Context.Done() == nil {
		if a.done = make(chan struct{}); a.phase >= late {
			close(a.done)
		}
	}
	if a.done != nil {
		return a.done
	}
	a.derive()
	return a.own.Done()
}

// AfterFunc is how package context adds a child to a context whose Done is not its own. A child does
// not block when it is told.
func (a *attemptContext) AfterFunc(f func()) (stop func() bool) {
	if a.Timeouts == nil {
		return context.AfterFunc(a.Context, f)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.full || a.done == nil || a.phase >= late {
		a.derive()
		return context.AfterFunc(a.own, f)
	}
	a.child, a.full = f, true
	return a.forget
}

// forget forgets the child, and reports whether it was not told.
func (a *attemptContext) forget() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	was := a.child != nil
	a.child = nil
	return was
}

// unlock unlocks the context, and tells the child if it was cancelled. The child asks for the error.
func (a *attemptContext) unlock() {
	var child func()
	if a.phase >= late {
		child, a.child = a.child, nil
	}
	a.mu.Unlock()
	if child != nil {
		child()
	}
}

// Err derives a context that is cancelled, because then the error and its cause must not
// change any more.
func (a *attemptContext) Err() error {
	if a.Timeouts == nil {
		return a.Context.Err()
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case a.phase < late:
	case a.done != nil && a.own == nil:
		return context.Canceled
	default:
		a.derive()
	}
	if a.own != nil {
		return a.own.Err()
	}
	return a.Context.Err()
}

// derive makes the context that can be cancelled; the lock is held.
func (a *attemptContext) derive() {
	if a.own != nil {
		return
	}
	a.own, a.cancel = context.WithCancelCause(a.Context)
	if a.phase >= late {
		a.cancel(nil)
	}
}

// String keeps package fmt from reading the fields, which other goroutines may set.
func (a *attemptContext) String() string {
	if s, ok := a.Context.(fmt.Stringer); ok {
		return s.String() + ".Attempt"
	}
	return fmt.Sprintf("%T.Attempt", a.Context)
}

// start begins the first phase. Nobody but the timer has the context yet. A derived context must be
// cancelled at some time, because its parent keeps it until then. But the context must
// not be cancelled if its connection goes over to the caller (101, CONNECT). So the
// context of a request that may upgrade is detached from its parent. AfterFunc links the
// two until the response.
func (a *attemptContext) start(t *Timeouts, detached bool) {
	a.Timeouts, a.began, a.phase = t, t.alarms.now(), waiting
	if detached {
		parent := a.Context
		own, cancel := context.WithCancelCause(context.WithoutCancel(parent))
		a.own, a.cancel = own, cancel
		a.unlink = context.AfterFunc(parent, func() { cancel(context.Cause(parent)) })
	}
	if t.After > 0 {
		t.alarms.take(a, a.began, t.After) // last, because the alarm may ring at once
	}
}

// Over returns the pool that the attempt takes. A base may have restarted it over another.
func (o *Outgoing) Over() *pool.Pool {
	o.Ctx.mu.Lock()
	defer o.Ctx.mu.Unlock()
	return o.Ctx.pool
}

// Restart begins the time of the attempt anew, because it has waited for a connection of a pool, or
// goes over another.
func (o *Outgoing) Restart(over *pool.Pool) {
	a := &o.Ctx
	a.mu.Lock()
	defer a.mu.Unlock()
	a.pool = over
	if a.phase != waiting && a.phase != connecting {
		return
	}
	a.phase, a.began = waiting, a.alarms.now()
	if d, _ := a.bound(); d > 0 {
		a.set(a.began, d)
	}
}

// Began returns when the attempt began, if it is timed.
func (a *attemptContext) Began() time.Time { return a.alarms.made.Add(a.began) }

// Abandon ends the attempt because nobody needs its response any more.
func (a *attemptContext) Abandon() { a.happens(leaves, ErrOutrun) }

// happens lets an event change the phase.
func (a *attemptContext) happens(e event, why error) {
	a.mu.Lock()
	defer a.unlock()
	a.on(e, why)
}

// end stops the timer when there is a response or an error. It replaces the error by the
// timeout, or by the end of the caller's context, if one of them ended the attempt. The
// attempt's context is cancelled only when the response's body has ended. below is the error
// that the timeout hides, if there is one.
func (o *Outgoing) end(resp *http.Response, err error) (got *http.Response, _, below error) {
	a, caller := &o.Ctx, o.Ctx.Context
	if late := a.outcome(resp); late != nil {
		Dismiss(caller, resp) // it came too late, and its body is already cut off
		if caller.Err() != nil {
			return nil, ContextErr(caller), nil
		}
		return nil, late, err
	}
	switch {
	case err != nil:
		if a.unlink != nil && caller.Err() != nil && !errors.Is(err, caller.Err()) {
			err = ContextErr(caller) // the attempt's context did not inherit it
		}
	case resp.Body == nil || resp.Body == http.NoBody:
	case resp.StatusCode == http.StatusSwitchingProtocols:
		if a.unlink != nil {
			a.unlink()
		}
	case HandsOver(&o.Req, resp):
		// A tunnel ends with the caller's context, as it does without aplomb. The
		// body of a tunnel that has no Write, as in net/http, can be wrapped.
		if _, writes := resp.Body.(io.Writer); !writes {
			o.body = attemptBody{resp.Body, a}
			resp.Body = &o.body
		}
	case a.quiet > 0:
		o.more.body.attemptBody = attemptBody{resp.Body, a}
		resp.Body = &o.more.body
		a.mu.Lock()
		a.body = &o.more.body
		a.mu.Unlock()
	default:
		o.body = attemptBody{resp.Body, a}
		resp.Body = &o.body
	}
	return resp, err, nil
}

// outcome notes that there is a response, or an error if resp is nil. It returns the timer's
// error if the timer has ended the attempt. The context lives on if there is a body to be read.
func (a *attemptContext) outcome(resp *http.Response) (tooLate error) {
	a.mu.Lock()
	defer a.unlock()
	switch {
	case a.phase == late:
		return context.Cause(a.own)
	case resp == nil:
		a.on(leaves, nil)
	default:
		a.on(responds, nil)
		if resp.Body == nil || resp.Body == http.NoBody {
			a.on(bodyEnds, nil)
		}
	}
	return nil
}
