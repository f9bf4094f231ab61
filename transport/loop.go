// The loop: one attempt after another until the caller gets an outcome.

package transport

import (
	"cmp"
	"errors"
	"io"
	"math/rand/v2"
	"net/http"
	"slices"
	"time"

	"github.com/aplomb-go/aplomb/classify"
	"github.com/aplomb-go/aplomb/internal/flight"
	"github.com/aplomb-go/aplomb/internal/host/instant"
	"github.com/aplomb-go/aplomb/internal/replay"
	"github.com/aplomb-go/aplomb/internal/route"
	"github.com/aplomb-go/aplomb/internal/visit"
)

// RoundTrip sends a request, and retries it if that is safe and makes sense. It
// keeps to the contract of http.RoundTripper: the request is not changed, its body
// is closed, and a response comes with a nil error, whatever its status. After the
// last attempt the caller gets the last real response with its body unread, or an
// error through which errors.Is and errors.As see the last error (see [Error]).
// [HistoryOf] tells why a response was not retried.
func (t *Transport) RoundTrip(req *http.Request) (*http.Response, error) {
	if err := flight.CheckRequest(req); err != nil {
		if req != nil && req.Body != nil && !replay.IsNil(req.Body) {
			_ = req.Body.Close()
		}
		return nil, err
	}
	set := t.ground.Rules.Load()
	if set == nil {
		flight.CloseBody(req)
		return nil, errNotMade
	}
	base, err := t.pools.Resolve(t)
	if err != nil {
		flight.CloseBody(req)
		return nil, err
	}
	h := t.ground.Hosts.Acquire(req.URL)
	defer h.Release()
	c := call{t: t, base: base, Request: visit.Request{Ground: &t.ground, Req: req, Ctx: req.Context(), State: h, Rule: t.ruleFor(h, set)}}
	c.options = optionsOf(c.Ctx)
	if c.Rule.Paths != nil || c.options != nil && c.options.rule != nil {
		if err := c.findRule(); err != nil {
			h.ReleaseCount() // a request that is not sent earns no retry
			flight.CloseBody(req)
			return nil, err
		}
	}
	if c.Rule.Policy.IdempotencyKey != nil {
		c.addKey()
	}
	if c.isLight() && c.Ctx.Err() == nil {
		return c.tryLight()
	}
	return c.newExchange()
}

// isLight reports whether the fast path applies: nothing to wait for, no body to keep and
// nobody to tell. Nearly every request takes it.
func (c *call) isLight() bool {
	// If only Request.Cancel can end a wait for a limit, or that of a classifier for the body, somebody
	// has to watch it. http.Client.Timeout sets Cancel and a deadline, which ends those waits as well.
	//lint:ignore SA1019 old callers still set Request.Cancel
	if c.Req.Cancel != nil && (c.Rule.Peeks || c.Rule.Limited) {
		if _, ok := c.Ctx.Deadline(); !ok {
			return false
		}
	}
	return !c.Rule.Loops && c.t.trace == nil && (c.t.logger == nil || !c.logsAttempts()) && (c.options == nil || c.options.trace.empty()) &&
		(c.Req.Body == nil || c.Req.Body == http.NoBody || replay.Independent(c.Req)) && c.State.Calm()
}

// tryLight is the fast path. It makes the first attempt, and returns the response if it
// is a success. Any other outcome goes on in the loop, and so does a request that a limit makes wait.
func (c *call) tryLight() (resp *http.Response, err error) {
	start := notTimed
	if c.Rule.Limited || c.Rule.Policy.MaxElapsed > 0 {
		start = c.Ground.Now()
	}
	var over route.Route
	base := c.base
	if c.State.MachinesMade() != nil {
		over = route.First(&c.Request)
		base = c.t.pools.Base(&over)
	}
	var a *attempt // nil: the base gets the request as it is
	if c.Rule.Timed || c.Rule.Limited {
		if c.provesConnection() {
			over.Link = new(flight.Link)
		}
		a = new(attempt)
		c.equip(&a.Flight, 1)
		a.Base, a.Pool, a.Link = base, over.Pool, over.Link
		if c.Rule.Limited && !c.Pass(start, &a.Slot) {
			return c.newExchange()
		}
		resp, err = a.fly()
		over.Came = a.Came
	} else {
		resp, err = flight.CheckResponse(base.RoundTrip(c.Req))
	}
	if err != nil || visit.TellsToWait(resp.StatusCode) || c.Rule.Limited && c.HearsMore(&a.Flight, resp) {
		return c.exchangeAfter(a, start, over, resp, err, earlyVerdict{}) // the limits hear of the wait before a classifier reads the body
	}
	verdict := c.judgeResponse(resp)
	made := c.State.MachinesMade()
	if retryable(verdict) || made != nil && !made.Cooldown.Quiet() {
		return c.exchangeAfter(a, start, over, resp, err, earlyVerdict{verdict, true})
	}
	if made != nil {
		made.Failures.Succeeded()
		route.NoteGood(&c.Request, &over, resp.ProtoMajor)
	}
	c.resumeBody(series{sent: 1}, start, over.Pool, resp)
	return resp, nil
}

