// The loop: one attempt after another until the caller gets an outcome.

package transport

import (
	"cmp"
	"errors"
	"net/http"
	"slices"
	"time"

	"github.com/aplomb-go/aplomb/classify"
	"github.com/aplomb-go/aplomb/internal/attempt"
	"github.com/aplomb-go/aplomb/internal/exchange"
	"github.com/aplomb-go/aplomb/internal/host/instant"
	"github.com/aplomb-go/aplomb/internal/host/news"
	"github.com/aplomb-go/aplomb/internal/host/pool"
	"github.com/aplomb-go/aplomb/internal/limit"
	"github.com/aplomb-go/aplomb/internal/replay"
	"github.com/aplomb-go/aplomb/internal/resume"
	"github.com/aplomb-go/aplomb/internal/route"
)

// newRetrier returns the retrier of a call, which it takes over.
func (c *call) newRetrier() *retrier {
	x := &retrier{call: *c}
	x.Observer, x.planner.Maker, x.last = observer{&x.call}, x.t.pools, &x.room
	return x
}

// run makes the attempts of a call. first is the first attempt if it was made already. It is a
// function of its own, so that a light request does not pay for a retrier.
func (c *call) run(first *try) (resp *http.Response, err error) {
	x := c.newRetrier()
	defer x.ObeyCancel()()
	if first == nil && len(x.traces) > 0 {
		began := time.Now()
		x.requestStart()
		defer func() { x.requestEnd(began, resp, err) }()
	}
	if first == nil {
		x.began = x.Registry.Now()
	} else {
		x.room, x.sent = *first, 1
		if x.last.DoneAt == 0 {
			x.last.DoneAt = x.Registry.Now()
		}
		if x.last.SentAt == 0 && x.last.Out != nil {
			x.last.SentAt = x.Registry.InstantOf(x.last.Out.Ctx.Began())
		}
		x.start, x.began = x.last.SentAt, x.last.SentAt
	}
	return x.loop()
}

// loop makes an attempt, unless there is an outcome at hand, and judges it. Then it delivers the
// outcome, or it discards it, waits, and makes the next attempt.
func (x *retrier) loop() (*http.Response, error) {
	delivered := false
	defer func() {
		if x.body != nil {
			defer x.body.Finish()
		}
		if !delivered { // nothing was sent any more, or a classifier, RetryAfter or trace panics
			defer x.next.cancel(&x.Request)
			defer x.last.cancel(&x.Request)
			defer attempt.Dismiss(x.Ctx, x.last.Resp)
			x.tellUndecided(&x.last.told, &x.last.Outcome)
		}
	}()
	switch {
	case x.Req.Body == nil || x.Req.Body == http.NoBody:
	case x.isSingle():
		x.body = replay.Once(x.Req, &x.t.kept) // is watched as well, because its Read may fail
	default:
		x.body = replay.New(x.Req, x.Rule.Policy.ReplayBuffer, &x.t.kept)
	}
	for atHand := x.last.Number > 0; ; atHand = false {
		if !atHand {
			if no := x.admit(); no != nil {
				return nil, x.refuse(no)
			}
			if x.retried = x.sent > 0; !x.retried && x.download != nil {
				x.State.Count() // the continuation begins a request
			}
			x.send()
		}
		x.askRule(x.last, x.history)
		var d decision
		x.judge(&d)
		x.record(&x.last.told, &x.last.Outcome, &d)
		if d.reason != ReasonRetry {
			requestLog{x}.failed(d.ended)
			delivered = true
			return x.deliver(&d)
		}
		if x.last.Status() == http.StatusExpectationFailed {
			x.DropExpect()
		}
		if resp, err, ends := x.between(&d); ends {
			return resp, err
		}
	}
}

