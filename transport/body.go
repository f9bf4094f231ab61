// Can this request's body be produced again, and how?

package transport

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"reflect"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
)

// A payload is a request's body as the loop sees it.
//
//   - no body: nothing to do.
//   - independent bodies, which are in memory and share no state: every attempt
//     has one of its own, as it is. Nothing is awaited, kept or wrapped.
//   - any other: a source owns the body and lends views of it, to one attempt at
//     a time. This includes a body with a GetBody of the caller's own, which may
//     seek one reader back and return it each time.
type payload struct {
	getBody func() (io.ReadCloser, error) // makes independent bodies; nil with a source
	next    io.ReadCloser                 // made by getBody for the next attempt, not sent yet
	source  *source
	err     error // of getBody
}

// errBodyLent is what a base transport gets that reads a body which it was told
// to leave, or has closed itself.
var errBodyLent = errors.New("transport: read of a request body that is closed or lent to another attempt")

// newPayload looks at the body of a request that may be sent again.
func newPayload(req *http.Request, limit int64, pool *bufferPool) payload {
	switch {
	case req.Body == nil || req.Body == http.NoBody:
		return payload{}
	case independent(req):
		return payload{getBody: req.GetBody}
	case req.GetBody != nil:
		return payload{source: &source{body: req.Body, remake: req.GetBody, pool: pool}}
	}
	if whole := detached(req.Body); whole != nil {
		return payload{getBody: func() (io.ReadCloser, error) { return detached(whole), nil }}
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

// spool lets the part of a kept body that is beyond its limit go to a file in
// dir, up to limit bytes; if limit is not positive, there is no file.
func (p *payload) spool(limit int64, dir string) {
	if s := p.source; s != nil && s.remake == nil && s.seeker == nil && limit > 0 {
		s.spool = newSpool(s, dir, limit)
	}
}

// replayable reports whether the body can be produced again as far as is known
// now; rewind and renew have the last word.
func (p *payload) replayable() bool { return p.source == nil || p.source.replayable() }

// broke reports whether reading or closing a body failed. net/http returns that
// error as it is: the error of a body that comes from elsewhere and could not
// connect there looks like the error of a request that never left.
func (p *payload) broke() bool { return p.source != nil && p.source.broke() }

// why returns the reason why the body cannot be produced again, nil if there is
// none.
func (p *payload) why() error {
	if p.source != nil {
		return p.source.cause()
	}
	return p.err
}

// inHand reports whether a second body can be made while the first one is being
// read.
func (p *payload) inHand() bool { return p.source == nil || p.source.inHand() }

// rewind takes the body back for another attempt, or says why it cannot. It
// comes before the response at hand is given up, so that a body which is known
// not to be replayable costs nobody the answer. Independent bodies are made
// here, any other by renew.
func (p *payload) rewind(b bound) Reason {
	switch {
	case p.source != nil:
		return p.source.rewind(b)
	case p.getBody == nil || p.next != nil: // no body, or one made for an attempt that was not sent
		return ReasonRetry
	}
	if p.next, p.err = made(p.getBody()); p.err != nil {
		return ReasonNotReplayable
	}
	return ReasonRetry
}

// late reports whether renew may still fail after rewind has succeeded.
func (p *payload) late() bool { return p.source != nil && p.source.awaitsRenewal() }

// renew calls the caller's GetBody for an attempt that is about to be sent. Until
// then nothing of the old attempt is left that could read what GetBody returns:
// rewind took the old body back, its response is discarded, and the wait is over.
func (p *payload) renew() error {
	if p.source == nil {
		return nil
	}
	_, err := p.source.renew(anyTurn, false)
	return err
}

// made checks what a GetBody returned.
func made(body io.ReadCloser, err error) (io.ReadCloser, error) {
	switch {
	case err != nil:
		return nil, fmt.Errorf("Request.GetBody failed: %w", err)
	case body == nil || isTypedNil(body):
		return nil, errors.New("Request.GetBody returned no body")
	}
	return body, nil
}

// take returns the body for the attempt that is about to be sent. It is nil if
// the request has none, and if the caller's own is to be sent as it is.
func (p *payload) take() io.ReadCloser {
	if s := p.source; s != nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.lend()
	}
	body := p.next
	p.next = nil
	return body
}

// inner returns the GetBody for the base transport during the attempt that is
// about to be sent; nil if the caller's own serves.
func (p *payload) inner(ctx context.Context) func() (io.ReadCloser, error) {
	if p.source == nil || p.source.remake == nil {
		return nil
	}
	return p.source.inner(ctx)
}

// leave takes the body back from a base transport that may still be sending it
// after a redirect. http.Client calls the caller's own GetBody then, which may
// return the reader that the old attempt has.
func (p *payload) leave(b bound) {
	if p.source != nil && p.source.remake != nil {
		p.source.reclaim(b, anyTurn)
	}
}

// finish ends the attempts: no further rewind. The caller's body is closed as
// soon as no attempt holds it. A body that was made for an attempt that did not
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

// A bound says for how long a Read under way is waited for: until the caller's
// context ends or limit has passed.
type bound struct {
	ctx   context.Context
	limit time.Duration
}

// anyTurn stands for the loop, which may always take a body back.
const anyTurn = -1

// A source owns a body and lends it to one view at a time. If the caller's own
// GetBody is there, it makes the body anew. Otherwise a seekable body is sought
// back to where it was handed over. Of any other body the source keeps the bytes
// that are read, up to a limit: first in memory, then, if the rule allows it, in
// a file.
//
// Two results of a GetBody may be the same reader, sought back. So a source calls
// it only when the old body is closed and no Read of it is running, and a view
// that was cut off neither reads nor closes anything any more. If such a body is
// one of net/http's types in memory, each attempt gets a copy that shares no
// state with it, so that net/http sees a type that it knows.
//
// The base transport's habits make the rules. HTTP/1 may sit in a Read for
// ever after an early answer, and HTTP/2 closes from another goroutine during a
// Read. So there is at most one Read of the body at any time, whatever a late
// Read returns goes to the buffer, closing a view never waits for a Read, and a
// rewind waits for a running one.
type source struct {
	remake func() (io.ReadCloser, error) // the caller's GetBody; nil: the body is sought or kept
	seeker io.Seeker                     // nil: what is read is kept
	start  int64                         // where a seekable body was handed over
	limit  int64                         // how many bytes may be kept in memory
	pool   *bufferPool
	spool  *spool // takes what memory does not; nil: nothing does

	body io.ReadCloser // the current one; changes only with remake, under mu and as if during a Read

	mu       sync.Mutex    // guards all below; not held during a Read of body or while the disk is at work
	kept     buffer        // what was read, while it can all be kept
	spooled  int64         // how much of it, after kept, is in the spool
	end      error         // how the body ended, once it did
	lent     *view         // the attempt that may read
	reading  chan struct{} // not nil during a Read of body and a call of remake; closed when it ends
	touched  bool          // a Read of body has begun
	wanted   bool          // rewind waits for the Read to end: no other begins
	turn     int           // how often the loop took the body back
	stale    bool          // the body was lent, and remake is to replace it
	fresh    bool          // remake has made the body, and it was not lent yet
	lost     bool          // it can't be produced again whole
	why      error         // why it is lost, or why remake failed
	failed   error         // of reading or closing a body that remake can replace
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

// lend returns the body for one attempt: a copy of its own if GetBody makes
// bodies in memory, and a view otherwise. Called with s.mu held.
func (s *source) lend() io.ReadCloser {
	s.fresh = false
	if s.remake != nil {
		if s.body == http.NoBody {
			return http.NoBody
		}
		if own := detached(s.body); own != nil {
			return own
		}
	}
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
		s.lose(err)
		s.end = err
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
	case s.lent != v || v.closed && s.remake == nil:
		return 0, stepDone, errBodyLent // with remake the body itself is closed, and says so
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

// keep keeps the bytes that were read in memory as far as it can, and returns
// the rest for the spool. If there is no spool, the body is lost.
func (s *source) keep(p []byte) (rest []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.remake != nil || s.seeker != nil || s.lost || s.finished || len(p) == 0 {
		return nil
	}
	before := s.kept.size
	if s.spooled == 0 {
		if s.kept.held == nil {
			s.kept.held = new(int64)
			// For a base transport that neither reads on nor closes its view.
			pool := s.pool
			runtime.AddCleanup(s, func(held *int64) { pool.used.Add(-beyondSmall(*held)) }, s.kept.held)
		}
		room := min(max(s.limit-before, 0), int64(len(p)))
		s.kept.append(p[:room], s.limit, s.pool) // of which the pool may refuse a part
	}
	rest = p[s.kept.size-before:]
	if len(rest) > 0 && s.spool == nil {
		s.lose(s.full())
		return nil
	}
	return rest
}

// full says which limit in memory the body has reached, and which fields of the
// rule would help.
func (s *source) full() error {
	switch {
	case s.limit <= 0:
		return errors.New("BufferBody and SpoolBody are off, and it has no GetBody")
	case s.kept.size < s.limit:
		return fmt.Errorf("the %d bytes that a Transport keeps of all its request bodies (BufferBody) are in use, and SpoolBody is off", maxKept)
	}
	return fmt.Errorf("it is larger than BufferBody (%d bytes), SpoolBody is off, and it has no GetBody", s.limit)
}

// lose notes that the body cannot be produced again, and the first reason.
// Called with s.mu held.
func (s *source) lose(why error) {
	s.lost = true
	if s.why == nil {
		s.why = why
	}
}

// note records the result of a Read of the body, after keep; rest bytes of it
// went to the spool, if spooled. Called with s.mu held.
func (s *source) note(v *view, n, rest int, spooled bool, err error) {
	s.reading = nil
	if err != nil && s.end == nil {
		s.end = err
		switch {
		case errors.Is(err, io.EOF):
		case s.remake == nil:
			s.lose(fmt.Errorf("its Read failed: %w", err))
		case !v.closed: // Close may come during a Read, whose error then says nothing
			s.broken("Read", err)
		}
	}
	v.at += int64(n)
	if spooled {
		s.spooled += int64(rest)
	} else {
		s.lose(s.spool.cause(s.limit))
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
// to follow, or a new one would be made for it. It is closed at once, even
// during a Read: that is how a blocked Read ends.
func (v *view) Close() error {
	s := v.s
	s.mu.Lock()
	if v.closed {
		s.mu.Unlock()
		return nil
	}
	v.closed = true
	last := (s.finished || s.remake != nil) && s.lent == v && !s.closed
	s.closed = s.closed || last
	body := s.body
	s.settle(v)
	s.mu.Unlock()
	if !last {
		return nil
	}
	err := body.Close()
	if err != nil && s.remake != nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.broken("Close", err)
	}
	return err
}

// broken notes that a body failed which remake can replace. Called with s.mu held.
func (s *source) broken(method string, err error) {
	if s.failed == nil {
		s.failed = fmt.Errorf("its %s failed: %w", method, err)
	}
}

func (s *source) broke() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.failed != nil
}

func (s *source) replayable() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.lost
}

func (s *source) inHand() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.remake != nil && inMemory(s.body)
}

func (s *source) awaitsRenewal() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stale
}

