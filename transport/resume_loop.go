// How a body that was cut asks for its rest: by an attempt in the loop.

package transport

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/aplomb-go/aplomb/classify"
	"github.com/aplomb-go/aplomb/internal/resume"
)

// resumeJitter bounds the random wait before a reconnect after progress. A proxy
// that restarts cuts all its downloads at the same instant.
const resumeJitter = 100 * time.Millisecond

// reconnectTimeout bounds each attempt of a reconnect, up to the headers of its
// response, if the rule has neither an AttemptTimeout nor a Stall.Timeout. Without
// resuming, the reader would have its error by then. So the reader must not wait
// for ever for a server that accepts a request and does not answer.
const reconnectTimeout = 30 * time.Second

// Reconnects after progress are spaced out as long as the segments are short. The
// gap between two reconnects is firstGap after the first short segment. It doubles
// with each further short segment up to maxGap. After a segment of longSegment
// bytes there is no gap. A server that cuts after every 64 KiB thus sees 4
// connections in 6 s, and then a connection every 8 s. A download that is cut once
// per MiB is not slowed down.
const (
	longSegment = 1 << 20
	firstGap    = time.Second
	maxGap      = 8 * time.Second
)

// A spacing says when a body may reconnect next.
type spacing struct {
	last time.Time     // when the last reconnect was sent; zero before the first
	from int64         // the offset of the last reconnect
	gap  time.Duration // between the last two reconnects
}

// turn returns how long a reconnect at offset has to wait from now on. The time
// that the last segment took counts towards the gap.
func (s *spacing) turn(now time.Time, offset int64) time.Duration {
	if s.last.IsZero() || offset-s.from >= longSegment {
		s.gap = 0
		return 0
	}
	s.gap = min(max(2*s.gap, firstGap), maxGap)
	return max(s.gap-now.Sub(s.last), 0)
}

// A download is a response's body that resumes, with the call that it came from.
// It is the Sender of that body. Both are a single allocation.
type download struct {
	body    resume.Body
	t       *Transport
	req     *http.Request // the caller's, who must not change it until the body is closed
	rule    *resolved
	past    *past           // nil: a single attempt, and no reconnect
	spanned context.Context // what RequestStart returned; nil: no hook

	resumes atomic.Int64 // reconnects that continued the body
}

// A past is the state that a reconnect takes over from earlier attempts. Most bodies
// come whole from the first attempt, and have none.
type past struct {
	series  series
	spacing spacing
	cutAt   time.Time // when the last reconnect began
}

// resuming makes the response's body resume. If the response does not allow it, resuming
// returns nil, and allocates nothing.
func (c *call) resuming(s series, resp *http.Response) *download {
	plan, ok := resume.Check(c.req, resp)
	if !ok {
		return nil
	}
	d := &download{t: c.t, req: c.req, rule: c.rule, spanned: c.spanned}
	if s != (series{sent: 1}) {
		d.past = &past{series: s}
	}
	req := c.req
	if c.spanned != nil {
		req = req.WithContext(c.spanned) // the reconnects belong to the same span
	}
	d.body.Wrap(d, req, resp, plan, c.rule.rule.Resume.Max)
	return d
}

// Continued counts and logs a reconnect that continues the body at offset.
func (d *download) Continued(offset int64) {
	d.resumes.Add(1)
	c := d.call(d.req)
	(&report{call: &c, offset: offset}).resumed(d.past.series.sent, time.Since(d.past.cutAt))
}

// resumed returns how many reconnects have continued the body.
func (d *download) resumed() int {
	if d == nil {
		return 0
	}
	return int(d.resumes.Load())
}

// Lost reports whether err calls for a retry of a GET.
func (d *download) Lost(err error) bool {
	var x exchange
	defer x.begin(d.call(d.req))()
	return x.ctx.Err() == nil && retryable(x.classify(nil, err)) && !nested(x.req, nil, err) && x.idempotent()
}

// call returns the call for req, the caller's request or the request for the rest.
func (d *download) call(req *http.Request) call {
	return call{t: d.t, req: req, ctx: req.Context(), rule: d.rule, options: optionsOf(req.Context())}
}

// before returns the past of the next reconnect.
func (d *download) before() *past {
	if d.past == nil {
		d.past = &past{series: series{sent: 1}}
	}
	return d.past
}

// Discard discards the response to a reconnect.
func (d *download) Discard(ctx context.Context, resp *http.Response) { discard(ctx, resp) }

// Altered returns an IntegrityError.
func (d *download) Altered(field, want, got string) error {
	return &IntegrityError{Field: field, Want: want, Got: got}
}