// admit waits until the limits let an attempt go. Nothing is sent for a caller who has gone,
// even if no limit had to stop the request. Nothing is sent later than the rule allows. The
// decision left time enough, but a base transport whose body ignores Close, a GetBody, or a
// busy machine can use it up.
func (x *retrier) admit() *exchange.Rejection {
	var latest instant.Instant // of a retry; 0: nothing bounds it
	if limit := x.Rule.Policy.MaxElapsedTime; limit > 0 && x.sent > 0 {
		latest = instant.After(x.start, limit)
	}
	x.planner.Refresh(&x.Request)
	if x.Rule.Limited || !x.State.Quiet() {
		x.Review()
	}
	if x.Rule.Breaker && x.sent == 0 && x.Ctx.Err() == nil {
		if no := x.awaitTurn(nil, 0); no != nil {
			return no
		}
	}
	if x.planner.Latest = latest; x.Rule.Gated && x.Ctx.Err() == nil {
		if x.next.permit, x.room.permit = x.room.permit, nil; x.next.permit == nil { // else that of the last attempt, whose outcome it knows
			x.next.permit = new(limit.Permit)
		}
		*x.next.permit = limit.Permit{}
		if x.t.logger != nil {
			requestLog{x}.turn(latest)
		}
		if no := x.next.permit.Acquire(&x.Request, &x.queued, latest); no != nil {
			return no
		}
	}
	if x.Ctx.Err() != nil {
		return &exchange.Rejection{Err: attempt.ContextErr(x.Ctx)}
	}
	if latest != 0 && x.Registry.Now() > latest {
		return &exchange.Rejection{Why: exchange.WhyOverdue}
	}
	return nil
}

// refuse ends the call without a further attempt, because a limit refused it or the context has ended. It cancels the permit, and
// tells the observers.
func (x *retrier) refuse(no *exchange.Rejection) error {
	if x.sent == 0 && x.download == nil {
		x.State.ReleaseCount() // a refused request does not reach the host and earns no retry
	}
	x.next.cancel(&x.Request)
	x.holdInVain()
	reason, err := x.reasonFor(no)
	if x.reason = reason; x.sent == 0 && x.download == nil && no.Limit == "" && x.held.waited == 0 && no.Err != nil {
		requestLog{x}.notSent(History{Reason: reason}, nil)
		return err // there is nothing to tell but the error of the context
	}
	e := x.newError(reason, err)
	switch reason {
	case ReasonCircuitOpen:
		if why := x.State.Machines().News().Failure(); why != (news.Cause{}) {
			e.down = (&Attempt{Status: why.Status, Err: why.Err}).outcome()
		}
		fallthrough
	case ReasonThrottled, ReasonQuota, ReasonRateLimit:
		if no.Until.After(time.Now()) { // else nobody knows when the next probe goes
			e.Until = no.Until
		}
	}
	requestLog{x}.notSent(e.History, nil)
	requestLog{x}.failed(err)
	return e
}

// reasonFor returns the Reason and the error of a refusal. The error is nil if the reason says
// everything.
func (c *call) reasonFor(no *exchange.Rejection) (Reason, error) {
	reason := Reason(no.Limit)
	switch no.Why {
	case exchange.WhyFull:
		return reason, nil
	case exchange.WhyLate:
		return cmp.Or(reason, ReasonDeadline), errLate
	case exchange.WhyOverdue:
		return cmp.Or(reason, ReasonMaxElapsedTime), errOverdue
	}
	if gone := c.reasonGone(); reason == "" || gone == ReasonCanceled {
		reason = gone
	}
	return reason, no.Err
}

// askRule gives the headers of an attempt to the limits, and then asks the rule for its class, unless that is
// known. history are the attempts before it.
func (c *call) askRule(a *try, history []Attempt) {
	if a.permit != nil {
		a.permit.Headers(&c.Request, &a.Outcome)
	}
	if a.Class != classify.Unknown {
		return
	}
	if a.BodyBroke = a.body != nil && a.body.Broke(); a.BodyBroke && a.Err != nil {
		a.Class = classify.Final
		return
	}
	o, ask, link := c.OutcomeOf(a.Resp, a.Err), c.Rule.Classify, a.Link
	if link != nil && !link.Proves {
		link = nil // no outcome depends on whether somebody observes
	}
	if a.Err != nil {
		o.Err = c.beforeResponse(a.Err, link)
	}
	if c.keyed && slices.ContainsFunc(history, func(a Attempt) bool { return a.Class == classify.Ambiguous }) {
		ask = c.Rule.KeyInUse
	}
	a.Class = ask(o)
	switch {
	case a.Err == nil:
	case a.Class == classify.Ambiguous && (link.Unsent() || route.RefusedByProxy(c.base, c.Req, a.Err)):
		a.Class = classify.Refused
	case a.Class == classify.Refused && (link.ConnectedLate(a.Err) || link.AskedOthers() && classify.ErrorTypeOf(a.Err) == classify.ErrorDial):
		a.Class = classify.Ambiguous
	case a.Class == classify.Final && (c.t.pools.TakesHTTP1(c.Req, a.Err) || errors.Is(a.Err, replay.ErrDetached)):
		a.Class = classify.Ambiguous
	}
}

