// A body that was cut asks for its rest: by an attempt in the loop.

package transport

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/aplomb-go/aplomb/classify"
	"github.com/aplomb-go/aplomb/internal/flight"
	"github.com/aplomb-go/aplomb/internal/host/instant"
	"github.com/aplomb-go/aplomb/internal/host/pool"
	"github.com/aplomb-go/aplomb/internal/resume"
	"github.com/aplomb-go/aplomb/internal/visit"
)

// A download is a response's body that asks for its rest after a cut, with the call that
// it came from. It is the Sender of that body. Both are a single allocation.
type download struct {
	body resume.Body
	bodyOrigin
	past  *past           // nil: a single attempt, and no reconnect
	pool  *pool.Pool      // over which the body comes
	start instant.Instant // of the first attempt since the last progress, if the rule has a MaxElapsed

	resumes atomic.Int32 // reconnects that continued the body
	price   int32        // that of the request; 0: Cost was not asked yet
}

// A past is the state that a reconnect takes over from earlier attempts. Most bodies
// come whole from the first attempt, and have none.
type past struct {
	series series
	sentAt time.Time        // when the last reconnect was sent; zero before the first
	offset int64            // of the last reconnect
	cutAt  time.Time        // when the last reconnect began
	cut    classify.Verdict // on the cut, from Cut to Reconnect
	first  error            // of the first cut, or of the last if the body was continued
	wait   time.Time        // until when the host asked to wait
}

// A server that cuts a body again and again gets reconnectGap between two reconnects, unless the
// segment between them had longSegment bytes. The time that the segment took counts towards the gap.
const (
	longSegment  = 1 << 20
	reconnectGap = time.Second
)

// resumeBody makes the response's body continue after a cut. If the body cannot be
// continued, resumeBody returns nil, and the body tells of a bad end if somebody hears of it.
func (c *call) resumeBody(s series, start instant.Instant, over *pool.Pool, resp *http.Response) *download {
	if resp.Body == nil || resp.Body == http.NoBody || resp.ContentLength == 0 || flight.HandsOver(c.Req, resp) {
		return nil
	}
	var plan resume.Plan
	var why error = resume.ErrOff
	settings := &c.Rule.Policy.Resume
	may := resume.Terms{
		Max: settings.Max, Again: settings.Again, Repeatable: c.options != nil && c.options.sending == sendRepeatable,
	}
	if c.Rule.Resumes && !c.isSingle() {
		plan, why = resume.Check(c.Req, resp, &may)
	}
	switch {
	case (why != nil || plan.Compares) && flight.InMemory(resp.Body):
		return nil // nothing can cut it
	case why != nil:
		if c.hearsOfCuts() {
			c.tellEndOf(s.sent, resp, why)
		}
		return nil
	}
	d := &download{bodyOrigin: bodyOriginOf(c), pool: over, start: start, price: c.Price}
	if s != (series{sent: 1}) {
		d.past = &past{series: s}
	}
	d.body.Wrap(d, resp, &plan, &may)
	return d
}

// Request returns the request with the context of its span, to which the reconnects belong as
// well.
func (d *download) Request() *http.Request {
	if d.spanned == nil {
		return d.req
	}
	return d.req.WithContext(d.spanned)
}

// Now returns the time since the Transport was made.
func (d *download) Now() time.Duration { return d.t.ground.Now().Since() }

// Continued counts and logs a reconnect that continues the body at offset.
func (d *download) Continued(offset int64) {
	d.resumes.Add(1)
	c := d.callFor(d.req)
	(&report{call: &c, offset: offset}).logContinued(d.past.series.sent, time.Since(d.past.cutAt))
}

// countResumes returns how many reconnects have continued the body.
func (d *download) countResumes() int {
	if d == nil {
		return 0
	}
	return int(d.resumes.Load())
}

// Cut returns nil if err calls for a retry of a GET.
func (d *download) Cut(err error, continued bool) (end error) {
	c := d.callFor(d.req)
	defer c.ObeyCancel()()
	if c.Ctx.Err() != nil {
		return err
	}
	past, verdict := d.makePast(), c.Rule.Classify(c.OutcomeOf(nil, afterHandshake(err)))
	if past.first == nil || continued {
		past.first = err
	}
	if !retryable(verdict) || gaveUpBelow(c.Req, nil, err) || !c.isIdempotent() {
		return past.first
	}
	past.cut = verdict
	return nil
}

// makePast returns the past of the next reconnect. The first call makes it.
func (d *download) makePast() *past {
	if d.past == nil {
		d.past = &past{series: series{sent: 1}}
	}
	return d.past
}

// Discard discards the response to a reconnect. It reads for some time, so it sees that
// Request.Cancel is closed.
func (d *download) Discard(ctx context.Context, resp *http.Response) {
	c := call{Request: visit.Request{Req: d.req, Ctx: ctx}}
	defer c.ObeyCancel()()
	flight.Discard(c.Ctx, resp)
}

