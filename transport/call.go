// A call, and its first try if nothing makes it wait.

package transport

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/aplomb-go/aplomb/classify"
	"github.com/aplomb-go/aplomb/internal/attempt"
	"github.com/aplomb-go/aplomb/internal/host"
	"github.com/aplomb-go/aplomb/internal/limit"
	"github.com/aplomb-go/aplomb/internal/replay"
	"github.com/aplomb-go/aplomb/internal/route"
	"github.com/aplomb-go/aplomb/internal/rules"
	"github.com/aplomb-go/aplomb/internal/scope"
	"github.com/aplomb-go/aplomb/policy"
)

// A call is a request with what its caller said. One goroutine uses it.
type call struct {
	limit.Request
	t       *Transport
	base    http.RoundTripper
	options *options        // nil: none
	spanned context.Context // what RequestStart returned; nil: no hook
	traces  []Trace         // that observe the call
	keyed   bool            // the rule made the request's Idempotency-Key
}

// RoundTrip sends a request, and retries it if that is safe and makes sense. It
// keeps to the contract of http.RoundTripper: the request is not changed, its body
// is closed, and a response comes with a nil error, whatever its status. After the
// last attempt the caller gets the last real response with its body unread, or an
// error through which errors.Is and errors.As see the last error (see [Error]).
// [HistoryOf] tells why a response was not retried.
func (t *Transport) RoundTrip(req *http.Request) (*http.Response, error) {
	sent := false
	defer closeBodyUnless(&sent, req) // also if a function of the user's panics
	if err := attempt.CheckRequest(req); err != nil {
		return nil, err
	}
	set := t.registry.Rules.Load()
	if set == nil {
		return nil, errNotMade
	}
	base, err := t.pools.Resolve(t)
	if err != nil {
		return nil, err
	}
	h := t.registry.Hosts.Acquire(req.URL)
	defer h.Release()
	c := call{t: t, base: base, Request: limit.Request{Registry: &t.registry, Req: req, Ctx: req.Context(), State: h, Rule: t.registry.HostRule(h, set)}}
	c.options = optionsOf(c.Ctx)
	c.traces = c.options.tracesAfter(t.traces)
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
	if c.Rule.Timed || c.Rule.Limited {
		o.Ended = c.State.Ended()
		proves := c.provesConnection()
		a = &try{Attempt: attempt.Attempt{
			Outcome: o, Base: base, First: c.base, Req: c.Req, Ctx: c.Ctx, Clock: &c.Registry.Clock, Timeouts: &c.Rule.Timeouts, Timed: c.Rule.Timed,
			Linked: proves, Proves: proves,
		}}
		if c.Rule.Limited && !a.permit.TryAcquire(&c.Request, o.SentAt) {
			a.permit.Cancel(&c.Request)
			return c.run(nil)
		}
		a.permit.Start(&a.Attempt)
		a.fly(c)
		a.permit.Landed(&a.Attempt)
		o = a.Outcome
	} else {
		o.Resp, o.Err = attempt.CheckResponse(base.RoundTrip(c.Req))
	}
	if o.Err == nil && !limit.TellsToWait(o.Resp.StatusCode) && !(c.Rule.Limited && a.permit.HasMore(&c.Request, &o)) {
		o.Class = c.judgeResponse(o.Resp) // else the limits hear of the wait before a classifier reads the body
		made := c.State.MachinesMade()
		if !o.Failed() && (made == nil || made.Throttle.Quiet()) {
			if major := int32(o.Resp.ProtoMajor); c.State.Protocol.Load() != major {
				c.State.Protocol.Store(major)
			}
			if made != nil {
				c.Succeeded()
				route.NoteGood(&c.Request, &o)
			}
			c.resumeBody(series{sent: 1}, o.SentAt, o.Pool, o.Resp)
			return o.Resp, nil
		}
	}
	if a == nil {
		a = new(try)
	}
	a.Outcome = o
	return c.run(a)
}

