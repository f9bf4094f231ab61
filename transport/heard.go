// The limits of a host after an attempt.

package transport

import (
	"errors"
	"io"
	"math"
	"math/rand/v2"
	"net/http"
	"time"

	"github.com/aplomb-go/aplomb/classify"
	"github.com/aplomb-go/aplomb/internal/host/cooldown"
	"github.com/aplomb-go/aplomb/internal/host/instant"
	"github.com/aplomb-go/aplomb/internal/host/news"
	"github.com/aplomb-go/aplomb/internal/host/pacing"
	"github.com/aplomb-go/aplomb/policy"
)

// A hearing records that the limits have heard the headers of one response.
type hearing struct {
	resp *http.Response // nil: no response yet
	at   instant.Instant
	hint time.Duration // the hold that was noted; 0: none
	u    float64       // the jitter of the hold
}

// hear tells the limits what the headers of a response say. It comes before the
// response is classified. A classifier may wait for the body, and meanwhile other
// requests would go although the server has just refused them. hear may be called
// again for the same response.
func (l *limits) hear(resp *http.Response) {
	switch {
	case resp == nil || resp == l.heard[0].resp:
		return
	case resp == l.heard[1].resp:
		l.heard[0], l.heard[1] = l.heard[1], l.heard[0]
		return
	}
	now := l.t.now()
	l.heard[0], l.heard[1] = hearing{resp: resp, at: now}, l.heard[0]
	if l.rule.Rate {
		l.noteRate(now, resp.StatusCode)
	}
	if l.rule.Pacing {
		l.hearQuotas(now, resp)
	}
	if !l.rule.Peeks || !tellsToWait(resp.StatusCode) || l.rule.Policy.Cooldown != policy.On {
		return // the rest can wait for the verdict, which comes at once
	}
	if hint, ok := l.headersHint(resp); ok && hint > 0 {
		l.heard[0].hint, l.heard[0].u = hint, rand.Float64()
		l.hold(resp.StatusCode, hint, l.heard[0].u)
	}
}

// hearQuotas tells the pacing which quotas a response names.
func (l *limits) hearQuotas(now instant.Instant, resp *http.Response) {
	all := classify.Quotas(l.outcome(resp, nil))
	machine := l.state.Machines().Pacing()
	for _, q := range all {
		named := pacing.Named{Unit: q.Unit, Remaining: q.Remaining, Limit: q.Limit, Reset: q.Reset}
		machine.Note(now, l.scopeKey(), l.pass, named, l.rule.Settings.Pacing)
		l.tellQuota(q)
	}
	l.noteQuotas(now, all, resp.StatusCode)
	if l.t.fleet == nil || resp.StatusCode >= 400 || !machine.Listens(now) {
		return
	}
	units := make([]string, len(all))
	for i := range all {
		units[i] = all[i].Unit
	}
	machine.Unnamed(now, l.scopeKey(), l.pass.Mark, units...)
}

// headersHint returns the hint of the headers alone. The hint must not wait for the
// body here, so it does not see the body.
func (l *limits) headersHint(resp *http.Response) (time.Duration, bool) {
	defer func(body io.ReadCloser) { resp.Body = body }(resp.Body)
	resp.Body = http.NoBody
	return l.rule.Policy.Hint(l.outcome(resp, nil))
}

// note tells the cooldown the outcome of an attempt, and returns how long the
// server asked to wait. It is called once for each outcome, whether there is a
// retry or not. If a POST is told to wait, all requests of its scope have to wait.
func (l *limits) note(resp *http.Response, d *decision) (hint time.Duration) {
	o := l.outcome(resp, d.Err)
	told := tellsToWait(d.Status)
	if told || retryable(d.Verdict) {
		if proxy, ok := errors.AsType[*proxyAnswer](d.Err); ok {
			o.Response, o.Err = proxy.resp, nil // the proxy's wait binds this request alone
		}
		if wait, ok := l.rule.Policy.Hint(o); ok {
			hint = max(wait, 0)
		}
	}
	told = told || retryable(d.Verdict) && speaksForAll(d.Status)
	if l.rule.Policy.Cooldown == policy.On {
		l.noteCooldown(resp, d, told, hint)
	}
	return hint
}

// tellsToWait reports whether a response with this status holds its scope if it
// names a wait.
func tellsToWait(status int) bool {
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

// noteCooldown begins or lengthens a hold, or notes a response during a hold.
func (l *limits) noteCooldown(resp *http.Response, d *decision, told bool, hint time.Duration) {
	switch {
	case told && hint > 0:
		if heard := l.heard[0]; heard.hint > 0 && resp == heard.resp {
			d.u = heard.u
			if hint <= heard.hint {
				return // noted already
			}
			hint -= l.t.now().Sub(heard.at) // the body asks for more than the headers did
		}
		l.hold(d.Status, hint, d.u)
	case tellsToWait(d.Status):
		// Even if it is final, it does not show that the host takes more.
	case d.Err == nil && !retryable(d.Verdict) && !l.state.Quiet():
		ended := l.state.Machines().Cooldown.Answered(l.t.now(), l.scopeKey(), l.started, d.Status < 500)
		for code, over := range ended {
			if over {
				l.tellHold(statusOf[code], 0, false)
			}
		}
	}
}

// hold holds the scope.
func (l *limits) hold(status int, wait time.Duration, u float64) {
	r := cooldown.Refusal{Code: codeOf(status), Wait: wait, Sent: l.started, Ended: l.state.Ended()}
	open, again := l.state.Machines().Cooldown.Hold(l.t.now(), l.scopeKey(), r, l.t.cooldown(l.rule, wait), u)
	l.tellHold(status, wait, again)
	if now := l.t.now(); open > now {
		l.begins(ConditionHeld, news.Record{Key: news.Key{Scope: l.scopeKey()}, Since: now, Until: open, Status: status}, nil)
	}
}

// noteQuotas tells that a quota is nearly used up, or that none is so any longer. Of several the
// quota counts of which the least is left.
func (l *limits) noteQuotas(now instant.Instant, all []classify.Quota, status int) {
	if !l.t.watched {
		return
	}
	key := news.Key{Kind: uint8(ConditionLowQuota), Scope: l.scopeKey()}
	var low *classify.Quota
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
		l.begins(ConditionLowQuota, news.Record{Key: key, Since: now, Until: instant.After(now, low.Reset), Status: status, Room: int(min(low.Remaining, math.MaxInt))}, nil)
	case named && !l.state.Machines().NewsMade().Quiet():
		l.ends(key)
	}
}

// noteRate lowers an adaptive rate on a 429 and raises it on a success.
func (l *limits) noteRate(now instant.Instant, status int) {
	r := l.state.Machines().Rate(l.rule.Settings.Rate)
	switch {
	case status == http.StatusTooManyRequests:
		r.Throttled(now, l.sentAt)
	case status < 500:
		r.Succeeded(now)
	}
}
