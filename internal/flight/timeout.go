// The context of an attempt, and the timer that ends it.

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

	"github.com/aplomb-go/aplomb/internal/host/lane"
	"github.com/aplomb-go/aplomb/internal/replay"
	"github.com/aplomb-go/aplomb/policy"
)

// Timeouts are the timeouts of a rule, with their errors. They are made once for a rule.
type Timeouts struct {
	After time.Duration // from the start of an attempt to the headers; not positive: off
	late  error         // if that takes longer
	Stall stallLimits

	Connect     time.Duration // until the attempt has a connection; not positive: off
	unconnected error         // if that takes longer

	event     time.Duration // from the headers of an event stream to its first event; not positive: off
	eventless error         // if that takes longer
}

func TimeoutsOf(r *policy.Rule) Timeouts {
	return Timeouts{
		After: r.AttemptTimeout,
		late:  &TimeoutError{"transport: no response within the attempt's %v", r.AttemptTimeout, policy.ErrAttemptTimeout},
		Stall: stallLimitsOf(r),

		Connect:     r.ConnectTimeout,
		unconnected: &net.OpError{Op: "dial", Net: "tcp", Err: &TimeoutError{"no connection within %v", r.ConnectTimeout, errUnconnected}},

		event:     r.FirstEventTimeout,
		eventless: &TimeoutError{"transport: no event within %v after the headers", r.FirstEventTimeout, policy.ErrAttemptTimeout},
	}
}

// On reports whether attempts are timed, so that they need a context of their own.
func (t *Timeouts) On() bool { return t.After > 0 || t.Connect > 0 || t.event > 0 || t.Stall.On() }

// An attemptContext is the context of one attempt, with the timer that ends it. It knows
// the number of the attempt. It may be cancelled without the caller's context if the
// attempt is timed or runs beside another. Package context makes the context that is
// cancelled then, and only when somebody asks for its end. A base transport that answers
// from memory never does.
//
// The timer bounds the time from the start of an attempt to the first Read of the
// request's body, and the time from the end of that body to the headers of the response.
// If the rule has a Stall.Timeout, it also bounds the time between two Reads of the body.
// It does not see the Reads of a small body in memory, and its time runs on during them.
// Later the same timer watches over the Reads of the response's body (see [watchedBody]).
type attemptContext struct {
	context.Context             // the caller's
	carried         Carried     // with the number of the attempt; 0: what the caller carries applies
	*Timeouts                   // nil: it ends with the caller's context only
	unlink          func() bool // not nil: it is linked to the caller's by AfterFunc, not derived from it
	lane            *lane.Lane  // hears what comes; nil: nobody needs to know
	home            home        // whose clock the lane goes by

	mu     sync.Mutex      // guards the fields below, and those of the response's body
	own    context.Context // nil: nobody has asked for its end
	cancel context.CancelCauseFunc
	timer  *time.Timer
	due    time.Time    // when the timer fires, if it was set again; zero: it was set once
	cause  error        // the error of the next phase that ends too late; then why the context ended
	began  time.Time    // when the attempt began, if its connect phase is bounded
	upload *timedBody   // the request's body that is being sent
	body   *watchedBody // the response's body, if it may stall
	gap    bool         // between two Reads of the request's body, when stalls count
	ended  bool         // there was a response or an error
	read   bool         // the response's body has ended
	opens  bool         // a connection is being sought, and time for it is bounded
	fired  bool
	over   bool // the context is cancelled
}

func (a *attemptContext) Value(key any) any {
	if key == (CarriedKey{}) && a.carried.Number > 0 {
		return &a.carried
	}
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
	a.derive()
	return a.own.Done()
}

