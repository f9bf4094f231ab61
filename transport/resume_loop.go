// How a body that was cut asks for its rest: by an attempt in the loop.

package transport

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/aplomb-go/aplomb/classify"
	"github.com/aplomb-go/aplomb/internal/ahead"
	"github.com/aplomb-go/aplomb/internal/flight"
	"github.com/aplomb-go/aplomb/internal/host/lane"
	"github.com/aplomb-go/aplomb/internal/lanes"
	"github.com/aplomb-go/aplomb/internal/replay"
	"github.com/aplomb-go/aplomb/internal/resume"
	"github.com/aplomb-go/aplomb/internal/rules"
	"github.com/aplomb-go/aplomb/internal/visit"
	"github.com/aplomb-go/aplomb/policy"
)

// resumeJitter bounds the random wait before a reconnect after progress. A proxy
// that restarts cuts all its downloads at the same instant.
const resumeJitter = 100 * time.Millisecond

// A download is a response's body that resumes, with the call that it came from.
// It is the Sender of that body. Both are a single allocation.
type download struct {
	body    resume.Body
	t       *Transport
	req     *http.Request // the caller's, who must not change it until the body is closed
	rule    *rules.Resolved
	past    *past           // nil: a single attempt, and no reconnect
	lane    *lane.Lane      // over which the body comes
	spanned context.Context // what RequestStart returned; nil: no hook

	resumes atomic.Int32 // reconnects that continued the body
	at, to  int8         // the places that the bytes so far come from, and that the last reconnect went to
	price   int32        // that of the request; 0: Cost was not asked yet
	began   uint32       // the second in which the header came; 0: the body has a length
}

// A past is the state that a reconnect takes over from earlier attempts. Most bodies
// come whole from the first attempt, and have none.
type past struct {
	series  series
	spacing resume.Spacing
	cutAt   time.Time   // when the last reconnect began
	cut     known       // the verdict on the cut, from Lost to Reconnect
	wait    time.Time   // until when the last host asked to wait
	been    uint16      // the places to which attempts went, as bits
	waits   []time.Time // until when they asked to wait; nil: there were no alternates
	astray  uint16      // those that did not have the rest
}

// resuming makes the response's body continue after a cut. If the body cannot be
// continued, resuming returns nil, and allocates nothing unless somebody is told why.
func (c *call) resuming(s series, lane *lane.Lane, resp *http.Response) *download {
	if in, ok := resp.Body.(*ahead.Incoming); ok && in.Whole(resp.ContentLength) {
		return nil // it was checked, and nothing can cut it
	}
	plan, why := resume.Check(c.Req, resp, c.mayFetchAgain() && !flight.HandsOver(c.Req, resp))
	settings := &c.Rule.Policy.Resume
	stores := settings.Checksums == policy.On
	if plan.Compares() && flight.InMemory(resp.Body) && !resume.Digested(resp, stores) {
		return nil // nothing can cut it
	}
	var d *download
	var prefix *resume.Prefix
	switch {
	case why == resume.ErrNothing, why != nil && !c.hearsOfCuts():
		return nil
	case why == nil && (plan.Compares() || c.mayBridge()):
		both := new(struct {
			download
			resume.Prefix
		})
		d, prefix = &both.download, &both.Prefix
	default:
		d = new(download)
	}
	d.beginFrom(c, s, lane)
	if why != nil {
		resp.Body = resume.Hopeless(resp.Body, d, why)
		return nil
	}
	if plan.Compares() && resp.ContentLength < 0 {
		d.began = d.second()
	}
	d.body.Wrap(d, c.spannedRequest(), resp, plan, settings.Max, max(settings.Again, 0), stores, prefix)
	return d
}

// beginFrom sets where a download comes from.
func (d *download) beginFrom(c *call, s series, lane *lane.Lane) {
	d.t, d.req, d.rule, d.lane, d.spanned, d.price = c.t, c.Req, c.Rule, lane, c.spanned, int32(c.Price)
	if c.home != nil {
		d.req, d.rule, d.at = c.home.Req, c.home.Rule, c.at
	}
	if s != (series{sent: 1}) {
		d.past = &past{series: s}
	}
}

// spannedRequest returns the request with the context of its span, to which the
// reconnects belong as well.
func (c *call) spannedRequest() *http.Request {
	req, _ := c.caller()
	if c.spanned == nil {
		return req
	}
	return req.WithContext(c.spanned)
}

