// Can this request's body be produced again, and how?

package transport

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"reflect"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// A payload is a request's body as the loop sees it.
//
//   - no body: nothing to do.
//   - GetBody: every attempt has a body of its own; nothing is awaited or kept,
//     and nothing wrapped but what a checkedBody is for.
//   - otherwise a source owns the caller's body and lends views of it, one
//     attempt at a time.
type payload struct {
	getBody func() (io.ReadCloser, error)
	next    io.ReadCloser // made by getBody for the next attempt, not sent yet
	source  *source
	failed  *atomic.Bool // a checked body did; nil where none is checked
}

// inMemory reports whether a body can fail in no way, as those cannot for which
// net/http makes a GetBody.
func inMemory(body any) bool {
	if t := reflect.TypeOf(body); t == nopCloserWriterTo || t == nopCloser {
		body = reflect.ValueOf(body).Field(0).Interface()
	}
	switch body.(type) {
	case *strings.Reader, *bytes.Reader, *bytes.Buffer:
		return true
	}
	return false
}

// The types that io.NopCloser returns, of a reader without and with WriteTo.
var (
	nopCloser         = reflect.TypeOf(io.NopCloser(nil))
	nopCloserWriterTo = reflect.TypeOf(io.NopCloser((*strings.Reader)(nil)))
)

// A checkedBody notes that its Read or its Close failed. net/http returns the
// error as it is: that of a body which comes from elsewhere and could not connect
// there looks like one of a request that never left. Close may come during a
// Read, whose error then says nothing.
type checkedBody struct {
	io.ReadCloser
	failed *atomic.Bool
	closed atomic.Bool
}

func (b *checkedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil && err != io.EOF && !b.closed.Load() {
		b.failed.Store(true)
	}
	return n, err
}

func (b *checkedBody) Close() error {
	again := b.closed.Swap(true)
	err := b.ReadCloser.Close()
	if err != nil && !again {
		b.failed.Store(true)
	}
	return err
}

// like returns a GetBody whose bodies, which net/http asks for when it sends
// again by itself, are checked as this one is.
func (b *checkedBody) like(getBody func() (io.ReadCloser, error)) func() (io.ReadCloser, error) {
	return func() (io.ReadCloser, error) {
		body, err := getBody()
		if err != nil {
			return nil, err
		}
		return checked(body, b.failed), nil
	}
}

// check makes the payload look at the bodies of a request that must not be sent
// twice, the caller's own being the first. A body that failed is not replayable.
func (p *payload) check(own io.ReadCloser) {
	p.failed = new(atomic.Bool)
	p.next = checked(own, p.failed)
}

// checked returns a body that notes in failed that it did; as it is where nobody
// asks, or where there is nothing to read.
func checked(body io.ReadCloser, failed *atomic.Bool) io.ReadCloser {
	if failed == nil || body == nil || body == http.NoBody {
		return body
	}
	return &checkedBody{ReadCloser: body, failed: failed}
}

// errBodyLent is what a base transport gets that reads a body which it was told
// to leave, or has closed itself.
var errBodyLent = errors.New("transport: read of a request body that is closed or lent to another attempt")

// newPayload looks at the body of a request that may be sent again.
func newPayload(req *http.Request, limit int64, pool *bufferPool) payload {
	switch {
	case req.Body == nil || req.Body == http.NoBody:
		return payload{}
	case req.GetBody != nil:
		return payload{getBody: req.GetBody}
	}
	s := &source{body: req.Body, limit: limit, pool: pool}
	if seeker, ok := req.Body.(io.Seeker); ok {
		// Standard input, a pipe and a terminal have a Seek method that fails.
		if at, err := seeker.Seek(0, io.SeekCurrent); err == nil {
			s.seeker, s.start = seeker, at
		}
	}
	return payload{source: s}
}

// spool lets what goes beyond the limit of a kept body go to a file in dir, up
// to limit bytes; not positive is off.
func (p *payload) spool(limit int64, dir string) {
	if p.source != nil && p.source.seeker == nil && limit > 0 {
		p.source.spool = &spool{dir: dir, limit: limit}
	}
}

// replayable reports whether the body can be produced again as far as is known
// now; rewind has the last word.
func (p *payload) replayable() bool {
	if p.failed != nil && p.failed.Load() {
		return false
	}
	return p.source == nil || p.source.replayable()
}

