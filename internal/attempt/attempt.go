// Package attempt is one attempt of a request. An Attempt has the copy of the request, its context
// and timers, its slot at the limiter, its connection, and its response until the loop takes that.
// It knows of no other attempt.
package attempt

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"reflect"

	"github.com/aplomb-go/aplomb/internal/host/instant"
	"github.com/aplomb-go/aplomb/internal/peek"
	"github.com/aplomb-go/aplomb/internal/replay"
	"github.com/aplomb-go/aplomb/policy"
)

// An Attempt is a send of a request by a base transport. It has everything that it needs, so
// that it can run beside another. Whoever sends it owns it until it has ended.
type Attempt struct {
	Outcome
	Base     http.RoundTripper
	First    http.RoundTripper // the base transport of the user, whose settings Base has
	Req      *http.Request     // the caller's
	Ctx      context.Context
	Body     io.ReadCloser                 // nil: the caller's own, as it is
	GetBody  func() (io.ReadCloser, error) // for the base transport; nil: the caller's own
	Timeouts *Timeouts
	Timed    bool // it has a context of its own
	Own      bool // it has a header of its own
	Linked   bool // somebody needs to know its connection
	Proves   bool // and the class of the outcome depends on it
	Slot     Slot
	Refused  *Slot // of a response to the copy that is no success; nil: none
	Clock    *instant.Clock
	Watched  bool      // a hook sees its header
	Beside   bool      // runs beside another attempt, and may outlive the call
	Plain    bool      // is sent without Expect
	Hidden   error     // the error that the end of its time hides; nil: none
	Out      *Outgoing // the copy that is sent; nil: the caller's own request
}

// An Outgoing is the copy of a request that an attempt sends, with its context and the
// body of its response. All of them are a single allocation. It is as small as possible,
// because each timed attempt has one.
type Outgoing struct {
	Req  http.Request
	Ctx  attemptContext
	body attemptBody // of the response
	more *more       // nil if the attempt needs none of it
}

// more is the part of an Outgoing that only some attempts need.
type more struct {
	body   watchedBody // of the response, if it may stall
	kept   slotBody    // the slot of the attempt, and the body of the response, if it keeps the slot
	link   Link
	values [6]string // of a small header
}

// Light reports whether the caller's own request can go, untouched: this is the first attempt,
// its body is not lent, and neither a timer nor a concurrency limit watches it.
func (a *Attempt) Light() bool {
	watched := a.Timed || a.Watched || a.Linked ||
		a.Slot.Limiter != nil && a.Req.Body != nil && a.Req.Body != http.NoBody
	return a.Number == 1 && a.Body == nil && !watched
}

// SendLight sends the caller's own request.
func (a *Attempt) SendLight() {
	defer func() { // also if the base transport panics
		if a.Slot.Landed(a, a.Req, nil); !a.Slot.refused {
			a.Slot = Slot{}
		}
	}()
	a.Resp, a.Err = CheckResponse(a.Base.RoundTrip(a.Req))
}

// Prepare makes the copy that is sent, with its context and its body. tell gets its header, and may change that and
// the context of the attempt; nil: nobody does. If tell panics, the attempt is aborted.
//
// The copy has a header of its own only if the header changes, or if
// an attempt before it may have ended too early. The base transport may still be writing the header
// of that attempt while it changes the new one. An attempt beside another may still run when the
// caller has its response and changes the request. So it shares nothing with the caller's
// request.
func (a *Attempt) Prepare(tell func(http.Header)) {
	prepared := false
	defer func() {
		if !prepared {
			a.Abort()
		}
	}()
	own, plain := a.Own || a.Watched, a.Number > 1 && a.Plain
	var out *Outgoing
	if own || plain || a.Linked || a.Timeouts.quiet > 0 || a.Slot.Limiter != nil {
		all := new(struct { // all that the attempt needs is a single allocation
			Outgoing
			extra more
		})
		out, all.more = &all.Outgoing, &all.extra
	} else {
		out = new(Outgoing)
	}
	if a.Linked {
		a.Link = &out.more.link
		a.Link.Proves, a.Link.ctx = a.Proves, &out.Ctx
	}
	if a.Beside {
		out.Req = *a.Req.Clone(&out.Ctx)
	} else if out.Req = *a.Req.WithContext(&out.Ctx); own || plain {
		out.Req.Header = headerOf(a.Req.Header, out.more.values[:0])
	}
	if tell != nil {
		tell(out.Req.Header)
	}
	if trace := httptrace.ContextClientTrace(a.Ctx); trace != nil && a.Timed {
		a.Ctx = httptrace.WithClientTrace(untraced{a.Ctx}, out.Ctx.silenced(trace))
	}
	out.Ctx.Context, out.Ctx.pool, out.Ctx.clock, out.Ctx.link = a.Ctx, a.Pool, a.Clock, a.Link
	out.Ctx.settings, _ = a.First.(*http.Transport)
	out.Ctx.expects = len(a.Req.Header["Expect"]) > 0
	if a.Beside || a.Timed {
		out.Ctx.start(a.Timeouts, Upgrades(a.Req))
	}
	if a.Body != nil {
		out.Req.Body = a.Body
	}
	if a.GetBody != nil {
		out.Req.GetBody = a.GetBody
	}
	if plain {
		delete(out.Req.Header, "Expect")
	}
	a.Out, prepared = out, true
}

