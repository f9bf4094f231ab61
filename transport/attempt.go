// An attempt, and the copy of the request that it sends.

package transport

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strconv"
	"time"

	"github.com/aplomb-go/aplomb/classify"
	"github.com/aplomb-go/aplomb/internal/host/pacing"
)

// An attempt is a send of the request by the base transport. It has everything that it
// needs, so that it can run beside another attempt.
type attempt struct {
	base   http.RoundTripper
	rule   *resolved
	req    *http.Request // the caller's
	ctx    context.Context
	number int                           // counts the attempts of the call from 1
	body   io.ReadCloser                 // nil: the caller's own, as it is
	inner  func() (io.ReadCloser, error) // the base transport's GetBody; nil: the caller's own
	slot   slot
	timing timing
	way    way
	watch  watch
	pass   pacing.Pass // from the pacing, zero without pacing
	inside bool        // the caller's context belongs to an attempt of another Transport
	beside bool        // runs beside another attempt, and may outlive the call
	plain  bool        // is sent without Expect
}

// An outgoing is the copy of a request that an attempt sends, with its context and the
// body of its response. All of them are a single allocation. It is as small as possible,
// because there is one for each attempt that is timed.
type outgoing struct {
	req  http.Request
	ctx  attemptContext
	body attemptBody // of the response
	more *more       // nil if the response's body may take any time and keeps no slot
}

// More is the part of an outgoing that only some attempts need.
type more struct {
	body watchedBody // of the response, if it may stall
	kept slotBody    // the slot of the attempt, and the body of the response, if it keeps the slot
}

// Values has room for the values of a small header.
type values [6]string

// newOutgoing makes the parts that an attempt needs in a single allocation. room is for the
// values of its header.
func newOutgoing(withMore, withValues bool) (out *outgoing, room []string) {
	switch {
	case withMore: // rare enough to have room in any case
		all := new(struct {
			outgoing
			extra more
			values
		})
		all.more = &all.extra
		return &all.outgoing, all.values[:0]
	case withValues:
		both := new(struct {
			outgoing
			values
		})
		return &both.outgoing, both.values[:0]
	}
	return new(outgoing), nil
}

// send makes the next attempt.
func (x *exchange) send() (resp *http.Response, err error) {
	if x.ends != nil {
		defer func() { x.settle(resp) }()
	}
	if x.rule.hedge && x.hedgeable() {
		return x.race()
	}
	kind := KindRetry
	switch {
	case x.segment:
		kind = KindReconnect
	case x.sent == 0:
		kind = KindFirst
	}
	a := x.attempt(kind)
	defer func() { // also if the base transport panics
		a.timing.took = time.Since(a.timing.start)
		x.timing = a.timing
		a.watch.end(a.way, a.timing.took, resp, err)
	}()
	return a.send()
}

// attempt prepares the next attempt.
func (x *exchange) attempt(kind Kind) attempt {
	proves := x.proves() // may panic, and nothing is sent then
	x.sent++
	x.number = x.sent
	if x.ends != nil {
		x.departs()
	}
	now := time.Now()
	if x.sent == 1 && x.rule.policy.MaxElapsed > 0 {
		x.start = now
	}
	a := attempt{
		way: x.nextWay(kind), rule: x.rule, req: x.req, ctx: x.parent(), number: x.sent,
		inside: x.options != nil && x.options.attempt > 0, plain: x.plain != nil,
		timing: timing{kind: kind, start: now, queued: x.limits.waited()},
	}
	x.watch(&a)
	x.linked(&a, proves)
	x.way, a.base = a.way, x.t.baseOf(a.way.lane)
	if x.body != nil {
		a.body, a.inner = x.nextBody()
	}
	x.limits.started = x.t.instantOf(now)
	a.slot, a.pass = x.limits.going(), x.limits.pass
	return a
}

// send sends the caller's own request, untouched, if this is the first attempt,
// its body is not lent, and neither a timer nor a gate watches it.
func (a *attempt) send() (resp *http.Response, err error) {
	watched := a.rule.timed || a.watch.on || a.slot.probe ||
		a.slot.gate != nil && a.req.Body != nil && a.req.Body != http.NoBody
	if a.number == 1 && a.body == nil && !watched && !a.inside && a.way.link == nil {
		defer func() { a.slot.landed(a.ctx, a.req, resp, err, nil) }() // also if the base transport panics
		return checkResponse(a.base.RoundTrip(a.req))
	}
	return a.sendCopy(a.prepare())
}

