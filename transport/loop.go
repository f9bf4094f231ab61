// The loop: one attempt after another until the caller gets an outcome.

package transport

import (
	"cmp"
	"errors"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"slices"
	"time"

	"github.com/aplomb-go/aplomb/classify"
	"github.com/aplomb-go/aplomb/internal/flight"
	"github.com/aplomb-go/aplomb/internal/host/instant"
	"github.com/aplomb-go/aplomb/internal/host/lane"
	"github.com/aplomb-go/aplomb/internal/host/news"
	"github.com/aplomb-go/aplomb/internal/replay"
	"github.com/aplomb-go/aplomb/internal/resume"
)

// RoundTrip sends a request, and retries it if that is safe and makes sense. It
// keeps to the contract of http.RoundTripper: the request is not changed, its body
// is closed, and a response comes with a nil error, whatever its status. After the
// last attempt the caller gets the last real response with its body unread, or an
// error through which errors.Is and errors.As see the last error (see [Error]).
// [HistoryOf] tells why a response was not retried.
func (t *Transport) RoundTrip(req *http.Request) (*http.Response, error) {
	if err := checkRequest(req); err != nil {
		if req != nil && req.Body != nil && !replay.IsNil(req.Body) {
			_ = req.Body.Close()
		}
		return nil, err
	}
	set := t.rules.Load()
	if set == nil {
		closeBody(req)
		return nil, errNotMade
	}
	h := t.hosts.Acquire(req.URL)
	defer h.Release()
	c := call{t: t, req: req, ctx: req.Context(), state: h, rule: t.ruleFor(h, set)}
	c.carry(req.Context())
	if c.rule.Paths != nil || c.options != nil && c.options.rule != nil {
		if err := c.ruled(); err != nil {
			h.ReleaseCount() // a request that is not sent earns no retry
			closeBody(req)
			return nil, err
		}
	}
	if c.rule.Policy.IdempotencyKey != nil {
		c.keyed()
	}
	if c.light() && c.ctx.Err() == nil {
		return c.first()
	}
	return c.exchange()
}

// light reports whether the fast path applies: no limit to ask, no body to keep and
// nobody to tell. Nearly every request takes it.
func (c *call) light() bool {
	return !c.rule.Limited && c.t.trace == nil && !c.inside && (c.options == nil || c.options.plain()) && !c.cancelsPeek() &&
		(c.req.Body == nil || c.req.Body == http.NoBody || replay.Independent(c.req)) && c.state.Calm()
}

// cancelsPeek reports whether only Request.Cancel can end the wait of a classifier for
// the body. http.Client.Timeout sets Cancel and a deadline, which ends that wait as well.
func (c *call) cancelsPeek() bool {
	//lint:ignore SA1019 old callers still set Request.Cancel
	if c.req.Cancel == nil || !c.rule.Peeks {
		return false
	}
	_, ok := c.ctx.Deadline()
	return !ok
}

// first is the fast path. It makes the first attempt, and returns the response if it
// is a success. Any other outcome goes on in the loop.
func (c *call) first() (resp *http.Response, err error) {
	start := notTimed
	if c.clocked() {
		start = c.t.now()
	}
	var w way
	if c.rule.Noted || c.t.counted || c.state.MachinesMade() != nil {
		w = c.firstWay()
	}
	if c.rule.Timed {
		if c.proves() {
			w.link = new(flight.Link)
		}
		a := attempt{Flight: c.flight(1)}
		a.Base, a.Lane, a.Link = c.t.pools.Of(w.lane), w.lane, w.link
		resp, err = a.flyCopy(a.prepare())
	} else {
		resp, err = flight.CheckResponse(c.t.pools.Of(w.lane).RoundTrip(c.req))
	}
	if err != nil || tellsToWait(resp.StatusCode) {
		return c.exchangeAfter(start, w, resp, err, known{}) // the limits hear of the wait before a classifier reads the body
	}
	verdict := c.verdict(resp)
	made := c.state.MachinesMade()
	if retryable(verdict) || made != nil && !made.Cooldown.Quiet() || c.t.lines != nil && deniesAccess(resp.StatusCode) {
		return c.exchangeAfter(start, w, resp, err, known{verdict, true})
	}
	if made != nil {
		c.answered(w, resp, true)
	}
	if c.rule.Policy.Download.Memory > 0 && c.awaitsFirst(resp) {
		if err := c.await(resp); err != nil {
			return c.exchangeAfter(start, w, nil, err, verdictOfBody(err))
		}
	}
	if c.rule.Resumes && resume.Likely(resp) && !c.single() {
		c.resuming(series{sent: 1}, w.lane, resp)
	}
	return resp, nil
}