// cause returns why the body cannot be produced again, nil if nothing is known.
func (s *source) cause() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return cmp.Or(s.why, s.failed)
}

// rewind takes the body back from the attempt that has it. Attempts only ever
// have copies of a body in memory, so its replacement is made here as well.
func (s *source) rewind(b bound) Reason {
	reason := s.reclaim(b, anyTurn)
	if reason == ReasonRetry && s.inHand() {
		if _, err := s.renew(anyTurn, false); err != nil {
			return ReasonNotReplayable
		}
	}
	return reason
}

// reclaim takes the body back, for the loop or for the base transport during the
// loop's given turn. It waits for a Read under way, since two readers of one body
// would each get a part of it. Only then is the view cut off, so that after
// BodyBusy the attempt is unharmed.
func (s *source) reclaim(b bound, turn int) Reason {
	var timeout <-chan time.Time
	for late := ReasonRetry; ; {
		running, reason := s.takeBack(late == ReasonRetry, turn)
		switch {
		case running == nil:
			s.shutStale()
			return reason
		case late != ReasonRetry:
			return late
		case timeout == nil:
			timer := time.NewTimer(b.limit)
			defer timer.Stop()
			timeout = timer.C
		}
		select {
		case <-running:
		case <-timeout:
			late = ReasonBodyBusy
		case <-b.ctx.Done():
			late = ReasonCanceled
		}
	}
}

