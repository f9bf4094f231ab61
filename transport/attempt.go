// An attempt and its timeout.

package transport

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/aplomb-go/aplomb/internal/replay"
	"github.com/aplomb-go/aplomb/policy"
)

// An attempt is a send of the request by the base transport. It has everything that it
// needs, so that it can run beside another attempt.
type attempt struct {
	base   http.RoundTripper
	rule   *policy.Rule
	req    *http.Request // the caller's
	ctx    context.Context
	number int                           // counts the attempts of the call from 1
	body   io.ReadCloser                 // nil: the caller's own, as it is
	inner  func() (io.ReadCloser, error) // the base transport's GetBody; nil: the caller's own
	slot   slot
	mark   uint64 // from the pacing, 0 without pacing
	inside bool   // the caller's context belongs to an attempt of another Transport
	beside bool   // runs beside another attempt, and may outlive the call
}

// send makes the next attempt.
func (x *exchange) send() (*http.Response, error) {
	if x.rule.hedge && x.hedgeable() {
		return x.race()
	}
	a := x.attempt()
	return a.send()
}

// attempt prepares the next attempt.
func (x *exchange) attempt() attempt {
	x.sent++
	x.number = x.sent
	if x.sent == 1 && x.rule.rule.MaxElapsed > 0 {
		x.start = time.Now()
	}
	a := attempt{
		base: x.t.base, rule: &x.rule.rule, req: x.req, ctx: x.req.Context(), number: x.sent,
		inside: x.options != nil && x.options.attempt > 0,
	}
	if x.body != nil {
		a.body, a.inner = x.nextBody()
	}
	a.slot, a.mark = x.limits.going(), x.limits.mark
	return a
}

// send sends the caller's own request, untouched, if this is the first attempt,
// its body is not lent, and the attempt is not timed.
func (a *attempt) send() (resp *http.Response, err error) {
	if a.number == 1 && a.body == nil && !timed(a.rule) && !a.inside {
		defer func() { a.slot.landed(a.ctx, a.req, resp, err) }() // also if the base transport panics
		return checkResponse(a.base.RoundTrip(a.req))
	}
	return a.sendCopy(a.prepare())
}

// prepare makes the copy that is sent. It also makes a timer, if the attempt is
// timed or runs beside another attempt. If prepare panics, it releases the slot,
// which has no other owner.
func (a *attempt) prepare() (req *http.Request, timer *attemptTimer) {
	defer func() {
		if req == nil {
			a.slot.release()
		}
	}()
	ctx := a.ctx
	if a.beside || timed(a.rule) {
		ctx, timer = startAttempt(ctx, a.rule, upgrades(a.req))
	}
	return a.copy(ctx), timer
}

// sendCopy sends a copy of the request.
func (a *attempt) sendCopy(req *http.Request, timer *attemptTimer) (resp *http.Response, err error) {
	defer func() { // also if the base transport panics
		if resp == nil && err == nil && a.body != nil {
			_ = a.body.Close()
		}
		a.slot.landed(a.ctx, req, resp, err)
	}()
	timer.watch(req)
	resp, err = checkResponse(a.base.RoundTrip(req))
	if resp != nil && resp.Request == req {
		resp.Request = a.req // as a plain transport would
	}
	return timer.end(a.ctx, req, resp, err)
}

// copy returns a copy of the request with a context and a body of its own. A retry
// also has a header of its own: the previous attempt may still be writing the old
// header while the base transport changes the new one. An attempt beside another
// may still run when the caller has its response and changes the request. So it
// shares nothing with the caller's request.
func (a *attempt) copy(ctx context.Context) *http.Request {
	if a.number > 1 || a.inside {
		ctx = withAttempt(ctx, a.number)
	}
	var req *http.Request
	if a.beside {
		req = a.req.Clone(ctx)
	} else {
		req = a.req.WithContext(ctx)
	}
	if a.body != nil {
		req.Body = a.body
	}
	if a.inner != nil {
		req.GetBody = a.inner
	}
	if a.number == 1 {
		return req
	}
	if !a.beside {
		req.Header = a.req.Header.Clone()
	}
	if name := a.rule.AttemptHeader; name != "" && name != "off" {
		req.Header.Set(name, strconv.Itoa(a.number-1))
	}
	return req
}