// notTimed is the start of a first attempt for which no clock was read.
const notTimed instant.Instant = -1

// judgeResponse classifies a response. It closes the body if a classifier of the user's
// panics. [classify.Default] calls no success and no redirection a failure, so it is not asked.
func (c *call) judgeResponse(resp *http.Response) (v classify.Verdict) {
	if !c.Rule.Peeks && resp.StatusCode < http.StatusBadRequest {
		return classify.Final
	}
	return c.askClassifier(resp)
}

func (c *call) askClassifier(resp *http.Response) (v classify.Verdict) {
	classified := false
	defer closeUnless(c.Ctx, &classified, resp)
	v = c.Rule.Classify(c.OutcomeOf(resp, nil))
	classified = true
	return v
}

// exchange and exchangeAfter are functions of their own, so that a light request
// does not pay for an exchange.

func (c *call) newExchange() (*http.Response, error) {
	x := new(exchange)
	defer x.begin(c)()
	if x.hasHooks() {
		return x.runObserved()
	}
	return x.makeAttempts()
}

// exchangeAfter continues after a light first attempt. a is nil if its request went as it was.
func (c *call) exchangeAfter(a *attempt, start instant.Instant, over route.Route, resp *http.Response, err error, verdict earlyVerdict) (*http.Response, error) {
	x := new(exchange)
	defer x.begin(c)()
	defer x.releaseUnused()
	x.sent, x.judged = 1, verdict
	x.outcome = outcome{trip: trip{number: 1, route: over}, resp: resp, err: err}
	if c.Rule.Limited {
		x.trip.sent = visit.Sent{At: start, Came: a.Came}
		x.limits.Slot, x.limits.Refused = a.Slot, a.Refused
	}
	x.timing.kind = KindFirst
	if start == notTimed && c.Rule.Timed {
		start = c.Ground.InstantOf(a.out.Ctx.Began())
	}
	if start != notTimed {
		x.start = c.Ground.TimeOf(start)
		x.timing.start, x.timing.took = x.start, cmp.Or(over.Came, c.Ground.Now()).Sub(start)
	}
	x.keepBody()
	return x.loop()
}

// makeAttempts makes the attempts of a request that needs more than the base transport from
// the first attempt on.
func (x *exchange) makeAttempts() (*http.Response, error) {
	defer x.releaseUnused()
	x.keepBody()
	no := x.admit()
	if no == nil {
		x.send()
		return x.loop()
	}
	if x.sent == 0 {
		x.State.ReleaseCount() // a refused request does not reach the host and earns no retry
	}
	if e := x.refuse(no); !e.isOfContext() {
		return nil, e
	}
	return nil, no.Err
}

// loop judges the outcome of an attempt. Then it delivers the outcome, or it
// discards it, waits, and makes the next attempt.
func (x *exchange) loop() (*http.Response, error) {
	delivered := false
	defer func() { // for a classifier, hint or trace that panics
		if !delivered {
			flight.Dismiss(x.Ctx, x.resp)
		}
	}()
	for {
		x.askRule()
		var d decision
		x.judge(&d)
		x.report.record(x.resp, &d.entry)
		if d.reason != ReasonRetry {
			delivered = true
			return x.deliver(&d)
		}
		if d.Status == http.StatusExpectationFailed {
			x.Unexpect()
		}
		left := x.discard(&d)
		x.resp = nil
		if no := x.pause(&d); no != nil {
			return nil, x.refuse(no)
		}
		if why := x.renew(&d); why == replay.ErrEnded {
			return nil, x.refuse(&visit.Refusal{Err: flight.ContextErr(x.Ctx)})
		} else if why != nil {
			return x.endWithoutBody(left, &d, why)
		}
		if no := x.admit(); no != nil {
			return nil, x.refuse(no)
		}
		x.retried = true
		x.send()
	}
}