// beforeResponse returns the error of an attempt as a classifier sees it. If another base is around
// net/http, an error that nobody knows may be anything, such as that of a source of tokens. But hooks
// prove that there was no connection.
func (c *call) beforeResponse(err error, link *attempt.Link) error {
	_, direct := c.base.(*http.Transport)
	_, own := errors.AsType[*bodyError](err)
	switch {
	case link.Connected() && classify.ErrorTypeOf(err) == classify.ErrorTLS:
		return shaken{err}
	case (direct || link.Unsent()) && !own && classify.ErrorTypeOf(err) == classify.ErrorOther:
		return unanswered{err}
	}
	return err
}

// judge decides about the outcome at hand, and reserves everything that a retry needs. The
// outcome may be the cut of a body.
func (x *retrier) judge(d *decision) {
	a := x.last
	if a.Err != nil {
		below := errorBelow(a.Err)
		x.broke, a.Below = true, below != nil && (!below.ofBody || len(below.Attempts) > 0)
	}
	if a.Class == classify.Refused && a.Resp != nil && (x.isSpent() ||
		a.Resp.Request != nil && a.Resp.Request.Response != nil && a.Resp.Request.Response != x.Req.Response) {
		a.Class = classify.Ambiguous // the base has followed a redirection, and the first server may have acted
	}
	d.at, d.err = time.Now(), a.Err
	x.planner.Note(&x.Request, &a.Outcome)
	d.retryAfter, d.u = a.done(&x.Request, &a.Outcome)
	if a.Err != nil {
		if until := heldUntil(a.Err); until.After(x.wait) {
			x.wait = until
		}
	}
	d.retryAfter = max(d.retryAfter, x.wait.Sub(d.at), 0) // four may have asked: this response, the loser of a race, a Transport below, a cut body
	misdirected := a.Status() == http.StatusMisdirectedRequest || a.Err != nil && route.WantsHTTP1(a.Err)
	d.stuck = misdirected && a.Failed() && x.planner.IsStuck(&x.Request, &a.Outcome)
	f := x.facts(d)
	d.reason, d.delay = decide(f)
	if f.gone != "" {
		if _, own := errors.AsType[*attempt.TimeoutError](a.Err); own { // the caller's own time is over, too
			d.ended = attempt.ContextErr(x.Ctx)
		}
	}
	if d.reason == ReasonDeadline || d.reason == ReasonMaxElapsedTime {
		d.reason = f.nameLimit(d.reason)
	}
	if d.reason == ReasonRetry && x.sent > 0 {
		d.drain = f.within(d.delay, attempt.DrainTime)
		x.commit(d, f.backoff, f.within(d.delay, replay.MaxBusy))
	}
	if x.until = (time.Time{}); d.reason == ReasonThrottled || d.reason == ReasonRateLimit {
		x.until = d.at.Add(max(d.retryAfter, f.turn))
	}
	if d.reason == ReasonRetry && a.Kind == attempt.Cut {
		x.download.past.sentAt, x.download.past.offset = d.at.Add(d.delay), x.offset
	}
	if d.reason == ReasonNotReplayable {
		if why := cmp.Or(d.why, x.body.Why()); why != nil {
			d.err = &bodyError{last: a.Err, why: why}
		}
	}
}

// facts gathers everything that the decision depends on.
func (x *retrier) facts(d *decision) facts {
	rule := &x.Rule.Policy
	f := facts{
		class:         x.last.Class,
		nested:        gaveUpBelow(x.Req, x.last.Resp, d.err),
		misdirected:   d.stuck,
		sent:          x.sent,
		attempts:      1,
		maxRetryAfter: rule.MaxRetryAfter,
		retryAfter:    d.retryAfter,
		u:             d.u,
	}
	failed := x.last.Failed()
	if x.Ctx.Err() != nil && (failed || d.err != nil) {
		f.gone = x.reasonGone()
	}
	if !failed || x.isSingle() {
		return f // nothing below is asked
	}
	f.attempts = rule.MaxAttempts
	f.idempotent = f.class == classify.Refused || x.isIdempotent()
	f.replayable = x.body == nil || x.body.Why() == nil
	if until, ok := x.Ctx.Deadline(); ok {
		f.room, f.deadline = until.Sub(d.at), true
	}
	if x.sent == 0 {
		f.backoff = x.download.past.gap(x.offset, d.at)
		return f // a request has a time of its own, and asks the limits when it goes
	}
	f.backoff = rule.Backoff.Delay(x.sent-1, x.prev)
	if f.class == classify.Ambiguous && x.last.Err != nil && x.last.Kind != attempt.Cut && attempt.IsLate(x.Ctx, x.last.Err) {
		f.silence = rule.Backoff.Delay(silentAfter, f.backoff)
	}
	f.down = x.Rule.FailsFast && x.Down()
	if f.elapsedMax = rule.MaxElapsedTime; f.elapsedMax > 0 {
		f.elapsed = x.Registry.InstantOf(d.at).Sub(x.start)
	}
	if x.Rule.Gated {
		turn, limit := x.last.permit.Forecast(&x.Request, d.at)
		f.turn, f.limit = turn, Reason(limit)
	}
	return f
}

