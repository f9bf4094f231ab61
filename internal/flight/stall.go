// The timeout for the body of a response that makes no progress.
//
// Time counts only during a Read of the body, when the reader waits for the server. It
// does not count between Reads, when the caller is busy.

package flight

import (
	"io"
	"sync"
	"time"

	"github.com/aplomb-go/aplomb/internal/resume"
)

// An attemptBody is the body of the response to a timed attempt. It frees the attempt's
// context when the body has ended or is closed.
type attemptBody struct {
	io.ReadCloser
	ctx *attemptContext
}

func (b *attemptBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if n > 0 && b.ctx.pool != nil {
		b.ctx.pool.Hear(b.ctx.home.Now())
	}
	if err != nil {
		b.ctx.happens(bodyEnds, nil)
	}
	return n, err
}

// ResumeTried reports whether a Transport below has asked for the rest of the body.
func (b *attemptBody) ResumeTried() bool { return resume.Tried(b.ReadCloser) }

func (b *attemptBody) Close() error {
	defer b.ctx.happens(leaves, nil)
	return b.ReadCloser.Close()
}

// A watchedBody is an attemptBody that also ends when it stalls. The alarm of the attempt
// is for its Reads. When it rings during one that takes too long, it cancels the
// attempt's context to end a Read that blocks in the base transport. It also closes the
// body, because a base transport may ignore the context.
type watchedBody struct {
	attemptBody

	closing  sync.Once // the body is closed once, by the timer or by the caller
	closeErr error
	panicked any // the value that the Close panicked with

	// The lock of the attempt's context guards the fields below. It is not held during
	// a Read.
	reading bool
	closed  bool
	began   time.Duration // when the present Read began, on the clock of the alarms
	waited  time.Duration // for the next byte, in earlier Reads
	fired   bool          // a Read was cut
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

// begin starts the clock. It fails if an earlier Read was cut whose bytes still came at
// the last moment.
func (b *watchedBody) begin() error {
	b.ctx.mu.Lock()
	defer b.ctx.mu.Unlock()
	if b.fired {
		return b.stalled()
	}
	b.began, b.reading = b.ctx.alarms.now(), true
	b.ctx.set(b.began, b.ctx.quiet-b.waited)
	return nil
}

// end notes the end of a Read that returned n bytes, so that the alarm cuts nothing if it still rings.
// It returns an error if the Read was cut.
func (b *watchedBody) end(n int) error {
	b.ctx.mu.Lock()
	defer b.ctx.mu.Unlock()
	b.reading = false
	switch {
	case b.fired:
		return b.stalled()
	case n > 0:
		b.waited = 0
	default:
		b.waited += b.ctx.alarms.now() - b.began
	}
	return nil
}

// stalled returns the error of a body that was cut. If the caller's context has ended,
// the error of the context comes first; the lock is held.
func (b *watchedBody) stalled() error {
	if b.ctx.Context.Err() != nil {
		return ContextErr(b.ctx.Context)
	}
	return b.ctx.silent
}

// cut cancels the attempt if a Read takes too long, and reports whether it does. The lock is held.
func (b *watchedBody) cut() bool {
	if !b.reading || b.closed || b.fired {
		return false
	}
	b.fired = true
	b.ctx.on(leaves, b.ctx.silent)
	return true
}

// closeCut closes a body that was cut. It recovers a panic of the base's Close, which would end
// the process here. The reader's Close raises the panic again.
func (b *watchedBody) closeCut() {
	defer func() { _ = recover() }()
	_ = b.close()
}

// Close closes the body and frees the attempt's context.
func (b *watchedBody) Close() error {
	b.ctx.mu.Lock()
	b.closed = true
	b.ctx.mu.Unlock()
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
