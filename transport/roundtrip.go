// RoundTrip, and the first try of a call if nothing makes it wait.

package transport

import (
	"net/http"

	"github.com/aplomb-go/aplomb/classify"
	"github.com/aplomb-go/aplomb/internal/attempt"
	"github.com/aplomb-go/aplomb/internal/exchange"
	"github.com/aplomb-go/aplomb/internal/host/line"
	"github.com/aplomb-go/aplomb/internal/limit"
	"github.com/aplomb-go/aplomb/internal/replay"
	"github.com/aplomb-go/aplomb/internal/route"
)

// RoundTrip sends a request, and retries it if that is safe and makes sense. It
// keeps to the contract of http.RoundTripper: the request is not changed, its body
// is closed, and a response comes with a nil error, whatever its status. After the
// last attempt the caller gets the last real response with its body unread, or an
// error through which errors.Is and errors.As see the last error (see [Error]).
// [HistoryOf] tells why a response was not retried.
func (t *Transport) RoundTrip(req *http.Request) (*http.Response, error) {
	sent := false
	defer func() {
		if !sent { // perhaps because a function of the user's panics
			closeBody(req)
		}
	}()
	if err := attempt.CheckRequest(req); err != nil {
		return nil, err
	}
	set := t.registry.Rules.Load()
	if set == nil {
		return nil, errNotMade
	}
	base := t.pools.Resolve()
	h := t.registry.Hosts.Acquire(req.URL)
	defer h.Release()
	c := call{t: t, base: base, traces: t.traces, Request: exchange.Request{Registry: &t.registry, Req: req, Ctx: req.Context(), State: h, Rule: t.registry.HostRule(h, set)}}
	if c.options = optionsOf(c.Ctx); c.options != nil {
		c.traces = c.options.tracesAfter(t.traces)
	}
	if c.Rule.Paths != nil || c.options != nil && c.options.rule != nil {
		if err := c.findRule(); err != nil {
			h.ReleaseCount() // a request that is not sent earns no retry
			return nil, err
		}
	}
	if c.Rule.Policy.IdempotencyKey != nil {
		c.addKey()
	}
	light := c.isLight() && c.Ctx.Err() == nil
	if sent = true; light {
		return c.tryLight()
	}
	return c.run(nil)
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
	return !c.Rule.Loops && len(c.traces) == 0 && (c.t.logger == nil || !c.logsAttempts()) &&
		(c.Req.Body == nil || c.Req.Body == http.NoBody || replay.Independent(c.Req)) && c.State.Calm() && !(c.Rule.Breaker && c.State.Failing()) && (!c.Rule.Limited || c.Registry.Fleet == nil)
}

// tryLight is the fast path. It makes the first attempt, and returns the response if it
// is a success. Any other outcome goes on in the loop, and so does a request that a limit makes wait.
func (c *call) tryLight() (*http.Response, error) {
	o := attempt.Outcome{Number: 1, Kind: attempt.First}
	if c.Rule.Limited || c.Rule.Policy.MaxElapsedTime > 0 {
		o.SentAt = c.Registry.Now()
	}
	base := c.base
	if c.State.MachinesMade() != nil {
		base = c.t.pools.Current(c.State.PoolsMade(), &o)
	}
	var a *try // nil: the base gets the request as it is
	var permit limit.Permit
	if c.Rule.Timed || c.Rule.Limited {
		proves := c.provesConnection()
		a = &try{Attempt: attempt.Attempt{
			Outcome: o, Base: base, First: c.base, Req: c.Req, Ctx: c.Ctx, Clock: &c.Registry.Clock, Timeouts: &c.Rule.Timeouts, Timed: c.Rule.Timed,
			Linked: proves, Proves: proves,
		}}
		if c.Rule.Limited {
			if !permit.TryAcquire(&c.Request, o.SentAt) {
				permit.Cancel()
				return c.run(nil)
			}
			permit.Start(&a.Attempt)
		}
		if a.fly(c); c.Rule.Limited {
			permit.Landed(&a.Attempt)
		}
		o = a.Outcome
	} else {
		o.Resp, o.Err = attempt.CheckResponse(base.RoundTrip(c.Req))
	}
	if o.Err == nil && !exchange.TellsToWait(o.Resp.StatusCode) && !(c.Rule.Limited && permit.HasMore(&c.Request, &o)) {
		o.Class = c.judgeResponse(o.Resp) // else the limits hear of the wait before a classifier reads the body
		made := c.State.MachinesMade()
		if !o.Failed() && (made == nil || made.LimitsMade().Quiet()) {
			c.noteGood(&o)
			return o.Resp, nil
		}
	}
	if a == nil {
		a = new(try)
	}
	if a.Outcome = o; c.Rule.Gated {
		loops := permit // so that it costs no allocation here
		a.permit = &loops
	}
	return c.run(a)
}

// noteGood notes the success of the first attempt. If a function of the user's panics, it closes the body.
func (c *call) noteGood(o *attempt.Outcome) {
	if major := int32(o.Resp.ProtoMajor); c.State.Protocol.Load() != major {
		c.State.Protocol.Store(major)
	}
	made := c.State.MachinesMade()
	if made != nil && !made.Line.Quiet() {
		told := false
		defer c.dismissUnless(&told, o.Resp)
		c.Succeeded(line.Success{})
		told = true
	}
	if made != nil || o.Resp.ProtoMajor > 1 {
		route.NoteGood(&c.Request, o)
	}
	c.resumeBody(series{sent: 1}, o.SentAt, o.Pool, o.Resp)
}

// judgeResponse classifies a response. It closes the body if a classifier of the user's
// panics. [classify.Default] calls no success and no redirection a failure, so it is not asked.
func (c *call) judgeResponse(resp *http.Response) classify.Class {
	if !c.Rule.Peeks && resp.StatusCode < http.StatusBadRequest {
		return classify.Final
	}
	classified := false
	defer c.dismissUnless(&classified, resp)
	v := c.Rule.Classify(c.OutcomeOf(resp, nil))
	classified = true
	return v
}

// dismissUnless closes a response that nobody gets, because a function of the user's panicked before it was done.
func (c *call) dismissUnless(done *bool, resp *http.Response) {
	if !*done {
		attempt.Dismiss(c.Ctx, resp)
	}
}
