// How a body that was cut asks for its rest: by an attempt in the loop.

package transport

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/aplomb-go/aplomb/classify"
	"github.com/aplomb-go/aplomb/internal/ahead"
	"github.com/aplomb-go/aplomb/internal/flight"
	"github.com/aplomb-go/aplomb/internal/host/lane"
	"github.com/aplomb-go/aplomb/internal/replay"
	"github.com/aplomb-go/aplomb/internal/resume"
	"github.com/aplomb-go/aplomb/internal/rules"
	"github.com/aplomb-go/aplomb/policy"
)

// resumeJitter bounds the random wait before a reconnect after progress. A proxy
// that restarts cuts all its downloads at the same instant.
const resumeJitter = 100 * time.Millisecond

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
	rule    *rules.Resolved
	past    *past           // nil: a single attempt, and no reconnect
	lane    *lane.Lane      // over which the body comes
	spanned context.Context // what RequestStart returned; nil: no hook

	resumes atomic.Int32 // reconnects that continued the body
	at, to  int8         // the endpoints that the bytes so far come from, and that the last reconnect went to
	price   int32        // that of the request; 0: Cost was not asked yet
	began   uint32       // the second in which the header came, or that of the last segment of an event stream; 0: the body has a length
}

// A past is the state that a reconnect takes over from earlier attempts. Most bodies
// come whole from the first attempt, and have none.
type past struct {
	series  series
	spacing spacing
	cutAt   time.Time   // when the last reconnect began
	cut     known       // the verdict on the cut, from Lost to Reconnect
	been    uint16      // the endpoints to which attempts went, as bits
	waits   []time.Time // until when they asked to wait; nil: nobody knows of endpoints
	astray  uint16      // those that did not have the rest

	events bool          // the body is an event stream that reconnects
	asked  time.Duration // the wait that the stream asked for; 0: none
}