// renew calls the caller's GetBody, if the body is made that way.
func (x *exchange) renew(d *decision) error {
	if !d.renews {
		return nil
	}
	return x.body.Renew(x.Ctx)
}

// admit waits until the limits let an attempt go. Nothing is sent for a caller who has gone,
// even if no limit had to stop the request. Nothing is sent later than the rule allows. The
// decision left time enough, but a base transport whose body ignores Close, a GetBody, or a
// busy machine can use it up.
func (x *exchange) admit() *visit.Refusal {
	var latest time.Time // of a retry; zero: nothing bounds it
	if limit := x.Rule.Policy.MaxElapsed; limit > 0 && x.sent > 0 {
		latest = x.start.Add(limit)
	}
	x.planner.Refresh()
	if x.planner.Latest = latest; x.Ctx.Err() == nil {
		if no := x.limits.Admit(latest); no != nil {
			return no
		}
	}
	if x.Ctx.Err() != nil {
		return &visit.Refusal{Err: flight.ContextErr(x.Ctx)}
	}
	if !latest.IsZero() && time.Now().After(latest) {
		return &visit.Refusal{Why: visit.WhyOverdue}
	}
	return nil
}

// pause sleeps as long as was decided.
func (x *exchange) pause(d *decision) *visit.Refusal {
	if err := x.SleepOr(time.Until(d.Time.Add(d.Wait)), nil); err != nil {
		return &visit.Refusal{Err: err}
	}
	return nil
}

// refuse ends the call without a further attempt, and tells the observers.
func (x *exchange) refuse(no *visit.Refusal) *Error {
	x.limits.ReleaseBudget()
	x.limits.ReviewConditions(nil)
	reason, err := x.reasonFor(no)
	x.report.tellObservers(nil, &entry{
		Attempt: Attempt{Number: x.sent, Err: err, Time: time.Now(), Queued: x.takeQueued()},
		reason:  reason,
		limit:   no.Limit,
	})
	e := x.report.newError(reason, err)
	e.Until = no.Until
	return e
}

// releaseUnused releases and closes everything that no attempt has taken over.
func (x *exchange) releaseUnused() {
	x.limits.Release()
	if x.body != nil {
		x.body.Finish()
	}
}

// askRule tells the limits what the headers say, and then asks the rule for a
// verdict.
func (x *exchange) askRule() {
	x.limits.HearHeaders(x.resp, x.trip.sent)
	if x.judged.ok {
		x.verdict, x.judged = x.judged.verdict, earlyVerdict{}
		return
	}
	if x.err != nil && x.sourceBroke() {
		x.verdict = classify.Final
		return
	}
	o, ask := x.OutcomeOf(x.resp, x.err), x.Rule.Classify
	if x.err != nil && x.route.Link.Connected() {
		o.Err = afterHandshake(x.err)
	}
	if x.keyed && slices.ContainsFunc(x.report.history, func(a Attempt) bool { return a.Verdict == classify.Ambiguous }) {
		ask = x.Rule.KeyInUse
	}
	x.verdict = ask(o)
	switch link := x.route.Link; {
	case x.verdict == classify.Ambiguous && x.err != nil && (link.Unsent() || route.RefusedByProxy(x.base, x.Req, x.err)):
		x.verdict = classify.Refused
	case x.verdict == classify.Refused && link.ConnectedLate(x.err):
		x.verdict = classify.Ambiguous
	case x.verdict == classify.Final && x.err != nil && x.planner.TakesHTTP1(x.err):
		x.verdict = classify.Ambiguous
	}
}

// retryable reports whether a verdict calls for a retry.
func retryable(v classify.Verdict) bool {
	return v == classify.Refused || v == classify.Ambiguous
}

