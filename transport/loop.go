// The way of one request.

package transport

import (
	"cmp"
	"context"
	"errors"
	"math/rand/v2"
	"net/http"
	"time"

	"github.com/aplomb-go/aplomb/classify"
	"github.com/aplomb-go/aplomb/internal/host"
	"github.com/aplomb-go/aplomb/internal/replay"
	"github.com/aplomb-go/aplomb/internal/resume"
	"github.com/aplomb-go/aplomb/policy"
)

// RoundTrip sends a request, and sends it again when that is safe and makes
// sense. It keeps to the contract of http.RoundTripper: the request is not
// changed, its body is closed, and a response, whatever its status, comes with
// a nil error. After the last attempt the caller gets the last real response
// with its body unread ([GaveUp] tells why there was no further try), or an
// error through which errors.Is and errors.As see the last one (see [Error]).
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
	rule, options := t.ruleFor(h, set), optionsOf(req.Context())
	if !t.light(req, h, rule, options) {
		return t.exchange(req, h, rule, options)
	}
	resp, err := checkAnswer(t.base.RoundTrip(req))
	verdict := rule.classify(classify.Outcome{Request: req, Response: resp, Err: err})
	if err == nil && !retryable(verdict) && h.Quiet() {
		if rule.rule.Resume.Max < 0 || !resume.Likely(resp) {
			return resp, nil
		}
		return t.resuming(req, rule, series{sent: 1}, resp), nil
	}
	return t.exchangeAfter(req, h, rule, resp, err)
}

// exchange and exchangeAfter are functions of their own so that what an
// exchange needs is not cleared for each light request.

func (t *Transport) exchange(req *http.Request, h *host.State[resolved], r *resolved, o *options) (*http.Response, error) {
	x := exchange{t: t, req: req, ctx: req.Context(), state: h, rule: r, options: o}
	defer x.obeyCancel()()
	return x.run()
}

func (t *Transport) exchangeAfter(req *http.Request, h *host.State[resolved], r *resolved, resp *http.Response, err error) (*http.Response, error) {
	x := exchange{t: t, req: req, ctx: req.Context(), state: h, rule: r}
	defer x.obeyCancel()()
	return x.runAfter(resp, err)
}

// light reports whether the first attempt needs nothing of us: no limit to
// ask, no body to keep, no clock to read, nobody to tell. It is how nearly
// every request goes. Its answer, unless it is a success, meets the same loop
// as any other.
func (t *Transport) light(req *http.Request, h *host.State[resolved], r *resolved, o *options) bool {
	return r.light && o == nil && t.trace == nil && t.logger == nil &&
		(req.Body == nil || req.Body == http.NoBody || replay.Independent(req)) && h.Quiet()
}

// An exchange is one call of RoundTrip.
type exchange struct {
	t       *Transport
	req     *http.Request   // the caller's
	ctx     context.Context // the caller's; see obeyCancel
	linked  bool            // Request.Cancel ends ctx, too
	state   *host.State[resolved]
	rule    *resolved
	options *options // nil: none
	body    replay.Body

	sent     int           // sends so far
	number   int           // the send whose outcome is at hand; less than sent where a hedge lost
	prev     time.Duration // the last back-off value
	start    time.Time     // read only where the rule bounds the elapsed time
	history  []Attempt     // empty at a success on the first try
	part     bool          // this goes on with a response's body that was cut
	offset   int64         // from here
	retried  bool          // the loop has sent again; a hedge is no retry
	reserved *host.Charge  // what the budget gave for a retry that is not sent yet

	flight    *flight       // a place at the gate that no leg has taken over yet; nil: none
	unpaced   bool          // no quota was known when the pacing was asked
	mark      uint64        // of the send, from the pacing
	entered   time.Duration // when the cooldown let the attempt go, 0 where nothing was held
	sentAt    time.Time     // when it was sent; read only where the rule limits something
	notBefore time.Time     // what an answer that lost a race asked for
	heard     [2]hearing    // of the answers' headers, the last one first; a hedged request has two
	scopeKey  uint64        // of the credentials, once scoped
	scoped    bool
}

// A decision is what was made of one attempt.
type decision struct {
	Attempt
	reason Reason
	drain  time.Duration // how long after Time the answer may be drained before the retry
	ended  error         // the end of the caller's context, where it ended a wait for the body
	u      float64       // random, in [0,1): the jitter on a server's wait, of the request's own and of the hold's
}