// mayFetchAgain reports whether the request may be sent again whole after its response was cut:
// a GET, or a request for which the caller has said so. An Idempotency-Key is no such
// word, because a server may give another response to the second request.
func (c *call) mayFetchAgain() bool {
	bare := c.Req.Body == nil || c.Req.Body == http.NoBody
	switch {
	case c.Rule.Policy.Resume.Again <= 0:
		return false
	case c.options != nil && c.options.sending == repeatable:
		return bare || replay.Independent(c.Req)
	}
	return bare && method(c.Req) == http.MethodGet
}

// hearsOfCuts reports whether a trace or a logger is told of a body that is not continued.
func (c *call) hearsOfCuts() bool {
	return c.t.logger != nil || c.t.trace != nil && c.t.trace.Event != nil ||
		c.options != nil && c.options.trace != nil && c.options.trace.Event != nil
}

const (
	// againWithin bounds how long after its header a body without a length may be
	// fetched again. A body that goes on for longer is a stream in all likelihood.
	againWithin = 30 * time.Second
	// againTime bounds how long a second response may take to come to the cut. It may be
	// a stream that begins with silence.
	againTime = 10 * time.Second
)

// Again returns an error if the body may be a stream.
func (d *download) Again() error {
	if d.began > 0 && d.second()-d.began > uint32(againWithin/time.Second) {
		return resume.ErrOld
	}
	return nil
}

// second counts from 1. A body lives for less than a century.
func (d *download) second() uint32 { return uint32(d.t.ground.Now().Since()/time.Second) + 1 }

// Skipping closes the body if the reader's bytes take too long to come.
func (d *download) Skipping(body io.Closer) (late func() bool) {
	return flight.CloseAfter(againTime, body)
}

// Continued counts and logs a reconnect that continues the body at offset.
func (d *download) Continued(offset int64) {
	d.resumes.Add(1)
	d.at = d.to
	c := d.call(d.req)
	(&report{call: &c, offset: offset}).resumed(d.past.series.sent, time.Since(d.past.cutAt))
}

// Elsewhere reports whether the last reconnect went to another endpoint than the bytes so
// far come from, and the rule does not say that its validators are the same.
func (d *download) Elsewhere() bool {
	return d.to != d.at && d.rule.Policy.Alternates.Validators != policy.On
}

// Astray notes that the endpoint of the last reconnect does not have the rest.
func (d *download) Astray() { d.past.astray |= 1 << d.to }

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
	if x.Ctx.Err() != nil {
		if d.t.lines != nil {
			x.report.log(&entry{Attempt: Attempt{Number: 1, Err: err, Time: time.Now()}, reason: x.reasonGone(), sent: 1, body: true})
		}
		return false
	}
	x.err = err
	if x.classify(); !retryable(x.verdict) || nested(x.Req, nil, err) || !x.isIdempotent() {
		return false
	}
	d.before().cut = known{x.verdict, true}
	return true
}

// call returns the call for req, the caller's request or the request for the rest.
func (d *download) call(req *http.Request) call {
	c := call{t: d.t, Request: visit.Request{Ground: &d.t.ground, Req: req, Ctx: req.Context(), Rule: d.rule, Price: int(d.price)}}
	c.takeOptions(optionsOf(req.Context()))
	return c
}

// before returns the past of the next reconnect.
func (d *download) before() *past {
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
	h := d.t.ground.Hosts.Acquire(req.URL)
	defer h.Release()
	h.ReleaseCount() // a request for the rest earns no retry before it goes
	c, past := d.call(req), d.before()
	c.State, c.Rule = h, d.rule.Reconnect
	x := exchange{segment: true, series: series{sent: past.series.sent}, judged: past.cut}
	defer x.begin(c)()
	x.outcome = outcome{trip: trip{number: past.series.sent, way: lanes.Way{Lane: d.lane}}, err: cut}
	x.wait = past.wait
	if len(c.Rule.Alternates) > 0 {
		if x.findPlacesForSegment(d, progressed); x.places != nil {
			defer x.releasePlaces()
		}
	}
	x.report.offset, x.report.began = offset, time.Now()
	past.cutAt = x.report.began
	defer func() {
		past.series, d.lane, d.to, d.price = x.series, x.way.Lane, x.at, int32(x.Price)
		x.notePlaces(past)
		if d.to != d.at {
			d.lane = nil // until the body goes on there
		}
	}()
	turn := past.spacing.Turn(time.Now(), offset)
	if !progressed {
		x.prev, x.start = past.series.prev, past.series.start
	}
	if err := x.decideReconnect(progressed, turn); err != nil {
		return nil, err
	}
	if progressed && x.places == nil {
		h.Count() // otherwise its attempt counts where it goes
	}
	past.spacing.Last, past.spacing.From = time.Now(), offset
	return x.sendForRest()
}