// judge decides about the outcome at hand, and reserves everything that a retry needs. The
// outcome may be the cut of a body.
func (x *exchange) judge(d *decision) {
	x.fill(&d.entry, x.resp, x.err)
	d.u = rand.Float64()
	d.Verdict = x.verdict
	over := x.forPlanner(&d.entry)
	x.tellOutcome(&over, d)
	misdirected := d.Status == http.StatusMisdirectedRequest || d.Err != nil && route.WantsHTTP1(d.Err)
	d.stuck = misdirected && retryable(d.Verdict) && x.planner.IsStuck(&over)
	f := x.facts(d)
	d.reason, d.Wait = decide(f)
	if d.reason.isLimit() {
		d.limit = f.withheldBy(d.reason)
	}
	if d.reason == ReasonRetry && !x.anew {
		d.drain = f.within(d.Wait, flight.DrainTime)
		x.commit(d, f.backoff, f.within(d.Wait, replay.MaxBusy))
	}
	if d.reason == ReasonNotReplayable || d.reason == ReasonBodyBusy {
		d.Err = x.bodyErr(d.reason, x.err)
	}
}

// tellOutcome tells the planner and the limits of the host about the outcome at hand, and finds
// out how long the server asked to wait. Four may have asked: this response, an attempt that
// lost a race, a Transport below, and a body that was cut.
func (x *exchange) tellOutcome(over *route.Outcome, d *decision) {
	x.planner.Note(over)
	e := x.forLimits(&d.entry, d.u)
	hint := x.limits.NoteOutcome(&e)
	d.u = e.U
	if x.err != nil {
		if until := heldUntil(x.err); until.After(x.wait) {
			x.wait = until
		}
	}
	d.Hint = max(hint, x.wait.Sub(d.Time), 0)
	x.limits.ReviewConditions(&e)
}

// forPlanner returns what the planner hears of the outcome at hand.
func (x *exchange) forPlanner(e *entry) route.Outcome {
	at := x.trip.sent.Came
	if at == 0 {
		at = x.Ground.InstantOf(e.Time)
	}
	_, other := errors.AsType[*Error](x.err) // a Transport below looks after its own pools
	return route.Outcome{Route: x.route, Resp: x.resp, Err: x.err, Other: other || x.sourceBroke(), Bad: retryable(x.verdict), Refused: x.verdict == classify.Refused, Cut: x.timing.kind == KindNone, Took: x.timing.took, At: at}
}

