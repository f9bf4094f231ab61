// Response bodies. They check how they are discarded.

package simulate

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

var (
	errClosed = errors.New("simulate: read of a closed body")
	errCount  = errors.New("simulate: Read returned an invalid count")
)

// A respBody is the body of a response of the base transport.
type respBody struct {
	attempt *attempt
	upload  *upload // of the same attempt; it ends with this body
	using   atomic.Int32
	closed  chan struct{}
	once    sync.Once
	idle    chan struct{}         // full during a Read, if Close waits for it
	failed  atomic.Pointer[error] // of a Read, the last; the oracles read it under other locks

	mu       sync.Mutex // guards the fields below
	pos      int64
	read     int64
	ended    bool
	closedAt time.Duration // never, while it is open
	readEnd  time.Duration // when the last Read returned; never, while a Read is in progress
	began    time.Duration // when the last Read began
	quiet    time.Duration // the time in earlier Reads since the last byte
	over     time.Duration // when the body had ended or was closed; never before
}

// failure returns the error of the last Read that failed, or nil.
func (b *respBody) failure() error {
	if err := b.failed.Load(); err != nil {
		return *err
	}
	return nil
}

func newRespBody(s *attempt, up *upload) *respBody {
	return &respBody{
		attempt: s, upload: up, closed: make(chan struct{}), idle: make(chan struct{}, 1),
		pos: s.page.first, closedAt: never, over: never,
	}
}

func (b *respBody) Read(p []byte) (int, error) {
	if b.using.Add(1) > 1 {
		b.attempt.call.violate(Discarded, "two Reads of the response's body of attempt %d at the same time", b.attempt.number)
	}
	defer b.using.Add(-1)
	if b.attempt.script.blocks > 0 {
		b.idle <- struct{}{}
		defer func() { <-b.idle }()
	}
	b.mu.Lock()
	pos := b.pos
	b.readEnd, b.began = never, b.attempt.world.now()
	b.mu.Unlock()
	defer func() {
		b.mu.Lock()
		b.readEnd = b.attempt.world.now()
		b.mu.Unlock()
	}()
	n, err := b.next(p, pos)
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.quiet += b.attempt.world.now() - b.began; n > 0 {
		b.quiet = 0
	}
	b.pos += int64(n)
	b.read += int64(n)
	if err != nil && err != io.EOF && err != errClosed {
		b.failed.Store(&err)
	}
	if err != nil && !b.ended {
		b.ended = true
		b.over = min(b.over, b.attempt.world.now())
		b.upload.halt()
	}
	return n, err
}

// next returns the next piece.
func (b *respBody) next(p []byte, pos int64) (int, error) {
	sc, page := b.attempt.script, b.attempt.page
	end := page.until
	if sc.end != whole {
		end = min(end, page.first+sc.cutAt)
	}
	if isClosed(b.closed) {
		return 0, errClosed
	}
	if err := b.wait(sc.pause); err != nil {
		return 0, err
	}
	n := int(min(int64(len(p)), sc.piece, end-pos))
	page.text.fill(p[:n], pos)
	if n > 0 {
		return n, nil
	}
	switch {
	case len(p) == 0:
		return 0, nil
	case pos == page.until:
		return 0, io.EOF
	case sc.end == explodes:
		panic(&scripted{"the response's body"})
	case sc.end == overcounts:
		return len(p) + 1, nil
	case sc.end == cut && sc.piece%2 == 0:
		return 0, &fault{io.ErrUnexpectedEOF}
	case sc.end == cut:
		return 0, &fault{&net.OpError{Op: "read", Net: "tcp", Err: syscall.ECONNRESET}}
	}
	return 0, b.wait(never)
}

// quietFor returns for how long Reads have waited since the last byte.
func (b *respBody) quietFor() time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.readEnd == never {
		return b.quiet + b.attempt.world.now() - b.began
	}
	return b.quiet
}

// wait waits for d, or until Close or the end of the context. It may notice the
// end of the context late.
func (b *respBody) wait(d time.Duration) error {
	if d <= 0 {
		return nil
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	var err error
	ctx := b.attempt.req.Context()
	select {
	case <-timer.C:
		return nil
	case <-b.closed:
		err = errClosed
	case <-ctx.Done():
		err = &fault{context.Cause(ctx)}
	}
	time.Sleep(max(b.attempt.script.deaf, b.attempt.script.blocks))
	return err
}

// Close closes the body. In some attempts it waits for a Read in progress,
// which it ends late.
func (b *respBody) Close() error {
	b.once.Do(func() {
		b.mu.Lock()
		b.closedAt = b.attempt.world.now()
		b.over = min(b.over, b.closedAt)
		b.mu.Unlock()
		close(b.closed)
		b.upload.halt()
	})
	if b.attempt.script.blocks > 0 {
		b.idle <- struct{}{}
		defer func() { <-b.idle }()
	}
	return nil
}

// A tunnel is the body of a 101 response, which is a connection.
type tunnel struct{ *respBody }

func (t *tunnel) Write(p []byte) (int, error) { return len(p), nil }
