// What is a request's place in flight, and when does it end?

package transport

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net/http"
	"time"

	"github.com/aplomb-go/aplomb/classify"
	"github.com/aplomb-go/aplomb/internal/host"
	"github.com/aplomb-go/aplomb/policy"
)

// A flight is an attempt's place at the gate. A nil flight is one without a
// gate.
//
// A place has one owner at a time, and each owner gives it up in a deferred
// call. The exchange owns it from the gate's answer until a leg takes it over;
// the leg owns it until the answer; then it belongs to the answer's body. An
// error, a failed answer, an answer without a body and a connection that is
// handed over end the place at once. The body of a success keeps it until it
// has ended, is closed, or the request's context has ended. A body of which
// nothing is read for a minute keeps it no longer (see [host.Gate.Idle]).
type flight struct {
	t    *Transport
	gate *host.Gate
	pass host.Slot // guarded by the gate's lock

	due  time.Duration // when an answer is to be expected, as the gate let it go
	stop func() bool   // the place no longer ends with the context; nil: it does not
}

// done ends the place; only the first call counts.
func (f *flight) done() {
	if f != nil {
		f.gate.Done(f.t.now(), &f.pass)
	}
}

// giveBack ends the place of an attempt that was not sent.
func (f *flight) giveBack() {
	if f != nil {
		f.gate.Release(f.t.now(), &f.pass, nil)
	}
}

// landed tells the gate what became of the attempt, and ends the place unless
// the answer's body keeps it. Without an answer and an error the base transport
// has panicked or ended its goroutine. The result comes first, because the gate
// takes none of a place that has ended.
func (f *flight) landed(ctx context.Context, req *http.Request, resp *http.Response, err error) {
	if f == nil {
		return
	}
	kept := false
	defer func() { // also when an error of the base's own type panics
		if !kept {
			f.done()
		}
	}()
	if resp == nil && err == nil {
		return
	}
	result := resultOf(ctx, resp, err)
	f.gate.Result(f.t.now(), &f.pass, result)
	if result != host.Success || !streams(req, resp) {
		return
	}
	if ctx.Done() != nil {
		f.stop = context.AfterFunc(ctx, f.done)
	}
	resp.Body = &endingBody{ReadCloser: resp.Body, flight: f}
	kept = true
}

// streams reports whether an answer has a body that its host may have to work
// on for long. A failed answer has none: it is an error page, and a caller that
// forgets to close it must not keep the host's places.
func streams(req *http.Request, resp *http.Response) bool {
	return resp.Body != nil && resp.Body != http.NoBody && resp.StatusCode < 500 && !handsOver(req, resp)
}

// ended ends the place together with its body.
func (f *flight) ended() {
	if f.stop != nil {
		f.stop()
	}
	f.done()
}

// endingBody ends its place when the body has ended or is closed, and tells the
// gate when it is being read. Read belongs to one goroutine; Close may come from
// another one during a Read.
type endingBody struct {
	io.ReadCloser
	flight *flight
}

func (b *endingBody) Read(p []byte) (n int, err error) {
	f, returned := b.flight, false
	f.gate.Reading(&f.pass)
	defer func() {
		if !returned || err != nil { // a body that panics has no more to give
			f.ended()
		} else {
			f.gate.Idle(f.t.now(), &f.pass)
		}
	}()
	n, err = b.ReadCloser.Read(p)
	returned = true
	return n, err
}

// Close ends the place when the body is closed. A body whose Close hangs counts
// as one that nobody reads.
func (b *endingBody) Close() error {
	b.flight.gate.Idle(b.flight.t.now(), &b.flight.pass)
	defer b.flight.ended()
	return b.ReadCloser.Close()
}

// resultOf says what an outcome tells about the host as a whole.
func resultOf(ctx context.Context, resp *http.Response, err error) host.Result {
	switch {
	case err != nil && errors.Is(ctx.Err(), context.Canceled):
		return host.Neutral // the caller left
	case err != nil:
		return resultOfError(err)
	}
	switch resp.StatusCode {
	case http.StatusTooManyRequests, http.StatusRequestTimeout:
		return host.Neutral // this client sends too much, or too slowly
	case http.StatusNotImplemented, http.StatusHTTPVersionNotSupported, http.StatusNetworkAuthenticationRequired:
		return host.Success // an answer for this request alone
	}
	if resp.StatusCode >= 500 {
		return host.Failed
	}
	return host.Success
}

func resultOfError(err error) host.Result {
	switch classify.KindOf(err) {
	case classify.Timeout:
		return host.Lost // the host may be busy with it still
	case classify.DNS, classify.Dial, classify.TLS, classify.Reset:
		return host.Failed
	}
	return host.Neutral // the request's own fault, or nobody's
}

