// Package peek reads the beginning of a response's body without taking it from the body's reader.
//
// The files:
//
//	peek.go     Peek and Await
//	content.go  decodes a body with a Content-Encoding, and finds the first event of an event stream
package peek

import (
	"cmp"
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/aplomb-go/aplomb/internal/counted"
)

// An Outcome has the fields of a classify.Outcome.
type Outcome struct {
	Request  *http.Request
	Response *http.Response
	Err      error
}

// context returns the caller's context. Without a Request it is a context that
// never ends.
func (o Outcome) context() context.Context {
	if o.Request == nil {
		return context.Background()
	}
	return o.Request.Context()
}

// Wait returns how long Peek may wait for the beginning of a body. It is at most a second. The body of an
// attempt with a short timeout has a method that says less.
func Wait(body io.Reader) time.Duration {
	if b, ok := body.(interface{ PeekWait() time.Duration }); ok {
		if wait := b.PeekWait(); wait > 0 {
			return min(wait, peekWait)
		}
	}
	return peekWait
}

const (
	// Limit is how many bytes of a body are read to judge a response.
	Limit = 64 << 10
	// peekWait is the longest time of Peek.
	peekWait = time.Second
	// peekChunk is the size of one Read of Peek. Nearly every error body is
	// shorter.
	peekChunk = 4 << 10
	// emptyReads is how many Reads in a row may return neither a byte nor an
	// error before Peek gives up.
	emptyReads = 100
	// briefly bounds the wait for the first event that counts, after one that does not.
	briefly = 5 * time.Second
	// closeGrace is how long Close waits for the source's Close while a Read of
	// Peek is in progress. Most bodies of net/http return within microseconds.
	closeGrace = 50 * time.Millisecond
)

// Peek is the Peek of a classify.Outcome, whose comment describes it. [Wait] bounds its time.
func (o Outcome) Peek(n int) []byte {
	body := o.ahead(n)
	if body == nil {
		return nil
	}
	if body.until.IsZero() {
		body.until = time.Now().Add(Wait(body.src))
	}
	ctx, cancel := context.WithDeadline(o.context(), body.until)
	defer cancel()
	coding := strings.ToLower(strings.TrimSpace(o.Response.Header.Get("Content-Encoding")))
	if coding == "" {
		body.fill(ctx, n, nil)
		return body.leading(n)
	}
	limit := max(n, Limit)
	body.fill(ctx, limit, nil)
	return decoded(coding, body.leading(limit), n)
}

// Await is [Outcome.Peek] for a body whose beginning may take minutes. It reads until
// enough reports true for the bytes so far, and at most n bytes. [Wait] does not bound
// it. Await waits as long as the Request's context lives and the body can be read, so a
// Stall of the rule ends it as well.
//
// The error is nil if enough reported true or if there are n bytes. Otherwise it says
// why Await stopped: io.EOF at the end of the body, the error of the body, or the error
// of the context. A later Read returns the error of the body, too.
//
// The result is nil if the body cannot be read ahead, as with Peek.
func (o Outcome) Await(n int, enough func(head []byte) bool) (head []byte, err error) {
	body := o.ahead(n)
	if body == nil {
		return nil, errNotAhead
	}
	err = body.await(o.context(), n, enough)
	return body.leading(n), err
}

// ahead returns the body that can be read ahead, or nil.
func (o Outcome) ahead(n int) *peekedBody {
	resp := o.Response
	if resp == nil || resp.Body == nil || n <= 0 {
		return nil
	}
	req := cmp.Or(o.Request, resp.Request)
	switch {
	case resp.StatusCode == http.StatusSwitchingProtocols:
		return nil // the body is a connection, and an io.Writer
	case req != nil && (req.Method == http.MethodConnect || req.Method == http.MethodHead):
		return nil
	case resp.Body == http.NoBody: // it stays as it is
		return &peekedBody{src: http.NoBody, head: []byte{}, err: io.EOF}
	}
	body, ok := resp.Body.(*peekedBody)
	if !ok {
		body = &peekedBody{src: resp.Body, head: []byte{}, gone: make(chan struct{})}
		resp.Body = body
	}
	return body
}