// commit reserves the request's body, which may be refused. Until here nothing was taken from the
// attempt at hand. So if commit refuses, the caller still gets the whole response.
// busy is how long a Read of the body under way may be waited for.
func (x *retrier) commit(d *decision, backoff, busy time.Duration) {
	x.prev = backoff
	if x.body == nil {
		return
	}
	err := x.body.Rewind(x.Ctx, busy)
	if err == nil {
		return
	}
	d.reason, d.delay = ReasonNotReplayable, 0
	switch err {
	case replay.ErrBusy:
		d.why = err
	case replay.ErrEnded:
		d.reason, d.ended = x.reasonGone(), attempt.ContextErr(x.Ctx)
	}
}

// deliver gives the last outcome to the caller.
func (x *retrier) deliver(d *decision) (*http.Response, error) {
	resp, err := x.last.Resp, x.last.Err
	if x.body != nil && resp != nil && (resp.StatusCode == http.StatusTemporaryRedirect || resp.StatusCode == http.StatusPermanentRedirect) {
		x.body.Detach(x.Ctx)
	}
	switch {
	case err == nil && (d.reason != ReasonFinal && x.gaveUp(d.reason) || d.reason == ReasonNotIdempotent || d.reason == ReasonNotReplayable ||
		d.stuck && d.reason == ReasonFinal && len(x.history) <= 1): // see gaveUpBelow
		return x.markResponse(resp, d.reason), nil
	case err == nil && x.download != nil: // it continues a body
		return resp, nil
	case err == nil:
		if x.download = x.resumeBody(x.series, x.start, x.last.Pool, resp); x.download != nil && x.download.past != nil {
			x.download.past.wait = x.wait
		}
		if h := x.history; (len(h) > 1 || len(h) == 1 && h[0].Waited > 0) && !gaveUpBelow(x.Req, resp, nil) {
			return x.markResponse(resp, d.reason), nil
		}
		return resp, nil // if a Transport below gave up, the response keeps its mark
	case x.last.Kind == attempt.Cut:
		return nil, x.newError(d.reason, nil)
	case d.ended != nil:
		return nil, x.newError(d.reason, d.ended)
	case x.retried || x.gaveUp(d.reason):
		return nil, x.newError(d.reason, cmp.Or(d.err, err))
	case !d.reason.isOfRequest() || isAsserted(err):
		return nil, err
	}
	e := x.newError(d.reason, cmp.Or(d.err, err))
	e.single = true
	return nil, e
}

// resumeBody makes the response's body continue after a cut. If the body cannot be
// continued, resumeBody returns nil.
func (c *call) resumeBody(s series, start instant.Instant, over *pool.Pool, resp *http.Response) *download {
	if !c.Rule.Resumes || resp.Body == nil || resp.Body == http.NoBody || resp.ContentLength == 0 || attempt.HandsOver(c.Req, resp) || c.isSingle() {
		return nil
	}
	rule := &c.Rule.Policy
	plan, why := resume.Check(c.Req, resp, &resume.Terms{
		Max: rule.MaxAttempts - 1, Again: rule.MaxRefetch, Repeatable: c.options != nil && c.options.sending == sendRepeatable,
	})
	if why != nil {
		return nil
	}
	if plan.Compares {
		if small, _ := attempt.InMemory(resp.Body); small { // a body in memory is never cut
			return nil
		}
	}
	d := &download{body: resume.Body{Plan: plan}, t: c.t, req: c.Req, rule: c.Rule, spanned: c.spanned, pool: over, start: start, price: c.Price}
	if s != (series{sent: 1}) {
		d.past = &past{series: s}
	}
	d.body.Fetcher, resp.Body = d, &d.body
	return d
}
