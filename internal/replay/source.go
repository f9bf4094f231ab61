// Who may read the body now, and how is it produced again?

package replay

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"sync"
	"time"
)

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
	pool   *Pool
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
		return 0, stepDone, ErrLent // with remake the body itself is closed, and says so
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
		return 0, stepDone, ErrLent // rewind is about to take it back
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
			runtime.AddCleanup(s, func(held *int64) { pool.Memory.Add(-beyondSmall(*held)) }, s.kept.held)
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
		return errors.New("Upload.Memory and Upload.Disk are off, and it has no GetBody")
	case s.kept.size < s.limit:
		return fmt.Errorf("the %d bytes that a Transport keeps of all its request bodies (Upload.Memory) are in use, and Upload.Disk is off", MaxMemory)
	}
	return fmt.Errorf("it is larger than Upload.Memory (%d bytes), Upload.Disk is off, and it has no GetBody", s.limit)
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
func (s *source) rewind(ctx context.Context, limit time.Duration) error {
	err := s.reclaim(ctx, limit, anyTurn)
	if err == nil && s.inHand() {
		_, err = s.renew(anyTurn, false)
	}
	return err
}

// reclaim takes the body back, for the loop or for the base transport during the
// loop's given turn. It waits for a Read under way, since two readers of one body
// would each get a part of it. Only then is the view cut off, so that after
// ErrBusy the attempt is unharmed.
func (s *source) reclaim(ctx context.Context, limit time.Duration, turn int) error {
	var timeout <-chan time.Time
	for late := error(nil); ; {
		running, err := s.takeBack(late == nil, turn)
		switch {
		case running == nil:
			s.shutStale()
			return err
		case late != nil:
			return late
		case timeout == nil:
			timer := time.NewTimer(limit)
			defer timer.Stop()
			timeout = timer.C
		}
		select {
		case <-running:
		case <-timeout:
			late = ErrBusy
		case <-ctx.Done():
			late = ErrEnded
		}
	}
}

// takeBack is one try of reclaim; running is the Read that must end first.
// While patient, no further Read begins in the meantime: a busy upload would
// otherwise never let go.
func (s *source) takeBack(patient bool, turn int) (running chan struct{}, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if turn != anyTurn && (turn != s.turn || s.finished) {
		return nil, ErrBusy // the body is another attempt's by now
	}
	s.wanted = patient && s.reading != nil
	switch {
	case s.reading != nil:
		return s.reading, nil
	case s.lost:
		return nil, s.why
	case s.remake != nil:
		s.stale = !s.fresh
	case s.seeker != nil && s.touched:
		if at, err := s.seeker.Seek(s.start, io.SeekStart); err != nil || at != s.start {
			s.lose(fmt.Errorf("its Seek failed: %w", cmp.Or(err, errSoughtElsewhere)))
			return nil, s.why
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
	return nil, nil
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
		if err := s.reclaim(ctx, MaxBusy, turn); err == ErrEnded {
			return nil, err
		} else if err != nil {
			return nil, ErrLent
		}
		own, err := s.renew(turn, true)
		switch {
		case err != nil:
			return nil, err
		case own == nil:
			return nil, ErrLent
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