// run is the way of a request that needs more than the base transport from the
// first attempt on.
func (x *exchange) run() (*http.Response, error) {
	defer x.end()
	x.begin()
	if err := x.admit(); err != nil {
		if x.sent == 0 {
			x.state.ReleaseCount() // what is refused does not reach the host, and earns no retry
		}
		return nil, err
	}
	resp, err := x.send()
	return x.goOn(resp, err)
}

// runAfter goes on after a light first attempt.
func (x *exchange) runAfter(resp *http.Response, err error) (*http.Response, error) {
	defer x.end()
	x.sent, x.number = 1, 1
	x.begin()
	return x.goOn(resp, err)
}

// goOn is the loop: judge an attempt, and either deliver it, or give it up,
// wait, and send again.
func (x *exchange) goOn(resp *http.Response, err error) (*http.Response, error) {
	delivered := false
	defer func() { // for a classifier, hint or trace that panics
		if !delivered && resp != nil && resp.Body != nil {
			_ = resp.Body.Close()
		}
	}()
	for {
		d := x.judge(resp, err, x.classify(resp, err))
		x.observe(resp, &d)
		if d.reason != ReasonRetry {
			delivered = true
			return x.deliver(resp, err, &d)
		}
		left := x.giveUp(resp, &d)
		resp = nil
		if err := x.sleep(time.Until(d.Time.Add(d.Wait))); err != nil {
			return nil, x.refuse(ReasonCanceled, err)
		}
		if err := x.overdue(); err != nil {
			return nil, err
		}
		if why := x.body.Renew(); why != nil {
			return x.bodiless(left, &d, why)
		}
		if err := x.admit(); err != nil {
			return nil, err
		}
		x.retried = true
		resp, err = x.send()
	}
}

// begin prepares what later attempts would need, and no more.
func (x *exchange) begin() {
	if x.req.Body != nil && !x.single() {
		upload := x.rule.rule.Upload
		x.body = replay.New(x.req, replay.Limits{Memory: upload.Memory, Disk: upload.Disk, Dir: x.t.tempDir}, &x.t.kept)
	}
}

// end closes what no attempt took over.
func (x *exchange) end() {
	x.refund()
	x.giveBack()
	if x.sent == 0 && x.body.Untouched() {
		closeBody(x.req)
	}
	x.body.Finish()
}

// single reports whether there is to be one send only.
func (x *exchange) single() bool {
	return x.rule.rule.Attempts <= 1 || x.options != nil && x.options.sending == once
}

// classify asks the rule for a verdict, when the host's machines have heard the
// headers.
func (x *exchange) classify(resp *http.Response, err error) classify.Verdict {
	x.hear(resp)
	return x.rule.classify(x.outcome(resp, err))
}

// outcome is what classifiers and hints are asked about.
func (x *exchange) outcome(resp *http.Response, err error) classify.Outcome {
	o := classify.Outcome{Request: x.req, Response: resp, Err: err}
	if x.linked {
		o.Request = x.req.WithContext(x.ctx)
	}
	if d := x.rule.rule.AttemptTimeout; d > 0 {
		o.PeekWait = min(d, time.Second)
	}
	return o
}

func retryable(v classify.Verdict) bool {
	return v == classify.Refused || v == classify.Ambiguous
}

// judge decides what is done about an outcome, and takes what a retry needs.
func (x *exchange) judge(resp *http.Response, err error, v classify.Verdict) decision {
	d := decision{Attempt: Attempt{Number: x.number, Err: err, Verdict: v, Time: time.Now()}, u: rand.Float64()}
	if resp != nil {
		d.Status = resp.StatusCode
	}
	hint, hinted := x.note(resp, &d)
	if left := x.notBefore.Sub(d.Time); left > hint { // said to the send that lost the race
		hint, hinted = left, true
	}
	d.Hint = max(hint, 0)
	f := x.facts(resp, &d)
	f.hint, f.hinted = hint, hinted
	d.reason, d.Wait = decide(f)
	if d.reason == ReasonRetry {
		d.drain = f.within(d.Wait, drainTime)
		x.commit(&d, f.backoff, f.within(d.Wait, replay.MaxBusy))
	}
	if d.reason == ReasonNotReplayable || d.reason == ReasonBodyBusy {
		d.Err = x.bodyErr(d.reason, err)
	}
	return d
}

