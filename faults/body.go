// Bodies of responses that are cut, stand still or are slow.

package faults

import (
	"context"
	"io"
	"net/http"
	"sync"
)

// spoil gives a response the body that the step asks for. The body of a 101 or of a
// CONNECT is the connection itself, and stays as it is.
func (s Step) spoil(req *http.Request, resp *http.Response) {
	tunnel := resp.StatusCode == http.StatusSwitchingProtocols || req.Method == http.MethodConnect && resp.StatusCode/100 == 2
	if s.early == whole && s.drip == 0 || tunnel || req.Method == http.MethodHead {
		return
	}
	b := &body{inner: resp.Body, step: s, length: resp.ContentLength}
	b.ctx, b.close = context.WithCancelCause(req.Context())
	resp.Body = b
}

// A body plays the faults of a step. As with other bodies, one goroutine reads it,
// and another may close it at the same time.
type body struct {
	inner  io.ReadCloser
	ctx    context.Context // ends with that of the request, and when the body is closed
	close  context.CancelCauseFunc
	step   Step
	length int64 // of the whole body; -1: unknown
	read   int64
	ended  error // the error of the end, which is returned again

	once sync.Once
	err  error // of the inner Close
}

func (b *body) Read(p []byte) (int, error) {
	if b.ended == nil {
		b.ended = context.Cause(b.ctx)
	}
	if b.ended != nil || len(p) == 0 {
		return 0, b.ended
	}
	if b.step.early != whole {
		left := b.step.after - b.read
		if left <= 0 && b.read != b.length {
			b.ended = b.end()
			return 0, b.ended
		}
		if left > 0 {
			p = p[:min(int64(len(p)), left)]
		}
	}
	if b.step.drip > 0 && b.read != b.length {
		p = p[:min(len(p), b.step.drip)]
		if b.ended = sleep(b.ctx, b.step.every); b.ended != nil {
			return 0, b.ended
		}
	}
	n, err := b.inner.Read(p)
	b.read += int64(n)
	b.ended = err
	return n, err
}

// end plays the end of a body that ends early. The rest of an inner body that is cut
// is of no use, so end closes it.
func (b *body) end() error {
	if b.step.early == cut {
		_ = b.inner.Close()
		return io.ErrUnexpectedEOF
	}
	<-b.ctx.Done()
	return context.Cause(b.ctx)
}

// Close closes the body and ends a Read that waits.
func (b *body) Close() error {
	b.once.Do(func() {
		b.close(http.ErrBodyReadAfterClose)
		b.err = b.inner.Close()
	})
	return b.err
}
