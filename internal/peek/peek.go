// Package peek reads the beginning of a response's body without taking it from the body's reader.
//
// The files:
//
//	peek.go     Peek and Await
//	content.go  decodes a body with a Content-Encoding, and finds the first event of an event stream
package peek

import (
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

// method returns the method that was sent. Without a Request it is the method
// of the request that the Response refers to.
func (o Outcome) method() string {
	switch {
	case o.Request != nil:
		return o.Request.Method
	case o.Response != nil && o.Response.Request != nil:
		return o.Response.Request.Method
	}
	return ""
}

// A Patient is a body that says how long Peek may wait for its beginning. Of an attempt with a
// short timeout it is the timeout.
type Patient interface{ PeekWait() time.Duration }

// Wait returns how long Peek may wait for the beginning of a body. It is at most a second.
func Wait(body io.Reader) time.Duration {
	if b, ok := body.(Patient); ok {
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
	// briefly bounds awaitBriefly.
	briefly = 5 * time.Second
	// closeGrace is how long Close waits for the source's Close while a Read of
	// Peek is in progress. Most bodies of net/http return within microseconds.
	closeGrace = 50 * time.Millisecond
)

// Peek is the Peek of a classify.Outcome, whose comment describes it. [Wait] bounds its time.
func (o Outcome) Peek(n int) []byte {
	body, empty := o.ahead(n)
	switch {
	case empty:
		return []byte{}
	case body == nil:
		return nil
	case body.until.IsZero():
		body.until = time.Now().Add(Wait(body.src))
	}
	end, ctx := time.After(time.Until(body.until)), o.context()
	//lint:ignore SA1019 old callers still set Request.Cancel
	if o.Request != nil && o.Request.Cancel != nil {
		var stop func()
		//lint:ignore SA1019 see above
		ctx, stop = ObeyCancel(ctx, o.Request.Cancel, nil)
		defer stop()
	}
	decode, coded := decoders[strings.ToLower(strings.TrimSpace(o.Response.Header.Get("Content-Encoding")))]
	if !coded {
		body.fill(ctx, n, body.until, end, nil)
		return body.leading(n)
	}
	limit := max(n, Limit)
	body.fill(ctx, limit, body.until, end, nil)
	return decoded(body.leading(limit), n, decode)
}

// ObeyCancel returns a context that also ends when the Cancel of a request is closed. Old callers still use
// it. stop ends the goroutine that listens. That goroutine may run late. So a channel that is closed already,
// as after a light first attempt, ends the context at once.
func ObeyCancel(ctx context.Context, canceled <-chan struct{}, cause error) (_ context.Context, stop func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	select {
	case <-canceled:
		cancel(cause)
	default:
		go func() {
			select {
			case <-canceled:
				cancel(cause)
			case <-ctx.Done():
			}
		}()
	}
	return ctx, func() { cancel(nil) }
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
	body, empty := o.ahead(n)
	switch {
	case empty:
		return []byte{}, io.EOF
	case body == nil:
		return nil, errNotAhead
	}
	done := body.fill(o.context(), n, time.Time{}, nil, enough)
	head = body.leading(n)
	if done || len(head) == n {
		return head, nil
	}
	return head, body.why(o.context())
}

// awaitBriefly is Await for a response whose first bytes have come. All its calls for one
// response end 5 s after the first began. That is no error.
func (o Outcome) awaitBriefly(n int, enough func(head []byte) bool) error {
	body, _ := o.ahead(n)
	if body.brief.IsZero() {
		body.brief = time.Now().Add(briefly)
	}
	if body.fill(o.context(), n, body.brief, time.After(time.Until(body.brief)), enough) {
		return nil
	}
	if err := body.why(o.context()); err != io.ErrNoProgress {
		return err
	}
	return nil
}

// ahead returns the body that can be read ahead. It is nil if there is none, or if it is
// known to be empty.
func (o Outcome) ahead(n int) (body *peekedBody, empty bool) {
	resp := o.Response
	switch {
	case resp == nil || resp.Body == nil || n <= 0:
		return nil, false
	case resp.StatusCode == http.StatusSwitchingProtocols:
		return nil, false // the body is a connection, and an io.Writer
	case o.method() == http.MethodConnect, o.method() == http.MethodHead:
		return nil, false
	case resp.Body == http.NoBody:
		return nil, true
	}
	body, ok := resp.Body.(*peekedBody)
	if !ok {
		body = &peekedBody{src: resp.Body, head: []byte{}, gone: make(chan struct{})}
		resp.Body = body
	}
	return body, false
}

// A peekedBody is a body whose first bytes were read ahead.
//
// A Read of the source cannot be interrupted. Peek therefore starts it in a
// goroutine and stops waiting for it when the time is over. The next Peek or
// Read takes the result. There is at most one Read of the source at a time,
// because the next Peek or Read waits for the Read in progress. The goroutine
// ends when the source returns or is closed, as a Read by the caller would. If net/http
// decompresses the body, its Close waits for a Read that waits for the first bytes. Both end
// then with the context of the attempt, or with the caller's if the attempt has none.
type peekedBody struct {
	src   io.ReadCloser
	until time.Time     // when [Wait] is over; zero before the first Peek
	brief time.Time     // when awaitBriefly is over; zero before its first call
	gone  chan struct{} // closed by Close

	mu     sync.Mutex // guards the fields below; never held during a call of src or a wait
	head   []byte     // read from src and not yet by the caller; only ever appended to
	err    error      // the error of src after head; it stays
	ahead  *readAhead // the Read in progress, or finished and not yet taken; nil if there is none
	closed bool
}

// A readAhead is a Read of the source by a goroutine. buf and err may be used
// once done is closed.
type readAhead struct {
	done chan struct{}
	buf  []byte
	err  error
}

var (
	errNotAhead = errors.New("peek: the response body cannot be read ahead")
	errNoReturn = errors.New("peek: the response body's Read did not return")
)

// A readPanic holds a panic of the source's Read. Nobody could recover it in
// the goroutine of a readAhead.
type readPanic struct{ value any }

func (*readPanic) Error() string { return "peek: the response body's Read panicked" }

// read has the source fill the buffer. If the source's Read ends the goroutine
// instead of returning, the error is errNoReturn.
func (a *readAhead) read(src io.Reader) {
	defer close(a.done)
	buf := a.buf
	a.buf, a.err = nil, errNoReturn
	defer func() {
		if value := recover(); value != nil {
			a.err = &readPanic{value}
		}
	}()
	n, err := counted.Read(src, buf)
	a.buf, a.err = buf[:n], err
}

// fill reads until there are n bytes, or until it is too late. end fires at until, which
// is zero if there is no such time. fill reports whether enough, which may be nil, said
// that the bytes suffice.
func (b *peekedBody) fill(ctx context.Context, n int, until time.Time, end <-chan time.Time, enough func([]byte) bool) bool {
	for empty := 0; empty < emptyReads; {
		if empty == 0 && enough != nil && enough(b.leading(n)) {
			return true
		}
		late := ctx.Err() != nil || !until.IsZero() && !time.Now().Before(until)
		ahead := b.start(n, late)
		if ahead == nil {
			return false
		}
		select {
		case <-ahead.done:
		case <-end:
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
			return false
		}
	}
	return false
}

// why returns the reason why there are no further bytes.
func (b *peekedBody) why(ctx context.Context) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.err != nil:
		return b.err
	case b.closed:
		return http.ErrBodyReadAfterClose
	case ctx.Err() != nil:
		return context.Cause(ctx)
	}
	return io.ErrNoProgress
}

// start returns the Read in progress, or starts a Read. It returns nil if n
// bytes need no Read. It also returns nil if no Read is in progress and it is
// too late to start another.
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

// take appends the bytes of a Read to the head and returns their number. ok is
// false while the Read is in progress.
func (b *peekedBody) take(ahead *readAhead) (n int, ok bool) {
	select {
	case <-ahead.done:
	default:
		return n, false
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
		case <-ahead.done:
			b.take(ahead)
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
		return n, b.ahead, nil
	}
	return 0, nil, b.err
}

// Close closes the source, once.
//
// The Close of some sources waits for their Read. Without Peek no Read would be
// in progress when the caller closes the body, so Close must not wait long for
// the Read that Peek started. In that case a goroutine closes the source, and
// Close returns after closeGrace at the latest. The error of a slower source is
// lost. If the source's Close panics while Close waits, Close panics with the
// same value.
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
	select {
	case <-closed:
	case <-time.After(closeGrace):
		return nil
	}
	if panicked != nil {
		panic(panicked)
	}
	return err
}