// A peekedBody is a body whose first bytes were read ahead.
//
// A Read of the source cannot be interrupted. Peek therefore starts it in a
// goroutine and stops waiting for it when the time is over. The next Peek or
// Read sees the result. There is at most one Read of the source at a time,
// because the next Peek or Read waits for the Read in progress. The goroutine
// ends when the source returns or is closed, as a Read by the caller would. If net/http
// decompresses the body, its Close waits for a Read that waits for the first bytes. Both end
// then with the context of the attempt, or with the caller's if the attempt has none.
type peekedBody struct {
	src   io.ReadCloser
	until time.Time     // when [Wait] is over; zero before the first Peek
	brief time.Time     // when the brief wait of FirstEvent is over; zero before it began
	gone  chan struct{} // closed by Close

	mu     sync.Mutex    // guards the fields below; never held during a call of src or a wait
	head   []byte        // read from src and not yet by the caller; only ever appended to
	err    error         // the error of src after head; it stays
	ahead  chan struct{} // closed when the Read in progress has returned; nil if there is none
	closed bool
}

var (
	errNotAhead = errors.New("peek: the response body cannot be read ahead")
	errNoReturn = errors.New("peek: the response body's Read did not return")
)

// A readPanic holds a panic of the source's Read. Nobody could recover it in
// the goroutine that reads ahead.
type readPanic struct{ value any }

func (*readPanic) Error() string { return "peek: the response body's Read panicked" }

// readAhead has the source fill a buffer, and then closes done. If the source's Read ends the goroutine
// instead of returning, the error is errNoReturn.
func (b *peekedBody) readAhead(buf []byte, done chan<- struct{}) {
	n, err := 0, errNoReturn
	defer func() {
		if value := recover(); value != nil {
			err = &readPanic{value}
		}
		b.mu.Lock()
		defer b.mu.Unlock()
		b.head, b.err, b.ahead = append(b.head, buf[:n]...), err, nil
		close(done)
	}()
	n, err = counted.Read(b.src, buf)
}

// fill reads until there are n bytes, until enough, which may be nil, says that the bytes suffice, or until
// ctx ends. It reports whether enough said so.
func (b *peekedBody) fill(ctx context.Context, n int, enough func([]byte) bool) bool {
	size := -1
	for empty := 0; empty < emptyReads; empty++ {
		if head := b.leading(n); len(head) > size {
			size, empty = len(head), 0
			if enough != nil && enough(head) {
				return true
			}
		}
		ahead := b.start(n, ctx.Err() != nil)
		if ahead == nil {
			return false
		}
		select {
		case <-ahead:
		case <-ctx.Done():
			return false
		case <-b.gone:
			return false
		}
	}
	return false
}

// await fills the head. Its error says why there are neither n bytes nor enough.
func (b *peekedBody) await(ctx context.Context, n int, enough func([]byte) bool) error {
	full := b.fill(ctx, n, enough)
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case full, len(b.head) >= n && !b.closed:
		return nil
	case b.err != nil:
		return b.err
	case b.closed:
		return http.ErrBodyReadAfterClose
	case ctx.Err() != nil:
		return context.Cause(ctx)
	}
	return io.ErrNoProgress
}

// start returns what is closed after the Read in progress, or starts a Read. It returns nil
// if n bytes need no Read. It also returns nil if no Read is in progress and it is
// too late to start another.
func (b *peekedBody) start(n int, late bool) <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.closed || b.err != nil || len(b.head) >= n:
		return nil
	case b.ahead == nil && !late:
		b.ahead = make(chan struct{})
		go b.readAhead(make([]byte, min(n-len(b.head), peekChunk)), b.ahead)
	}
	return b.ahead
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

// Read returns the bytes that were read ahead, then the bytes of the source. If
// the Read that was ahead panicked, Read panics with the same value.
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
		case <-ahead:
		case <-b.gone:
		}
	}
}

// ResumeTried tells an outer Transport whether a Transport below has asked for the rest of the body.
func (b *peekedBody) ResumeTried() bool {
	below, ok := b.src.(interface{ ResumeTried() bool })
	return ok && below.ResumeTried()
}

// next copies bytes from the head to p. If the head is empty it returns the
// Read in progress or the error after the head. If there is neither, the caller
// reads from the source.
func (b *peekedBody) next(p []byte) (n int, ahead <-chan struct{}, err error) {
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
		return n, b.ahead, nil
	}
	return 0, nil, b.err
}

// Close closes the source, once.
//
// The Close of some sources waits for their Read. Without Peek no Read would be
// in progress when the caller closes the body, so Close must not wait long for
// the Read that Peek started. In that case a goroutine closes the source, and
// Close returns after closeGrace at the latest. Nobody hears of an error or a panic
// of that Close.
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
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		defer func() { _ = recover() }()
		_ = b.src.Close()
	}()
	select {
	case <-closed:
	case <-time.After(closeGrace):
	}
	return nil
}