// Reconnect sends the request for the rest through the loop. After progress it
// counts as a request and starts a new series. Its first attempt follows at once,
// apart from the jitter, the spacing and a wait that a hedge was told. Without
// progress it is a retry. Then cut is the outcome of the last attempt of the
// series, and rule, back-off and budget decide.
func (d *download) Reconnect(req *http.Request, offset int64, cut error, progressed bool) (*http.Response, error) {
	h := d.t.hosts.Acquire(req.URL)
	defer h.Release()
	c, past := d.call(req), d.before()
	c.state, c.rule = h, d.rule.reconnect
	x := exchange{segment: true, series: series{sent: past.series.sent, notBefore: past.series.notBefore}, number: past.series.sent}
	defer x.begin(c)()
	x.report.offset, x.report.began = offset, time.Now()
	past.cutAt = x.report.began
	defer func() { past.series = x.series }()
	turn := past.spacing.turn(time.Now(), offset)
	var err error
	if progressed {
		err = x.asRequest(cut, turn)
	} else {
		h.ReleaseCount() // only a request earns retries
		x.prev, x.start = past.series.prev, past.series.start
		err = x.asRetry(cut)
	}
	if err != nil {
		if progressed {
			h.ReleaseCount() // a request that is not sent earns no retry
		}
		return nil, err
	}
	past.spacing.last, past.spacing.from = time.Now(), offset
	return x.rest()
}

// rest sends the request for the rest. A response that was given up on is an error,
// because it cannot continue the body.
func (x *exchange) rest() (*http.Response, error) {
	resp, err := x.run()
	if reason := HistoryOf(resp).Reason; reason != ReasonFinal {
		discard(x.ctx, resp)
		return nil, x.report.newError(reason, fmt.Errorf("transport: the response has status %d", resp.StatusCode))
	}
	if err != nil && x.ctx.Err() != nil {
		err = x.report.newError(ReasonCanceled, contextErr(x.ctx)) // whatever error the base made of it
	}
	return resp, err
}

// asRequest prepares a reconnect after progress. It waits for its turn, for the
// end of a wait that the server asked for, and for the jitter.
func (x *exchange) asRequest(cut error, turn time.Duration) error {
	d := decision{
		Attempt: Attempt{Number: x.sent, Err: cut, Verdict: x.classify(nil, cut), Time: time.Now()},
		sent:    x.sent,
		u:       rand.Float64(),
	}
	f := facts{
		verdict: classify.Refused, replayable: true, attempts: 2, // a new request may be sent
		backoff:       turn,
		hint:          x.notBefore.Sub(d.Time),
		hinted:        true,
		maxRetryAfter: x.rule.rule.RetryAfter.Max,
		beyond:        x.rule.rule.RetryAfter.Beyond,
		u:             d.u,
	}
	jitter := resumeJitter
	if until, ok := x.ctx.Deadline(); ok {
		f.room, f.deadline = until.Sub(d.Time), true
	}
	d.Hint = max(f.hint, 0)
	if d.reason, d.Wait = decide(f); d.reason != ReasonRetry {
		x.report.record(nil, &d)
		return x.report.newError(d.reason, nil)
	}
	if f.deadline {
		jitter = min(jitter, (f.room-d.Wait)/2)
	}
	d.reason = ReasonResume
	d.Wait += time.Duration(rand.Float64() * float64(max(jitter, 0)))
	x.report.tell(nil, &d)
	x.sent = 0
	return x.pauseOr(&d)
}

// asRetry prepares a reconnect without progress. The cut is the outcome of the
// last attempt, and the usual decision about an outcome follows.
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

// pauseOr sleeps as long as was decided. It returns the error of the call if the
// caller's context ends the sleep.
func (x *exchange) pauseOr(d *decision) error {
	if no := x.sleepAfter(d); no != nil {
		return x.refuse(no)
	}
	return nil
}

// Stopped returns the error for a body that nothing continues, and reports it
// unless the loop has already done so. If no reconnect ever added a segment, and
// neither a limit nor the caller was in the way, that error is the error of the
// cut, unchanged.
func (d *download) Stopped(offset int64, cut, cause error, continued bool) error {
	e := &ResumeError{Offset: offset, Err: cut, Cause: cause, url: d.req.URL.String()}
	if last, ok := errors.AsType[*Error](cause); ok {
		e.Reason = last.Reason
	} else {
		e.Reason = d.reasonOf(cause)
		d.tell(e)
	}
	if !continued && e.hopeless() {
		return cut
	}
	return e
}

// reasonOf returns the Reason for a cause that does not come from the loop.
func (d *download) reasonOf(cause error) Reason {
	switch {
	case d.req.Context().Err() != nil:
		return ReasonCanceled
	case cause == resume.ErrLimit:
		return ReasonResumeMax
	}
	return ReasonMismatch
}

// tell reports the end of the body to the observers.
func (d *download) tell(e *ResumeError) {
	h := d.t.hosts.Acquire(d.req.URL)
	defer h.Release()
	h.ReleaseCount() // no request is sent
	c := d.call(d.req)
	c.state, c.spanned = h, d.spanned
	(&report{call: &c, offset: e.Offset}).tell(nil, &decision{
		Attempt: Attempt{Number: d.before().series.sent, Err: e, Time: time.Now()},
		reason:  e.Reason,
	})
}
