// A reconnect: the request for the rest, and the segment that its response adds.

package resume

import (
	"context"
	"net/http"
	"strconv"
)

// resume makes one reconnect. It sets err if the body ends here.
func (b *Body) resume() {
	cut := b.cut
	b.cut = nil
	ctx, ok := b.detach()
	if !ok {
		b.err = http.ErrBodyReadAfterClose
		return
	}
	resp, err := b.reconnect(ctx, cut)
	if err == nil {
		err = b.attach(ctx, cut, resp)
	}
	if err == nil {
		return
	}
	b.release()
	if b.isClosed() {
		b.err = http.ErrBodyReadAfterClose
		return
	}
	b.err = b.sender.Stopped(b.pos, cut, err, b.last != nil)
}

// detach closes the current segment. It returns a context for the next segment,
// which Close cancels. After Close it reports false.
func (b *Body) detach() (context.Context, bool) {
	b.mu.Lock()
	if b.closed {
		b.mu.Unlock()
		return nil, false
	}
	ctx, cancel := context.WithCancel(b.req.Context())
	old, release := b.body, b.cancel
	b.body, b.cancel = http.NoBody, cancel
	b.mu.Unlock()
	_ = old.Close()
	if release != nil {
		release()
	}
	return ctx, true
}

// reconnect asks for the rest.
func (b *Body) reconnect(ctx context.Context, cut error) (*http.Response, error) {
	progressed := b.pos-b.first >= MinProgress
	if progressed {
		b.dry = 0
	} else if b.dry++; b.dry > b.limit {
		return nil, ErrLimit
	}
	req := b.req.Clone(ctx)
	req.Header.Set("Range", b.rest())
	req.Header.Set("If-Range", b.validator)
	return b.sender.Reconnect(req, b.pos, cut, progressed)
}

// rest returns the Range header for the rest. If the caller asked for a range,
// the rest ends with that range.
func (b *Body) rest() string {
	r := "bytes=" + strconv.FormatInt(b.pos, 10) + "-"
	if b.partial {
		r += strconv.FormatInt(b.end-1, 10)
	}
	return r
}

// attach makes a response the next segment if it carries the rest. If the response
// proves that no byte is missing, attach ends the body. Otherwise it discards the
// response and returns the reason.
func (b *Body) attach(ctx context.Context, cut error, resp *http.Response) error {
	if b.complete(resp) {
		b.sender.Discard(ctx, resp)
		b.finish(cut)
		b.release()
		return nil
	}
	c, err := b.continuation(resp)
	if err != nil {
		b.sender.Discard(ctx, resp)
		return err
	}
	b.mu.Lock()
	closed := b.closed
	if !closed {
		b.body = resp.Body
	}
	b.mu.Unlock()
	if closed {
		_ = resp.Body.Close()
		return http.ErrBodyReadAfterClose
	}
	b.first, b.total, b.end, b.stop = b.pos, c.total, c.end, c.stop
	b.last = resp
	b.sums = b.sums.forSegment(resp)
	b.sender.Continued(b.pos)
	return nil
}