// Drop closes the body of a segment that was cut.
func (d *download) Drop(body io.ReadCloser) {
	flight.Dismiss(context.Background(), &http.Response{Body: body})
}

// Reconnect sends the request for the rest through the loop. After progress it
// counts as a request and starts a new series. Its first attempt follows at once,
// apart from the jitter, the gap and a wait that the server asked for. Without
// progress it is a retry. Then cut is the outcome of the last attempt of the
// series, and rule, back-off and budget decide.
func (d *download) Reconnect(req *http.Request, offset int64, cut error, progressed bool) (*http.Response, error) {
	h := d.t.ground.Hosts.Acquire(req.URL)
	defer h.Release()
	h.ReleaseCount() // a request for the rest earns no retry before it goes
	c := d.callFor(req)
	c.State, c.Rule, c.Price = h, d.rule, d.price
	x := new(exchange)
	defer x.begin(&c)()
	x.report.offset = offset
	defer d.noteReconnect(x)
	d.prepareReconnect(x, cut, progressed)
	if err := x.awaitReconnect(); err != nil {
		return nil, err
	}
	if progressed {
		h.Count()
	}
	d.past.sentAt, d.past.offset = time.Now(), offset
	return x.sendForRest()
}

// prepareReconnect lays a cut before the loop, as the outcome at hand, with what the
// download knows of earlier attempts.
func (d *download) prepareReconnect(x *exchange, cut error, progressed bool) {
	past, now := d.makePast(), time.Now()
	past.cutAt = now
	x.segment, x.wait, x.series, x.start = true, past.wait, past.series, d.start
	x.last = flight.Outcome{Number: x.sent, Kind: flight.Cut, Pool: d.pool, Err: cut, DoneAt: x.Ground.InstantOf(now), Verdict: past.cut}
	if !progressed {
		return
	}
	x.anew, x.series = true, series{sent: x.sent}
	if !past.sentAt.IsZero() && x.report.offset-past.offset < longSegment {
		x.apart = max(reconnectGap-now.Sub(past.sentAt), 0)
	}
}

// noteReconnect notes what the next reconnect has to know of this one.
func (d *download) noteReconnect(x *exchange) {
	d.past.series, d.past.wait = x.series, x.wait
	d.pool, d.start, d.price = x.last.Pool, x.start, x.Price
}

// awaitReconnect decides about a cut, and waits until the reconnect is due.
func (x *exchange) awaitReconnect() error {
	x.askRule()
	var d decision
	x.judge(&d)
	if d.Reason != ReasonRetry {
		x.report.record(&d.Event)
		return x.report.newError(d.Reason, nil)
	}
	if d.Reason = ReasonResume; x.anew {
		x.report.tellObservers(&d.Event) // the history of a request begins after it
		x.sent, x.anew = 0, false
	} else {
		x.report.record(&d.Event)
		x.retried = true
	}
	if no := x.pause(&d); no != nil {
		return x.refuse(no)
	}
	return nil
}

// sendForRest sends the request for the rest. A response that was given up on is an error,
// because it cannot continue the body.
func (x *exchange) sendForRest() (*http.Response, error) {
	resp, err := x.makeAttempts()
	if reason := HistoryOf(resp).Reason; reason != ReasonFinal {
		flight.Discard(x.Ctx, resp)
		return nil, x.report.newError(reason, fmt.Errorf("transport: the response has status %d", resp.StatusCode))
	}
	if err != nil && x.Ctx.Err() != nil {
		err = x.report.newError(x.reasonGone(), flight.ContextErr(x.Ctx)) // whatever error the base made of it
	}
	return resp, err
}

// Failed tells that the body ended with an error against which no reconnect helps.
func (d *download) Failed(offset int64, err error, below bool) {
	d.tellFailed(d.sent(), offset, err, resume.ErrFinal, below)
}

// sent returns how many attempts it took until the last bytes.
func (d *download) sent() int {
	if d.past == nil {
		return 1
	}
	return d.past.series.sent
}

// Stopped returns the error for a body that nothing continues, and reports it
// unless the loop has already done so. As long as no byte came from a second response, that
// error is the base's own for the first cut. But the end of the caller's context has to be
// seen in it.
func (d *download) Stopped(offset int64, cut, cause error, continued bool) error {
	c := d.callFor(d.req)
	defer c.ObeyCancel()()
	gone := c.Ctx.Err()
	e := &ResumeError{Offset: offset, Err: cut, Cause: cause, url: d.req.URL.String()}
	if gone != nil && !errors.Is(cause, gone) {
		e.Cause = flight.ContextErr(c.Ctx)
	}
	last, told := errors.AsType[*Error](cause)
	if told {
		e.Reason = last.Reason
	} else {
		e.Reason = d.reasonOf(cause)
	}
	if !told || last.Reason == ReasonFinal {
		d.tellEnd(d.sent(), e)
	}
	if !continued && gone == nil {
		return d.past.first
	}
	return e
}