// notTimed is the start of a first attempt for which no clock was read.
const notTimed instant.Instant = -1

// clocked reports whether somebody needs to know when the first attempt was sent. A Logger
// does if it takes warnings, which have the highest level of our lines.
func (c *call) clocked() bool {
	return c.rule.Policy.MaxElapsed > 0 || c.t.logger != nil && c.t.logger.Enabled(c.ctx, slog.LevelWarn)
}

// verdict classifies a response. It closes the body if a classifier of the user's
// panics.
func (c *call) verdict(resp *http.Response) (v classify.Verdict) {
	classified := false
	defer c.dismissUnless(&classified, resp)
	v = c.rule.Classify(c.outcome(resp, nil))
	classified = true
	return v
}

// awaitsFirst is awaits. It closes the body if an Idempotent of the user's panics.
func (c *call) awaitsFirst(resp *http.Response) (yes bool) {
	asked := false
	defer c.dismissUnless(&asked, resp)
	yes = c.awaits(resp)
	asked = true
	return yes
}

// dismissUnless closes a response that nobody gets because a function of the user's panicked.
func (c *call) dismissUnless(returned *bool, resp *http.Response) {
	if !*returned {
		flight.Dismiss(c.ctx, resp)
	}
}

// exchange and exchangeAfter are functions of their own, so that a light request
// does not pay for an exchange.

func (c call) exchange() (*http.Response, error) {
	x := new(exchange)
	defer x.begin(c)()
	x.report.began = time.Now()
	if x.hooked() {
		return x.observed()
	}
	return x.run()
}

// exchangeAfter continues after a light first attempt.
func (c call) exchangeAfter(start instant.Instant, w way, resp *http.Response, err error, verdict known) (*http.Response, error) {
	both := new(struct { // nearly every outcome that comes here is recorded
		exchange
		few [3]Attempt
	})
	x := &both.exchange
	x.report.history = both.few[:0]
	defer x.begin(c)()
	defer x.end()
	x.sent, x.number, x.verdict = 1, 1, verdict
	x.timing.kind, x.way = KindFirst, w
	if start != notTimed {
		x.start = c.t.timeOf(start)
		x.report.began, x.limits.started = x.start, start
		x.timing.start, x.timing.took = x.start, c.t.now().Sub(start)
	}
	if x.req.Body != nil {
		x.keepBody()
	}
	return x.loop(resp, err)
}

// An exchange is one call of RoundTrip with all its attempts. One goroutine uses
// it.
type exchange struct {
	call
	limits limits
	report report
	ends   *endpoints  // nil: the request has no alternates
	body   replay.Body // nil: none, or it is sent once only

	series
	number   int           // of the attempt whose outcome is at hand; less than sent after a lost race
	timing   timing        // of the same attempt; zero if a cut is at hand
	way      way           // of the same attempt
	trouble  trouble       // that it had
	via      *lane.Lane    // for the next attempt; nil: the current lane
	opens    *lane.Lane    // whose first connection the next attempt makes; nil: of none
	hedges   int           // attempts that were hedges
	misled   bool          // an attempt got a 421
	retried  bool          // the loop has retried; a hedge is no retry
	segment  bool          // this continues the body of a response
	asked    time.Duration // the wait that the body, an event stream, asked for
	verdict  known         // of the light first attempt, or of the cut
	download *download     // the body that the response got; nil: it does not resume
}

// A known is a verdict, if there is one already. A classifier is asked once for each
// outcome.
type known struct {
	verdict classify.Verdict
	ok      bool
}

// A series is the state that the attempts of a call share. For the body of a response
// these are the attempts since the last progress.
type series struct {
	sent      int           // attempts so far
	prev      time.Duration // the previous value of the back-off
	start     time.Time     // of the first attempt; zero if the rule does not need it
	notBefore time.Time     // the end of a wait that the server asked for in a lost response of a race, or below
}

