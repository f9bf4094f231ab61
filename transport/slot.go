// A slot at the gate, and what an outcome says about the host.

package transport

import (
	"context"
	"errors"
	"io"
	"net/http"

	"github.com/aplomb-go/aplomb/classify"
	"github.com/aplomb-go/aplomb/internal/host"
)

// A slot is the right of an attempt to be in flight to a host with a gate. The zero
// slot belongs to a host without a gate.
//
// A slot has one owner at a time, and each owner releases it in a deferred call.
// The limits of the call own it from the answer of the gate until an attempt takes
// it over. The attempt owns it until the response arrives. Then the body of the
// response owns it. Each owner takes over the value itself. An error, a failed
// response, a response without a body and a connection that is handed over end the
// slot at once. The body of a success keeps the slot until the body has ended or is
// closed, or the request's context has ended. If nobody reads from the body for a
// minute, it keeps the slot no longer (see [host.Gate.Idle]).
type slot struct {
	t    *Transport
	host *host.State[resolved]
	gate *host.Gate // nil: no gate
	at   host.Slot  // guarded by the gate's lock
}

// tell tells the fleet, if the gate has news for it.
func (s *slot) tell(news bool) {
	if news {
		s.t.tellGate(s.host, s.gate)
	}
}

// release ends the slot of an attempt that did not go. A second call does nothing.
func (s *slot) release() {
	if s.gate != nil {
		s.tell(s.gate.Release(s.t.now(), &s.at))
		*s = slot{}
	}
}

// landed tells the gate the result of the attempt, and ends the slot unless the
// body of the response takes it over. If there is neither a response nor an error, the
// base transport has panicked or ended its goroutine. into may be nil. Otherwise it is
// memory for the response's body.
func (s *slot) landed(ctx context.Context, req *http.Request, resp *http.Response, err error, into *slotBody) {
	if s.gate == nil {
		return
	}
	result, kept := host.Neutral, false
	defer func() { // also if a method of the base transport's error panics
		if !kept {
			s.tell(s.gate.End(s.t.now(), &s.at, result))
		}
	}()
	if resp == nil && err == nil {
		return
	}
	if result = resultOf(ctx, resp, err); result == host.Success && streams(req, resp) {
		kept = true
		if into == nil {
			into = new(slotBody)
		}
		s.keep(ctx, resp, into)
	}
}

// streams reports whether a response has a body that its host may have to work on
// for long. The body of a failed response is an error page. A caller that forgets
// to close it must not keep slots of the host.
func streams(req *http.Request, resp *http.Response) bool {
	return resp.Body != nil && resp.Body != http.NoBody && resp.StatusCode < 500 && !handsOver(req, resp)
}

// A slotBody ends its slot when the body has ended or is closed. It also tells the
// gate when the body is being read. Read belongs to one goroutine. Close may come
// from another goroutine during a Read.
type slotBody struct {
	io.ReadCloser
	slot slot
	stop func() bool // unlinks the slot from the context; nil: it is not linked
}

// keep hands the slot of a success over to the body of the response.
func (s *slot) keep(ctx context.Context, resp *http.Response, b *slotBody) {
	b.ReadCloser, b.slot = resp.Body, *s
	linked := false
	defer func() { // if the context panics
		if !linked {
			b.done()
		}
	}()
	b.slot.tell(b.slot.gate.Result(b.slot.t.now(), &b.slot.at, host.Success))
	if ctx.Done() != nil {
		b.stop = context.AfterFunc(ctx, b.done)
	}
	resp.Body, linked = b, true
}

// done ends the slot. Only the first call counts.
func (b *slotBody) done() { b.slot.gate.Done(b.slot.t.now(), &b.slot.at) }

// ended ends the slot together with its body.
func (b *slotBody) ended() {
	if b.stop != nil {
		b.stop()
	}
	b.done()
}

func (b *slotBody) Read(p []byte) (n int, err error) {
	s, returned := &b.slot, false
	s.gate.Reading(&s.at)
	defer func() {
		if !returned || err != nil { // a body that panics has no more to give
			b.ended()
		} else {
			s.gate.Idle(s.t.now(), &s.at)
		}
	}()
	n, err = b.ReadCloser.Read(p)
	returned = true
	return n, err
}

// Close ends the slot when the body is closed. If Close hangs, the body counts as
// a body that nobody reads.
func (b *slotBody) Close() error {
	b.slot.gate.Idle(b.slot.t.now(), &b.slot.at)
	defer b.ended()
	return b.ReadCloser.Close()
}

// resultOf returns what an outcome says about the host as a whole.
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
		return host.Success // it is about this request alone
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