// Err derives a context that is cancelled, because then the error and its cause must not
// change any more.
func (a *attemptContext) Err() error {
	if a.Timeouts == nil {
		return a.Context.Err()
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.over {
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
	if a.over {
		a.cancel(a.cause)
	}
}

// String keeps package fmt from reading the fields, which other goroutines may set.
func (a *attemptContext) String() string {
	if s, ok := a.Context.(fmt.Stringer); ok {
		return s.String() + ".Attempt"
	}
	return fmt.Sprintf("%T.Attempt", a.Context)
}

// start starts the timer. Nobody else has the context yet. A derived context must be
// cancelled at some time, because its parent keeps it until then. But the context must
// not be cancelled if its connection goes over to the caller (101, CONNECT). So the
// context of a request that may upgrade is detached from its parent. AfterFunc links the
// two until the response.
func (a *attemptContext) start(t *Timeouts, detached bool) {
	a.Timeouts = t
	if t.Connect > 0 {
		a.began = time.Now()
	}
	if detached {
		parent := a.Context
		own, cancel := context.WithCancelCause(context.WithoutCancel(parent))
		a.own, a.cancel = own, cancel
		a.unlink = context.AfterFunc(parent, func() { cancel(context.Cause(parent)) })
	}
	a.arm()
}

// stop cancels the context; the lock is held.
func (a *attemptContext) stop(cause error) {
	if a.over {
		return
	}
	a.over, a.cause = true, cause
	if a.cancel != nil {
		a.cancel(cause)
	}
}

// Abandon ends the attempt because nobody needs its response any more.
func (a *attemptContext) Abandon() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.stop(ErrOutrun)
}

// free frees the context.
func (a *attemptContext) free() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.release()
}

// release is free; the lock is held.
func (a *attemptContext) release() {
	if a.unlink != nil {
		a.unlink()
	}
	a.stop(nil)
}

// arm sets the timer for the next phase of the attempt; the lock is held.
func (a *attemptContext) arm() {
	if d, cause := a.phase(); d > 0 {
		a.cause = cause
		a.set(d)
	}
}

// phase returns how long a phase of the attempt may take, and the error if it takes
// longer; the lock is held.
func (a *attemptContext) phase() (d time.Duration, cause error) {
	d, cause = a.After, a.late
	if q := a.Stall.quiet; q > 0 && (a.gap || d <= 0 || q < d) {
		d, cause = q, a.Stall.silent
	}
	return d, cause
}

// connecting bounds the time until the attempt has a connection. The base transport may
// seek a connection again later, which is not bounded.
func (a *attemptContext) connecting() {
	if a.Timeouts == nil || a.Connect <= 0 {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.ended || a.opens || a.began.IsZero() {
		return
	}
	if d, _ := a.phase(); d > 0 && time.Until(a.began.Add(d)) <= a.Connect {
		a.began = time.Time{} // the attempt ends earlier
		return
	}
	a.opens, a.cause = true, a.unconnected
	a.set(a.Connect)
}

// connected gives the attempt the rest of its time.
func (a *attemptContext) connected() {
	if a.Timeouts == nil || a.Connect <= 0 {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.opens || a.ended || a.fired {
		return
	}
	a.opens = false
	d, cause := a.phase()
	if d <= 0 {
		a.timer.Stop()
	} else {
		a.cause = cause
		a.set(time.Until(a.began.Add(d)))
	}
	a.began = time.Time{}
}

// set sets the timer; the lock is held.
func (a *attemptContext) set(d time.Duration) {
	if a.timer == nil {
		a.timer = time.AfterFunc(d, a.fire)
		return
	}
	a.due = time.Now().Add(d)
	a.timer.Reset(d)
}

// fire runs when the timer fires, and ends the attempt.
func (a *attemptContext) fire() {
	a.mu.Lock()
	if a.body != nil {
		a.mu.Unlock()
		a.body.fire()
		return
	}
	defer a.mu.Unlock()
	// The timer may have been set again while this call waited for the lock.
	if a.ended || a.upload != nil && !a.gap || time.Until(a.due) > 0 {
		return
	}
	a.fired = true
	a.stop(a.cause)
}

// pause stops the timer while the base transport reads the request's body. If net/http
// resends the request by itself, it reads a second body. Only that body counts from then
// on.
func (a *attemptContext) pause(body *timedBody) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.upload, a.gap = body, false
	if !a.ended && a.timer != nil {
		a.timer.Stop()
	}
}

// sent starts the timer when the base transport has got a piece of the body and has to
// come back for the next piece. It is called only if the rule has a Stall.Timeout.
func (a *attemptContext) sent(body *timedBody) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.upload == body && !a.ended {
		a.gap = true
		a.arm()
	}
}