// begin sets up the exchange. The caller defers the function that it returns.
func (x *exchange) begin(c call) (stop func()) {
	x.call = c
	x.limits.call, x.report.call = &x.call, &x.call
	//lint:ignore SA1019 old callers still set Request.Cancel
	if c.req.Cancel == nil {
		return func() {}
	}
	return x.obeyCancel()
}

// A decision is the result of judging one attempt.
type decision struct {
	Attempt
	reason Reason
	limit  string        // of the host, that stood in the way; empty: none
	sent   int           // attempts so far
	drain  time.Duration // how long after Time the response may be drained before the retry
	renew  bool          // before the retry, the caller's GetBody is to be called
	ended  error         // the end of the caller's context, if it ended a wait for the body
	u      float64       // random, in [0,1): for the jitter of a server's wait, here and in its hold
	body   bool          // the caller's context ended while the body came
	until  time.Time     // when a new request makes sense; zero: not known
	stuck  bool          // a 421, and there is no other connection
}

// run makes the attempts of a request that needs more than the base transport from
// the first attempt on.
func (x *exchange) run() (*http.Response, error) {
	defer x.end()
	if !x.segment && len(x.rule.Alternates) > 0 {
		x.findEndpoints(x.req)
	}
	if x.req.Body != nil {
		x.keepBody()
	}
	if no := x.admit(x.sent == 0); no != nil {
		if x.sent == 0 {
			x.uncount() // a refused request does not reach the host and earns no retry
		}
		return nil, x.refuse(no)
	}
	resp, err := x.send()
	return x.loop(resp, err)
}

// loop judges the outcome of an attempt. Then it delivers the outcome, or it
// discards it, waits, and makes the next attempt.
func (x *exchange) loop(resp *http.Response, err error) (*http.Response, error) {
	delivered := false
	defer func() { // for a classifier, hint or trace that panics
		if !delivered {
			flight.Dismiss(x.ctx, resp)
		}
	}()
	for {
		verdict := x.classify(resp, err)
		resp, verdict, err = x.awaitFinal(resp, verdict, err)
		d := x.judge(resp, err, verdict)
		x.report.record(resp, &d)
		if d.reason != ReasonRetry {
			delivered = true
			return x.deliver(resp, err, &d)
		}
		if d.Status == http.StatusExpectationFailed {
			x.unexpect()
		}
		left := x.discard(resp, &d)
		resp = nil
		if no := x.pause(&d); no != nil {
			return nil, x.refuse(no)
		}
		if why := x.renew(&d); why != nil {
			return x.bodiless(left, &d, why)
		}
		if no := x.admit(false); no != nil {
			return nil, x.refuse(no)
		}
		x.retried = true
		resp, err = x.send()
	}
}

// renew calls the caller's GetBody, if the body is made that way.
func (x *exchange) renew(d *decision) error {
	if !d.renew {
		return nil
	}
	return x.body.Renew()
}

// admit waits until the next attempt may go. If the call has alternates, the attempt may go
// to another endpoint than was decided.
func (x *exchange) admit(first bool) *refusal {
	if x.ends != nil {
		return x.admitSomewhere(first)
	}
	return x.admitHere(first)
}

// admitHere waits until the limits let an attempt go, and its lane is connected. If the
// server asks for a wait meanwhile, the limits are asked again. Nothing is sent for a caller
// who has gone, although the limits may let a request go that they did not have to stop.
func (x *exchange) admitHere(first bool) *refusal {
	if x.ctx.Err() == nil {
		x.lookAround() // now, because it may take a while, and nothing is held yet
	}
	for x.ctx.Err() == nil {
		if no := x.limits.admit(first, x.latest()); no != nil {
			return no
		}
		if x.ctx.Err() == nil && (!x.awaitLane() || !x.limits.held()) {
			break
		}
		x.limits.slot.Release()
		first = false
	}
	if x.ctx.Err() != nil {
		return &refusal{reason: x.gone(), err: flight.ContextErr(x.ctx)}
	}
	return nil
}