// sendForRest sends the request for the rest. A response that was given up on is an error,
// because it cannot continue the body.
func (x *exchange) sendForRest() (*http.Response, error) {
	resp, err := x.run()
	if reason := HistoryOf(resp).Reason; reason != ReasonFinal {
		flight.Discard(x.Ctx, resp)
		return nil, x.report.newError(reason, fmt.Errorf("transport: the response has status %d", resp.StatusCode))
	}
	if err != nil && x.Ctx.Err() != nil {
		err = x.report.newError(x.reasonGone(), flight.ContextErr(x.Ctx)) // whatever error the base made of it
	}
	return resp, err
}

// decideReconnect decides about a cut, and waits until the reconnect is due. After progress the
// reconnect counts as a request, which waits for its turn. Otherwise the cut is the outcome of
// the last attempt.
func (x *exchange) decideReconnect(progressed bool, turn time.Duration) error {
	x.classify()
	var d decision
	if progressed {
		d = x.judgeCut(turn)
	} else {
		d = x.judge()
	}
	if d.reason != ReasonRetry {
		x.report.record(nil, &d.entry)
		return x.report.newError(d.reason, nil)
	}
	if d.reason = ReasonResume; progressed {
		x.report.tell(nil, &d.entry)
		x.sent = 0
	} else {
		x.report.record(nil, &d.entry)
		x.retried = true
	}
	if err := x.SleepOr(time.Until(d.Time.Add(d.Wait)), nil); err != nil {
		return x.refuse(&visit.Refusal{Err: err})
	}
	return nil
}

// judgeCut decides about a cut after progress. The reconnect waits for its turn, for the end of
// a wait that the server asked for, and for the jitter.
func (x *exchange) judgeCut(turn time.Duration) (d decision) {
	d.u = rand.Float64()
	d.entry = entry{Attempt: Attempt{Number: x.sent, Err: x.err, Verdict: x.verdict, Time: time.Now()}, sent: x.sent}
	f := facts{
		verdict: classify.Refused, replayable: true, attempts: 2, // a new request may be sent
		backoff:       turn,
		hint:          max(x.wait.Sub(d.Time), 0),
		maxRetryAfter: x.Rule.Policy.RetryAfter.Max,
		beyond:        x.Rule.Policy.RetryAfter.Beyond,
		u:             d.u,
	}
	jitter := resumeJitter
	if until, ok := x.Ctx.Deadline(); ok {
		f.room, f.deadline = until.Sub(d.Time), true
	}
	d.Hint = f.hint
	if d.reason, d.Wait = decide(f); d.reason != ReasonRetry {
		return d
	}
	if asked := f.asked(); asked > 0 && asked >= turn {
		jitter = min(jitter, asked+maxJitter-d.Wait) // with that of decide
	}
	if f.deadline {
		jitter = min(jitter, (f.room-d.Wait)/2)
	}
	over := x.overRoad()
	x.road.Note(&over)
	x.road.SetOut(&over, true, false)
	d.Wait += time.Duration(rand.Float64() * float64(max(jitter, 0)))
	return d
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
		c := d.call(d.req)
		return c.reasonGone()
	case cause == resume.ErrLimit:
		return ReasonResumeMax
	}
	if _, ok := cause.(resume.Impossible); ok {
		return ReasonNotResumable
	}
	return ReasonMismatch
}

// tell reports the end of the body to the observers.
func (d *download) tell(e *ResumeError) {
	h := d.t.ground.Hosts.Acquire(d.req.URL)
	defer h.Release()
	h.ReleaseCount() // no request is sent
	c := d.call(d.req)
	c.State, c.spanned = h, d.spanned
	(&report{call: &c, offset: e.Offset}).tell(nil, &entry{
		Attempt: Attempt{Number: d.before().series.sent, Err: e, Time: time.Now()},
		reason:  e.Reason,
	})
}
