// What do the first bytes of a body say, without taking them from its reader?

package classify

import (
	"context"
	"errors"
	"io"
	"net/http"
	"sync"
	"time"
)

const (
	// peekWait is the bound that an Outcome without PeekWait has.
	peekWait = time.Second
	// peekChunk is the size of one Read of Peek: nearly every error body is
	// shorter.
	peekChunk = 4 << 10
	// emptyReads is how many Reads in a row may give neither a byte nor an
	// error before Peek is content with what it has.
	emptyReads = 100
	// closeGrace is how long Close waits for the source's Close while a Read of
	// ours is under way. The bodies of net/http answer within microseconds.
	closeGrace = 50 * time.Millisecond
)

// Peek returns up to n leading bytes of the response's body; the body can
// still be read in full afterwards. It ends at n bytes, at the end of the body,
// at a read error (which a later Read reports, after the bytes before it), at
// the end of the Request's context, or when PeekWait is over, whichever comes
// first. The bound in time is one for all Peeks of a response together, so that
// several body classifiers hold a stalled answer up no longer than one.
//
// A source that breaks the contract of io.Reader ends the look, too. If its Read
// panicked, the later Read panics with the same value, in the goroutine of its
// caller. If its Read returned an invalid count, the later Read returns an
// error.
//
// The result is nil where no look is possible: there is no response or body, n
// is not positive, PeekWait is negative, or the answer is a connection (status
// 101, CONNECT) or has no content (HEAD). The body is then untouched. An empty
// body gives an empty result that is not nil.
//
// Peek replaces Response.Body, once. It must not be called at the same time as
// the body is read or as another Peek of the same response; Close may be called
// at any time. The result is valid until the body is closed, and must not be
// changed.
func (o Outcome) Peek(n int) []byte {
	resp := o.Response
	switch {
	case resp == nil || resp.Body == nil || n <= 0 || o.PeekWait < 0:
		return nil
	case resp.StatusCode == http.StatusSwitchingProtocols:
		return nil // the body is a connection, and an io.Writer
	case o.method() == http.MethodConnect, o.method() == http.MethodHead:
		return nil
	case resp.Body == http.NoBody:
		return []byte{}
	}
	body, ok := resp.Body.(*peekedBody)
	if !ok {
		wait := o.PeekWait
		if wait == 0 {
			wait = peekWait
		}
		body = &peekedBody{
			src:   resp.Body,
			until: time.Now().Add(wait),
			head:  []byte{},
			gone:  make(chan struct{}),
		}
		resp.Body = body
	}
	return body.peek(o.context(), n)
}

// A peekedBody is a body whose first bytes were read ahead.
//
// A Read of the source cannot be interrupted, so Peek has it done by a
// goroutine and goes away when the time is over; the goroutine's result waits
// for the next Peek or Read. There is at most one Read of the source at a time:
// whoever wants to read takes over the one under way. The goroutine ends when
// the source answers or is closed, as a Read of the caller's own would.
type peekedBody struct {
	src   io.ReadCloser
	until time.Time     // the end of all Peeks
	gone  chan struct{} // closed by Close

	mu     sync.Mutex // guards what follows; never held while src is called or anything is waited for
	head   []byte     // read from src, not yet by the caller; its array is only appended to
	err    error      // what src said after head; sticky
	ahead  *readAhead // the Read under way, or answered and not yet taken; nil for none
	closed bool
}

// A readAhead is one Read of the source by a goroutine. buf and err may be read
// once done is closed.
type readAhead struct {
	done chan struct{}
	buf  []byte
	err  error
}

var (
	errBadCount = errors.New("classify: the response body's Read returned an invalid count")
	errNoReturn = errors.New("classify: the response body's Read did not return")
)

// A readPanic stands for a panic of the source's Read, which nobody could catch
// in the goroutine of a readAhead.
type readPanic struct{ value any }

func (*readPanic) Error() string { return "classify: the response body's Read panicked" }

