// How does a cut body send for its rest? As a request like any other.

package transport

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"time"
)

// resumeJitter bounds the wait before a reconnect after progress: a proxy that
// restarts cuts all its downloads in the same instant.
const resumeJitter = 100 * time.Millisecond

// resuming makes the answer's body resume, where the rule and the answer allow
// it. The rest of a body that resumes already is a part of that one.
func (x *exchange) resuming(resp *http.Response) *http.Response {
	if x.part || x.single() {
		return resp
	}
	return x.t.resuming(x.req, x.rule, series{x.sent, x.prev, x.start}, resp)
}

func (t *Transport) resuming(req *http.Request, r *resolved, s series, resp *http.Response) *http.Response {
	if r.rule.Resumes < 0 || r.rule.Attempts <= 1 {
		return resp
	}
	return resuming(t, download{req, r, s}, resumeLimits{r.rule.Resumes, r.rule.ResumeSkip}, resp)
}

// lost reports whether a Read failed such that a GET is worth sending again.
func (t *Transport) lost(o *download, err error) bool {
	x := exchange{t: t, req: o.req, ctx: o.req.Context(), rule: o.rule, options: optionsOf(o.req.Context())}
	return x.ctx.Err() == nil && retryable(x.classify(nil, err)) && !nested(x.req, nil, err) && x.idempotent()
}

// again sends the request for the rest through the loop.
func (t *Transport) again(o *download, req *http.Request, offset int64, cut error, progressed bool) (*http.Response, error) {
	h := t.hosts.Acquire(req.URL)
	defer h.Release()
	x := exchange{
		t:       t,
		req:     req,
		ctx:     req.Context(),
		state:   h,
		rule:    o.rule,
		options: optionsOf(req.Context()),
		part:    true,
		offset:  offset,
		sent:    o.series.sent,
		number:  o.series.sent,
	}
	defer func() { o.series = series{x.sent, x.prev, x.start} }()
	var err error
	if progressed {
		err = x.asRequest(cut)
	} else {
		h.Uncount() // the budget counts no request for it
		x.prev, x.start = o.series.prev, o.series.start
		err = x.asRetry(cut)
	}
	if err != nil {
		return nil, err
	}
	resp, err := x.run()
	if reason, _, gaveUp := GaveUp(resp); gaveUp {
		discard(x.ctx, resp)
		return nil, x.newError(reason, fmt.Errorf("transport: the answer has status %d", resp.StatusCode))
	}
	if err != nil && x.ctx.Err() != nil {
		err = x.newError(Canceled, contextErr(x.ctx)) // whatever the base made of it
	}
	return resp, err
}

// asRequest prepares a reconnect after progress: at once but for the jitter.
func (x *exchange) asRequest(cut error) error {
	d := decision{Attempt: Attempt{Number: x.sent, Err: cut, Verdict: x.classify(nil, cut), Time: time.Now()}, reason: Resume}
	most := resumeJitter
	if until, ok := x.ctx.Deadline(); ok {
		most = min(most, until.Sub(d.Time)/2)
	}
	d.Wait = time.Duration(rand.Float64() * float64(max(most, 0)))
	x.tell(nil, &d)
	x.sent = 0
	return x.pause(&d)
}

// asRetry prepares a reconnect without progress: the cut is the outcome of the
// last send, and what is done about it is decided as for any outcome.
func (x *exchange) asRetry(cut error) error {
	d := x.judge(nil, cut, x.classify(nil, cut))
	if d.reason != Retry {
		x.observe(nil, &d)
		return x.newError(d.reason, nil)
	}
	d.reason = Resume
	x.observe(nil, &d)
	return x.pause(&d)
}

// pause waits for as long as was decided.
func (x *exchange) pause(d *decision) error {
	if err := x.sleep(time.Until(d.Time.Add(d.Wait))); err != nil {
		return x.refuse(Canceled, err)
	}
	return nil
}

// stopped tells that a body could not be resumed, unless the loop has told
// already, and sets the Reason.
func (t *Transport) stopped(o *download, e *ResumeError) {
	e.url = o.req.URL.String()
	if last, ok := errors.AsType[*Error](e.Cause); ok {
		e.Reason = last.Reason
		return
	}
	switch {
	case o.req.Context().Err() != nil:
		e.Reason = Canceled
	case e.Cause == errResumes:
		e.Reason = Resumes
	default:
		e.Reason = Mismatch
	}
	h := t.hosts.Acquire(o.req.URL)
	defer h.Release()
	h.Uncount()
	x := exchange{t: t, req: o.req, ctx: o.req.Context(), state: h, rule: o.rule, options: optionsOf(o.req.Context()), offset: e.Offset}
	x.tell(nil, &decision{
		Attempt: Attempt{Number: o.series.sent, Err: e, Time: time.Now()},
		reason:  e.Reason,
	})
}
