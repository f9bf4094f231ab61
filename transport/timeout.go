// The context of an attempt, and the timer that ends it.

package transport

import (
	"context"
	"errors"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/aplomb-go/aplomb/internal/replay"
	"github.com/aplomb-go/aplomb/policy"
)

// timeouts are the timeouts of a rule, with their errors. They are made once for a rule.
type timeouts struct {
	after time.Duration // from the start of an attempt to the headers; not positive: off
	late  error         // if that takes longer
	stall stallLimits
}

func timeoutsOf(r *policy.Rule) timeouts {
	return timeouts{
		after: r.AttemptTimeout,
		late:  &attemptTimeout{after: r.AttemptTimeout},
		stall: stallLimitsOf(r),
	}
}

// on reports whether attempts are timed, so that they need a context of their own.
func (t *timeouts) on() bool { return t.after > 0 || t.stall.on() }

// An attemptContext is the context of one attempt. It knows the number of the attempt.
// If it has a timer, it can be cancelled without the caller's context.
type attemptContext struct {
	context.Context // the caller's
	options         options
	timer           *attemptTimer // nil: it ends with the caller's context only
}

func (c *attemptContext) Value(key any) any {
	if key == (optionsKey{}) && c.options.attempt > 0 {
		return &c.options
	}
	if c.timer != nil {
		return c.timer.known().Value(key)
	}
	return c.Context.Value(key)
}

func (c *attemptContext) Done() <-chan struct{} {
	if c.timer != nil {
		return c.timer.derived().Done()
	}
	return c.Context.Done()
}

func (c *attemptContext) Err() error {
	if c.timer != nil {
		return c.timer.err()
	}
	return c.Context.Err()
}

// An attemptTimer bounds the time from the start of an attempt to the first Read of the
// request's body, and the time from the end of that body to the headers of the response.
// If the rule has a Stall.Timeout, it also bounds the time between two Reads of the body.
// It does not see the Reads of a small body in memory, and its time runs on during them.
// Later the same timer watches over the Reads of the response's body (see [attemptBody]).
//
// It can end the context of the attempt. Package context makes that context, and only
// when somebody asks for its end. A base transport that answers from memory never does.
type attemptTimer struct {
	*timeouts
	parent context.Context // the caller's
	unlink func() bool     // not nil: the context is linked to the caller's by AfterFunc, not derived from it

	mu     sync.Mutex      // guards the fields below, and those of the response's body
	own    context.Context // nil: nobody has asked for its end
	cancel context.CancelCauseFunc
	over   bool  // the context is cancelled
	why    error // its cause
	timer  *time.Timer
	due    time.Time  // when the timer fires, if it was set again; zero: it was set once
	cause  error      // the error that fire reports
	upload *timedBody // the request's body that is being sent
	gap    bool       // between two Reads of that body, when stalls count
	ended  bool       // there was a response or an error
	read   bool       // the response's body has ended
	fired  bool
	body   *attemptBody // the response's body, if it may stall
}

// start starts the timer. A derived context must be cancelled at some time, because its
// parent keeps it until then. But the context must not be cancelled if its connection
// goes over to the caller (101, CONNECT). So the context of a request that may upgrade is
// detached from its parent. AfterFunc links the two until the response.
func (a *attemptTimer) start(parent context.Context, t *timeouts, detached bool) {
	a.timeouts, a.parent = t, parent
	if detached {
		a.own, a.cancel = context.WithCancelCause(context.WithoutCancel(parent))
		cancel := a.cancel
		a.unlink = context.AfterFunc(parent, func() { cancel(context.Cause(parent)) })
	}
	a.mu.Lock()
	a.arm()
	a.mu.Unlock()
}

// known returns the attempt's own context if there is one, and the caller's otherwise.
func (a *attemptTimer) known() context.Context {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.own != nil {
		return a.own
	}
	return a.parent
}

// derived returns the attempt's own context.
func (a *attemptTimer) derived() context.Context {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.own == nil {
		a.own, a.cancel = context.WithCancelCause(a.parent)
		if a.over {
			a.cancel(a.why)
		}
	}
	return a.own
}

func (a *attemptTimer) err() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case a.own != nil:
		return a.own.Err()
	case a.over:
		return context.Canceled
	}
	return a.parent.Err()
}

// stop cancels the context. Called with mu held.
func (a *attemptTimer) stop(cause error) {
	if a.over {
		return
	}
	a.over, a.why = true, cause
	if a.cancel != nil {
		a.cancel(cause)
	}
}

// abandon ends the attempt because nobody needs its response any more.
func (a *attemptTimer) abandon() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.stop(errOutrun)
}

// headers stops the timer, because there is a response or an error. It reports whether
// the timer has ended the attempt.
func (a *attemptTimer) headers() (fired bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.ended = true
	if a.timer != nil {
		a.timer.Stop()
	}
	return a.fired
}

// free frees the context.
func (a *attemptTimer) free() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.release()
}