// checkResponse returns an error if the base transport broke its contract and returned
// both a response and an error, or neither.
func checkResponse(resp *http.Response, err error) (*http.Response, error) {
	switch {
	case err != nil && resp != nil:
		if resp.Body != nil {
			_ = resp.Body.Close()
		}
		return nil, err
	case err == nil && resp == nil:
		return nil, errors.New("transport: the base transport returned neither a response nor an error")
	}
	return resp, err
}

// upgrades reports whether the response to a request may hand its connection over to the
// caller.
func upgrades(req *http.Request) bool {
	return req.Method == http.MethodConnect || req.Header.Get("Upgrade") != ""
}

// stallLimitsOf returns the limits of a rule for stalls.
func stallLimitsOf(r *policy.Rule) stallLimits {
	return stallLimits{quiet: r.Stall.Timeout, rate: r.Stall.MinBytesPerSecond}
}

// timed reports whether attempts need a context of their own.
func timed(r *policy.Rule) bool { return r.AttemptTimeout > 0 || stallLimitsOf(r).on() }

// An attemptTimer bounds the time from the start of an attempt to the first Read of the
// request's body, and the time from the end of that body to the headers of the response.
// If the rule has a Stall.Timeout, it also bounds the time between two Reads of the body.
// It does not see the Reads of a small body in memory, and its time runs on during them.
// A nil timer does nothing.
type attemptTimer struct {
	after  time.Duration // not positive: off
	stall  stallLimits
	cancel context.CancelCauseFunc
	unlink func() bool // not nil: the context is linked to the caller's by AfterFunc, not derived from it

	mu      sync.Mutex // guards the fields below
	timer   *time.Timer
	due     time.Time
	cause   error      // the error that fire reports
	sending *timedBody // the request's body that is being sent
	between bool       // between two Reads of that body, when stalls count
	ended   bool       // there was a response or an error
	over    bool       // the response's body has ended
	fired   bool
}

// startAttempt returns a context for the attempt, and the timer that bounds it. A derived
// context must be cancelled at some time, because its parent keeps it until then. But the
// context must not be cancelled if its connection goes over to the caller (101, CONNECT).
// So the context of a request that may upgrade is detached from its parent. AfterFunc
// links the two until the response.
func startAttempt(parent context.Context, r *policy.Rule, detached bool) (context.Context, *attemptTimer) {
	a := &attemptTimer{after: r.AttemptTimeout, stall: stallLimitsOf(r)}
	from := parent
	if detached {
		from = context.WithoutCancel(parent)
	}
	ctx, cancel := context.WithCancelCause(from)
	a.cancel = cancel
	if detached {
		a.unlink = context.AfterFunc(parent, func() { cancel(context.Cause(parent)) })
	}
	a.mu.Lock()
	a.arm()
	a.mu.Unlock()
	return ctx, a
}

// arm sets the timer for the next phase of the attempt. Called with mu held.
func (a *attemptTimer) arm() {
	d, cause := a.after, error(&attemptTimeout{after: a.after})
	if q := a.stall.quiet; q > 0 && (a.between || d <= 0 || q < d) {
		d, cause = q, &stallError{after: q}
	}
	if d <= 0 {
		return
	}
	a.due, a.cause = time.Now().Add(d), cause
	if a.timer == nil {
		a.timer = time.AfterFunc(d, a.fire)
	} else {
		a.timer.Reset(d)
	}
}

// abandon ends the attempt because nobody needs its response any more.
func (a *attemptTimer) abandon() { a.cancel(errOutrun) }

// fire runs when the timer fires, and ends the attempt.
func (a *attemptTimer) fire() {
	a.mu.Lock()
	defer a.mu.Unlock()
	// The timer may have been reset while this call waited for the lock.
	if a.ended || a.sending != nil && !a.between || time.Until(a.due) > 0 {
		return
	}
	a.fired = true
	a.cancel(a.cause)
}

// pause stops the timer while the base transport reads the request's body. If net/http
// resends the request by itself, it reads a second body. Only that body counts from then
// on.
func (a *attemptTimer) pause(body *timedBody) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.sending, a.between = body, false
	if !a.ended && a.timer != nil {
		a.timer.Stop()
	}
}

