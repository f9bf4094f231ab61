// The request for the rest of a cut body, which goes through the loop.

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

// resumeJitter bounds the wait before a reconnect after progress. Without the jitter,
// all clients of a proxy that restarts would reconnect at the same instant.
const resumeJitter = 100 * time.Millisecond

// reconnectTimeout bounds each attempt of a request for the rest, up to the headers
// of the response, if the rule has neither AttemptTimeout nor Stall.Timeout. Without
// resuming the reader would already have its error. So the reader must not wait
// forever for a server that accepts connections and does not respond.
const reconnectTimeout = 30 * time.Second

// Reconnects after progress are spaced out while the segments are short. The time
// between two reconnects is firstGap after the first short segment. It doubles with
// each further short segment, up to maxGap. After a segment of longSegment bytes there
// is no gap. So a server that cuts after every 64 KiB sees 4 connections in 6 s, and
// then a connection every 8 s. A body with a cut per MiB is not slowed down.
const (
	longSegment = 1 << 20
	firstGap    = time.Second
	maxGap      = 8 * time.Second
)

// spacing says when the next reconnect of a body may come.
type spacing struct {
	last time.Time     // when the last reconnect was sent; zero: never
	from int64         // the offset that it asked for
	gap  time.Duration // from a reconnect to the next
}

// turn returns how long a reconnect at an offset has to wait from now. The time that
// the last segment took counts as part of the wait.
func (s *spacing) turn(now time.Time, offset int64) time.Duration {
	if s.last.IsZero() || offset-s.from >= longSegment {
		s.gap = 0
		return 0
	}
	s.gap = min(max(2*s.gap, firstGap), maxGap)
	return max(s.gap-now.Sub(s.last), 0)
}

// A download is a response's body that resumes. It keeps the parts of the exchange
// that a reconnect needs, and is the Sender of the body.
type download struct {
	body    resume.Body
	t       *Transport
	req     *http.Request // the caller's; the caller leaves it alone until the body is closed
	rule    *resolved
	series  series
	spacing spacing
}

// A series is the attempts since the last progress. A reconnect without progress
// continues the series as a retry.
type series struct {
	sent      int           // attempts so far
	prev      time.Duration // the last back-off value
	start     time.Time     // of the first attempt; zero: unknown
	notBefore time.Time     // asked for by the response of an attempt that lost a race
}

// resuming makes the response's body resume if the rule and the response allow it. A
// response to a reconnect stays as it is, because its body is a segment of a body that
// already resumes.
func (x *exchange) resuming(resp *http.Response) *http.Response {
	if x.segment || x.single() {
		return resp
	}
	return x.t.resuming(x.req, x.rule, x.series(), resp)
}

// series returns the series that the exchange has made so far.
func (x *exchange) series() series {
	return series{sent: x.sent, prev: x.prev, start: x.start, notBefore: x.notBefore}
}

// resuming allocates once if the body can be resumed. Otherwise it does not allocate.
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

// Lost reports whether an error of a Read makes a retry of a GET worthwhile.
func (d *download) Lost(err error) bool {
	var x exchange
	defer x.begin(call{t: d.t, req: d.req, ctx: d.req.Context(), rule: d.rule, options: optionsOf(d.req.Context())})()
	return x.ctx.Err() == nil && retryable(x.classify(nil, err)) && !nested(x.req, nil, err) && x.idempotent()
}

// Discard gives up a response to a reconnect that is not the rest.
func (d *download) Discard(ctx context.Context, resp *http.Response) { discard(ctx, resp) }

// Altered returns the error of a body that is not as the server announced it.
func (d *download) Altered(field, want, got string) error {
	return &IntegrityError{Field: field, Want: want, Got: got}
}

// Reconnect sends the request for the rest through the loop. After progress the
// reconnect counts as a request of its own and begins a new series. Its first attempt
// follows after a little jitter. It waits longer if short segments have to be spaced
// out or if a hedge was told to wait. Without progress the reconnect is a retry. cut
// is then the outcome of the last attempt of the series, and the rule, the back-off
// and the budget decide.
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
		h.ReleaseCount() // the budget does not count a retry as a request
		x.prev, x.start = d.series.prev, d.series.start
		err = x.asRetry(cut)
	}
	if err != nil {
		if progressed {
			h.ReleaseCount() // an unsent request earns no retry
		}
		return nil, err
	}
	d.spacing.last, d.spacing.from = time.Now(), offset
	resp, err := x.run()
	if reason := HistoryOf(resp).Reason; reason != ReasonFinal {
		discard(x.ctx, resp)
		return nil, x.report.newError(reason, fmt.Errorf("transport: the response has status %d", resp.StatusCode))
	}
	if err != nil && x.ctx.Err() != nil {
		err = x.report.newError(ReasonCanceled, contextErr(x.ctx)) // the base transport's error may not say so
	}
	return resp, err
}

// reconnecting returns the rule with a timeout for the attempts of a reconnect.
func (r *resolved) reconnecting() *resolved {
	if r.rule.AttemptTimeout > 0 || r.rule.Stall.Timeout > 0 {
		return r
	}
	bounded := *r
	bounded.rule.AttemptTimeout = reconnectTimeout
	return &bounded
}

// asRequest prepares a reconnect after progress. It waits until turn is over and until
// the time that a server asked for, plus the jitter.
func (x *exchange) asRequest(cut error, turn time.Duration) error {
	d := decision{
		Attempt: Attempt{Number: x.sent, Err: cut, Verdict: x.classify(nil, cut), Time: time.Now()},
		sent:    x.sent,
		u:       rand.Float64(),
	}
	f := facts{
		verdict: classify.Refused, replayable: true, attempts: 2, // always allowed, as a request of its own
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

// asRetry prepares a reconnect without progress. The cut is the outcome of the last
// attempt, and judge decides about it as about any outcome.
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

// pauseOr sleeps for the wait of the decision. It returns an error if the sleep ended early.
func (x *exchange) pauseOr(d *decision) error {
	if err := x.sleep(time.Until(d.Time.Add(d.Wait))); err != nil {
		return x.refuse(&refusal{reason: ReasonCanceled, err: err})
	}
	return nil
}

// Stopped returns the error for a body that could not be resumed. It reports the
// reason to the trace and the log, unless the loop has already done so. If the server
// prevented even the first continuation, Stopped returns the error of the cut.
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

// tellStopped sets the Reason of e and reports it.
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
