// What is a request's place in flight, and when does it end?

package transport

import (
	"context"
	"errors"
	"io"
	"net/http"
	"time"

	"github.com/aplomb-go/aplomb/classify"
	"github.com/aplomb-go/aplomb/internal/host"
	"github.com/aplomb-go/aplomb/policy"
)

// A flight is an attempt's place at the gate, from its send to the end of the
// answer's body. A nil flight is one without a gate.
type flight struct {
	t    *Transport
	gate *host.Gate
	pass host.Pass // guarded by the gate's lock

	due time.Duration // when an answer is to be expected, as the gate let it go
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
		f.gate.Return(f.t.now(), &f.pass, nil)
	}
}

// landed tells the gate what became of the attempt, and ties the place to the
// answer's body. An answer without a body, an error and a connection that is
// handed over end it at once, and so does a base transport that panics. The
// result comes first: of a place that has ended the gate takes none.
func (f *flight) landed(ctx context.Context, req *http.Request, resp *http.Response, err error) {
	if f == nil {
		return
	}
	if resp != nil || err != nil {
		f.gate.Result(f.t.now(), &f.pass, resultOf(ctx, resp, err))
	}
	switch {
	case resp == nil || resp.Body == nil || resp.Body == http.NoBody || handsOver(req, resp):
		f.done()
	default:
		resp.Body = &endingBody{ReadCloser: resp.Body, end: f.done}
	}
}

// endingBody calls end when the body has ended or is closed, more than once if
// need be.
type endingBody struct {
	io.ReadCloser
	end func()
}

func (b *endingBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil {
		b.end()
	}
	return n, err
}

func (b *endingBody) Close() error {
	err := b.ReadCloser.Close()
	b.end()
	return err
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

// note tells the host's machines what came of an attempt, and returns how long
// the server asked to wait. It is asked for every outcome once, retried or not:
// a POST that is told to wait speaks for all requests of its scope.
func (x *exchange) note(resp *http.Response, d *decision) (hint time.Duration, hinted bool) {
	o := x.outcome(resp, d.Err)
	told := tellsToWait(d.Status)
	if told || retryable(d.Verdict) {
		if proxy, ok := errors.AsType[*proxyAnswer](d.Err); ok {
			o.Response, o.Err = proxy.resp, nil // what it asks for binds this request alone
		}
		hint, hinted = x.rule.rule.Hint(o)
	}
	told = told || retryable(d.Verdict) && d.Status >= 400 && d.Status < 500
	x.noteCooldown(d, told && hinted, hint)
	if x.rule.rate {
		x.noteRate(d)
	}
	if x.rule.pacing && resp != nil {
		if q, ok := classify.QuotaOf(o); ok {
			x.state.Machines().Pacing().Note(x.t.now(), x.scope(), q.Remaining, q.Limit, q.Reset, x.rule.pacingConfig())
		}
	}
	return hint, hinted
}

// tellsToWait reports whether a status is one of those that may hold a scope.
func tellsToWait(status int) bool {
	return status == http.StatusTooManyRequests || status == http.StatusServiceUnavailable
}

// noteCooldown begins or lengthens a hold, or tells of an answer during one.
func (x *exchange) noteCooldown(d *decision, told bool, hint time.Duration) {
	switch {
	case x.rule.rule.Cooldown != policy.On:
	case told && hint > 0:
		code := host.TooMany
		if d.Status == http.StatusServiceUnavailable {
			code = host.Unavailable
		}
		x.state.Machines().Cooldown.Hold(x.t.now(), x.scope(), code, hint, x.rule.cooldownConfig(), d.u)
	case tellsToWait(d.Status):
		// Even where it is final it is no sign that the host takes more.
	case d.Err == nil && !retryable(d.Verdict) && !x.state.Quiet():
		x.state.Machines().Cooldown.Answered(x.t.now(), x.scope(), x.entered, d.Status < 500)
	}
}

// noteRate lowers an adaptive rate on a 429 and raises it on a success.
func (x *exchange) noteRate(d *decision) {
	r := x.state.Machines().Rate(x.rule.rateConfig())
	switch {
	case d.Status == http.StatusTooManyRequests:
		r.Throttled(d.Time, x.sentAt)
	case d.Err == nil && d.Status < 500:
		r.Succeeded(d.Time)
	}
}