// rewind makes the body ready for another attempt, or says why it cannot. It
// comes before the response at hand is given up, so that a body which cannot
// be produced again costs nobody the answer.
func (p *payload) rewind(ctx context.Context) Reason {
	switch {
	case p.next != nil:
		return Retry // made for an attempt that was not sent
	case p.getBody != nil:
		body, err := p.getBody()
		if err != nil || body == nil || isTypedNil(body) {
			return NotReplayable
		}
		p.next = checked(body, p.failed)
	case p.source != nil:
		return p.source.rewind(ctx)
	}
	return Retry
}

// take returns the body for the attempt that is about to be sent, nil where
// the request has none, and where the caller's own is to be sent as it is.
func (p *payload) take() io.ReadCloser {
	if p.source != nil {
		return p.source.view()
	}
	body := p.next
	p.next = nil
	return body
}

// finish ends the attempts: no further rewind. The caller's body is closed as
// soon as no attempt holds it; one that was made for an attempt that did not
// come is closed here.
func (p *payload) finish() {
	if p.next != nil {
		_ = p.next.Close()
		p.next = nil
	}
	if p.source != nil {
		p.source.finish()
	}
}

// maxBusy is how long rewind waits for a Read of the old attempt to return.
const maxBusy = time.Second

// A source owns a body that cannot be made anew, and lends it to one view at a
// time. A seekable body is sought back to where it was handed over; of any
// other, what is read is kept, up to a limit: first in memory, then, where the
// rule allows it, in a file.
//
// The base transport's habits make the rules. HTTP/1 may sit in a Read for
// ever after an early answer, and HTTP/2 closes from another goroutine during a
// Read. So there is at most one Read of the body at any time, whatever a late
// Read returns goes to the buffer, closing a view never waits for a Read, and a
// rewind waits for a running one.
type source struct {
	body   io.ReadCloser
	seeker io.Seeker // nil: what is read is kept
	start  int64     // where a seekable body was handed over
	limit  int64     // how many bytes may be kept in memory
	pool   *bufferPool
	spool  *spool // takes what memory does not; nil: nothing does

	mu       sync.Mutex    // guards all below; not held during a Read of body or while the disk is at work
	kept     buffer        // what was read, while it can all be kept
	spooled  int64         // how much of it, after kept, is in the spool
	end      error         // how the body ended, once it did
	lent     *view         // the attempt that may read
	reading  chan struct{} // not nil during a Read of body; closed when it ends
	touched  bool          // a Read of body has begun
	wanted   bool          // rewind waits for the Read to end: no other begins
	lost     bool          // it can't be produced again whole
	finished bool          // there will be no further attempt
	closed   bool          // body is closed
}

// A view is one attempt's hold on a source.
type view struct {
	s      *source
	at     int64 // how much of the body it has delivered
	closed bool  // guarded by s.mu
}

// view lends the body. Only rewind takes it back.
func (s *source) view() *view {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lent = &view{s: s}
	return s.lent
}

// Read delivers what was kept from earlier attempts, then the body itself.
func (v *view) Read(p []byte) (int, error) {
	s := v.s
	for {
		s.mu.Lock()
		n, next, err := v.readKept(p)
		switch next {
		case stepDone:
			s.mu.Unlock()
			return n, err
		case stepWait:
			running := s.reading
			s.mu.Unlock()
			<-running
		case stepSpool:
			p, at := p[:n], v.at-s.kept.size
			s.mu.Unlock()
			return v.readSpool(p, at)
		case stepBody:
			over := make(chan struct{})
			s.reading, s.touched = over, true
			s.mu.Unlock()
			return v.readBody(p, over)
		}
	}
}

// readBody reads the body itself. Until over is closed nobody else does, and so
// nobody else adds to what is kept.
func (v *view) readBody(p []byte, over chan struct{}) (n int, err error) {
	s := v.s
	defer func() { // also when the caller's Read panics
		rest := s.keep(p[:n])
		spooled := len(rest) == 0 || s.spool.add(rest)
		s.mu.Lock()
		s.note(v, n, len(rest), spooled, err)
		s.mu.Unlock()
		close(over)
	}()
	n, err = s.body.Read(p)
	if n < 0 || n > len(p) {
		n, err = 0, errors.New("transport: the request body's Read returned an invalid count")
	}
	return n, err
}