// forLimits returns what the limits hear of the outcome at hand. u is random, in [0,1).
func (x *exchange) forLimits(e *entry, u float64) visit.Ending {
	return visit.Ending{
		Sent: x.trip.sent, Resp: x.resp, Status: e.Status, Err: x.err, Again: retryable(x.verdict) && !x.sourceBroke(),
		Retry: x.timing.kind > KindFirst, Addr: e.Addr, NotHost: x.timing.kind == KindNone || x.sourceBroke(), U: u,
	}
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
func (x *exchange) facts(d *decision) facts {
	rule := &x.Rule.Policy
	f := facts{
		verdict:       d.Verdict,
		canceled:      x.Ctx.Err() != nil && (d.Err != nil || retryable(d.Verdict)),
		expired:       x.Ctx.Err() != nil && x.reasonGone() == ReasonTimeout,
		nested:        gaveUpBelow(x.Req, x.resp, d.Err),
		once:          x.options != nil && x.options.sending == sendOnce,
		misdirected:   d.stuck,
		sent:          x.sent,
		attempts:      rule.Attempts,
		maxRetryAfter: rule.RetryAfter.Max,
		beyond:        rule.RetryAfter.Beyond,
		hint:          d.Hint,
		u:             d.u,
		anew:          x.anew,
	}
	if !retryable(f.verdict) || x.isSingle() {
		return f // nothing below is asked
	}
	f.idempotent = f.verdict == classify.Refused || x.isIdempotent()
	f.replayable = x.body == nil || x.body.Replayable()
	if until, ok := x.Ctx.Deadline(); ok {
		f.room, f.deadline = until.Sub(d.Time), true
	}
	if x.anew {
		f.backoff = x.apart
		return f // a request has a time of its own, and asks the limits when it goes
	}
	f.backoff = rule.Backoff.Delay(x.sent-1, x.prev)
	if f.verdict == classify.Ambiguous && x.err != nil && d.Kind != KindNone && flight.IsLate(x.Ctx, x.err) {
		f.silence = rule.Backoff.Delay(3, f.backoff)
	}
	if f.elapsedMax = rule.MaxElapsed; f.elapsedMax > 0 {
		f.elapsed = d.Time.Sub(x.start)
	}
	f.turn, f.limit = x.limits.NextTurn(d.Time)
	return f
}

// commit reserves the things that a retry needs and that may be refused: first a retry of the
// host's budget, then the request's body. Until here nothing was taken from the
// attempt at hand. So if commit refuses, the caller still gets the whole response.
// busy is how long a Read of the body under way may be waited for.
func (x *exchange) commit(d *decision, backoff, busy time.Duration) {
	var later time.Duration // many responses may name the same time to come back
	if d.Hint > 0 {
		later = d.Wait
	}
	if !x.limits.ReserveRetry(d.Time, later) {
		d.reason, d.Wait, d.limit = ReasonBudget, 0, visit.LimitBudget
		e := x.forLimits(&d.entry, d.u)
		x.limits.TellUsedUp(&e)
		return
	}
	if x.body != nil {
		if reason := x.takeBack(d, busy); reason != ReasonRetry {
			x.limits.ReleaseBudget()
			d.reason, d.Wait = reason, 0
			if reason == ReasonCanceled || reason == ReasonTimeout {
				d.ended = flight.ContextErr(x.Ctx)
			}
			return
		}
	}
	x.prev = backoff
}

// deliver gives the last outcome to the caller.
func (x *exchange) deliver(d *decision) (*http.Response, error) {
	resp, err := x.resp, x.err
	if x.body != nil && resp != nil && (resp.StatusCode == http.StatusTemporaryRedirect || resp.StatusCode == http.StatusPermanentRedirect) {
		x.body.Leave(x.Ctx)
	}
	switch {
	case err == nil && (d.reason.isLimit() || d.reason == ReasonNotIdempotent || d.reason == ReasonNotReplayable || d.reason == ReasonBodyBusy ||
		d.stuck && d.reason == ReasonFinal && len(x.report.history) <= 1): // see gaveUpBelow
		return x.report.markResponse(resp, d.reason), nil
	case err == nil:
		if !x.segment { // a segment does not resume by itself, but its body does
			if x.download = x.resumeBody(x.series, x.Ground.InstantOf(x.start), x.route.Over(), resp); x.download != nil && x.download.past != nil {
				x.download.past.wait = x.wait
			}
		}
		if h := x.report.history; (len(h) > 1 || len(h) == 1 && h[0].Queued != Queued{}) && !x.segment && !gaveUpBelow(x.Req, resp, nil) {
			return x.report.markResponse(resp, d.reason), nil
		}
		return resp, nil // if a Transport below gave up, the response keeps its mark
	case d.ended != nil:
		return nil, x.report.newError(d.reason, d.ended)
	case !x.retried && !d.reason.isLimit():
		return nil, err
	}
	return nil, x.report.newError(d.reason, cmp.Or(d.Err, err))
}

// discard drains the response at hand within bounds, and closes it. The caller's
// GetBody may still have to be called, and may fail. In that case discard returns
// the response with the rest of its body, if the rest fits within the bounds of the
// drain.
func (x *exchange) discard(d *decision) (left *http.Response) {
	until := d.Time.Add(d.drain)
	if d.renews {
		return flight.KeepWithin(x.Ctx, x.resp, until, &x.Sleeper)
	}
	flight.DrainWithin(x.Ctx, x.resp, until, io.Discard, &x.Sleeper)
	return nil
}

// endWithoutBody ends a call whose GetBody failed after a retry was decided. The caller
// gets the last response if it is left. Otherwise the caller gets an error that has
// both the error of GetBody and the last outcome.
func (x *exchange) endWithoutBody(left *http.Response, d *decision, why error) (*http.Response, error) {
	x.limits.ReleaseBudget()
	failed := &bodyError{last: d.Err, why: why, status: d.Status}
	last := entry{Attempt: d.Attempt, reason: ReasonNotReplayable}
	last.Err, last.Wait = failed, 0
	x.report.history[len(x.report.history)-1] = last.Attempt
	last.Kind = KindNone // the outcome of the attempt was told before
	x.report.tellObservers(left, &last)
	if left != nil {
		return x.report.markResponse(left, ReasonNotReplayable), nil
	}
	return nil, x.report.newError(ReasonNotReplayable, failed)
}

// runObserved makes an exchange whose traces have hooks.
func (x *exchange) runObserved() (resp *http.Response, err error) {
	bodied, began := false, time.Now()
	x.requestStart()
	defer func() { x.requestEnd(began, resp, err, bodied) }()
	resp, err = x.makeAttempts()
	bodied = x.observeBody(resp)
	return resp, err
}