// sent starts the timer when the base transport has got a piece of the body and has to
// come back for the next piece. It is called only if the rule has a Stall.Timeout.
func (a *attemptTimer) sent(body *timedBody) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.sending == body && !a.ended {
		a.between = true
		a.arm()
	}
}

// resume starts the timer again when the request's body has ended.
func (a *attemptTimer) resume(body *timedBody) {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case a.sending != body:
		return
	case a.over:
		a.release()
	case !a.ended:
		a.between = false
		a.arm()
	}
	a.sending = nil
}

// finish releases the context when the response's body has ended. Over HTTP/2 the base
// transport may still be sending the request's body. The context then lives until that
// body has ended.
func (a *attemptTimer) finish() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.over = true
	if a.sending == nil {
		a.release()
	}
}

// watch makes the timer see when the body of req begins and ends. It also watches the
// body of a resend by net/http itself.
func (a *attemptTimer) watch(req *http.Request) {
	if a == nil || req.Body == nil || req.Body == http.NoBody {
		return
	}
	req.Body = a.watched(req.Body)
	if getBody := req.GetBody; getBody != nil {
		req.GetBody = func() (io.ReadCloser, error) {
			body, err := getBody()
			if err != nil || body == nil || body == http.NoBody {
				return body, err
			}
			return a.watched(body), nil
		}
	}
}

// watched returns a body that reports its Reads to the timer. A small body in memory
// stays as it is, because sending it takes almost no time. net/http sends such a body
// together with the headers, and returns only when it no longer needs the body. For that
// it has to see the type of the body.
func (a *attemptTimer) watched(body io.ReadCloser) io.ReadCloser {
	if replay.SmallInMemory(body) {
		return body
	}
	return &timedBody{ReadCloser: body, timer: a}
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
func (a *attemptTimer) end(caller context.Context, req *http.Request, resp *http.Response, err error) (*http.Response, error) {
	if a == nil {
		return resp, err
	}
	a.mu.Lock()
	a.ended = true
	if a.timer != nil {
		a.timer.Stop()
	}
	fired, cause := a.fired, a.cause
	a.mu.Unlock()
	switch {
	case fired && resp != nil && resp.Body != nil: // the response came too late, and its body is already cut off
		_ = resp.Body.Close()
		fallthrough
	case fired:
		resp, err = nil, cause
		if caller.Err() != nil {
			err = contextErr(caller)
		}
		fallthrough
	case err != nil:
		a.release()
		if a.unlink != nil && caller.Err() != nil && !errors.Is(err, caller.Err()) {
			err = contextErr(caller) // the attempt's context did not inherit it
		}
	case resp.Body == nil || resp.Body == http.NoBody:
		a.finish()
	case resp.StatusCode == http.StatusSwitchingProtocols:
		if a.unlink != nil {
			a.unlink()
		}
	case handsOver(req, resp):
		// A tunnel ends with the caller's context, as it does without aplomb. The
		// body of a tunnel that has no Write, as in net/http, can be wrapped.
		if _, writes := resp.Body.(io.Writer); !writes {
			resp.Body = &attemptBody{ReadCloser: resp.Body, timer: a}
		}
	default:
		resp.Body = &attemptBody{ReadCloser: resp.Body, timer: a}
		if a.stall.on() {
			resp.Body = watched(resp.Body, a.stall, caller, a.cancel)
		}
	}
	return resp, err
}

// release frees the attempt's context.
func (a *attemptTimer) release() {
	if a.unlink != nil {
		a.unlink()
	}
	a.cancel(nil)
}

// handsOver reports whether the response's body is the connection itself. The caller then
// owns the connection, and the body keeps its io.Writer.
func handsOver(req *http.Request, resp *http.Response) bool {
	return resp.StatusCode == http.StatusSwitchingProtocols ||
		req.Method == http.MethodConnect && resp.StatusCode/100 == 2
}

// An attemptBody frees the attempt's context when the response's body has ended or is
// closed.
type attemptBody struct {
	io.ReadCloser
	timer *attemptTimer
}

func (b *attemptBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil {
		b.timer.finish()
	}
	return n, err
}

func (b *attemptBody) Close() error {
	err := b.ReadCloser.Close()
	b.timer.release()
	return err
}
