// A reconnect: the request for the rest, and the segment that its response adds.

package resume

import (
	"context"
	"net/http"
	"strconv"
	"time"
)

// resume makes one reconnect. It sets err if the body ends here.
func (b *Body) resume() {
	ctx, cut := b.detach()
	if ctx == nil {
		return
	}
	resp, err := b.reconnect(ctx, cut)
	if err == nil {
		err = b.attach(ctx, resp)
	}
	if err == nil {
		return
	}
	b.release()
	if b.isClosed() {
		b.err = http.ErrBodyReadAfterClose
		return
	}
	b.err = b.sender.Stopped(b.pos, cut, err, b.grown)
}

// detach closes the current segment, and returns the error that ended it. It also returns
// a context for the next segment, which Close cancels. After Close it ends the body, and
// there is no context.
func (b *Body) detach() (ctx context.Context, cut error) {
	x := b.extra
	cut, x.cut, b.tried = x.cut, nil, true
	b.mu.Lock()
	if b.closed {
		b.mu.Unlock()
		b.err = http.ErrBodyReadAfterClose
		return nil, cut
	}
	if x.wait == nil {
		x.wait = &wait{until: time.Now().Add(patience), timer: time.AfterFunc(patience, b.giveUp)}
	}
	x.wait.cut = cut
	ctx, cancel := context.WithCancelCause(b.sender.Request().Context())
	old, release := b.body, x.cancel
	b.body, x.cancel = http.NoBody, cancel
	b.mu.Unlock()
	b.sender.Drop(old)
	if release != nil {
		release(nil)
	}
	return &waiting{ctx, x.wait.until}, cut
}

// reconnect asks for the rest, or for everything again.
func (b *Body) reconnect(ctx context.Context, cut error) (resp *http.Response, err error) {
	progressed := !b.compares() && b.pos-b.first >= MinProgress
	if progressed {
		b.dry = 0
	} else if b.dry++; b.dry > b.limit {
		return nil, ErrLimit
	}
	if b.compares() {
		if err := b.unmatched(); err != nil {
			return nil, err
		}
	}
	req := b.sender.Request().Clone(ctx)
	if !b.compares() {
		req.Header.Set("Range", b.restRange())
		req.Header.Set("If-Range", b.validator)
	}
	if req.Body != nil && req.GetBody != nil { // net/http's own, for a body in memory
		if req.Body, err = req.GetBody(); err != nil {
			return nil, err
		}
	}
	return b.sender.Reconnect(req, b.pos, cut, progressed)
}

// restRange returns the Range header for the rest. If the caller asked for a range,
// the rest ends with that range.
func (b *Body) restRange() string {
	r := "bytes=" + strconv.FormatInt(b.pos, 10) + "-"
	if b.partial {
		r += strconv.FormatInt(b.end-1, 10)
	}
	return r
}

// attach makes a response the next segment if it continues the body. If the response
// proves that no byte is missing, attach ends the body. Otherwise it discards the
// response and returns the reason.
func (b *Body) attach(ctx context.Context, resp *http.Response) error {
	if b.complete(resp) {
		b.sender.Discard(ctx, resp)
		b.finish()
		b.ended()
		return nil
	}
	c, err := b.continuation(resp)
	if err != nil {
		b.sender.Discard(ctx, resp)
		return err
	}
	if !b.put(resp) {
		return ErrLate
	}
	if !b.compares() {
		b.first = b.pos
	}
	if c.skip > 0 {
		if err := b.skip(resp); err != nil {
			return b.skipFailed(ctx, resp, err)
		}
	}
	b.total, b.end, b.stop = c.total, c.end, c.stop
	b.extra.last = resp
	b.sender.Continued(b.pos)
	return nil
}

// put makes the body of resp the current segment. After Close, or if resp comes too late, it closes
// that body and reports false.
func (b *Body) put(resp *http.Response) bool {
	b.mu.Lock()
	closed := b.closed || b.extra.late
	if !closed {
		b.body = resp.Body
	}
	b.mu.Unlock()
	if closed {
		_ = resp.Body.Close()
	}
	return !closed
}

// skip reads the bytes that the reader has from a response that brings everything again.
func (b *Body) skip(resp *http.Response) error {
	read, err := b.match(resp.Body)
	b.left -= int32(read)
	if b.isLate() { // and the body is closed, even if the bytes came at the last moment
		return ErrLate
	}
	return err
}

// skipFailed ends a segment that did not come to the bytes that are missing. If its
// connection was lost as well, the next reconnect is due.
func (b *Body) skipFailed(ctx context.Context, resp *http.Response, err error) error {
	if err != errDiffers && err != ErrLate && !b.isClosed() && b.sender.Cut(err, b.grown) == nil {
		b.extra.cut = err
		return nil
	}
	b.mu.Lock()
	b.body = http.NoBody
	b.mu.Unlock()
	b.sender.Discard(ctx, resp)
	return err
}