// bodyErr returns the error of an attempt that is not repeated because of the
// request's body. last is the attempt's own error, nil after an answer.
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

// facts gathers what the decision depends on.
func (x *exchange) facts(resp *http.Response, d *decision) facts {
	rule := &x.rule.rule
	f := facts{
		verdict:       d.Verdict,
		canceled:      x.ctx.Err() != nil && (d.Err != nil || retryable(d.Verdict)),
		nested:        nested(x.req, resp, d.Err),
		once:          x.options != nil && x.options.sending == once,
		replayable:    x.body.Replayable(),
		sent:          x.sent,
		attempts:      rule.Attempts,
		maxRetryAfter: rule.RetryAfter.Max,
		excess:        rule.RetryAfter.Beyond,
		u:             d.u,
		elapsedMax:    rule.MaxElapsed,
	}
	if !retryable(f.verdict) || x.single() {
		return f // nothing below is asked
	}
	f.idempotent = f.verdict == classify.Refused || x.idempotent()
	if x.body.Broke() && !x.idempotent() {
		f.replayable = false // the error that looks like a refusal may be the body's own
	}
	f.backoff = rule.Backoff.Delay(x.sent-1, x.prev)
	if f.elapsedMax > 0 {
		f.elapsed = d.Time.Sub(x.start)
	}
	if until, ok := x.ctx.Deadline(); ok {
		f.room, f.deadline = until.Sub(d.Time), true
	}
	x.limits(&f, d)
	return f
}

// limits adds what the host's limits say of the next send.
func (x *exchange) limits(f *facts, d *decision) {
	if x.rule.rate {
		f.turn = x.state.Machines().Rate(x.rule.rateConfig()).Peek(d.Time)
	}
	if x.rule.rule.Cooldown != policy.On || x.state.Quiet() {
		return
	}
	now, cooldown := x.t.now(), &x.state.Machines().Cooldown
	if _, f.refused = cooldown.Held(now, x.scope()); !f.refused {
		// The wait keeps its own jitter, although the hold has one, and the same:
		// a success of another request may end the hold before its time.
		f.turn = max(f.turn, cooldown.Named(now, x.scope())-now)
	}
}

func (x *exchange) idempotent() bool {
	return x.options != nil && x.options.sending == repeatable || x.rule.rule.Idempotent(x.req)
}

// nested reports whether a Transport below gave up on this outcome.
func nested(req *http.Request, resp *http.Response, err error) bool {
	if resp != nil {
		// A caller who reuses the context of a marked response hands the old
		// mark down again; it says nothing about this outcome.
		var m *mark
		if resp.Request != nil {
			m = markOf(resp.Request.Context())
		}
		return m != nil && m.history.Reason.limit() && m != markOf(req.Context())
	}
	e, ok := errors.AsType[interface {
		error
		GaveUp() bool
	}](err)
	return ok && e.GaveUp()
}

// commit takes what a retry needs and may be refused: one retry of the host's
// budget, asked last, and the request's body. Until here nothing was taken from
// the attempt at hand, so whatever is refused, the caller still has the answer
// whole. busy is how long a Read of the body under way may be waited for.
func (x *exchange) commit(d *decision, backoff, busy time.Duration) {
	reason := ReasonRetry
	if !x.reserve() {
		reason = ReasonBudget
	} else if reason = bodyReason(x.body.TakeBack(x.ctx, busy)); reason != ReasonRetry {
		x.refund()
	}
	if reason != ReasonRetry {
		d.reason, d.Wait = reason, 0
		if reason == ReasonCanceled {
			d.ended = contextErr(x.ctx)
		}
		return
	}
	x.prev = backoff
}

// reserve takes one retry or hedge from the host's budget, if there is one left.
func (x *exchange) reserve() bool {
	budget := &x.state.Machines().Budget
	budget.CountTo(x.state.Requests())
	x.reserved = budget.Take(x.t.now(), x.rule.budgetConfig())
	return x.reserved != nil
}

// refund gives back what the budget gave for a retry that is not sent.
func (x *exchange) refund() {
	if x.reserved != nil {
		budget := &x.state.Machines().Budget
		budget.CountTo(x.state.Requests())
		budget.Release(x.t.now(), x.rule.budgetConfig(), x.reserved)
		x.reserved = nil
	}
}