// Abort releases the slot and closes the body of an attempt that does not go. They have no
// other owner. A second call only closes the body again.
func (a *Attempt) Abort() {
	a.Slot.Release()
	switch {
	case a.Body != nil:
		_ = a.Body.Close()
	case a.Number == 1 && a.Req.Body != nil:
		_ = a.Req.Body.Close()
	}
}

// Outrun returns the outcome of an attempt that another was faster than, and that may be under way still. It
// reads only the fields that were set when the attempt was sent.
func (a *Attempt) Outrun() Outcome {
	return Outcome{Number: a.Number, Kind: a.Kind, SentAt: a.SentAt, Queued: a.Queued, Pool: a.Out.Over(), Heard: a.Heard, Link: a.Link,
		Err: ErrOutrun, DoneAt: a.Clock.Now()}
}

// headerOf returns a copy of a header. Nothing that is done to the copy changes the
// original. room is for the values.
func headerOf(header http.Header, room []string) http.Header {
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

// SendCopy sends the copy of the request.
func (a *Attempt) SendCopy() {
	out := a.Out
	req := &out.Req
	var held *Slot
	if a.Slot.Limiter != nil {
		kept := &out.more.kept
		kept.slot, a.Slot = a.Slot, Slot{}
		held = &kept.slot
		defer func() {
			if held.Landed(a, req, kept); held.refused {
				a.Refused = held
			}
		}()
	}
	defer func() {
		if a.Resp == nil && a.Err == nil { // the base transport has panicked or ended its goroutine
			_ = out.Ctx.outcome(nil)
			if a.Body != nil {
				_ = a.Body.Close()
			}
		}
	}()
	if req.Body != nil && req.Body != http.NoBody && (out.Ctx.Timeouts != nil || held != nil) {
		out.Ctx.watch(req, held)
	}
	a.Resp, a.Err = CheckResponse(a.Base.RoundTrip(req))
	if a.Resp != nil && a.Resp.Request != nil {
		switch r := a.Resp.Request; {
		case r == req:
			a.Resp.Request = a.Req // as a plain transport would
		case r.Context() == &out.Ctx: // a copy that the base made, whose context ends with the attempt's
			a.Resp.Request = r.WithContext(a.Req.Context())
		case r.Context().Value(&out.Ctx) != nil: // the same, with values of the base's
			a.Resp.Request = r.WithContext(valuesOf{a.Req.Context(), r.Context()})
		}
	}
	if out.Ctx.Timeouts == nil {
		return
	}
	a.Resp, a.Err, a.Hidden = out.end(a.Resp, a.Err)
	if a.Err == nil && out.Ctx.event > 0 && peek.IsEventStream(a.Resp) {
		a.Resp, a.Err = out.awaitEvent(a.Resp)
	}
}

// end notes that there is a response or an error. It replaces the error by the
// timeout, or by the end of the caller's context, if one of them ended the attempt. The
// attempt's context is cancelled only when the response's body has ended. below is the error
// that the timeout hides, if there is one.
func (o *Outgoing) end(resp *http.Response, err error) (got *http.Response, _, below error) {
	a, caller := &o.Ctx, o.Ctx.Context
	if late := a.outcome(resp); late != nil {
		Dismiss(caller, resp) // it came too late, and its body is already cut off
		if caller.Err() != nil {
			return nil, ContextErr(caller), nil
		}
		return nil, late, err
	}
	if err != nil {
		if a.unlink != nil && caller.Err() != nil && !errors.Is(err, caller.Err()) {
			err = ContextErr(caller) // the attempt's context did not inherit it
		}
		return nil, err, nil
	}
	tunnel := HandsOver(&o.Req, resp)
	_, writes := resp.Body.(io.Writer)
	switch {
	case resp.Body == nil || resp.Body == http.NoBody:
	case resp.StatusCode == http.StatusSwitchingProtocols:
		if a.unlink != nil {
			a.unlink()
		}
	case tunnel && writes: // it ends with the caller's context, as it does without aplomb
	case a.quiet > 0 && !tunnel && !replay.SmallInMemory(resp.Body):
		b := &o.more.body
		b.attemptBody, b.left, b.decompressed = attemptBody{resp.Body, a}, a.quiet, resp.Uncompressed
		resp.Body = b
		a.mu.Lock()
		a.body = b
		a.mu.Unlock()
	default:
		o.body = attemptBody{resp.Body, a}
		resp.Body = &o.body
	}
	return resp, nil, nil
}

// awaitEvent waits for the first event of a stream. It returns an error if the stream
// fails or takes too long before that.
func (o *Outgoing) awaitEvent(resp *http.Response) (*http.Response, error) {
	a, caller := &o.Ctx, o.Ctx.Context
	await := func(in context.Context) (bool, error) {
		eventless := tooLong("transport: no event within %v after the headers", a.event, policy.ErrAttemptTimeout)
		ctx, cancel := context.WithTimeoutCause(in, a.event, eventless)
		defer cancel()
		_, ok, err := peek.Outcome{Request: o.Req.WithContext(ctx), Response: resp}.FirstEvent(nil)
		return ok, err
	}
	ok, err := await(a)
	if err == context.Canceled && caller.Err() == nil {
		// The body has ended, which ended the attempt's context. Its Read is about to return.
		ok, err = await(caller)
	}
	if ok || err == nil {
		return resp, nil
	}
	Dismiss(caller, resp)
	if caller.Err() != nil {
		return nil, ContextErr(caller)
	}
	return nil, err
}

// CheckRequest returns an error if no transport could send the request.
func CheckRequest(req *http.Request) error {
	switch {
	case req == nil:
		return errors.New("transport: nil request")
	case req.Body != nil && replay.IsNil(req.Body):
		return fmt.Errorf("transport: Request.Body is a nil %T; leave Body nil for a request without a body", req.Body)
	case req.URL == nil:
		return errors.New("transport: nil Request.URL")
	case req.Header == nil:
		return errors.New("transport: nil Request.Header")
	}
	return nil
}

// CheckResponse returns an error if the base transport broke its contract and returned
// both a response and an error, or neither.
func CheckResponse(resp *http.Response, err error) (*http.Response, error) {
	if err != nil && reflect.ValueOf(err).Kind() == reflect.Pointer && replay.IsNil(err) {
		err = fmt.Errorf("transport: the base transport returned a nil %T as its error", err)
	}
	switch {
	case err != nil && resp != nil:
		Dismiss(context.Background(), resp)
		return nil, err
	case err == nil && resp == nil:
		return nil, errors.New("transport: the base transport returned neither a response nor an error")
	}
	return resp, err
}

// IsSafe reports whether the request's method is safe (RFC 9110 §9.2.1).
func IsSafe(req *http.Request) bool {
	switch req.Method {
	case "", http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace,
		"PROPFIND", "QUERY", "REPORT", "SEARCH": // of IANA's registry of methods
		return true
	}
	return false
}

// Upgrades reports whether the response to a request may hand its connection over to the
// caller.
func Upgrades(req *http.Request) bool {
	upgrade := req.Header["Upgrade"]
	return req.Method == http.MethodConnect || len(upgrade) > 0 && upgrade[0] != ""
}

// HandsOver reports whether the response's body is the connection itself. The caller then
// owns the connection, and the body keeps its io.Writer.
func HandsOver(req *http.Request, resp *http.Response) bool {
	return resp.StatusCode == http.StatusSwitchingProtocols ||
		req.Method == http.MethodConnect && resp.StatusCode/100 == 2
}

// IsCanceled reports whether the caller has gone without ending its context.
func IsCanceled(req *http.Request) bool {
	select {
	//lint:ignore SA1019 old callers still set Request.Cancel
	case <-req.Cancel:
		return true
	default:
		return false
	}
}