// pause sleeps as long as was decided. It refuses a retry that would start later
// than the rule allows. The decision left time enough, but a base transport whose
// body ignores Close, or a busy machine, can use it up.
func (x *exchange) pause(d *decision) *refusal {
	if err := x.sleepOr(time.Until(d.Time.Add(d.Wait)), nil); err != nil {
		return &refusal{reason: x.gone(), err: err}
	}
	if latest := x.latest(); !latest.IsZero() && time.Now().After(latest) {
		return &refusal{reason: ReasonMaxElapsed, err: errOverElapsed}
	}
	return nil
}

// latest returns the time after which no retry may start. It is zero if nothing
// bounds it, and before the first attempt.
func (x *exchange) latest() time.Time {
	if limit := x.rule.Policy.MaxElapsed; limit > 0 && x.sent > 0 {
		return x.start.Add(limit)
	}
	return time.Time{}
}

// refuse ends the call without a further attempt, and tells the observers.
func (x *exchange) refuse(no *refusal) *Error {
	x.limits.releaseBudget()
	x.limits.review(nil)
	err := no.named()
	x.report.tell(nil, &decision{
		Attempt: Attempt{Number: x.sent, Err: err, Time: time.Now(), Queued: x.limits.waited()},
		reason:  no.reason,
		limit:   no.limit,
		sent:    x.sent,
		until:   no.until,
	})
	e := x.report.newError(no.reason, err)
	e.Until = no.until
	return e
}

// end releases and closes everything that no attempt has taken over.
func (x *exchange) end() {
	x.limits.release()
	if x.opens != nil {
		x.opens.Connected()
	}
	if x.ends != nil {
		x.releaseEndpoints()
	}
	if x.body != nil {
		x.body.Finish()
	} else if x.sent == 0 {
		closeBody(x.req)
	}
}

// classify tells the limits what the headers say, and then asks the rule for a
// verdict.
func (x *exchange) classify(resp *http.Response, err error) classify.Verdict {
	x.limits.hear(resp)
	if v := x.verdict; v.ok {
		x.verdict = known{}
		return v.verdict
	}
	v := x.rule.Classify(x.outcome(resp, err))
	switch {
	case v == classify.Ambiguous && err != nil && (x.way.link.Unsent() || x.refusedByProxy(err)):
		return classify.Refused
	case v == classify.Refused && x.way.link.ConnectedLate(err):
		return classify.Ambiguous
	}
	return v
}

// refusedByProxy reports whether a proxy refused to connect to the server, so that nothing
// of the request has left. net/http then returns the text of the proxy's status as an error
// that wraps nothing. Package classify knows the texts. A base transport around net/http may
// make such an error of a server's response, so only net/http itself is believed.
func (x *exchange) refusedByProxy(err error) bool {
	base, ok := x.t.base.(*http.Transport)
	if !ok || base.Proxy == nil || x.req.URL.Scheme != "https" {
		return false
	}
	switch err.(type) {
	case interface{ Unwrap() error }, interface{ Unwrap() []error }:
		return false
	}
	return classify.KindOf(err) == classify.Dial
}

// retryable reports whether a verdict calls for a retry.
func retryable(v classify.Verdict) bool {
	return v == classify.Refused || v == classify.Ambiguous
}

// judge decides about an outcome, and reserves everything that a retry needs.
func (x *exchange) judge(resp *http.Response, err error, v classify.Verdict) decision {
	d := decision{Attempt: Attempt{Number: x.number, Err: err, Verdict: v, Time: time.Now()}, sent: x.sent, u: rand.Float64()}
	x.timing.stamp(&d.Attempt)
	d.Addr, d.Lane = x.way.link.Addr(), x.way.number()
	if x.at > 0 {
		d.Alternate = x.alternate()
	}
	x.noteWay(resp, err, v)
	if resp != nil {
		d.Status = resp.StatusCode
	}
	d.Hint = x.hint(resp, &d)
	x.limits.review(&d)
	f := x.facts(resp, &d)
	d.stuck = retryable(v) && x.misdirected(resp)
	f.misdirected = d.stuck
	to, from := -1, x.at
	if x.ends == nil {
		d.reason, d.Wait = decide(f)
	} else {
		to = x.aim(&f, resp, &d)
	}
	if d.reason.limit() {
		d.limit = f.withheldBy(d.reason)
	}
	switch {
	case d.reason == ReasonRetry && to < 0:
		x.setOut(d.Hint > 0)
	case x.trouble != noTrouble:
		x.moveOn(resp, err, d.Hint > 0)
	}
	if d.reason == ReasonRetry {
		if to >= 0 {
			x.move(to)
		}
		d.drain = f.within(d.Wait, flight.DrainTime)
		x.commit(&d, f.backoff, f.within(d.Wait, replay.MaxBusy))
		if to >= 0 && d.reason != ReasonRetry {
			x.move(from)
		}
	}
	if d.reason == ReasonNotReplayable || d.reason == ReasonBodyBusy {
		d.Err = x.bodyErr(d.reason, err)
	}
	return d
}