// deliver gives the last outcome to the caller.
func (x *exchange) deliver(resp *http.Response, err error, d *decision) (*http.Response, error) {
	if resp != nil && (resp.StatusCode == http.StatusTemporaryRedirect || resp.StatusCode == http.StatusPermanentRedirect) {
		x.body.Leave(x.ctx)
	}
	switch {
	case err == nil && d.reason.told():
		return marked(resp, x.req, d.reason, x.history), nil
	case err == nil:
		return x.resuming(resp), nil // what a Transport below marked keeps its mark
	case d.ended != nil:
		return nil, x.newError(d.reason, d.ended)
	case !x.retried && !d.reason.limit():
		return nil, err
	}
	return nil, x.newError(d.reason, cmp.Or(d.Err, err))
}

func (x *exchange) newError(reason Reason, err error) *Error {
	return &Error{
		Reason:   reason,
		Attempts: x.history,
		Err:      err,
		request:  method(x.req) + " " + safeURL(x.req.URL),
		url:      x.req.URL.String(),
		ended:    x.ctx.Err(),
	}
}

// giveUp discards the answer at hand. If the caller's GetBody is still to be
// called, which may fail, giveUp returns the answer with the rest of its body
// when that fits within the bounds of the drain.
func (x *exchange) giveUp(resp *http.Response, d *decision) (left *http.Response) {
	limit := time.Until(d.Time.Add(d.drain))
	if x.body.Renews() {
		return keepWithin(x.ctx, resp, limit)
	}
	discardWithin(x.ctx, resp, limit)
	return nil
}

// bodiless ends a request whose GetBody failed although a retry was decided. The
// caller gets the last answer if it is left, and otherwise an error that has both
// the error of GetBody and the last outcome.
func (x *exchange) bodiless(left *http.Response, d *decision, why error) (*http.Response, error) {
	x.refund()
	failed := &bodyError{last: d.Err, why: why, status: d.Status}
	last := decision{Attempt: d.Attempt, reason: ReasonNotReplayable}
	last.Err, last.Wait = failed, 0
	x.history[len(x.history)-1] = last.Attempt
	x.tell(left, &last)
	if left != nil {
		return marked(left, x.req, ReasonNotReplayable, x.history), nil
	}
	return nil, x.newError(ReasonNotReplayable, failed)
}

// overdue refuses a retry that would start later than the rule's Elapsed allows.
// The decision left time enough, but a base transport whose body ignores Close,
// or a busy machine, can use it up.
func (x *exchange) overdue() *Error {
	if limit := x.rule.rule.MaxElapsed; limit > 0 && time.Since(x.start) > limit {
		return x.refuse(ReasonMaxElapsed, errOverElapsed)
	}
	return nil
}

// sleep waits, and ends at once when the caller's context does.
func (x *exchange) sleep(d time.Duration) error { return x.sleepOr(d, nil) }

// sleepOr waits until d is over or something is received.
func (x *exchange) sleepOr(d time.Duration, ready <-chan struct{}) error {
	if d <= 0 {
		if x.ctx.Err() != nil {
			return contextErr(x.ctx)
		}
		return nil
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ready:
		return nil
	case <-x.ctx.Done():
		return contextErr(x.ctx)
	}
}

// obeyCancel makes the closing of Request.Cancel, which old callers still use,
// end x.ctx, so that every wait of the exchange sees it. The attempts keep the
// caller's context: the base transport looks at the channel itself, and its
// answer's body outlives the exchange. stop ends the goroutine that listens.
func (x *exchange) obeyCancel() (stop func()) {
	//lint:ignore SA1019 old callers still set Request.Cancel
	canceled := x.req.Cancel
	if canceled == nil {
		return func() {}
	}
	ctx, cancel := context.WithCancelCause(x.ctx)
	x.ctx, x.linked = ctx, true
	go func() {
		select {
		case <-canceled:
			cancel(errRequestCanceled)
		case <-ctx.Done():
		}
	}()
	return func() { cancel(nil) }
}

// method returns the request's method; an empty one means GET.
func method(req *http.Request) string { return cmp.Or(req.Method, http.MethodGet) }

func closeBody(req *http.Request) {
	if req.Body != nil {
		_ = req.Body.Close()
	}
}
