// How does a connection in memory behave like a TCP connection?

package testserver

import (
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"time"
)

// window is how many bytes one direction holds before Write waits.
const window = 64 << 10

// A Conn is one end of a connection on a [Net]. It does what a *net.TCPConn on
// Linux does, without delay on the way:
//
//   - Each direction buffers 64 KiB; a Write beyond that waits for the reader.
//   - CloseWrite sends FIN: the peer reads what is buffered, then io.EOF.
//   - Close sends FIN, or a reset when bytes from the peer are still unread.
//   - SetLinger(0) makes Close a reset: the peer still reads what is buffered
//     (Linux keeps it), then every Read and Write fails with ECONNRESET. Bytes
//     that the peer has not yet buffered space for are lost.
//   - The first Write to a peer that has closed is swallowed (its RST is on the
//     way back), the next one fails with EPIPE.
//   - A deadline that has passed fails even if bytes are there.
//
// A Conn is safe for concurrent use.
type Conn struct {
	in, out       *half
	local, remote Addr

	mu     sync.Mutex // guards linger
	linger int        // -1 unless SetLinger was called
}

// A half is one direction. Both ends share it; its mutex is never held while
// waiting, so that a blocked goroutine always blocks on a channel.
type half struct {
	mu   sync.Mutex
	wake chan struct{} // closed and replaced at each change; nil when nobody waits

	buf           []byte // sent, not yet read; at most window bytes
	fin           bool   // the writer will write no more
	writerClosed  bool   // the writer's end is closed, so that its Write is ErrClosed
	readerClosed  bool   // the reader's end is closed
	swallowed     bool   // a Write has already met the closed reader
	reset         bool   // the connection was reset by either end
	readDeadline  time.Time
	writeDeadline time.Time
}

// newPair connects two ends.
func newPair(client, server Addr) (*Conn, *Conn) {
	up, down := &half{}, &half{}
	return &Conn{in: down, out: up, local: client, remote: server, linger: -1},
		&Conn{in: up, out: down, local: server, remote: client, linger: -1}
}

// Read takes what is buffered, or waits for the first byte.
func (c *Conn) Read(p []byte) (int, error) {
	for {
		n, wake, deadline, err := c.in.tryRead(p)
		switch {
		case err == io.EOF:
			return 0, err
		case err != nil:
			return 0, c.fail("read", err)
		case wake == nil:
			return n, nil
		}
		await(wake, deadline)
	}
}

// Write buffers p, waiting for the reader where there is no room.
func (c *Conn) Write(p []byte) (int, error) {
	done := 0
	for {
		n, wake, deadline, err := c.out.tryWrite(p[done:])
		done += n
		switch {
		case err != nil:
			return done, c.fail("write", err)
		case wake == nil:
			return done, nil
		}
		await(wake, deadline)
	}
}

// tryRead reads without waiting. A non-nil wake means: nothing yet, try again
// after wake or the deadline.
func (h *half) tryRead(p []byte) (n int, wake chan struct{}, deadline time.Time, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case h.readerClosed:
		return 0, nil, time.Time{}, net.ErrClosed
	case passed(h.readDeadline):
		return 0, nil, time.Time{}, os.ErrDeadlineExceeded
	case len(p) == 0:
		return 0, nil, time.Time{}, nil
	case len(h.buf) > 0:
		n = copy(p, h.buf)
		h.buf = h.buf[n:]
		h.changed()
		return n, nil, time.Time{}, nil
	case h.reset:
		return 0, nil, time.Time{}, os.NewSyscallError("read", syscall.ECONNRESET)
	case h.fin:
		return 0, nil, time.Time{}, io.EOF
	}
	return 0, h.waitChan(), h.readDeadline, nil
}

