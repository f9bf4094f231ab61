// The body of a request as the timer and the limiter see it.

package attempt

import (
	"io"
	"net/http"

	"github.com/aplomb-go/aplomb/internal/replay"
)

// watch makes the timer and the limiter see when the body of req is read. held is nil
// without a concurrency limit. It also watches the body of a resend by net/http itself.
//
// A small body in memory stays as it is, because sending it takes almost no time.
// net/http sends such a body together with the headers, and returns only when it no
// longer needs the body. For that it has to see the type of the body.
func (a *attemptContext) watch(req *http.Request, held *Slot) {
	small := replay.SmallInMemory(req.Body)
	if !small {
		req.Body = &timedBody{ReadCloser: req.Body, ctx: a, slot: held}
	}
	if getBody := req.GetBody; getBody != nil && !(small && replay.Independent(req)) {
		req.GetBody = func() (io.ReadCloser, error) {
			body, err := getBody()
			if err != nil || body == nil || body == http.NoBody || replay.SmallInMemory(body) {
				return body, err
			}
			return &timedBody{ReadCloser: body, ctx: a, slot: held}, nil
		}
	}
}

// A timedBody is a request's body that reports its Reads to the attempt's timer and to
// the limiter. The server is not at fault for a slow reader of the caller, and does not work
// on the request meanwhile. Close may be called during a Read.
type timedBody struct {
	io.ReadCloser
	ctx   *attemptContext
	slot  *Slot // nil: no limiter
	begun bool  // used by Read alone
}

func (b *timedBody) Read(p []byte) (int, error) {
	timed := b.ctx.Timeouts != nil
	stall := timed && b.ctx.quiet > 0
	if timed && !b.begun || stall {
		b.begun = true
		b.ctx.uploads(b, readsUpload)
	}
	if b.slot != nil {
		b.slot.awaits()
	}
	n, err := b.ReadCloser.Read(p)
	if b.slot != nil {
		b.slot.goesOn()
	}
	switch {
	case err != nil && timed:
		b.ctx.uploads(b, uploadEnds)
	case stall:
		b.ctx.uploads(b, hasPiece)
	}
	return n, err
}

func (b *timedBody) Close() error {
	if b.ctx.Timeouts != nil {
		b.ctx.uploads(b, uploadEnds)
	}
	return b.ReadCloser.Close()
}

// uploads notes what happens to a body of the request. If net/http resends the request by
// itself, it reads a second body. Only that body counts from then on.
func (a *attemptContext) uploads(body *timedBody, e event) {
	a.lock()
	defer a.mu.Unlock()
	if e == readsUpload {
		a.upload = body
	}
	if a.upload != body {
		return
	}
	if a.on(e, nil); e == uploadEnds {
		a.upload = nil
	}
}