// resuming makes the response's body continue after a cut. If the body cannot be
// continued, resuming returns nil, and allocates nothing unless somebody is told why.
func (c *call) resuming(s series, lane *lane.Lane, resp *http.Response) *download {
	if in, ok := resp.Body.(*ahead.Incoming); ok && in.Whole(resp.ContentLength) {
		return nil // it was checked, and nothing can cut it
	}
	plan, why := resume.Check(c.req, resp, c.again() && !flight.HandsOver(c.req, resp))
	if c.rule.Policy.Resume.Events == policy.On && resume.CanReconnect(c.req, resp) && (why != nil || resp.ContentLength < 0) {
		return c.reconnecting(s, lane, resp)
	}
	settings := &c.rule.Policy.Resume
	stores := settings.Checksums == policy.On
	if plan.Compares() && flight.InMemory(resp.Body) && !resume.Digested(resp, stores) {
		return nil // nothing can cut it
	}
	var d *download
	var prefix *resume.Prefix
	switch {
	case why == resume.ErrNothing, why != nil && !c.hears():
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
	d.from(c, s, lane)
	if why != nil {
		resp.Body = &lostBody{ReadCloser: resp.Body, d: d, why: why}
		return nil
	}
	if plan.Compares() && resp.ContentLength < 0 {
		d.began = d.second()
	}
	d.body.Wrap(d, c.spannedRequest(), resp, plan, settings.Max, max(settings.Again, 0), stores, prefix)
	return d
}

// reconnecting makes the event stream of a response reconnect with Last-Event-ID.
func (c *call) reconnecting(s series, lane *lane.Lane, resp *http.Response) *download {
	both := new(struct {
		download
		resume.Events
	})
	d := &both.download
	d.from(c, s, lane)
	d.began = d.second()
	limit := min(c.rule.Policy.Resume.Max, c.rule.Policy.Attempts-1)
	both.Events.Wrap(d, &d.body, c.spannedRequest(), resp, limit)
	return d
}

// from sets where a download comes from.
func (d *download) from(c *call, s series, lane *lane.Lane) {
	d.t, d.req, d.rule, d.lane, d.spanned, d.price = c.t, c.req, c.rule, lane, c.spanned, int32(c.price)
	if c.home != nil {
		d.req, d.rule, d.at = c.home.req, c.home.rule, int8(c.at)
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

// again reports whether the request may be sent again whole after its response was cut:
// a GET, or a request for which the caller has said so. An Idempotency-Key is no such
// word, because a server may give another response to the second request.
func (c *call) again() bool {
	bare := c.req.Body == nil || c.req.Body == http.NoBody
	switch {
	case c.rule.Policy.Resume.Again <= 0:
		return false
	case c.options != nil && c.options.sending == repeatable:
		return bare || replay.Independent(c.req)
	}
	return bare && method(c.req) == http.MethodGet
}

// hears reports whether a trace or a logger is told of a body that is not continued.
func (c *call) hears() bool {
	return c.t.logger != nil || c.t.trace != nil && c.t.trace.Event != nil ||
		c.options != nil && c.options.trace != nil && c.options.trace.Event != nil
}

// A lostBody is a body that nothing continues. It tells why when it is cut.
type lostBody struct {
	io.ReadCloser
	d    *download
	why  error
	read int64
	done bool
}

// Read reads from the body.
func (b *lostBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.read += int64(max(n, 0))
	if err != nil && err != io.EOF && !b.done {
		b.done = true
		if !resume.Tried(b.ReadCloser) && b.d.Lost(err) {
			_ = b.d.Stopped(b.read, err, b.why, false)
		}
	}
	return n, err
}

// ResumeTried reports whether a Transport below has asked for the rest of the body.
func (b *lostBody) ResumeTried() bool { return resume.Tried(b.ReadCloser) }

const (
	// againWithin bounds how long after its header a body without a length may be
	// fetched again. A body that goes on for longer is a stream in all likelihood.
	againWithin = 30 * time.Second
	// againTime bounds how long a second response may take to come to the cut. It may be
	// a stream that begins with silence.
	againTime = 10 * time.Second
	// heldFor is how long a segment of an event stream has to last for the next reconnect
	// to count as a request although no event came.
	heldFor = 30 * time.Second
)

// Again returns an error if the body may be a stream.
func (d *download) Again() error {
	if d.began > 0 && d.second()-d.began > uint32(againWithin/time.Second) {
		return resume.ErrOld
	}
	return nil
}

// AtLeast notes the wait before each attempt of the next reconnect of an event stream.
func (d *download) AtLeast(wait time.Duration) {
	p := d.before()
	p.events, p.asked = true, wait
}

// Held reports whether the last segment of an event stream has lasted for long. Proxies
// cut connections that are idle, and a stream may have nothing to tell for hours.
func (d *download) Held() bool { return d.second()-d.began > uint32(heldFor/time.Second) }

// Memory counts the bytes of an event stream among those of all bodies. If the caller
// forgets the body, the memory is given back.
func (d *download) Memory() (hold func(n int64) bool) {
	h := &ahead.Holding{Pool: d.t.kept}
	runtime.AddCleanup(d, (*ahead.Holding).Free, h)
	return h.Hold
}

// second counts from 1. A body lives for less than a century.
func (d *download) second() uint32 { return uint32(d.t.now().Since()/time.Second) + 1 }

// Skipping closes the body if the reader's bytes take too long to come.
func (d *download) Skipping(body io.Closer) (late func() bool) {
	closed := &flight.Drain{Body: closerOnly{body}}
	timer := time.AfterFunc(againTime, closed.Close)
	return func() bool { return !timer.Stop() }
}

// A closerOnly is a body that is only closed.
type closerOnly struct{ io.Closer }

func (closerOnly) Read([]byte) (int, error) { return 0, http.ErrBodyReadAfterClose }

// Continued counts and logs a reconnect that continues the body at offset.
func (d *download) Continued(offset int64) {
	d.resumes.Add(1)
	d.at = d.to
	if d.past.events {
		d.began = d.second()
	}
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
	if x.ctx.Err() != nil {
		if d.t.lines != nil {
			x.report.log(&decision{Attempt: Attempt{Number: 1, Err: err, Time: time.Now()}, reason: x.gone(), sent: 1, body: true})
		}
		return false
	}
	v := x.classify(nil, err)
	if !retryable(v) || nested(x.req, nil, err) || !x.idempotent() {
		return false
	}
	d.before().cut = known{v, true}
	return true
}

// call returns the call for req, the caller's request or the request for the rest.
func (d *download) call(req *http.Request) call {
	return call{t: d.t, req: req, ctx: req.Context(), rule: d.rule, options: optionsOf(req.Context()), price: int(d.price)}
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
	var x exchange
	defer x.begin(call{req: d.req, ctx: ctx})()
	flight.Discard(x.ctx, resp)
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
	h := d.t.hosts.Acquire(req.URL)
	defer h.Release()
	h.ReleaseCount() // a request for the rest earns no retry before it goes
	c, past := d.call(req), d.before()
	c.state, c.rule = h, d.rule.Reconnect
	x := exchange{segment: true, series: series{sent: past.series.sent, notBefore: past.series.notBefore}, number: past.series.sent, verdict: past.cut}
	defer x.begin(c)()
	if len(c.rule.Alternates) > 0 {
		if x.findForSegment(d, progressed); x.ends != nil {
			defer x.releaseEndpoints()
		}
	}
	x.way = way{lane: d.lane, t: d.t}
	x.report.offset, x.report.began = offset, time.Now()
	past.cutAt = x.report.began
	defer func() {
		past.series, d.lane, d.to, d.price = x.series, x.way.lane, int8(x.at), int32(x.price)
		x.been(past)
		if d.to != d.at {
			d.lane = nil // until the body goes on there
		}
	}()
	x.asked = past.asked
	turn := past.turn(offset, c.rule)
	var err error
	if progressed {
		err = x.asRequest(cut, turn)
	} else {
		x.prev, x.start = past.series.prev, past.series.start
		err = x.asRetry(cut)
	}
	if err != nil {
		return nil, err
	}
	if progressed && x.ends == nil {
		h.Count() // otherwise its attempt counts where it goes
	}
	past.spacing.last, past.spacing.from = time.Now(), offset
	return x.rest()
}

// turn returns how long a reconnect at offset has to wait after progress. An event
// stream waits for the back-off, as EventSource does. If its server has named a wait,
// there is no further spacing, because the server may want to be polled.
func (p *past) turn(offset int64, r *rules.Resolved) time.Duration {
	if !p.events {
		return p.spacing.turn(time.Now(), offset)
	}
	wait := r.Policy.Backoff.Delay(0, 0)
	if p.asked == 0 {
		wait = max(wait, p.spacing.turn(time.Now(), offset))
	}
	return max(wait, 0)
}

// rest sends the request for the rest. A response that was given up on is an error,
// because it cannot continue the body.
func (x *exchange) rest() (*http.Response, error) {
	resp, err := x.run()
	if reason := HistoryOf(resp).Reason; reason != ReasonFinal {
		flight.Discard(x.ctx, resp)
		return nil, x.report.newError(reason, fmt.Errorf("transport: the response has status %d", resp.StatusCode))
	}
	if err != nil && x.ctx.Err() != nil {
		err = x.report.newError(x.gone(), flight.ContextErr(x.ctx)) // whatever error the base made of it
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
		hint:          max(x.notBefore.Sub(d.Time), x.asked, 0),
		maxRetryAfter: x.rule.Policy.RetryAfter.Max,
		beyond:        x.rule.Policy.RetryAfter.Beyond,
		u:             d.u,
	}
	jitter := resumeJitter
	if until, ok := x.ctx.Deadline(); ok {
		f.room, f.deadline = until.Sub(d.Time), true
	}
	d.Hint = f.hint
	if d.reason, d.Wait = decide(f); d.reason != ReasonRetry {
		x.report.record(nil, &d)
		return x.report.newError(d.reason, nil)
	}
	if asked := f.asked(); asked > 0 && asked >= turn {
		jitter = min(jitter, asked+maxJitter-d.Wait) // with that of decide
	}
	if f.deadline {
		jitter = min(jitter, (f.room-d.Wait)/2)
	}
	x.noteWay(nil, cut, d.Verdict)
	x.setOut(false)
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
	if err := x.sleepOr(time.Until(d.Time.Add(d.Wait)), nil); err != nil {
		return x.refuse(&refusal{reason: x.gone(), err: err})
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
		c := d.call(d.req)
		return c.gone()
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
