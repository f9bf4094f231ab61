// How does a cut body send for its rest? As a request like any other.

package transport

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"time"

	"github.com/aplomb-go/aplomb/classify"
)

// resumeJitter bounds the wait before a reconnect after progress: a proxy that
// restarts cuts all its downloads in the same instant.
const resumeJitter = 100 * time.Millisecond

// reconnectTimeout bounds each send of a request for the rest up to the headers
// of its answer, if the rule has neither an AttemptTimeout nor a StallTimeout.
// Without resuming the reader would have its error by then, and must not wait for
// ever for a server that accepts and does not answer.
const reconnectTimeout = 30 * time.Second

// Reconnects after progress are spaced out while the parts are short. The time
// between two of them is firstGap after the first short part, doubles with each
// further one up to maxGap, and is nothing after a part of longPart bytes. A
// server that cuts after every 64 KiB thus sees 4 connections in 6 s, and one
// every 8 s after that, while downloads with a cut per MiB are not slowed down.
const (
	longPart = 1 << 20
	firstGap = time.Second
	maxGap   = 8 * time.Second
)

// spacing says when the next reconnect of a body may come.
type spacing struct {
	last time.Time     // when the last reconnect was sent; zero: there was none
	from int64         // the offset that it asked for
	gap  time.Duration // from one to the next
}

// turn returns how long a reconnect at an offset has to wait, counted from now. A
// part that took its time has waited already.
func (s *spacing) turn(now time.Time, offset int64) time.Duration {
	if s.last.IsZero() || offset-s.from >= longPart {
		s.gap = 0
		return 0
	}
	s.gap = min(max(2*s.gap, firstGap), maxGap)
	return max(s.gap-now.Sub(s.last), 0)
}

// resuming makes the answer's body resume, where the rule and the answer allow
// it. The rest of a body that resumes already is a part of that one.
func (x *exchange) resuming(resp *http.Response) *http.Response {
	if x.part || x.single() {
		return resp
	}
	return x.t.resuming(x.req, x.rule, x.series(), resp)
}

func (x *exchange) series() series {
	return series{sent: x.sent, prev: x.prev, start: x.start, notBefore: x.notBefore}
}

func (t *Transport) resuming(req *http.Request, r *resolved, s series, resp *http.Response) *http.Response {
	if r.rule.Resume.Max < 0 || r.rule.Attempts <= 1 {
		return resp
	}
	return resuming(t, download{req: req, rule: r, series: s}, resumeLimits{r.rule.Resume.Max}, resp)
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
		t:         t,
		req:       req,
		ctx:       req.Context(),
		state:     h,
		rule:      o.rule.reconnecting(),
		options:   optionsOf(req.Context()),
		part:      true,
		offset:    offset,
		sent:      o.series.sent,
		number:    o.series.sent,
		notBefore: o.series.notBefore,
	}
	defer x.obeyCancel()()
	defer func() { o.series = x.series() }()
	turn := o.spacing.turn(time.Now(), offset)
	var err error
	if progressed {
		err = x.asRequest(cut, turn)
	} else {
		h.ReleaseCount() // the budget counts no request for it
		x.prev, x.start = o.series.prev, o.series.start
		err = x.asRetry(cut)
	}
	if err != nil {
		if progressed {
			h.ReleaseCount() // a request that is not sent earns no retry
		}
		return nil, err
	}
	o.spacing.last, o.spacing.from = time.Now(), offset
	resp, err := x.run()
	if reason := HistoryOf(resp).Reason; reason != ReasonFinal {
		discard(x.ctx, resp)
		return nil, x.newError(reason, fmt.Errorf("transport: the answer has status %d", resp.StatusCode))
	}
	if err != nil && x.ctx.Err() != nil {
		err = x.newError(ReasonCanceled, contextErr(x.ctx)) // whatever the base made of it
	}
	return resp, err
}

// reconnecting returns the rule for the sends of a reconnect, which have a bound.
func (r *resolved) reconnecting() *resolved {
	if r.rule.AttemptTimeout > 0 || r.rule.Stall.Timeout > 0 {
		return r
	}
	bounded := *r
	bounded.rule.AttemptTimeout = reconnectTimeout
	return &bounded
}

// asRequest prepares a reconnect after progress: when its turn has come and a
// wait that a server asked for is over, plus the jitter.
func (x *exchange) asRequest(cut error, turn time.Duration) error {
	d := decision{
		Attempt: Attempt{Number: x.sent, Err: cut, Verdict: x.classify(nil, cut), Time: time.Now()},
		u:       rand.Float64(),
	}
	f := facts{
		verdict: classify.Refused, replayable: true, attempts: 2, // a request of its own may be sent
		backoff:       turn,
		hint:          x.notBefore.Sub(d.Time),
		hinted:        true,
		maxRetryAfter: x.rule.rule.RetryAfter.Max,
		excess:        x.rule.rule.RetryAfter.Beyond,
		u:             d.u,
	}
	most := resumeJitter
	if until, ok := x.ctx.Deadline(); ok {
		f.room, f.deadline = until.Sub(d.Time), true
	}
	d.Hint = max(f.hint, 0)
	if d.reason, d.Wait = decide(f); d.reason != ReasonRetry {
		x.observe(nil, &d)
		return x.newError(d.reason, nil)
	}
	if f.deadline {
		most = min(most, (f.room-d.Wait)/2)
	}
	d.reason = ReasonResume
	d.Wait += time.Duration(rand.Float64() * float64(max(most, 0)))
	x.tell(nil, &d)
	x.sent = 0
	return x.pause(&d)
}

// asRetry prepares a reconnect without progress: the cut is the outcome of the
// last send, and what is done about it is decided as for any outcome.
func (x *exchange) asRetry(cut error) error {
	d := x.judge(nil, cut, x.classify(nil, cut))
	if d.reason != ReasonRetry {
		x.observe(nil, &d)
		return x.newError(d.reason, nil)
	}
	d.reason, x.retried = ReasonResume, true
	x.observe(nil, &d)
	return x.pause(&d)
}

// pause waits for as long as was decided.
func (x *exchange) pause(d *decision) error {
	if err := x.sleep(time.Until(d.Time.Add(d.Wait))); err != nil {
		return x.refuse(ReasonCanceled, err)
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
		e.Reason = ReasonCanceled
	case e.Cause == errResumes:
		e.Reason = ReasonResumeMax
	default:
		e.Reason = ReasonMismatch
	}
	h := t.hosts.Acquire(o.req.URL)
	defer h.Release()
	h.ReleaseCount()
	x := exchange{t: t, req: o.req, ctx: o.req.Context(), state: h, rule: o.rule, options: optionsOf(o.req.Context()), offset: e.Offset}
	x.tell(nil, &decision{
		Attempt: Attempt{Number: o.series.sent, Err: e, Time: time.Now()},
		reason:  e.Reason,
	})
}
