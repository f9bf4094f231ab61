// One attempt: the caller's own request the first time, a copy of it later.

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

// An attempt has everything that one send of the request needs, so that it can run
// beside another attempt.
type attempt struct {
	base   http.RoundTripper
	rule   *policy.Rule
	req    *http.Request // the caller's
	ctx    context.Context
	number int                           // counts the attempts of the call from 1
	body   io.ReadCloser                 // nil: the caller's own, as it is
	inner  func() (io.ReadCloser, error) // the base transport's GetBody; nil: the caller's own
	slot   *slot                         // nil: no gate
	mark   uint64                        // from the pacing, 0 without pacing
	inside bool                          // the caller's context belongs to an attempt of another Transport
	beside bool                          // runs beside another attempt, and may outlive the call
}

// send makes the next attempt.
func (x *exchange) send() (*http.Response, error) {
	if x.rule.hedge && x.hedgeable() {
		return x.race()
	}
	a := x.attempt(x.body.Next())
	return a.send()
}

// attempt prepares the next attempt. body comes from x.body.
func (x *exchange) attempt(body io.ReadCloser) attempt {
	x.sent++
	x.number = x.sent
	x.limits.going()
	if x.sent == 1 && x.rule.rule.MaxElapsed > 0 {
		x.start = time.Now()
	}
	return attempt{
		base: x.t.base, rule: &x.rule.rule, req: x.req, ctx: x.req.Context(),
		number: x.sent, body: body, inner: x.getBody(),
		slot: x.limits.takeSlot(), mark: x.limits.mark,
		inside: x.options != nil && x.options.attempt > 0,
	}
}

// send sends the caller's own request, untouched, if this is the first attempt,
// its body is not lent, and the attempt is not timed.
func (a *attempt) send() (resp *http.Response, err error) {
	if a.number == 1 && a.body == nil && !timed(a.rule) && !a.inside {
		defer func() { a.slot.landed(a.ctx, a.req, resp, err) }() // also if the base transport panics
		return checkAnswer(a.base.RoundTrip(a.req))
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
	resp, err = checkAnswer(a.base.RoundTrip(req))
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

// checkAnswer turns what a base transport must not return into an error: a
// response and an error, or neither.
func checkAnswer(resp *http.Response, err error) (*http.Response, error) {
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

// upgrades reports whether the answer to a request may hand its connection
// over to the caller.
func upgrades(req *http.Request) bool {
	return req.Method == http.MethodConnect || req.Header.Get("Upgrade") != ""
}

func stallLimitsOf(r *policy.Rule) stallLimits {
	return stallLimits{quiet: r.Stall.Timeout, rate: r.Stall.MinBytesPerSecond}
}

// timed reports whether attempts need a context of their own.
func timed(r *policy.Rule) bool { return r.AttemptTimeout > 0 || stallLimitsOf(r).on() }

// An attemptTimer bounds an attempt from its start to the first read of the
// request's body and from the body's end to the response's headers; for stalls
// also the time between two Reads of the body. It does not see the reads of a
// small body in memory and runs on meanwhile. A nil timer does nothing.
type attemptTimer struct {
	after  time.Duration // not positive: off
	stall  stallLimits
	cancel context.CancelCauseFunc
	unlink func() bool // not nil: the attempt does not inherit the caller's end, but is told

	mu      sync.Mutex // guards all below
	timer   *time.Timer
	due     time.Time
	cause   error      // what fire says
	sending *timedBody // the request's body that is being sent
	between bool       // between two Reads of it, where stalls count
	ended   bool       // there was an answer or an error
	over    bool       // the answer's body has ended
	fired   bool
}

// startAttempt returns the attempt's context; without a timeout in the rule it is
// only a context of its own. A context made by WithCancel must be cancelled, or its parent keeps it; one whose connection goes over to
// the caller (101, CONNECT) must not be. So for requests that ask for that, it
// is made apart from its parent and linked to it, until the answer.
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

// arm sets the timer for what comes next. Called with mu held.
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

// abandon ends the attempt because nobody needs its answer any more.
func (a *attemptTimer) abandon() { a.cancel(errOutrun) }

func (a *attemptTimer) fire() {
	a.mu.Lock()
	defer a.mu.Unlock()
	// The timer may have been set anew while this call waited for the lock.
	if a.ended || a.sending != nil && !a.between || time.Until(a.due) > 0 {
		return
	}
	a.fired = true
	a.cancel(a.cause)
}

// pause is told that the request's body is being sent. When net/http sends again
// by itself there is a second one, which counts from then on.
func (a *attemptTimer) pause(body *timedBody) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.sending, a.between = body, false
	if !a.ended && a.timer != nil {
		a.timer.Stop()
	}
}

// sent is told, where stalls count, that the base transport has a piece of the
// body and is to come back for the next one.
func (a *attemptTimer) sent(body *timedBody) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.sending == body && !a.ended {
		a.between = true
		a.arm()
	}
}

// resume is told that the request's body has ended.
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

// finish is told that the answer's body has ended. Over HTTP/2 the request's
// body may still be on its way, which goes on as it would without us.
func (a *attemptTimer) finish() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.over = true
	if a.sending == nil {
		a.release()
	}
}

// watch makes the timer see when req's body begins and ends, also that of a
// resend by net/http itself.
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

// watched returns a body that tells the timer of its reads. A small body in
// memory stays as it is: sending it takes next to no time, and net/http has to
// see its type to send it together with the headers and to be done with it
// before it returns.
func (a *attemptTimer) watched(body io.ReadCloser) io.ReadCloser {
	if replay.SmallInMemory(body) {
		return body
	}
	return &timedBody{ReadCloser: body, timer: a}
}

// timedBody is a request's body that tells the attempt's timer of its sending.
// Close may come during a Read.
type timedBody struct {
	io.ReadCloser
	timer *attemptTimer
	begun bool // used by Read alone
}

func (b *timedBody) Read(p []byte) (int, error) {
	stall := b.timer.stall.quiet > 0
	if !b.begun || stall {
		b.begun = true
		b.timer.pause(b) // what the caller's reader takes is not the server's fault
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

// end stops the timer at the answer or error, and tells a timeout from what
// the caller's context did. The context is cancelled when the answer's body
// has ended, and not before.
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
	case fired && resp != nil && resp.Body != nil: // it came too late: its body is cut off
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
		// A tunnel ends with the caller's context, as it does without us. One
		// that cannot be written to, as net/http's, can be wrapped.
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

func (a *attemptTimer) release() {
	if a.unlink != nil {
		a.unlink()
	}
	a.cancel(nil)
}

// handsOver reports whether the response's body is the connection itself,
// which is the caller's from here on and keeps its io.Writer.
func handsOver(req *http.Request, resp *http.Response) bool {
	return resp.StatusCode == http.StatusSwitchingProtocols ||
		req.Method == http.MethodConnect && resp.StatusCode/100 == 2
}

// attemptBody frees the attempt's context when the answer's body is done with.
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