// hint tells the limits about the outcome of an attempt, and returns how long the server
// asked to wait. Four of them may have asked: this response, an attempt that lost a race, a
// Transport below, and a body that was cut.
func (x *exchange) hint(resp *http.Response, d *decision) time.Duration {
	hint := x.limits.note(resp, d)
	if d.Kind != KindNone && (x.ends != nil || len(x.rule.Alternates) > 0 || x.state.Machines().OutageMade() != nil) {
		x.noteOutage(resp, d.Err, hint)
	}
	if d.Err != nil {
		if until := heldUntil(d.Err); until.After(x.notBefore) {
			x.notBefore = until
		}
	}
	return max(hint, x.notBefore.Sub(d.Time), x.asked, 0)
}

// bodyErr returns the error of an attempt that is not retried because of the
// request's body. last is the attempt's own error, or nil after a response.
func (x *exchange) bodyErr(reason Reason, last error) error {
	why := x.body.Why()
	if reason == ReasonBodyBusy {
		why = replay.ErrBusy
	}
	if why == nil {
		return last
	}
	return &bodyError{last: last, why: why}
}

// facts gathers everything that the decision depends on.
func (x *exchange) facts(resp *http.Response, d *decision) facts {
	rule := &x.rule.Policy
	f := facts{
		verdict:       d.Verdict,
		canceled:      x.ctx.Err() != nil && (d.Err != nil || retryable(d.Verdict)),
		expired:       x.ctx.Err() != nil && x.gone() == ReasonTimeout,
		nested:        nested(x.req, resp, d.Err),
		once:          x.options != nil && x.options.sending == once,
		replayable:    true,
		sent:          x.sent,
		attempts:      rule.Attempts,
		maxRetryAfter: rule.RetryAfter.Max,
		beyond:        rule.RetryAfter.Beyond,
		hint:          d.Hint,
		u:             d.u,
		elapsedMax:    rule.MaxElapsed,
	}
	if !retryable(f.verdict) || x.single() {
		return f // nothing below is asked
	}
	f.idempotent = f.verdict == classify.Refused || x.idempotent()
	if x.body != nil {
		replayable, broke := x.body.Known()
		// If the body broke, the error that looks like a refusal may be the body's own.
		f.replayable = replayable && (!broke || x.idempotent())
	}
	f.backoff = rule.Backoff.Delay(x.sent-1, x.prev)
	if f.elapsedMax > 0 {
		f.elapsed = d.Time.Sub(x.start)
	}
	if until, ok := x.ctx.Deadline(); ok {
		f.room, f.deadline = until.Sub(d.Time), true
	}
	f.turn, f.limit, f.refused = x.limits.next(d.Time)
	return f
}

// nested reports whether a Transport below gave up on this outcome.
func nested(req *http.Request, resp *http.Response, err error) bool {
	if resp != nil {
		// A caller who reuses the context of a marked response hands the old mark
		// down again. It says nothing about this outcome.
		var m *mark
		if resp.Request != nil {
			m = markOf(resp.Request.Context())
		}
		if m == nil || m == markOf(req.Context()) {
			return false
		}
		// A final 421 has a mark if the Transport below has no other connection.
		return m.history.Reason.limit() || m.history.Reason == ReasonFinal && resp.StatusCode == http.StatusMisdirectedRequest
	}
	e, ok := errors.AsType[interface {
		error
		GaveUp() bool
	}](err)
	return ok && e.GaveUp()
}