// resume starts the timer again when the request's body has ended.
func (a *attemptContext) resume(body *timedBody) {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case a.upload != body:
		return
	case a.read:
		a.release()
	case !a.ended:
		a.gap = false
		a.arm()
	}
	a.upload = nil
}

// finished releases the context when the response's body has ended. Over HTTP/2 the base
// transport may still be sending the request's body. The context then lives until that
// body has ended.
func (a *attemptContext) finished() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.finish()
}

// finish is finished; the lock is held.
func (a *attemptContext) finish() {
	a.read = true
	if a.upload == nil {
		a.release()
	}
}

// watch makes the timer and the gate see when the body of req is read. held is nil
// without a gate. It also watches the body of a resend by net/http itself.
//
// A small body in memory stays as it is, because sending it takes almost no time.
// net/http sends such a body together with the headers, and returns only when it no
// longer needs the body. For that it has to see the type of the body.
func (a *attemptContext) watch(req *http.Request, held *Slot) {
	if req.Body == nil || req.Body == http.NoBody {
		return
	}
	small := replay.SmallInMemory(req.Body)
	if !small {
		req.Body = &timedBody{ReadCloser: req.Body, ctx: a, slot: held}
	}
	if getBody := req.GetBody; getBody != nil && !(small && replay.Independent(req)) {
		req.GetBody = func() (io.ReadCloser, error) {
			body, err := getBody()
			if err != nil || body == nil || body == http.NoBody || replay.SmallInMemory(body) {
				return body, err
			}
			return &timedBody{ReadCloser: body, ctx: a, slot: held}, nil
		}
	}
}

// A timedBody is a request's body that reports its Reads to the attempt's timer and to
// the gate. The server is not at fault for a slow reader of the caller, and does not work
// on the request meanwhile. Close may be called during a Read.
type timedBody struct {
	io.ReadCloser
	ctx   *attemptContext
	slot  *Slot // nil: no gate
	begun bool  // used by Read alone
}

func (b *timedBody) Read(p []byte) (int, error) {
	timed := b.ctx.Timeouts != nil
	stall := timed && b.ctx.Stall.quiet > 0
	if timed && !b.begun || stall {
		b.begun = true
		b.ctx.pause(b)
	}
	if b.slot != nil {
		b.slot.awaits()
	}
	n, err := b.ReadCloser.Read(p)
	if b.slot != nil {
		b.slot.goesOn()
	}
	switch {
	case err != nil && timed:
		b.ctx.resume(b)
	case stall:
		b.ctx.sent(b)
	}
	return n, err
}

func (b *timedBody) Close() error {
	if b.ctx.Timeouts != nil {
		b.ctx.resume(b)
	}
	return b.ReadCloser.Close()
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
	case a.Stall.On():
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

// outcome stops the timer. resp is nil after an error. It returns the timer's error if
// the timer has ended the attempt. The context lives on if there is a body to be read.
func (a *attemptContext) outcome(resp *http.Response) (late error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.ended = true
	if a.timer != nil {
		a.timer.Stop()
	}
	if a.fired {
		late = a.cause
	}
	switch {
	case a.fired || resp == nil:
		a.release()
	case resp.Body == nil || resp.Body == http.NoBody:
		a.finish()
	}
	return late
}