// takeBack is one try of reclaim; running is the Read that must end first.
// While patient, no further Read begins in the meantime: a busy upload would
// otherwise never let go.
func (s *source) takeBack(patient bool, turn int) (running chan struct{}, reason Reason) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if turn != anyTurn && (turn != s.turn || s.finished) {
		return nil, ReasonBodyBusy // the body is another attempt's by now
	}
	s.wanted = patient && s.reading != nil
	switch {
	case s.reading != nil:
		return s.reading, 0
	case s.lost:
		return nil, ReasonNotReplayable
	case s.remake != nil:
		s.stale = !s.fresh
	case s.seeker != nil && s.touched:
		if at, err := s.seeker.Seek(s.start, io.SeekStart); err != nil || at != s.start {
			s.lose(fmt.Errorf("its Seek failed: %w", cmp.Or(err, errSoughtElsewhere)))
			return nil, ReasonNotReplayable
		}
		s.end, s.touched = nil, false
	}
	if s.lent != nil {
		s.lent.closed = true
		s.lent = nil
	}
	if turn == anyTurn && !inMemory(s.body) { // the holders of copies are in nobody's way
		s.turn++
	}
	return nil, ReasonRetry
}

var errSoughtElsewhere = errors.New("it returned another offset")

// shutStale closes a body that was taken back before the base transport closed it.
func (s *source) shutStale() {
	s.mu.Lock()
	open := s.stale && !s.closed
	s.closed = s.closed || open
	body := s.body
	s.mu.Unlock()
	if open {
		_ = body.Close()
	}
}