// release is free with mu held.
func (a *attemptTimer) release() {
	if a.unlink != nil {
		a.unlink()
	}
	a.stop(nil)
}

// arm sets the timer for the next phase of the attempt. Called with mu held.
func (a *attemptTimer) arm() {
	d, cause := a.after, a.late
	if q := a.stall.quiet; q > 0 && (a.gap || d <= 0 || q < d) {
		d, cause = q, a.stall.silent
	}
	if d > 0 {
		a.cause = cause
		a.set(d)
	}
}

// set sets the timer. Called with mu held.
func (a *attemptTimer) set(d time.Duration) {
	if a.timer == nil {
		a.timer = time.AfterFunc(d, a.fire)
		return
	}
	a.due = time.Now().Add(d)
	a.timer.Reset(d)
}

// fire runs when the timer fires, and ends the attempt.
func (a *attemptTimer) fire() {
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
func (a *attemptTimer) pause(body *timedBody) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.upload, a.gap = body, false
	if !a.ended && a.timer != nil {
		a.timer.Stop()
	}
}

// sent starts the timer when the base transport has got a piece of the body and has to
// come back for the next piece. It is called only if the rule has a Stall.Timeout.
func (a *attemptTimer) sent(body *timedBody) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.upload == body && !a.ended {
		a.gap = true
		a.arm()
	}
}

// resume starts the timer again when the request's body has ended.
func (a *attemptTimer) resume(body *timedBody) {
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

// finish releases the context when the response's body has ended. Over HTTP/2 the base
// transport may still be sending the request's body. The context then lives until that
// body has ended.
func (a *attemptTimer) finish() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.read = true
	if a.upload == nil {
		a.release()
	}
}

// watch makes the timer see when the body of req begins and ends. It also watches the
// body of a resend by net/http itself.
//
// A small body in memory stays as it is, because sending it takes almost no time.
// net/http sends such a body together with the headers, and returns only when it no
// longer needs the body. For that it has to see the type of the body.
func (a *attemptTimer) watch(req *http.Request) {
	if req.Body == nil || req.Body == http.NoBody {
		return
	}
	small := replay.SmallInMemory(req.Body)
	if !small {
		req.Body = &timedBody{ReadCloser: req.Body, timer: a}
	}
	if getBody := req.GetBody; getBody != nil && !(small && replay.Independent(req)) {
		req.GetBody = func() (io.ReadCloser, error) {
			body, err := getBody()
			if err != nil || body == nil || body == http.NoBody || replay.SmallInMemory(body) {
				return body, err
			}
			return &timedBody{ReadCloser: body, timer: a}, nil
		}
	}
}

// A timedBody is a request's body that reports its Reads to the attempt's timer. Close
// may be called during a Read.
type timedBody struct {
	io.ReadCloser
	timer *attemptTimer
	begun bool // used by Read alone
}

func (b *timedBody) Read(p []byte) (int, error) {
	stall := b.timer.stall.quiet > 0
	if !b.begun || stall {
		b.begun = true
		b.timer.pause(b) // the server is not at fault for a slow reader of the caller
	}
	n, err := b.ReadCloser.Read(p)
	switch {
	case err != nil:
		b.timer.resume(b)
	case stall:
		b.timer.sent(b)
	}
	return n, err
}

func (b *timedBody) Close() error {
	b.timer.resume(b)
	return b.ReadCloser.Close()
}

// end stops the timer when there is a response or an error. It replaces the error by the
// timeout, or by the end of the caller's context, if one of them ended the attempt. The
// attempt's context is cancelled only when the response's body has ended.
func (o *outgoing) end(resp *http.Response, err error) (*http.Response, error) {
	a := &o.timer
	fired := a.headers()
	switch {
	case fired && resp != nil && resp.Body != nil: // the response came too late, and its body is already cut off
		_ = resp.Body.Close()
		fallthrough
	case fired:
		resp, err = nil, a.cause
		if a.parent.Err() != nil {
			err = contextErr(a.parent)
		}
		fallthrough
	case err != nil:
		a.free()
		if a.unlink != nil && a.parent.Err() != nil && !errors.Is(err, a.parent.Err()) {
			err = contextErr(a.parent) // the attempt's context did not inherit it
		}
	case resp.Body == nil || resp.Body == http.NoBody:
		a.finish()
	case resp.StatusCode == http.StatusSwitchingProtocols:
		if a.unlink != nil {
			a.unlink()
		}
	case handsOver(&o.req, resp):
		// A tunnel ends with the caller's context, as it does without aplomb. The
		// body of a tunnel that has no Write, as in net/http, can be wrapped.
		if _, writes := resp.Body.(io.Writer); !writes {
			resp.Body = o.body.of(resp.Body, a)
		}
	default:
		resp.Body = o.body.of(resp.Body, a)
		if a.stall.on() {
			o.body.watch()
		}
	}
	return resp, err
}
