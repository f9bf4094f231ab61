// The bodies of an attempt: of the request as the timer and the limiter see it, and of the response, which
// may stall.

package attempt

import (
	"context"
	"io"
	"net/http"
	"sync/atomic"
	"time"

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

// piece is how much of an upload is read at once if it has to make progress. The next Read comes when
// the connection has taken the last piece, so a slow connection gets small pieces.
const piece = 4 << 10

func (b *timedBody) Read(p []byte) (int, error) {
	timed := b.ctx.Timeouts != nil
	stall := timed && (b.ctx.quiet > 0 || b.ctx.idle > 0)
	if timed && b.ctx.idle > 0 && len(p) > piece {
		p = p[:piece]
	}
	if timed && !b.begun || stall {
		b.begun = true
		b.ctx.uploads(b, readsUpload)
	}
	s := b.slot
	if s != nil {
		s.Limiter.Await(s.Clock.Now(), &s.At)
	}
	n, err := b.ReadCloser.Read(p)
	if s != nil {
		s.Limiter.Resume(s.Clock.Now(), &s.At)
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

// uploads notes an event of a body of the request. If net/http resends the request by
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

// A watchedBody is an attemptBody that also ends when it stalls. The time of the attempt
// is that of its Reads. When it is over during a Read, that cancels the attempt's context to end a
// Read that blocks in the base transport. The timer also closes the body, because a base transport may
// ignore the context.
type watchedBody struct {
	attemptBody
	left         time.Duration // for the next byte; the lock of the attempt's context guards it
	decompressed bool
	closed       atomic.Bool // by the timer or by the caller
}

// Read reads from the body and fails if the body stalls.
func (b *watchedBody) Read(p []byte) (int, error) {
	if err := b.begin(); err != nil {
		return 0, err
	}
	n, err := b.attemptBody.Read(p)
	if stalled := b.end(n); stalled != nil && err != nil && err != io.EOF {
		err = stalled
	}
	return n, err
}

// begin bounds the time of a Read. It fails if an earlier Read was cut whose bytes still came at
// the last moment.
func (b *watchedBody) begin() error {
	a := b.ctx
	a.lock()
	defer a.mu.Unlock()
	if a.bound() > 0 {
		a.limit(time.Since(a.began), b.left)
	}
	return b.stalled()
}

// end notes the end of a Read that returned n bytes. It returns an error if the Read was cut.
func (b *watchedBody) end(n int) error {
	a := b.ctx
	a.lock()
	defer a.mu.Unlock()
	if b.left = a.quiet; n <= 0 {
		b.left = max(a.due-time.Since(a.began), 1)
	}
	a.limit(0, 0)
	return b.stalled()
}

// stalled returns the error of a body that was cut. If the caller's context has ended,
// the error of the context comes first; the lock is held.
func (b *watchedBody) stalled() error {
	switch caller := b.ctx.Context; {
	case b.ctx.phase != late:
		return nil
	case caller.Err() != nil:
		return ContextErr(caller)
	}
	return context.Cause(b.ctx.own)
}

// Close closes the body and frees the attempt's context. A Read that it ends does not stall.
func (b *watchedBody) Close() error {
	a := b.ctx
	a.lock()
	a.limit(0, 0)
	a.mu.Unlock()
	return b.close()
}

// close closes the body once.
func (b *watchedBody) close() error {
	if b.closed.Swap(true) {
		return nil
	}
	return b.attemptBody.Close()
}
