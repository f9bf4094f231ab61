// How does a cut body send for its rest? As a request like any other.

package transport

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"time"

	"github.com/aplomb-go/aplomb/classify"
	"github.com/aplomb-go/aplomb/internal/resume"
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

// A download is a response's body that resumes, and the exchange that it came
// from. It is the Sender of that body.
type download struct {
	body    resume.Body
	t       *Transport
	req     *http.Request // the caller's, who leaves it alone until the body is closed
	rule    *resolved
	series  series
	spacing spacing
}

// A series is a row of sends since the last progress: what an ordinary retry
// continues.
type series struct {
	sent      int           // sends so far
	prev      time.Duration // the last back-off value
	start     time.Time     // zero: not read
	notBefore time.Time     // what an answer that lost a race asked for
}

// resuming makes the answer's body resume, where the rule and the answer allow
// it. The rest of a body that resumes already is a part of that one.
func (x *exchange) resuming(resp *http.Response) *http.Response {
	if x.segment || x.single() {
		return resp
	}
	return x.t.resuming(x.req, x.rule, x.series(), resp)
}

func (x *exchange) series() series {
	return series{sent: x.sent, prev: x.prev, start: x.start, notBefore: x.notBefore}
}

// resuming allocates once if the body can be resumed, and else not at all.
func (t *Transport) resuming(req *http.Request, r *resolved, s series, resp *http.Response) *http.Response {
	if r.rule.Resume.Max < 0 || r.rule.Attempts <= 1 {
		return resp
	}
	plan, ok := resume.Check(req, resp)
	if !ok {
		return resp
	}
	d := &download{t: t, req: req, rule: r, series: s}
	d.body.Wrap(d, req, resp, plan, r.rule.Resume.Max)
	return resp
}

// Lost reports whether a Read failed such that a GET is worth sending again.
func (d *download) Lost(err error) bool {
	var x exchange
	defer x.begin(call{t: d.t, req: d.req, ctx: d.req.Context(), rule: d.rule, options: optionsOf(d.req.Context())})()
	return x.ctx.Err() == nil && retryable(x.classify(nil, err)) && !nested(x.req, nil, err) && x.idempotent()
}

// Discard gives up an answer to a reconnect that is not the rest.
func (d *download) Discard(ctx context.Context, resp *http.Response) { discard(ctx, resp) }

// Altered returns the error for a body that is not as announced.
func (d *download) Altered(field, want, got string) error {
	return &IntegrityError{Field: field, Want: want, Got: got}
}

// Reconnect sends the request for the rest through the loop. After progress it
// counts as a request: the series is new, and the first send comes at once but
// for a little jitter, unless short parts have to be spaced out or a hedge was
// told to wait. Otherwise it is a retry: cut is the outcome of the last send of
// the series, and rules, back-off and budget decide.
func (d *download) Reconnect(req *http.Request, offset int64, cut error, progressed bool) (*http.Response, error) {
	t := d.t
	h := t.hosts.Acquire(req.URL)
	defer h.Release()
	x := exchange{segment: true, sent: d.series.sent, number: d.series.sent, notBefore: d.series.notBefore}
	defer x.begin(call{t: t, req: req, ctx: req.Context(), state: h, rule: d.rule.reconnecting(), options: optionsOf(req.Context())})()
	x.report.offset = offset
	defer func() { d.series = x.series() }()
	turn := d.spacing.turn(time.Now(), offset)
	var err error
	if progressed {
		err = x.asRequest(cut, turn)
	} else {
		h.ReleaseCount() // the budget counts no request for it
		x.prev, x.start = d.series.prev, d.series.start
		err = x.asRetry(cut)
	}
	if err != nil {
		if progressed {
			h.ReleaseCount() // a request that is not sent earns no retry
		}
		return nil, err
	}
	d.spacing.last, d.spacing.from = time.Now(), offset
	resp, err := x.run()
	if reason := HistoryOf(resp).Reason; reason != ReasonFinal {
		discard(x.ctx, resp)
		return nil, x.report.newError(reason, fmt.Errorf("transport: the answer has status %d", resp.StatusCode))
	}
	if err != nil && x.ctx.Err() != nil {
		err = x.report.newError(ReasonCanceled, contextErr(x.ctx)) // whatever the base made of it
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
		sent:    x.sent,
		u:       rand.Float64(),
	}
	f := facts{
		verdict: classify.Refused, replayable: true, attempts: 2, // a request of its own may be sent
		backoff:       turn,
		hint:          x.notBefore.Sub(d.Time),
		hinted:        true,
		maxRetryAfter: x.rule.rule.RetryAfter.Max,
		beyond:        x.rule.rule.RetryAfter.Beyond,
		u:             d.u,
	}
	most := resumeJitter
	if until, ok := x.ctx.Deadline(); ok {
		f.room, f.deadline = until.Sub(d.Time), true
	}
	d.Hint = max(f.hint, 0)
	if d.reason, d.Wait = decide(f); d.reason != ReasonRetry {
		x.report.record(nil, &d)
		return x.report.newError(d.reason, nil)
	}
	if f.deadline {
		most = min(most, (f.room-d.Wait)/2)
	}
	d.reason = ReasonResume
	d.Wait += time.Duration(rand.Float64() * float64(max(most, 0)))
	x.report.tell(nil, &d)
	x.sent = 0
	return x.pauseOr(&d)
}

// asRetry prepares a reconnect without progress: the cut is the outcome of the
// last send, and what is done about it is decided as for any outcome.
func (x *exchange) asRetry(cut error) error {
	d := x.judge(nil, cut, x.classify(nil, cut))
	if d.reason != ReasonRetry {
		x.report.record(nil, &d)
		return x.report.newError(d.reason, nil)
	}
	d.reason, x.retried = ReasonResume, true
	x.report.record(nil, &d)
	return x.pauseOr(&d)
}

// pauseOr sleeps as long as was decided, and returns why it ended early.
func (x *exchange) pauseOr(d *decision) error {
	if err := x.sleep(time.Until(d.Time.Add(d.Wait))); err != nil {
		return x.refuse(&refusal{reason: ReasonCanceled, err: err})
	}
	return nil
}

// Stopped tells that a body could not be resumed, unless the loop has told
// already. If it was the server, and neither a limit nor the caller, that kept
// the body from ever being continued, the error is that of the cut.
func (d *download) Stopped(offset int64, cut, cause error, continued bool) error {
	e := &ResumeError{Offset: offset, Err: cut, Cause: cause, url: d.req.URL.String()}
	if last, ok := errors.AsType[*Error](cause); ok {
		e.Reason = last.Reason
	} else {
		d.tellStopped(e)
	}
	if !continued && e.hopeless() {
		return cut
	}
	return e
}

// tellStopped sets the Reason of e and tells it.
func (d *download) tellStopped(e *ResumeError) {
	switch {
	case d.req.Context().Err() != nil:
		e.Reason = ReasonCanceled
	case e.Cause == resume.ErrLimit:
		e.Reason = ReasonResumeMax
	default:
		e.Reason = ReasonMismatch
	}
	h := d.t.hosts.Acquire(d.req.URL)
	defer h.Release()
	h.ReleaseCount()
	c := call{t: d.t, req: d.req, ctx: d.req.Context(), state: h, rule: d.rule, options: optionsOf(d.req.Context())}
	(&report{call: &c, offset: e.Offset}).tell(nil, &decision{
		Attempt: Attempt{Number: d.series.sent, Err: e, Time: time.Now()},
		reason:  e.Reason,
	})
}
