// The timeout for the body of a response that makes no progress.
//
// Time counts only during a Read of the body, when the reader waits for the server. It
// does not count between Reads, when the caller is busy.

package attempt

import (
	"io"
	"sync"
	"time"
)

// A watchedBody is an attemptBody that also ends when it stalls. The time of the attempt
// is that of its Reads. When it is over during a Read, that cancels the attempt's context to end a
// Read that blocks in the base transport. The timer also closes the body, because a base transport may
// ignore the context.
type watchedBody struct {
	attemptBody
	left time.Duration // for the next byte; the lock of the attempt's context guards it

	closing  sync.Once // the body is closed once, by the timer or by the caller
	closeErr error
	panicked any // the value that the Close panicked with
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
	if d, _ := a.bound(); d > 0 {
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
	return b.ctx.silent
}

// Close closes the body and frees the attempt's context. A Read that it ends does not stall.
func (b *watchedBody) Close() error {
	a := b.ctx
	a.lock()
	a.limit(0, 0)
	a.mu.Unlock()
	return b.close()
}

// close closes the body once. Every call gets the result of that one Close.
func (b *watchedBody) close() error {
	b.closing.Do(func() {
		defer func() { b.panicked = recover() }()
		b.closeErr = b.attemptBody.Close()
	})
	if b.panicked != nil {
		panic(b.panicked)
	}
	return b.closeErr
}