// A hearing is what an answer's headers told the host's machines.
type hearing struct {
	resp *http.Response // nil: nothing yet
	at   time.Duration
	hint time.Duration // the hold that was noted, 0 for none
	u    float64       // its jitter
}

// hear tells the host's machines what the headers of an answer say. It comes
// before the answer is classified: a classifier may wait for the body, and until
// then others would be sent what the server has just refused. It may be called
// again for the same answer.
func (x *exchange) hear(resp *http.Response) {
	switch {
	case resp == nil || resp == x.heard[0].resp:
		return
	case resp == x.heard[1].resp:
		x.heard[0], x.heard[1] = x.heard[1], x.heard[0]
		return
	}
	x.heard[0], x.heard[1] = hearing{resp: resp, at: x.t.now()}, x.heard[0]
	if x.rule.rate {
		x.noteRate(resp.StatusCode)
	}
	if x.rule.pacing {
		if q, ok := classify.QuotaOf(x.outcome(resp, nil)); ok {
			x.state.Machines().Pacing().Note(x.t.now(), x.scope(), x.mark, q.Remaining, q.Limit, q.Reset, x.rule.pacingConfig())
		}
	}
	if !x.rule.peeks || !tellsToWait(resp.StatusCode) || x.rule.rule.Cooldown != policy.On {
		return // what is left can wait for the verdict, which comes at once
	}
	headers := *resp
	headers.Body = http.NoBody // not to be waited for here
	if hint, ok := x.rule.rule.Hint(x.outcome(&headers, nil)); ok && hint > 0 {
		x.heard[0].hint, x.heard[0].u = hint, rand.Float64()
		x.hold(resp.StatusCode, hint, x.heard[0].u)
	}
}

// note tells the cooldown what came of an attempt, and returns how long the
// server asked to wait. It is asked for every outcome once, retried or not: a
// POST that is told to wait speaks for all requests of its scope.
func (x *exchange) note(resp *http.Response, d *decision) (hint time.Duration, hinted bool) {
	o := x.outcome(resp, d.Err)
	told := tellsToWait(d.Status)
	if told || retryable(d.Verdict) {
		if proxy, ok := errors.AsType[*proxyAnswer](d.Err); ok {
			o.Response, o.Err = proxy.resp, nil // what it asks for binds this request alone
		}
		hint, hinted = x.rule.rule.Hint(o)
	}
	told = told || retryable(d.Verdict) && speaksForAll(d.Status)
	if x.rule.rule.Cooldown == policy.On {
		x.noteCooldown(resp, d, told && hinted, hint)
	}
	return hint, hinted
}

// tellsToWait reports whether a status is one of those that hold a scope if
// they name a wait.
func tellsToWait(status int) bool {
	return status == http.StatusTooManyRequests || status == http.StatusServiceUnavailable
}

// speaksForAll reports whether a 4xx that is sent again, such as a 403 by which
// a service says that a limit is exceeded, is about more than its own request.
// A 408 is about how slowly this request came, a 421 and a 425 about the
// connection on which it came.
func speaksForAll(status int) bool {
	switch status {
	case http.StatusRequestTimeout, http.StatusMisdirectedRequest, http.StatusTooEarly:
		return false
	}
	return status >= 400 && status < 500
}

// noteCooldown begins or lengthens a hold, or tells of an answer during one.
func (x *exchange) noteCooldown(resp *http.Response, d *decision, told bool, hint time.Duration) {
	switch {
	case told && hint > 0:
		if heard := x.heard[0]; heard.hint > 0 && resp == heard.resp {
			d.u = heard.u
			if hint <= heard.hint {
				return // noted already
			}
			hint -= x.t.now() - heard.at // the body asks for more than the headers did
		}
		x.hold(d.Status, hint, d.u)
	case tellsToWait(d.Status):
		// Even where it is final it is no sign that the host takes more.
	case d.Err == nil && !retryable(d.Verdict) && !x.state.Quiet():
		x.state.Machines().Cooldown.Answered(x.t.now(), x.scope(), x.entered, d.Status < 500)
	}
}

// hold holds the scope.
func (x *exchange) hold(status int, wait time.Duration, u float64) {
	code := host.TooMany
	if status == http.StatusServiceUnavailable {
		code = host.Unavailable
	}
	x.state.Machines().Cooldown.Hold(x.t.now(), x.scope(), code, wait, x.rule.cooldownConfig(), u)
}

// noteRate lowers an adaptive rate on a 429 and raises it on a success.
func (x *exchange) noteRate(status int) {
	r := x.state.Machines().Rate(x.rule.rateConfig())
	switch {
	case status == http.StatusTooManyRequests:
		r.Throttled(time.Now(), x.sentAt)
	case status < 500:
		r.Succeeded(time.Now())
	}
}