// readSpool reads a part that is in the file.
func (v *view) readSpool(p []byte, at int64) (int, error) {
	s := v.s
	n, err := s.spool.readAt(p, at)
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		// What comes next in the body does not belong here: this is the end,
		// and not a clean one, for this attempt and any other.
		err = fmt.Errorf("transport: the spooled request body: %w", err)
		s.lost, s.end = true, err
		s.dropKept()
		return 0, err
	}
	v.at += int64(n)
	if s.lent == v { // an old view's late Read says nothing of the one at work
		s.settle(v)
	}
	return n, nil
}

// A step is what a Read of a view has to do.
type step uint8

const (
	stepDone  step = iota // n and err are the result
	stepWait              // a Read of the body must end first
	stepSpool             // read n bytes of the spool
	stepBody
)

// readKept reads without touching the body or the disk, where that is possible,
// and else says what to do. Called with s.mu held.
func (v *view) readKept(p []byte) (n int, next step, err error) {
	s := v.s
	switch size := s.kept.size + s.spooled; {
	case v.closed || s.lent != v:
		return 0, stepDone, errBodyLent
	case len(p) == 0:
		return 0, stepDone, nil
	case v.at < s.kept.size:
		n = s.kept.readAt(p, v.at)
		v.at += int64(n)
		s.settle(v)
		return n, stepDone, nil
	case v.at < size:
		return int(min(int64(len(p)), size-v.at)), stepSpool, nil
	case s.end != nil:
		return 0, stepDone, s.end
	case s.reading != nil:
		return 0, stepWait, nil
	case s.wanted:
		return 0, stepDone, errBodyLent // rewind is about to take it back
	}
	return 0, stepBody, nil
}

// keep keeps in memory what it can of what was read, and returns what is left
// for the spool. Where there is no spool, that is lost.
func (s *source) keep(p []byte) (rest []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.seeker != nil || s.lost || s.finished || len(p) == 0 {
		return nil
	}
	before := s.kept.size
	if s.spooled == 0 {
		if s.kept.held == nil {
			s.kept.held = new(int64)
			// For a base transport that neither reads on nor closes its view.
			pool := s.pool
			runtime.AddCleanup(s, func(held *int64) { pool.used.Add(-*held) }, s.kept.held)
		}
		room := min(max(s.limit-before, 0), int64(len(p)))
		s.kept.append(p[:room], s.limit, s.pool) // of which the pool may refuse a part
	}
	rest = p[s.kept.size-before:]
	if len(rest) > 0 && s.spool == nil {
		s.lost = true
		return nil
	}
	return rest
}

// note takes in what a Read of the body returned, after keep; rest bytes of it
// went to the spool, if spooled. Called with s.mu held.
func (s *source) note(v *view, n, rest int, spooled bool, err error) {
	s.reading = nil
	if err != nil && s.end == nil {
		s.end = err
		s.lost = s.lost || !errors.Is(err, io.EOF)
	}
	v.at += int64(n)
	if spooled {
		s.spooled += int64(rest)
	} else {
		s.lost = true
	}
	if s.lost {
		s.dropKept() // a view reads the body only past all that is kept
	}
	s.settle(v)
}

func (s *source) dropKept() {
	s.kept.drop(s.pool)
	s.spool.drop()
	s.spooled = 0
}

// settle gives memory and file back once nobody can need them. Called with s.mu held.
func (s *source) settle(v *view) {
	if s.finished && (v == nil || v.closed || v.at >= s.kept.size+s.spooled) {
		s.dropKept()
	}
}

// Close ends the attempt's hold. The body itself is closed when no attempt is
// to follow, at once, even during a Read: that is how a blocked Read ends.
func (v *view) Close() error {
	s := v.s
	s.mu.Lock()
	if v.closed {
		s.mu.Unlock()
		return nil
	}
	v.closed = true
	last := s.finished && s.lent == v && !s.closed
	s.closed = s.closed || last
	s.settle(v)
	s.mu.Unlock()
	if last {
		return s.body.Close()
	}
	return nil
}

func (s *source) replayable() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.lost
}

