// A slot at the limiter.

package attempt

import (
	"context"
	"io"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/aplomb-go/aplomb/internal/host/concurrency"
	"github.com/aplomb-go/aplomb/internal/host/instant"
	"github.com/aplomb-go/aplomb/internal/peek"
	"github.com/aplomb-go/aplomb/internal/resume"
)

// A Slot is the right of an attempt to be in flight to a host with a concurrency limit. The zero
// slot belongs to a host without a concurrency limit.
//
// A slot has one owner at a time, and each owner releases it in a deferred call.
// The limits of the call own it from the answer of the limiter until an attempt takes
// it over. The attempt owns it until the response arrives. Then the body of the
// response owns it. Each owner takes over the value itself. From the send on the
// value is at its last place, because the limiter may know its address.
//
// An error, a success without a body, an event stream and a connection that is handed over end
// the slot at once. A response that is no success hands the slot back to the limits. They end
// it when they know of the hold that the response may ask for.
// Otherwise the next request would get the slot, and go before the hold. The body of any other
// success keeps the slot until the body has ended or is closed, or the request's context has
// ended. If nobody reads from the body for ten seconds, it keeps the slot no longer (see
// [concurrency.Limiter.Idle]). The same holds if the body has no length and a Read waits for 500 ms (see
// [concurrency.Limiter.Reading]). While the attempt waits for the caller's body, its slot does not count
// (see [concurrency.Limiter.Await]).
type Slot struct {
	Clock   *instant.Clock
	Limiter *concurrency.Limiter // nil: no limiter

	At concurrency.Slot // guarded by the limiter's lock

	refused bool // it is the slot of a response that is no success
}

// Release ends the slot of an attempt that did not go, or of a response that is no success. A
// second call does nothing.
func (s *Slot) Release() {
	if s == nil || s.Limiter == nil {
		return
	}
	if s.Limiter.End(&s.At); !s.refused { // else a Read of the request's body may still use s
		*s = Slot{}
	}
}

// Landed ends the slot of the attempt that has just ended, unless the response is no success, or its
// body takes the slot over. If there is neither a response nor an error, the base transport has
// panicked or ended its goroutine. req is the request that was sent. into may be nil. Otherwise
// it is memory for the response's body, and may have the slot already.
func (s *Slot) Landed(a *Attempt, req *http.Request, into *slotBody) {
	if s.Limiter == nil {
		return
	}
	now, resp := s.Clock.Now(), a.Resp
	a.DoneAt = now
	responded := resp != nil && a.Err == nil
	switch {
	case responded && ResultOf(a.Ctx, resp, nil) != Success:
		s.refused = true
	case responded && keeps(req, resp):
		if into == nil {
			into = new(slotBody)
		}
		if s != &into.slot {
			into.slot = *s
		}
		into.keep(a.Ctx, now, resp)
	default:
		s.Limiter.End(&s.At)
	}
}

// keeps reports whether a response has a body that its host may have to work on
// for long. The body of a failed response is an error page. A caller that forgets
// to close it must not keep slots of the host. A host does not work on an event stream,
// which may last for days.
func keeps(req *http.Request, resp *http.Response) bool {
	return resp.Body != nil && resp.Body != http.NoBody && resp.StatusCode < 500 && !HandsOver(req, resp) && !peek.ServerSent(resp)
}

// A slotBody has the slot of an attempt, from the send on. If it becomes the body of the
// response, it ends the slot when the body has ended or is closed. It also tells the
// limiter when the body is being read. Read belongs to one goroutine. Close may come
// from another goroutine during a Read.
type slotBody struct {
	io.ReadCloser
	slot     Slot
	noLength bool        // nobody knows when the body ends
	over     atomic.Bool // the body has ended, and the limiter knows
	stop     func() bool // unlinks the slot from the context; nil: it is not linked
}

// keep makes b the body of a success, which keeps the slot.
func (b *slotBody) keep(ctx context.Context, now instant.Instant, resp *http.Response) {
	b.ReadCloser, b.noLength = resp.Body, resp.ContentLength < 0
	b.slot.Limiter.Respond(now, &b.slot.At)
	if ctx.Done() != nil {
		b.stop = context.AfterFunc(ctx, b.done)
	}
	resp.Body = b
}

// done ends the slot. Only the first call counts.
func (b *slotBody) done() { b.slot.Limiter.End(&b.slot.At) }

// ended ends the slot together with its body.
func (b *slotBody) ended() {
	if b.over.Swap(true) {
		return
	}
	if b.stop != nil {
		b.stop()
	}
	b.done()
}

func (b *slotBody) Read(p []byte) (n int, err error) {
	s, now, returned := &b.slot, instant.Instant(0), false
	if b.noLength {
		now = s.Clock.Now()
	}
	s.Limiter.Reading(now, &s.At, b.noLength)
	defer func() {
		if !returned || err != nil { // a body that panics has no more to give
			b.ended()
		} else {
			s.Limiter.Idle(s.Clock.Now(), &s.At)
		}
	}()
	n, err = b.ReadCloser.Read(p)
	returned = true
	return n, err
}

// PeekWait is that of the body in it.
func (b *slotBody) PeekWait() time.Duration { return peek.Wait(b.ReadCloser) }

// Inner returns the body in it.
func (b *slotBody) Inner() io.ReadCloser { return b.ReadCloser }

// ResumeTried reports whether a Transport below has asked for the rest of the body.
func (b *slotBody) ResumeTried() bool { return resume.Tried(b.ReadCloser) }

// Close ends the slot when the body is closed. If Close hangs, the body counts as
// a body that nobody reads.
func (b *slotBody) Close() error {
	if !b.over.Load() {
		b.slot.Limiter.Idle(b.slot.Clock.Now(), &b.slot.At)
	}
	defer b.ended()
	return b.ReadCloser.Close()
}
