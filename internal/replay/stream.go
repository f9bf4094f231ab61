package replay

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"time"
)

// A streamBody is a body without GetBody. All attempts read the same body, which the
// caller handed over. If it has a Seek method, it is sought back for each attempt.
// If not, the bytes that were read are kept.
//
// The caller's body is closed once, after the last attempt.
type streamBody struct {
	body   io.ReadCloser
	seeker io.Seeker // of body; if nil, the bytes are kept
	start  int64     // the offset at which a seekable body was handed over
	limit  int64     // of the bytes that are kept; not positive: none is
	pool   *Pool

	lease                // its mu guards all below
	kept   buffer        // the first bytes of the body, as long as all its bytes can be kept
	end    error         // how the body ended, once it did
	holder *streamReader // the reader of the attempt under way, nil if there is none
	closed bool          // body is closed
	first  streamReader  // of the first attempt

	blocked *time.Timer // ends a Read that goes on after its reader was closed; nil: there was none
}

// A streamReader is the reader of an attempt. When the body is detached from it, its Reads
// return ErrDetached. If a connection of HTTP/2 goes away, net/http may close a body unread, and send it
// over another connection all the same. So a Read opens a reader again that was closed unread.
type streamReader struct {
	s      *streamBody
	at     int64 // how much of the body it has delivered
	closed bool
	unread bool // it was closed before its first Read
}

// newStreamBody returns the Body of a body without GetBody.
func newStreamBody(body io.ReadCloser, limit int64, pool *Pool) *streamBody {
	s := &streamBody{body: body, limit: limit, pool: pool}
	s.over.L = &s.mu
	if seeker, ok := body.(io.Seeker); ok {
		// Standard input, a pipe and a terminal have a Seek method that fails.
		if at, err := seeker.Seek(0, io.SeekCurrent); err == nil {
			s.seeker, s.start = seeker, at
		}
	}
	return s
}

// Next returns a reader. The base transport gets no GetBody, because the caller has none.
func (s *streamBody) Next(context.Context, int) (io.ReadCloser, func() (io.ReadCloser, error)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := &s.first
	if r.s != nil {
		r = new(streamReader)
	}
	r.s = s
	s.holder = r
	return r, nil
}

// Read delivers the bytes that were kept from earlier attempts, then those of the
// body itself.
func (r *streamReader) Read(p []byte) (int, error) {
	s := r.s
	s.mu.Lock()
	defer s.mu.Unlock()
	for {
		switch {
		case s.holder != r || r.closed && (s.closed || !r.unread):
			return 0, ErrDetached
		case r.closed:
			r.closed = false
		case len(p) == 0:
			return 0, nil
		case s.busy():
			s.over.Wait()
		case r.at < s.kept.size:
			return r.advance(s.kept.readAt(p, r.at)), nil
		case s.end != nil:
			return 0, s.end
		case s.wanted:
			return 0, ErrDetached // the body is about to be detached
		default:
			return r.readBody(p)
		}
	}
}

// advance notes that the reader has delivered n bytes more; the lock is held.
func (r *streamReader) advance(n int) int {
	r.at += int64(n)
	r.s.settle()
	return n
}

// readBody reads the body itself, and keeps the bytes; the lock is held.
func (r *streamReader) readBody(p []byte) (n int, err error) {
	s := r.s
	n, err = s.read(s.body, p, r.at)
	s.keep(p[:n])
	s.end = err
	if err != nil && !errors.Is(err, io.EOF) {
		if !r.closed && !s.closed { // a Close during the Read makes it fail
			s.broken("Read", err)
		}
		s.lose(fmt.Errorf("its Read failed: %w", err))
	}
	return r.advance(n), err
}

// keep keeps bytes that were read from the body, as far as the limit and the pool allow; the
// lock is held.
func (s *streamBody) keep(p []byte) {
	if s.seeker != nil || s.why != nil || s.finished || len(p) == 0 {
		return
	}
	switch {
	case s.limit <= 0:
		s.lose(errors.New("ReplayBuffer is off, and it has neither GetBody nor Seek"))
	case s.kept.size+int64(len(p)) > s.limit:
		s.lose(fmt.Errorf("it is larger than ReplayBuffer (%d bytes), and it has neither GetBody nor Seek", s.limit))
	case !s.kept.append(p, s.pool):
		s.lose(fmt.Errorf("the %d bytes that a Transport keeps of all its request bodies (ReplayBuffer) are in use", MaxMemory))
	}
}

// lose notes that the body cannot be produced again, and the first reason. The kept
// bytes are of no use then, because the reader under way is past all of them; the lock is
// held.
func (s *streamBody) lose(why error) {
	s.why = cmp.Or(s.why, why)
	s.kept.drop(s.pool)
}

// settle gives the memory back when nobody can need it any more; the lock is held.
func (s *streamBody) settle() {
	if r := s.holder; s.finished && (r == nil || r.closed || r.at >= s.kept.size) {
		s.kept.drop(s.pool)
	}
}

// Close ends the attempt's hold. The body itself is closed if no attempt is to
// follow. That happens at once, even during a Read, because it is how a blocked
// Read ends.
//
// When a stream of HTTP/2 is reset, net/http closes the body and returns only when
// the Read has ended. Until then nobody can know whether another attempt is to follow.
// So if the Read goes on for MaxBusy, the body is given up and closed.
func (r *streamReader) Close() error {
	s := r.s
	s.mu.Lock()
	if !r.closed && s.holder == r && s.busy() && !s.finished {
		s.blocked = time.AfterFunc(MaxBusy, r.unblock)
	}
	r.closed, r.unread = true, r.at == 0 && !s.busy()
	return s.closeUnused()
}

// unblock closes the body if the Read of a closed reader has not ended. It does nothing
// if Rewind waits for the Read, because then the attempt is over already.
func (r *streamReader) unblock() {
	s := r.s
	s.mu.Lock()
	if s.holder != r || !s.busy() || s.closed || s.wanted {
		s.mu.Unlock()
		return
	}
	s.closed = true
	s.lose(errBlocked)
	s.mu.Unlock()
	_ = s.body.Close()
}

func (s *streamBody) Finish() {
	s.mu.Lock()
	s.finished = true
	if s.blocked != nil {
		s.blocked.Stop()
	}
	_ = s.closeUnused()
}

// closeUnused closes the body if there will be no further attempt and none holds it;
// the lock is held, and given up.
func (s *streamBody) closeUnused() error {
	unused := s.finished && !s.closed && (s.holder == nil || s.holder.closed)
	s.closed = s.closed || unused
	s.settle()
	s.mu.Unlock()
	if !unused {
		return nil
	}
	return s.body.Close()
}

var errBlocked = fmt.Errorf("its Read went on for %v after the attempt", MaxBusy)

var errSoughtElsewhere = errors.New("it returned another offset")

// Rewind waits for a Read under way, because its bytes would be missing from the next
// attempt's body. If that takes too long, the attempt keeps the body.
func (s *streamBody) Rewind(ctx context.Context, limit time.Duration) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.free(ctx, limit, nil); err != nil {
		return err
	}
	if s.seeker != nil && s.why == nil {
		if at, err := s.seeker.Seek(s.start, io.SeekStart); err != nil || at != s.start {
			s.lose(fmt.Errorf("its Seek failed: %w", cmp.Or(err, errSoughtElsewhere)))
		} else {
			s.end = nil
		}
	}
	if s.why == nil {
		s.holder = nil
	}
	return s.why
}

func (s *streamBody) Concurrent() bool              { return false }
func (s *streamBody) GetBody(context.Context) error { return nil }
func (s *streamBody) Detach(context.Context)        {}