// commit reserves the things that a retry needs and that may be refused: first a retry of the
// host's budget, then the request's body. Until here nothing was taken from the
// attempt at hand. So if commit refuses, the caller still gets the whole response.
// busy is how long a Read of the body under way may be waited for.
func (x *exchange) commit(d *decision, backoff, busy time.Duration) {
	reason := ReasonRetry
	if (x.ends == nil || !x.arrives()) && !x.limits.reserve() {
		reason, d.limit = ReasonBudget, limitBudget
		if x.limits.usedUp() {
			why := d
			if d.Alternate != x.alternate() {
				why = nil // the attempt was at another endpoint
			}
			x.limits.begins(ConditionNoRetries, news.Record{Since: x.t.now()}, why)
		}
	} else if x.body != nil {
		if reason = x.takeBack(d, busy); reason != ReasonRetry {
			x.limits.releaseBudget()
		}
	}
	if reason != ReasonRetry {
		d.reason, d.Wait = reason, 0
		if reason == ReasonCanceled || reason == ReasonTimeout {
			d.ended = flight.ContextErr(x.ctx)
		}
		return
	}
	x.prev = backoff
}

// deliver gives the last outcome to the caller.
func (x *exchange) deliver(resp *http.Response, err error, d *decision) (*http.Response, error) {
	if x.body != nil && resp != nil && (resp.StatusCode == http.StatusTemporaryRedirect || resp.StatusCode == http.StatusPermanentRedirect) {
		x.body.Leave(x.ctx)
	}
	switch {
	case err == nil && d.reason.told():
		return marked(resp, x.req, d.reason, slices.Clone(x.report.history)), nil
	case err == nil && d.stuck && d.reason == ReasonFinal && len(x.report.history) <= 1: // see nested
		return marked(resp, x.req, d.reason, nil), nil
	case err == nil:
		if x.rule.Resumes && !x.segment && !x.single() { // a segment does not resume by itself, but its body does
			if x.download = x.resuming(x.series, x.way.lane, resp); x.download != nil && x.download.past != nil {
				x.been(x.download.past)
			}
		}
		if h := x.report.history; (len(h) > 1 || len(h) == 1 && h[0].Queued != Queued{}) && !x.segment && !nested(x.req, resp, nil) {
			return marked(resp, x.req, d.reason, slices.Clone(x.report.history)), nil
		}
		return resp, nil // if a Transport below gave up, the response keeps its mark
	case d.ended != nil:
		return nil, x.report.newError(d.reason, d.ended)
	case !x.retried && !d.reason.limit():
		return nil, err
	}
	return nil, x.report.newError(d.reason, cmp.Or(d.Err, err))
}

// discard drains the response at hand within bounds, and closes it. The caller's GetBody may still have to be
// called, and may fail. In that case discard returns the response with the rest of
// its body, if the rest fits within the bounds of the drain.
func (x *exchange) discard(resp *http.Response, d *decision) (left *http.Response) {
	limit := time.Until(d.Time.Add(d.drain))
	if d.renew {
		return flight.KeepWithin(x.ctx, resp, limit, &x.sleeper)
	}
	flight.DrainWithin(x.ctx, resp, limit, io.Discard, &x.sleeper)
	return nil
}

// bodiless ends a call whose GetBody failed after a retry was decided. The caller
// gets the last response if it is left. Otherwise the caller gets an error that has
// both the error of GetBody and the last outcome.
func (x *exchange) bodiless(left *http.Response, d *decision, why error) (*http.Response, error) {
	x.limits.releaseBudget()
	failed := &bodyError{last: d.Err, why: why, status: d.Status}
	last := decision{Attempt: d.Attempt, sent: d.sent, reason: ReasonNotReplayable}
	last.Err, last.Wait = failed, 0
	x.report.history[len(x.report.history)-1] = last.Attempt
	last.Kind = KindNone // the outcome of the attempt was told before
	x.report.tell(left, &last)
	if left != nil {
		return marked(left, x.req, ReasonNotReplayable, slices.Clone(x.report.history)), nil
	}
	return nil, x.report.newError(ReasonNotReplayable, failed)
}