// renew replaces a stale body. For the base transport, which calls it during the
// loop's given turn, it lends the new body in the same step: the loop may take
// back at any time.
func (s *source) renew(turn int, lend bool) (lent io.ReadCloser, err error) {
	over := make(chan struct{})
	s.mu.Lock()
	for s.reading != nil { // another call, for the first send of a race
		running := s.reading
		s.mu.Unlock()
		<-running
		s.mu.Lock()
	}
	if !s.stale || turn != anyTurn && turn != s.turn {
		s.mu.Unlock()
		return nil, nil
	}
	s.reading = over // so that nobody reads or takes back meanwhile
	s.mu.Unlock()
	var body io.ReadCloser
	err = errors.New("Request.GetBody panicked")
	defer func() {
		s.mu.Lock()
		s.reading, s.why = nil, err
		unwanted := err == nil && s.finished
		if err == nil {
			s.body, s.end, s.closed, s.stale, s.fresh = body, nil, unwanted, false, true
		}
		if err == nil && lend && !unwanted {
			lent = s.lend()
		}
		s.mu.Unlock()
		close(over)
		if unwanted {
			_ = body.Close()
		}
	}()
	body, err = made(s.remake())
	return nil, err
}

// inner returns a GetBody for the base transport, which net/http calls when it
// sends again by itself. It serves the attempt that is about to be sent and no
// later one.
func (s *source) inner(ctx context.Context) func() (io.ReadCloser, error) {
	s.mu.Lock()
	turn := s.turn
	s.mu.Unlock()
	return func() (io.ReadCloser, error) {
		if reason := s.reclaim(bound{ctx: ctx, limit: maxBusy}, turn); reason == ReasonCanceled {
			return nil, contextErr(ctx)
		} else if reason != ReasonRetry {
			return nil, errBodyLent
		}
		own, err := s.renew(turn, true)
		switch {
		case err != nil:
			return nil, &bodyError{why: err}
		case own == nil:
			return nil, errBodyLent
		}
		return own, nil
	}
}

func (s *source) finish() {
	s.mu.Lock()
	s.finished = true
	last := (s.lent == nil || s.lent.closed) && !s.closed
	s.closed = s.closed || last
	body := s.body
	s.settle(s.lent)
	s.mu.Unlock()
	if last {
		_ = body.Close()
	}
}

// A bufferPool counts the bytes that all bodies of a Transport keep. In memory
// the first smallBody bytes of each body do not count and are always kept, so
// that large uploads cannot take the retries from small requests.
type bufferPool struct {
	used       atomic.Int64 // in memory
	spooled    atomic.Int64 // in files
	spoolTotal int64        // the bound for files, Config.SpoolTotal; 0: the default
}

// maxKept is the bound for all kept bodies of a Transport together.
const maxKept = 64 << 20

// beyondSmall returns how many of n bytes that a body holds count in the pool.
func beyondSmall(n int64) int64 { return max(n-smallBody, 0) }

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
	held   *int64 // capacity of the chunks, which the pool counts; made before the first
}

const minChunk, maxChunk = 1 << 10, 64 << 10

// append keeps p. It reports false, with nothing lost but room, where the
// pool has none.
func (b *buffer) append(p []byte, limit int64, pool *bufferPool) bool {
	for len(p) > 0 {
		last := len(b.chunks) - 1
		if last < 0 || len(b.chunks[last]) == cap(b.chunks[last]) {
			n := min(max(minChunk, b.size), maxChunk, limit-*b.held)
			if n <= 0 || !pool.take(beyondSmall(*b.held+n)-beyondSmall(*b.held)) {
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
		pool.used.Add(-beyondSmall(*b.held))
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