// judgeResponse classifies a response. It closes the body if a classifier of the user's
// panics. [classify.Default] calls no success and no redirection a failure, so it is not asked.
func (c *call) judgeResponse(resp *http.Response) (v classify.Class) {
	if !c.Rule.Peeks && resp.StatusCode < http.StatusBadRequest {
		return classify.Final
	}
	return c.askClassifier(resp)
}

func (c *call) askClassifier(resp *http.Response) (v classify.Class) {
	classified := false
	defer closeUnless(c.Ctx, &classified, resp)
	v = c.Rule.Classify(c.OutcomeOf(resp, nil))
	classified = true
	return v
}

// provesConnection reports whether it may matter that an attempt had no connection. A request that
// is idempotent is sent again in any case.
func (c *call) provesConnection() bool {
	return c.Rule.Timeouts.Connect > 0 || c.Rule.Timed && !c.isIdempotent()
}

// parentContext returns the context that the attempts begin with: the caller's, or the one
// that RequestStart returned.
func (c *call) parentContext() context.Context {
	return cmp.Or(c.spanned, c.Req.Context())
}

// isSingle reports whether at most one attempt is allowed.
func (c *call) isSingle() bool {
	return c.Rule.Policy.MaxAttempts <= 1 || c.options != nil && c.options.sending == sendOnce
}

// isIdempotent reports whether the request may be sent again although the server
// may have acted on it.
func (c *call) isIdempotent() bool {
	return c.options != nil && c.options.sending == sendRepeatable || c.Rule.Policy.Idempotent(c.Req)
}

// isSpent reports whether a response has used up the request, even if it says that the server did not act.
func (c *call) isSpent() bool { return scope.SingleUse(c.Req) && !c.isIdempotent() }

// gaveUp reports whether a reason is a limit that withheld a retry that was otherwise due. A deadline that
// has passed is none.
func (c *call) gaveUp(r Reason) bool {
	return r.isLimit() && (r != ReasonDeadline || c.Ctx.Err() == nil)
}

// reasonGone returns why the caller's context ended. Request.Cancel and the deadline of
// http.Client.Timeout come at the same time, so a deadline that has passed counts.
func (c *call) reasonGone() Reason {
	if until, ok := c.Ctx.Deadline(); ok && !time.Now().Before(until) || errors.Is(c.Ctx.Err(), context.DeadlineExceeded) {
		return ReasonDeadline
	}
	return ReasonCanceled
}

// findRule finds the rule of the request, if its path or its context has one besides that of
// the host.
func (c *call) findRule() error {
	if c.Rule.Paths != nil {
		if p := c.Rule.Paths.Find(method(c.Req), c.Req.URL); p != nil {
			c.Rule = p.Rule
		}
	}
	if c.options == nil || c.options.rule == nil {
		return nil
	}
	r, err := c.options.rule.CompleteOver(c.Rule)
	c.Rule = r
	return err
}

// addKey gives the request the Idempotency-Key of its rule, unless the caller set one. The
// request becomes a copy, with which all attempts are made.
func (c *call) addKey() {
	if rules.HasKey(c.Req.Header) {
		return
	}
	if key := c.Rule.Policy.IdempotencyKey(c.Req); key != "" {
		c.Req, c.keyed = rules.WithKey(c.Req, key), true
	}
}

// RuleFor returns the complete rule of a request by its method and its URL, and the keys of
// Config.Hosts whose rules are in it. The key of the path comes first, and then those of the
// host, the most specific first. Without a key, Config.Rule applies alone. In the complete rule
// a zero field is off, or has the default that its comment names. RuleFor does not see the rules
// of [WithRule]. A CONNECT without a path has the rule of the host, because no path matches it.
// A request without a URL has that of policy.Defaults.
func (t *Transport) RuleFor(req *http.Request) (rule policy.Rule, patterns []string) {
	set := t.registry.Rules.Load()
	if set == nil || req == nil || req.URL == nil {
		return policy.Defaults(), nil
	}
	r, keys := set.ForHost(host.KeyOf(req.URL))
	if r.Paths != nil {
		if p := r.Paths.Find(method(req), req.URL); p != nil {
			r, patterns = p.Rule, append(patterns, p.Key)
		}
	}
	return r.Policy, append(patterns, keys...)
}