// read has the source fill the buffer. The result holds if the source's Read
// neither returns nor panics, but ends the goroutine.
func (a *readAhead) read(src io.Reader) {
	defer close(a.done)
	buf := a.buf
	a.buf, a.err = nil, errNoReturn
	defer func() {
		if value := recover(); value != nil {
			a.err = &readPanic{value}
		}
	}()
	n, err := src.Read(buf)
	if n < 0 || n > len(buf) {
		n, err = 0, errBadCount
	}
	a.buf, a.err = buf[:n], err
}

func (b *peekedBody) peek(ctx context.Context, n int) []byte {
	timer := time.NewTimer(time.Until(b.until))
	defer timer.Stop()
	for empty := 0; empty < emptyReads; {
		late := ctx.Err() != nil || !time.Now().Before(b.until)
		ahead := b.start(n, late)
		if ahead == nil {
			break
		}
		select {
		case <-ahead.done:
		case <-timer.C:
			late = true
		case <-ctx.Done():
			late = true
		case <-b.gone:
			late = true
		}
		switch got, ok := b.take(ahead); {
		case ok && got == 0:
			empty++
		case ok:
			empty = 0
		case late:
			return b.leading(n)
		}
	}
	return b.leading(n)
}

// start returns the Read under way, or starts one; nil where none is needed for
// n bytes, or where none is under way and it is too late to start one.
func (b *peekedBody) start(n int, late bool) *readAhead {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.closed || b.err != nil || len(b.head) >= n:
		return nil
	case b.ahead != nil:
		return b.ahead
	case late:
		return nil
	}
	ahead := &readAhead{
		done: make(chan struct{}),
		buf:  make([]byte, min(n-len(b.head), peekChunk)),
	}
	b.ahead = ahead
	go ahead.read(b.src)
	return ahead
}

// take moves what a Read brought to the head. It reports how many bytes that
// were; ok is false while the Read is under way.
func (b *peekedBody) take(ahead *readAhead) (n int, ok bool) {
	select {
	case <-ahead.done:
	default:
		return 0, false
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ahead == ahead {
		b.head, b.err, b.ahead = append(b.head, ahead.buf...), ahead.err, nil
	}
	return len(ahead.buf), true
}

func (b *peekedBody) leading(n int) []byte {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return nil
	}
	n = min(n, len(b.head))
	return b.head[:n:n]
}

// Read gives the bytes read ahead, then the source's own. A panic of the Read
// that was ahead is raised here.
func (b *peekedBody) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	for {
		n, ahead, err := b.next(p)
		if bad, ok := err.(*readPanic); ok {
			panic(bad.value)
		}
		switch {
		case n > 0 || err != nil:
			return n, err
		case ahead == nil:
			return b.src.Read(p)
		}
		select {
		case <-ahead.done:
			b.take(ahead)
		case <-b.gone:
		}
	}
}

// next gives the bytes at hand, or the error after them, or the Read to wait
// for; nothing of these where the source itself is to be read.
func (b *peekedBody) next(p []byte) (n int, ahead *readAhead, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.closed:
		return 0, nil, http.ErrBodyReadAfterClose
	case len(b.head) > 0:
		n = copy(p, b.head)
		b.head = b.head[n:]
		return n, nil, nil
	case b.ahead != nil:
		return 0, b.ahead, nil
	}
	return 0, nil, b.err
}

// Close closes the source, once.
//
// Some sources' Close waits for their Read. Without Peek there would be no Read
// under way when the caller closes, so it must not be made to wait for ours:
// such a source is left to close in its own time. It is closed in a goroutine
// then, and its error is lost. A panic of the source's Close is raised here, as
// long as Close waits.
func (b *peekedBody) Close() error {
	b.mu.Lock()
	first, ahead := !b.closed, b.ahead
	if first {
		b.closed = true
		close(b.gone)
	}
	b.mu.Unlock()
	switch {
	case !first:
		return nil
	case ahead == nil:
		return b.src.Close()
	}
	var (
		err      error
		panicked any
		closed   = make(chan struct{})
	)
	go func() {
		defer close(closed)
		defer func() { panicked = recover() }()
		err = b.src.Close()
	}()
	timer := time.NewTimer(closeGrace)
	defer timer.Stop()
	select {
	case <-closed:
	case <-timer.C:
		return nil
	}
	if panicked != nil {
		panic(panicked)
	}
	return err
}