// tryWrite writes what fits. A non-nil wake means: not all of it.
func (h *half) tryWrite(p []byte) (n int, wake chan struct{}, deadline time.Time, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case h.writerClosed:
		return 0, nil, time.Time{}, net.ErrClosed
	case passed(h.writeDeadline):
		return 0, nil, time.Time{}, os.ErrDeadlineExceeded
	case h.reset:
		return 0, nil, time.Time{}, os.NewSyscallError("write", syscall.ECONNRESET)
	case h.fin, h.swallowed:
		return 0, nil, time.Time{}, os.NewSyscallError("write", syscall.EPIPE)
	case h.readerClosed:
		h.swallowed = true
		return len(p), nil, time.Time{}, nil
	}
	n = min(len(p), window-len(h.buf))
	if n > 0 {
		h.buf = append(h.buf, p[:n]...)
		h.changed()
	}
	if n == len(p) {
		return n, nil, time.Time{}, nil
	}
	return n, h.waitChan(), h.writeDeadline, nil
}

// waitChan is closed at the next change; the caller holds h.mu.
func (h *half) waitChan() chan struct{} {
	if h.wake == nil {
		h.wake = make(chan struct{})
	}
	return h.wake
}

// changed wakes who waits; the caller holds h.mu.
func (h *half) changed() {
	if h.wake != nil {
		close(h.wake)
		h.wake = nil
	}
}

// with changes a half under its lock and wakes who waits.
func (h *half) with(change func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	change()
	h.changed()
}

// await returns at a change or at the deadline, whichever comes first; the
// caller looks again in either case.
func await(wake <-chan struct{}, deadline time.Time) {
	if deadline.IsZero() {
		<-wake
		return
	}
	t := time.NewTimer(time.Until(deadline))
	defer t.Stop()
	select {
	case <-wake:
	case <-t.C:
	}
}

func passed(deadline time.Time) bool {
	return !deadline.IsZero() && !time.Now().Before(deadline)
}

// Close ends both directions. A second Close fails with net.ErrClosed.
func (c *Conn) Close() error {
	c.mu.Lock()
	abort := c.linger == 0
	c.mu.Unlock()

	again := false
	c.in.with(func() {
		again = c.in.readerClosed
		c.in.readerClosed = true
		if len(c.in.buf) > 0 { // the kernel resets rather than lose bytes in silence
			abort = abort || !again
		}
		c.in.buf = nil
		c.in.reset = c.in.reset || (abort && !again)
	})
	if again {
		return c.fail("close", net.ErrClosed)
	}
	c.out.with(func() {
		c.out.writerClosed = true
		c.out.fin = true
		c.out.reset = c.out.reset || abort
	})
	return nil
}

// CloseWrite sends FIN and leaves the other direction open.
func (c *Conn) CloseWrite() error {
	var err error
	c.out.with(func() {
		if c.out.writerClosed {
			err = c.fail("close", net.ErrClosed)
		}
		c.out.fin = true
	})
	return err
}

// SetLinger decides about Close: 0 makes it a reset, anything else a FIN.
func (c *Conn) SetLinger(sec int) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.linger = sec
	return nil
}

// SetDeadline sets both deadlines; the zero time means none.
func (c *Conn) SetDeadline(t time.Time) error {
	_ = c.SetReadDeadline(t)
	return c.SetWriteDeadline(t)
}

// SetReadDeadline bounds Read, a waiting one included.
func (c *Conn) SetReadDeadline(t time.Time) error {
	c.in.with(func() { c.in.readDeadline = t })
	return nil
}

// SetWriteDeadline bounds Write, a waiting one included.
func (c *Conn) SetWriteDeadline(t time.Time) error {
	c.out.with(func() { c.out.writeDeadline = t })
	return nil
}

// LocalAddr is this end's address.
func (c *Conn) LocalAddr() net.Addr { return c.local }

// RemoteAddr is the peer's address.
func (c *Conn) RemoteAddr() net.Addr { return c.remote }

func (c *Conn) fail(op string, err error) error { return opError(op, c.local, c.remote, err) }
