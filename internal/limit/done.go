// The limits of a host after an attempt, and the changes of the host that are told.

package limit

import (
	"errors"
	"io"
	"math"
	"math/rand/v2"
	"net/http"
	"time"

	"github.com/aplomb-go/aplomb/classify"
	"github.com/aplomb-go/aplomb/internal/attempt"
	"github.com/aplomb-go/aplomb/internal/field"
	"github.com/aplomb-go/aplomb/internal/host"
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

// Headers tells the limits what the headers of a response say. It comes before the
// response is classified. A classifier may wait for the body, and meanwhile other
// requests would go although the server has just refused them. It may be called
// again for the same response.
func (p *Permit) Headers(r *Request, o *attempt.Outcome) {
	resp := o.Resp
	if resp == nil || resp == p.heard.resp {
		return
	}
	now := o.DoneAt
	waits := r.Rule.Peeks && TellsToWait(resp.StatusCode) && r.Rule.Policy.ShareRetryAfter == policy.On
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
	if retryAfter, ok := r.headersRetryAfter(resp); ok && retryAfter > 0 {
		p.heard.retryAfter, p.heard.u = retryAfter, rand.Float64()
		r.holdScope(resp.StatusCode, retryAfter, p.heard.u)
	}
}

// hearQuotas tells the pacing which quotas a response names.
func (p *Permit) hearQuotas(r *Request, now instant.Instant, o *attempt.Outcome) {
	all := field.Quotas(o.Resp.Header)
	machine := r.State.Machines().Pacing()
	for _, q := range all {
		named := pacing.Named{Unit: q.Unit, Remaining: q.Remaining, Limit: q.Limit, Reset: q.Reset}
		machine.Note(now, r.scopeKey(), p.pass, named, r.Rule.Settings.Pacing)
	}
	if f := r.State.Machines().Fleet; f != nil {
		f.Named(now, r.scopeKey(), o.SentAt, all, o.Status() < 400)
	}
	r.noteQuotas(now, all, o.Status())
}

// headersRetryAfter returns the wait that the headers alone name. The rule's RetryAfter must not
// wait for the body here, so it does not see the body.
func (r *Request) headersRetryAfter(resp *http.Response) (time.Duration, bool) {
	defer func(body io.ReadCloser) { resp.Body = body }(resp.Body)
	resp.Body = http.NoBody
	return r.Rule.Policy.RetryAfter(r.OutcomeOf(resp, nil))
}

// Done tells the throttle the outcome of an attempt, and returns how long the
// server asked to wait. It is called once for each outcome, whether there is a
// retry or not. If a POST is told to wait, all requests of its scope have to wait. The slot of
// the response ends after that. u is random, in [0,1), for the jitter of the wait. If there is a
// hold, it has the same.
func (p *Permit) Done(r *Request, o *attempt.Outcome) (retryAfter time.Duration, u float64) {
	status, again := o.Status(), o.Failed() && !o.BodyBroke
	told := TellsToWait(status)
	if told || again {
		asked := r.OutcomeOf(o.Resp, o.Err)
		if proxy, ok := errors.AsType[*ProxyAnswer](o.Err); ok {
			asked.Response, asked.Err = proxy.Resp, nil // the proxy's wait binds this request alone
		}
		if wait, ok := r.Rule.Policy.RetryAfter(asked); ok {
			retryAfter = max(wait, 0)
		}
	}
	result := attempt.ResultOf(r.Ctx, o.Resp, o.Err)
	p.failed = o.Kind != attempt.Cut && !o.BodyBroke && (result == attempt.Failed || result == attempt.Lost)
	p.tellLine(r, o, retryAfter, result, !again)
	told = told || again && speaksForAll(status)
	if u = rand.Float64(); r.Rule.Policy.ShareRetryAfter == policy.On {
		u = p.noteWait(r, o, again, told, retryAfter, u)
	}
	p.releaseSlot(r)
	p.review(r, o)
	return retryAfter, u
}

// A ProxyAnswer is the response of a proxy that did not connect. It may ask to wait.
type ProxyAnswer struct{ Resp *http.Response }

func (p *ProxyAnswer) Error() string { return p.Resp.Status }

// TellsToWait reports whether a response with this status holds its scope if it
// names a wait.
func TellsToWait(status int) bool {
	return status == http.StatusTooManyRequests || status == http.StatusServiceUnavailable
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

// OutcomeOf returns the outcome that classifiers and RetryAfter functions judge. They see the request as it is
// sent, so that a second 417 is final. It is small enough for the compiler to put it into the
// light path, which is 10 ns faster for it.
func (r *Request) OutcomeOf(resp *http.Response, err error) classify.Outcome {
	o := classify.Outcome{Request: r.Req, Response: resp, Err: err}
	switch {
	case r.Plain != nil:
		o.Request = r.Plain
	case r.Linked:
		o.Request = r.Req.WithContext(r.Ctx)
	}
	return o
}

// noteWait begins or lengthens a hold, or notes a response during a hold. It returns the jitter
// of the hold, which is u unless the headers have begun the hold.
func (p *Permit) noteWait(r *Request, o *attempt.Outcome, again, told bool, retryAfter time.Duration, u float64) float64 {
	switch {
	case told && retryAfter > 0:
		if heard := p.heard; heard.retryAfter > 0 && o.Resp == heard.resp {
			if u = heard.u; retryAfter <= heard.retryAfter {
				return u // noted already
			}
			retryAfter -= r.Registry.Now().Sub(heard.at) // the body asks for more than the headers did
		}
		r.holdScope(o.Status(), retryAfter, u)
	case TellsToWait(o.Status()):
		// Even if it is final, it does not show that the host takes more.
	case o.Err == nil && !again && !r.State.Quiet():
		m, now := r.State.Machines(), r.Registry.Now()
		m.Throttle.Answered(now, r.scopeKey(), o.SentAt)
		if m.Fleet != nil {
			m.Fleet.Answered(now, r.scopeKey(), o.SentAt)
		}
	}
	return u
}

// holdScope holds the scope.
func (r *Request) holdScope(status int, wait time.Duration, u float64) {
	m, now := r.State.Machines(), r.Registry.Now()
	open := m.Throttle.Hold(now, r.scopeKey(), wait, r.Rule.Settings.Throttle, u)
	if m.Fleet != nil {
		m.Fleet.Held(now, r.scopeKey(), status, wait)
	}
	if open > now {
		conditions{r}.begin(news.Change{Key: news.Key{Condition: news.Held, Scope: r.scopeKey()}, Cause: news.Cause{Status: status}, Since: now, Until: open})
	}
}

// noteQuotas tells that a quota is nearly used up, or that none is so any longer. Of several the
// quota counts of which the least is left.
func (r *Request) noteQuotas(now instant.Instant, all []field.Quota, status int) {
	if !r.Registry.Watched {
		return
	}
	key := news.Key{Condition: news.LowQuota, Scope: r.scopeKey()}
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
		conditions{r}.begin(news.Change{Key: key, Cause: news.Cause{Status: status}, Since: now, Until: instant.After(now, low.Reset), Room: int(min(low.Remaining, math.MaxInt))})
	case named && !r.State.Machines().NewsMade().Quiet():
		conditions{r}.end(key)
	}
}

// A limit of the rule holds requests when one has waited for longer than longWait for a slot, for
// the rate or for a retry. It no longer does if no other request waits as long within calmTime.
const (
	longWait = time.Second
	calmTime = 10 * time.Second
)

// A Observer tells of the changes of a host.
type Observer interface {
	// Tells returns a function that tells of a change.
	Tells(news.Change) func()
	// LogsState returns a function that tells the log what lasts, after more changes than it has
	// lines for.
	LogsState(lasting []news.Change) func()
	// Safe returns an error that prints without secrets.
	Safe(error) error
}

// conditions are what lasts at the host of a request, and is told when it begins and ends.
type conditions struct{ *Request }

// begin notes that a condition of the host lasts, and tells it if that is new.
func (c conditions) begin(v news.Change) {
	if !c.Registry.Watched {
		return
	}
	v.Since = max(v.Since, 1)
	c.State.Machines().News().Begin(v, c.Observer.Tells(c.present(v)))
}

// end notes that a condition is over, and tells it if it lasted until now.
func (c conditions) end(k news.Key) {
	n := c.State.Machines().News()
	if v, lasts := n.Lasts(k); lasts {
		v.Cause = news.Cause{}
		v = c.present(v)
		v.Over, v.Until = true, 0
		n.End(k, c.Observer.Tells(v))
	}
}

// present returns a change with the present figures of the limit that it is about.
func (c conditions) present(v news.Change) news.Change {
	switch m := c.State.Machines(); v.Condition {
	case news.Held:
		v.Waiting = m.Throttle.Waiting(v.Scope)
		if named := m.Throttle.Named(c.Registry.Now(), v.Scope); named > 0 {
			v.Until = named // without the jitter of this process
		}
	case news.Crowded:
		if v.Until, v.Room = 0, 0; c.Rule.Concurrency {
			g := m.Concurrency().State()
			v.Waiting, v.Room = g.Waiting, g.Limit
		}
	case news.RateLimited:
		v.Until, v.Waiting = 0, c.waitingForRate(m)
	case news.Down, news.NoRetries:
		v.Until, v.Waiting = 0, m.Line.State().Waiting
	}
	return v
}

// waitingForRate returns how many requests wait for the rate. With a concurrency limit they wait in its queue.
func (c conditions) waitingForRate(m *host.Machines) int {
	g, limit := m.Made()
	switch {
	case !c.Rule.RateLimit || limit == nil:
		return 0
	case c.Rule.Concurrency && g != nil: // else an Update has just turned the limiter on
		return g.State().ForRate
	}
	return limit.Queue()
}

// review tells those who watch what the fleet said, and which conditions have
// begun or ended meanwhile. The machines have no timers, so each request does this that
// has to ask them anyway. o is the outcome of an attempt, or nil before it.
func (p *Permit) review(r *Request, o *attempt.Outcome) {
	c := conditions{r}
	if o != nil && (p.failed || o.Status() == http.StatusTooManyRequests) && (r.Registry.Watched || r.Rule.Breaker) {
		r.State.Machines().News().Failed(c.causeOf(o))
	}
	if !r.Registry.Watched {
		return
	}
	m := r.State.MachinesMade()
	if m == nil {
		return
	}
	c.reviewDown(m)
	p.reviewWaits(c, m)
	now := r.Registry.Now()
	if m.Fleet != nil {
		for _, v := range m.Fleet.Heard(now) {
			c.begin(v)
		}
	}
	n := m.NewsMade()
	if n.Quiet() {
		return
	}
	n.TellRest()
	if !r.Rule.QuotaPacing {
		c.end(news.Key{Condition: news.LowQuota, Scope: r.scopeKey()}) // an Update turned the pacing off
	}
	for _, v := range n.Due(now, news.Key{Condition: news.Held, Scope: r.scopeKey()}) {
		if c.isOver(m, now, v) {
			c.end(v.Key)
		}
	}
	if lasting, ok := n.TakeState(now); ok {
		for i, v := range lasting {
			lasting[i] = c.present(v)
		}
		n.Tell(r.Observer.LogsState(lasting))
	}
}

// isOver reports whether a condition is over whose time has come.
func (c conditions) isOver(m *host.Machines, now instant.Instant, v news.Change) bool {
	switch v.Condition {
	case news.Held:
		return m.Throttle.Held(now, v.Scope) == 0 && (!v.Fleet || now >= v.Until)
	case news.NoRetries:
		return m.Line.State().Waiting == 0
	case news.Down:
		return false // reviewDown knows
	case news.Crowded:
		return !c.Rule.Concurrency || m.Concurrency().State().Waiting == 0
	case news.RateLimited:
		return c.waitingForRate(m) == 0
	}
	return true
}

// reviewDown tells whether the host is down.
func (c conditions) reviewDown(m *host.Machines) {
	state := m.Line.State()
	key := news.Key{Condition: news.Down}
	switch {
	case state.Down:
		if _, lasts := m.News().Lasts(key); !lasts {
			c.begin(news.Change{Key: key, Cause: m.News().Failure(), Since: state.Since})
		}
	case !m.NewsMade().Quiet():
		c.end(key)
	}
}

// reviewWaits tells that a limit of the rule held the request for long.
func (p *Permit) reviewWaits(c conditions, m *host.Machines) {
	now := c.Registry.Now()
	begin := func(is *bool, condition news.Condition, cause news.Cause, waited time.Duration) {
		if *is {
			c.begin(news.Change{Key: news.Key{Condition: condition}, Cause: cause, Since: now.Add(-waited), Until: now.Add(calmTime)})
		}
		*is = false
	}
	begin(&p.crowded, news.Crowded, news.Cause{}, p.Queued.Concurrency)
	begin(&p.rated, news.RateLimited, news.Cause{}, p.Queued.Rate)
	if p.starved {
		begin(&p.starved, news.NoRetries, m.News().Failure(), p.Queued.Line)
	}
}

// causeOf returns an outcome as the cause of a change.
func (c conditions) causeOf(o *attempt.Outcome) news.Cause {
	return news.Cause{Status: o.Status(), Err: c.Observer.Safe(o.Err), Addr: o.Link.Addr()}
}
