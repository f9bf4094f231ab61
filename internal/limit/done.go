// The limits of a host after an attempt.

package limit

import (
	"io"
	"math"
	"math/rand/v2"
	"net/http"
	"time"

	"github.com/aplomb-go/aplomb/internal/attempt"
	"github.com/aplomb-go/aplomb/internal/exchange"
	"github.com/aplomb-go/aplomb/internal/field"
	"github.com/aplomb-go/aplomb/internal/host/instant"
	"github.com/aplomb-go/aplomb/internal/host/news"
	"github.com/aplomb-go/aplomb/internal/host/pacing"
	"github.com/aplomb-go/aplomb/policy"
)

// A headersSeen records that the limits have heard the headers of the response.
type headersSeen struct {
	resp       *http.Response // nil: no response yet
	at         instant.Instant
	retryAfter time.Duration // the hold that was noted; 0: none
	u          float64       // the jitter of the hold
}

// Headers tells the limits the waits and quotas in the headers of a response. It comes
// before the response is classified. A classifier may wait for the body, and meanwhile
// other requests would go although the server has just refused them. It may be called
// again for the same response.
func (p *Permit) Headers(r *exchange.Request, o *attempt.Outcome) {
	resp := o.Resp
	if resp == nil || resp == p.heard.resp {
		return
	}
	now := o.DoneAt
	waits := r.Rule.Peeks && exchange.TellsToWait(resp.StatusCode) && r.Rule.Policy.ShareRetryAfter == policy.On
	if now == 0 && (r.Rule.QuotaPacing || waits) {
		now = r.Registry.Now()
	}
	p.heard = headersSeen{resp: resp, at: now}
	if r.Rule.QuotaPacing {
		p.hearQuotas(r, now, o)
	}
	if !waits {
		return // the rest can wait for the class, which comes at once
	}
	if retryAfter, ok := headersRetryAfter(r, resp); ok && retryAfter > 0 {
		p.heard.retryAfter, p.heard.u = retryAfter, rand.Float64()
		holdScope(r, resp.StatusCode, retryAfter, p.heard.u)
	}
}

// hearQuotas tells the pacing which quotas a response names.
func (p *Permit) hearQuotas(r *exchange.Request, now instant.Instant, o *attempt.Outcome) {
	all := field.Quotas(o.Resp.Header)
	for _, q := range all {
		limitsOf(r).Pacing().Note(now, r.Scope(), p.pass, q, r.Rule.Settings.Pacing)
	}
	if f := r.State.Machines().Fleet; f != nil {
		f.Named(now, r.Scope(), o.SentAt, all, o.Status() < 400)
	}
	noteQuotas(r, now, all, o.Status())
}

// headersRetryAfter returns the wait that the headers alone name. The rule's RetryAfter must not
// wait for the body here, so it does not see the body.
func headersRetryAfter(r *exchange.Request, resp *http.Response) (time.Duration, bool) {
	defer func(body io.ReadCloser) { resp.Body = body }(resp.Body)
	resp.Body = http.NoBody
	return r.Rule.Policy.RetryAfter(r.OutcomeOf(resp, nil))
}

// Done tells the throttle the outcome of an attempt, and returns the slot of its response. It is called once for each outcome,
// whether there is a retry or not, with the wait that the server asked for. If a POST is told to wait, all requests of its scope have
// to wait. u is random, in [0,1), for the jitter of the wait. If there is a hold, Done returns that of the hold.
func (p *Permit) Done(r *exchange.Request, o *attempt.Outcome, retryAfter time.Duration, u float64) float64 {
	if r.Rule.Policy.ShareRetryAfter == policy.On {
		u = p.noteWait(r, o, retryAfter, u)
	}
	p.Cancel()
	return u
}

// speaksForAll reports whether a 4xx that is retried is about more than its own
// request. An example is a 403 by which a service says that a limit is exceeded. A
// 408 is about the slowness of this request, a 409 about its key or what it changes, a 413
// about its size, and a 417 about its header. A 421 and a 425 are about the connection of
// this request.
func speaksForAll(status int) bool {
	switch status {
	case http.StatusRequestTimeout, http.StatusConflict, http.StatusRequestEntityTooLarge, http.StatusExpectationFailed,
		http.StatusMisdirectedRequest, http.StatusTooEarly:
		return false
	}
	return status >= 400 && status < 500
}

// noteWait begins or lengthens a hold, or notes a response during a hold. It returns the jitter
// of the hold, which is u unless the headers have begun the hold.
func (p *Permit) noteWait(r *exchange.Request, o *attempt.Outcome, retryAfter time.Duration, u float64) float64 {
	again := o.Failed() && !o.BodyBroke
	told := exchange.TellsToWait(o.Status()) || again && speaksForAll(o.Status())
	switch {
	case told && retryAfter > 0:
		if heard := p.heard; heard.retryAfter > 0 && o.Resp == heard.resp {
			if u = heard.u; retryAfter <= heard.retryAfter {
				return u // noted already
			}
			retryAfter -= r.Registry.Now().Sub(heard.at) // the body asks for more than the headers did
		}
		holdScope(r, o.Status(), retryAfter, u)
	case exchange.TellsToWait(o.Status()):
		// Even if it is final, it does not show that the host takes more.
	case o.Err == nil && !again && !r.State.Quiet():
		m, now := r.State.Machines(), r.Registry.Now()
		limitsOf(r).Throttle.Answered(now, r.Scope(), o.SentAt)
		if m.Fleet != nil {
			m.Fleet.Answered(now, r.Scope(), o.SentAt)
		}
	}
	return u
}

// holdScope holds the scope.
func holdScope(r *exchange.Request, status int, wait time.Duration, u float64) {
	m, now := r.State.Machines(), r.Registry.Now()
	open := limitsOf(r).Throttle.Hold(now, r.Scope(), wait, r.Rule.Settings.Throttle, u)
	if m.Fleet != nil {
		m.Fleet.Held(now, r.Scope(), status, wait)
	}
	if open > now {
		r.Begin(news.Change{Key: news.Key{Condition: news.Held, Scope: r.Scope()}, Cause: news.Cause{Status: status}, Since: now, Until: open})
	}
}

// noteQuotas tells that a quota is nearly used up, or that none is so any longer. Of several the
// quota counts of which the least is left.
func noteQuotas(r *exchange.Request, now instant.Instant, all []field.Quota, status int) {
	if !r.Registry.Watched {
		return
	}
	key := news.Key{Condition: news.LowQuota, Scope: r.Scope()}
	var low *field.Quota
	named := false
	for i := range all {
		q := &all[i]
		named = named || q.Reset > 0
		if q.Reset > 0 && pacing.Low(q.Remaining, q.Limit) && (low == nil || float64(q.Remaining)*float64(low.Limit) < float64(low.Remaining)*float64(q.Limit)) {
			low = q
		}
	}
	switch {
	case low != nil:
		r.Begin(news.Change{Key: key, Cause: news.Cause{Status: status}, Since: now, Until: instant.After(now, low.Reset), Room: int(min(low.Remaining, math.MaxInt))})
	case named && !r.State.Machines().NewsMade().Quiet():
		r.End(key)
	}
}