// rewind takes the body back from the attempt that has it. It waits for a Read
// under way, since two readers of one body would each get a part of it; only
// then is the view cut off, so that after BodyBusy the attempt is unharmed.
func (s *source) rewind(ctx context.Context) Reason {
	var timeout <-chan time.Time
	for late := Retry; ; {
		running, reason := s.takeBack(late == Retry)
		switch {
		case running == nil:
			return reason
		case late != Retry:
			return late
		case timeout == nil:
			timer := time.NewTimer(maxBusy)
			defer timer.Stop()
			timeout = timer.C
		}
		select {
		case <-running:
		case <-timeout:
			late = BodyBusy
		case <-ctx.Done():
			late = Canceled
		}
	}
}

// takeBack is one try of rewind; running is the Read that must end first.
// While patient, no further Read begins in the meantime: a busy upload would
// else never let go.
func (s *source) takeBack(patient bool) (running chan struct{}, reason Reason) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.wanted = patient && s.reading != nil
	switch {
	case s.reading != nil:
		return s.reading, 0
	case s.lost:
		return nil, NotReplayable
	case s.seeker != nil && s.touched:
		if at, err := s.seeker.Seek(s.start, io.SeekStart); err != nil || at != s.start {
			s.lost = true
			return nil, NotReplayable
		}
		s.end, s.touched = nil, false
	}
	if s.lent != nil {
		s.lent.closed = true
		s.lent = nil
	}
	return nil, Retry
}

func (s *source) finish() {
	s.mu.Lock()
	s.finished = true
	last := (s.lent == nil || s.lent.closed) && !s.closed
	s.closed = s.closed || last
	s.settle(s.lent)
	s.mu.Unlock()
	if last {
		_ = s.body.Close()
	}
}

// A bufferPool counts the bytes that all bodies of a Transport keep.
type bufferPool struct{ used atomic.Int64 }

// maxKept is the bound for all kept bodies of a Transport together.
const maxKept = 64 << 20

func (p *bufferPool) take(n int64) bool {
	if p.used.Add(n) <= maxKept {
		return true
	}
	p.used.Add(-n)
	return false
}

// A buffer keeps what was read of a body, in chunks that grow from 1 KiB to
// 64 KiB: nothing is copied twice, and a small body takes little.
type buffer struct {
	chunks [][]byte
	size   int64
	held   *int64 // capacity of the chunks, counted in the pool; made before the first
}

const minChunk, maxChunk = 1 << 10, 64 << 10

// append keeps p. It reports false, with nothing lost but room, where the
// pool has none.
func (b *buffer) append(p []byte, limit int64, pool *bufferPool) bool {
	for len(p) > 0 {
		last := len(b.chunks) - 1
		if last < 0 || len(b.chunks[last]) == cap(b.chunks[last]) {
			n := min(max(minChunk, b.size), maxChunk, limit-*b.held)
			if n <= 0 || !pool.take(n) {
				return false
			}
			*b.held += n
			b.chunks = append(b.chunks, make([]byte, 0, n))
			last++
		}
		c := b.chunks[last]
		n := min(len(p), cap(c)-len(c))
		b.chunks[last] = append(c, p[:n]...)
		b.size += int64(n)
		p = p[n:]
	}
	return true
}

// readAt copies from offset at, which is below size, within one chunk.
func (b *buffer) readAt(p []byte, at int64) int {
	for _, c := range b.chunks {
		if at < int64(len(c)) {
			return copy(p, c[at:])
		}
		at -= int64(len(c))
	}
	return 0
}

func (b *buffer) drop(pool *bufferPool) {
	if b.held != nil {
		pool.used.Add(-*b.held)
		*b.held = 0
	}
	*b = buffer{}
}

// isTypedNil reports whether an interface holds a nil pointer, map, slice,
// function or channel: what a caller means by it nobody can know, and most
// methods panic on it.
func isTypedNil(v any) bool {
	if v == nil {
		return false
	}
	switch r := reflect.ValueOf(v); r.Kind() {
	case reflect.Pointer, reflect.Map, reflect.Slice, reflect.Func, reflect.Chan:
		return r.IsNil()
	}
	return false
}

// checkRequest returns why nobody could send this request.
func checkRequest(req *http.Request) error {
	switch {
	case req == nil:
		return errors.New("transport: nil request")
	case req.Body != nil && isTypedNil(req.Body):
		return fmt.Errorf("transport: Request.Body is a nil %T; leave Body nil for a request without a body", req.Body)
	case req.URL == nil:
		return errors.New("transport: nil Request.URL")
	case req.Header == nil:
		return errors.New("transport: nil Request.Header")
	}
	return nil
}
