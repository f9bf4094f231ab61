// A connection in memory that behaves like TCP.

package testserver

import (
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// window is the number of bytes that a direction buffers before Write waits.
const window = 64 << 10

// A Conn is an end of a connection on a [Net]. It behaves like a *net.TCPConn on
// Linux, but its bytes arrive without delay.
//
//   - Each direction buffers 64 KiB. If the buffer is full, Write waits for the
//     reader.
//   - CloseWrite sends FIN. The peer reads the buffered bytes, then io.EOF.
//   - Close sends FIN. If bytes from the peer are still unread, Close sends a
//     reset instead.
//   - After SetLinger(0), Close sends a reset. The peer can still read the
//     buffered bytes, as on Linux. Then every Read and Write of the peer fails
//     with ECONNRESET. Bytes of a Write that still waits are lost.
//   - After the peer has closed, the first Write succeeds, because over TCP the
//     peer's RST would still be on its way. The next Write fails with EPIPE.
//   - If a deadline has passed, Read fails even if bytes are buffered.
//
// A Conn is safe for concurrent use.
type Conn struct {
	in, out       *half
	local, remote Addr

	closed func()      // not nil: tells the Net
	aborts atomic.Bool // Close sends a reset
}

// A half is a direction of a connection. Both ends share it. No goroutine holds
// its mutex while it waits, so a blocked goroutine always blocks on a channel, as
// testing/synctest requires.
type half struct {
	mu   sync.Mutex
	wake chan struct{} // closed and cleared at each change, nil if no goroutine waits

	buf           []byte // bytes sent and not yet read, at most window
	fin           bool   // the writer sent FIN
	writerClosed  bool   // the writer's end is closed, so its Write fails with ErrClosed
	readerClosed  bool   // the reader's end is closed
	swallowed     bool   // a Write after the reader closed has succeeded
	reset         bool   // an end has reset the connection
	silent        bool   // sent bytes are lost, and the reader is told nothing
	readDeadline  time.Time
	writeDeadline time.Time
}

// newPair makes the two ends of a connection.
func newPair(client, server Addr) (*Conn, *Conn) {
	up, down := &half{}, &half{}
	return &Conn{in: down, out: up, local: client, remote: server},
		&Conn{in: up, out: down, local: server, remote: client}
}

// Read returns buffered bytes. If there are none, it waits for some.
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

// Write buffers p. If there is no room, it waits for the reader.
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

// tryRead reads without waiting. If there is nothing to read yet, it returns a
// channel. The caller tries again when wake is closed or the deadline passes.
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
	case h.silent:
		return 0, h.waitChan(), h.readDeadline, nil
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

// tryWrite writes as much of p as there is room for. If that is not all, it
// returns a channel and a deadline as tryRead does.
func (h *half) tryWrite(p []byte) (n int, wake chan struct{}, deadline time.Time, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case h.writerClosed:
		return 0, nil, time.Time{}, net.ErrClosed
	case passed(h.writeDeadline):
		return 0, nil, time.Time{}, os.ErrDeadlineExceeded
	case h.silent:
		return len(p), nil, time.Time{}, nil
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

// waitChan returns a channel that the next change closes; the lock is held.
func (h *half) waitChan() chan struct{} {
	if h.wake == nil {
		h.wake = make(chan struct{})
	}
	return h.wake
}

// changed wakes the goroutines that wait; the lock is held.
func (h *half) changed() {
	if h.wake != nil {
		close(h.wake)
		h.wake = nil
	}
}

// with changes a half under its lock and wakes the goroutines that wait.
func (h *half) with(change func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	change()
	h.changed()
}

// await returns when wake is closed or the deadline passes. The caller then tries
// again.
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

// Close closes both directions. A second Close fails with net.ErrClosed.
func (c *Conn) Close() error {
	abort, again := c.aborts.Load(), false
	c.in.with(func() {
		again = c.in.readerClosed
		c.in.readerClosed = true
		if len(c.in.buf) > 0 { // like the kernel, tell the peer that bytes are lost
			abort = abort || !again
		}
		c.in.buf = nil
		c.in.reset = c.in.reset || (abort && !again)
	})
	if again {
		return c.fail("close", net.ErrClosed)
	}
	if c.closed != nil {
		c.closed()
	}
	c.out.with(func() {
		c.out.writerClosed = true
		c.out.fin = true
		c.out.reset = c.out.reset || abort
	})
	return nil
}

// CloseWrite sends FIN. The other direction stays open.
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

// Silence makes the connection lose everything that either end sends, as if a cable had
// been pulled. Neither end notices when the other closes. Bytes that are on their way are
// lost as well.
func (c *Conn) Silence() {
	c.in.with(func() { c.in.silent = true })
	c.out.with(func() { c.out.silent = true })
}

// SetLinger chooses how Close ends the connection. If sec is 0, Close sends a
// reset, otherwise FIN.
func (c *Conn) SetLinger(sec int) error {
	c.aborts.Store(sec == 0)
	return nil
}

// SetDeadline sets both deadlines. The zero time means no deadline.
func (c *Conn) SetDeadline(t time.Time) error {
	_ = c.SetReadDeadline(t)
	return c.SetWriteDeadline(t)
}

// SetReadDeadline limits later Reads and a Read that waits already.
func (c *Conn) SetReadDeadline(t time.Time) error {
	c.in.with(func() { c.in.readDeadline = t })
	return nil
}

// SetWriteDeadline limits later Writes and a Write that waits already.
func (c *Conn) SetWriteDeadline(t time.Time) error {
	c.out.with(func() { c.out.writeDeadline = t })
	return nil
}

// LocalAddr returns this end's address.
func (c *Conn) LocalAddr() net.Addr { return c.local }

// RemoteAddr returns the peer's address.
func (c *Conn) RemoteAddr() net.Addr { return c.remote }

func (c *Conn) fail(op string, err error) error { return opError(op, c.local, c.remote, err) }