// prepare makes the copy that is sent. A retry has a header of its own: the previous
// attempt may still be writing the old header while the base transport changes the new
// one. An attempt beside another may still run when the caller has its response and
// changes the request. So it shares nothing with the caller's request. If prepare
// panics, it releases the slot and closes the body, which have no other owner.
func (a *attempt) prepare() (out *outgoing) {
	prepared := false
	defer func() {
		if !prepared {
			if a.way.link != nil {
				a.way.link.opens.Connected()
			}
			a.slot.release()
			a.closeBody()
		}
	}()
	own := a.number > 1 || a.watch.on // a header of its own
	out, room := newOutgoing(a.rule.timeouts.stall.on() || a.slot.gate != nil, own && len(a.req.Header) > 0)
	if a.beside {
		out.req = *a.req.Clone(&out.ctx)
	} else {
		out.req = *a.req.WithContext(&out.ctx)
	}
	req := &out.req
	if own && !a.beside {
		req.Header = headerOf(a.req.Header, room)
	}
	if a.watch.on {
		a.ctx = a.watch.start(a.ctx, req.Header)
	}
	if a.way.link != nil {
		a.way.link.ctx = &out.ctx
		a.ctx = a.way.link.hook(a.ctx)
	}
	out.ctx.Context, out.ctx.lane, out.ctx.t = a.ctx, a.way.lane, a.way.t
	if a.number > 1 || a.inside {
		if o := optionsOf(a.ctx); o != nil {
			out.ctx.options = *o
		}
		out.ctx.options.attempt = a.number // for AttemptNumber
	}
	if a.beside || a.rule.timed {
		out.ctx.start(&a.rule.timeouts, upgrades(a.req))
	}
	if a.body != nil {
		req.Body = a.body
	}
	if a.inner != nil {
		req.GetBody = a.inner
	}
	if a.number > 1 {
		if name := a.rule.policy.AttemptHeader; name != "" && name != "off" {
			req.Header.Set(name, strconv.Itoa(a.number-1))
		}
		if a.plain {
			delete(req.Header, "Expect")
		}
	}
	prepared = true
	return out
}

// closeBody closes the body of an attempt that is not sent.
func (a *attempt) closeBody() {
	switch {
	case a.body != nil:
		_ = a.body.Close()
	case a.number == 1:
		closeBody(a.req)
	}
}

// headerOf returns a copy of a header. Nothing that is done to the copy changes the
// original. room is for the values.
func headerOf(header http.Header, room []string) http.Header {
	if header == nil {
		return nil
	}
	all := room
	own := make(http.Header, len(header))
	for name, values := range header {
		if values == nil {
			own[name] = nil // net/http takes this as a demand to leave the field out
			continue
		}
		from := len(all)
		all = append(all, values...) // may move; the fields that are done keep the old array
		own[name] = all[from:len(all):len(all)]
	}
	return own
}

// sendCopy sends a copy of the request.
func (a *attempt) sendCopy(out *outgoing) (resp *http.Response, err error) {
	req := &out.req
	var held *slot
	if a.slot.gate != nil {
		kept := &out.more.kept
		kept.slot, a.slot = a.slot, slot{}
		held = &kept.slot
		defer func() { held.landed(a.ctx, req, resp, err, kept) }()
	}
	defer func() {
		if resp == nil && err == nil { // the base transport has panicked or ended its goroutine
			_ = out.ctx.outcome(nil)
			if a.body != nil {
				_ = a.body.Close()
			}
		}
	}()
	if out.ctx.timeouts != nil || held != nil {
		out.ctx.watch(req, held)
	}
	if held != nil && held.probe {
		defer held.renew()()
	}
	if l := a.way.link; l != nil && l.opens != nil {
		defer l.opens.Connected() // also if there is no connection
	}
	resp, err = checkResponse(a.base.RoundTrip(req))
	if resp != nil && resp.Request == req {
		resp.Request = a.req // as a plain transport would
	}
	if out.ctx.timeouts == nil {
		return resp, err
	}
	resp, err = out.end(resp, err)
	if err == nil && out.ctx.event > 0 && classify.IsEventStream(resp) {
		return out.awaitEvent(resp)
	}
	return resp, err
}

// awaitEvent waits for the first event of a stream. It returns an error if the stream
// fails or takes too long before that.
func (o *outgoing) awaitEvent(resp *http.Response) (*http.Response, error) {
	a := &o.ctx
	ctx, cancel := context.WithTimeoutCause(a, a.event, a.eventless)
	defer cancel()
	caller := a.Context
	_, ok, err := classify.Outcome{Request: o.req.WithContext(ctx), Response: resp}.FirstEvent(nil)
	if err == context.Canceled && caller.Err() == nil {
		// The body has ended, which ended the attempt's context. Its Read is about to return.
		ctx, cancel := context.WithTimeoutCause(caller, a.event, a.eventless)
		defer cancel()
		_, ok, err = classify.Outcome{Request: o.req.WithContext(ctx), Response: resp}.FirstEvent(nil)
	}
	if ok || err == nil {
		return resp, nil
	}
	dismiss(caller, resp)
	if caller.Err() != nil {
		return nil, contextErr(caller)
	}
	return nil, err
}

// checkResponse returns an error if the base transport broke its contract and returned
// both a response and an error, or neither.
func checkResponse(resp *http.Response, err error) (*http.Response, error) {
	switch {
	case err != nil && resp != nil:
		dismiss(context.Background(), resp)
		return nil, err
	case err == nil && resp == nil:
		return nil, errors.New("transport: the base transport returned neither a response nor an error")
	}
	return resp, err
}

// upgrades reports whether the response to a request may hand its connection over to the
// caller.
func upgrades(req *http.Request) bool {
	upgrade := req.Header["Upgrade"]
	return req.Method == http.MethodConnect || len(upgrade) > 0 && upgrade[0] != ""
}

// handsOver reports whether the response's body is the connection itself. The caller then
// owns the connection, and the body keeps its io.Writer.
func handsOver(req *http.Request, resp *http.Response) bool {
	return resp.StatusCode == http.StatusSwitchingProtocols ||
		req.Method == http.MethodConnect && resp.StatusCode/100 == 2
}
