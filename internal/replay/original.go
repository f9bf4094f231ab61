package replay

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"time"

	"github.com/aplomb-go/aplomb/internal/counted"
)

// An original is a body without GetBody. All attempts read the same body, which the
// caller handed over. If it has a Seek method, it is sought back for each attempt.
// If not, the original keeps the bytes that were read.
//
// The caller's body is closed once, after the last attempt.
type original struct {
	body   io.ReadCloser
	seeker io.Seeker // of body; if nil, the bytes are kept
	start  int64     // the offset at which a seekable body was handed over
	limit  int64     // of the bytes that are kept; not positive: none is
	pool   *Pool

	lease          // its mu guards all below
	kept    buffer // the first bytes of the body, as long as all its bytes can be kept
	counted *int64 // how many bytes of kept the pool gets back if the body is lost; nil while kept is small
	end     error  // how the body ended, once it did
	broke   bool   // its Read failed
	moved   bool   // a seekable body was read since it was at start
	sent    int64  // the most bytes that an attempt had
	holder  *view  // the reader of the attempt under way, nil if there is none
	closed  bool   // body is closed
	first   view   // of the first attempt

	blocked *time.Timer // ends a Read that goes on after its view was closed; nil: there was none
}

// A view is the reader of one attempt. When the body is taken back, its Reads
// return ErrLent.
type view struct {
	o      *original
	at     int64 // how much of the body it has delivered
	closed bool
}

// newOriginal returns the original of a body without GetBody.
func newOriginal(body io.ReadCloser, limit int64, pool *Pool) *original {
	o := &original{body: body, limit: limit, pool: pool}
	if seeker, ok := body.(io.Seeker); ok {
		// Standard input, a pipe and a terminal have a Seek method that fails.
		if at, err := seeker.Seek(0, io.SeekCurrent); err == nil {
			o.seeker, o.start = seeker, at
		}
	}
	return o
}

// Next returns a view. The base transport gets no GetBody, because the caller has none.
func (o *original) Next(context.Context, int) (io.ReadCloser, func() (io.ReadCloser, error)) {
	o.mu.Lock()
	defer o.mu.Unlock()
	v := &o.first
	if v.o != nil {
		v = new(view)
	}
	v.o = o
	o.holder = v
	return v, nil
}

// Read delivers the bytes that were kept from earlier attempts, then those of the
// body itself.
func (v *view) Read(p []byte) (int, error) {
	o := v.o
	o.mu.Lock()
	defer o.mu.Unlock()
	for {
		switch {
		case o.holder != v || v.closed:
			return 0, ErrLent
		case len(p) == 0:
			return 0, nil
		case o.busy():
			o.wait()
		case v.at < o.kept.size:
			return v.advance(o.kept.readAt(p, v.at)), nil
		case o.end != nil:
			return 0, o.end
		case o.wanted:
			return 0, ErrLent // the body is about to be taken back
		default:
			return v.readBody(p)
		}
	}
}

// advance notes that the view has delivered n bytes more; the lock is held.
func (v *view) advance(n int) int {
	v.at += int64(n)
	v.o.settle()
	return n
}

// readBody reads the body itself, and keeps the bytes; the lock is held.
func (v *view) readBody(p []byte) (n int, err error) {
	o := v.o
	o.moved = true
	o.use(func() { n, err = counted.Read(o.body, p) })
	o.keep(p[:n])
	if end := v.at + int64(n); err == io.EOF && end < o.sent {
		err = endsEarly(end, o.sent) // a file that has become shorter
	}
	o.sent = max(o.sent, v.at+int64(n))
	if err != nil {
		o.end = err
		if !errors.Is(err, io.EOF) {
			o.broke = o.broke || !v.closed && !o.closed // a Close during the Read makes it fail
			o.lose(fmt.Errorf("its Read failed: %w", err))
		}
	}
	return v.advance(n), err
}

// keep keeps bytes that were read from the body, as far as the limit and the pool allow; the
// lock is held.
func (o *original) keep(p []byte) {
	if o.seeker != nil || o.why != nil || o.finished || len(p) == 0 {
		return
	}
	n := o.kept.append(p, o.limit, o.pool)
	if o.counted == nil && beyondSmall(o.kept.held) > 0 {
		o.countUntilLost()
	}
	if o.counted != nil {
		*o.counted = o.kept.held
	}
	if n < len(p) {
		o.lose(o.memoryFull())
	}
}

// countUntilLost begins to count the bytes that are kept. A base transport may neither
// read on nor close its reader. When the garbage collector finds such a body, the
// pool gets the bytes back that are counted then; the lock is held.
func (o *original) countUntilLost() {
	pool := o.pool
	o.counted = new(int64)
	runtime.AddCleanup(o, func(held *int64) { pool.free(beyondSmall(*held)) }, o.counted)
}

// memoryFull says which limit the body has reached, and which fields of the rule would
// help.
func (o *original) memoryFull() error {
	switch {
	case o.limit <= 0:
		return errors.New("Upload.Memory is off, and it has no GetBody")
	case o.kept.size < o.limit:
		return fmt.Errorf("the %d bytes that a Transport keeps of all its request bodies (Upload.Memory) are in use", MaxMemory)
	}
	return fmt.Errorf("it is larger than Upload.Memory (%d bytes), and it has no GetBody", o.limit)
}

// lose notes that the body cannot be produced again, and the first reason. The kept
// bytes are of no use then, because the view under way is past all of them; the lock is
// held.
func (o *original) lose(why error) {
	o.why = cmp.Or(o.why, why)
	o.drop()
}

// drop gives the memory back; the lock is held.
func (o *original) drop() {
	o.kept.drop(o.pool)
	if o.counted != nil {
		*o.counted = 0
	}
}

// settle gives the memory back when nobody can need it any more; the lock is held.
func (o *original) settle() {
	if v := o.holder; o.finished && (v == nil || v.closed || v.at >= o.kept.size) {
		o.drop()
	}
}

// Close ends the attempt's hold. The body itself is closed if no attempt is to
// follow. That happens at once, even during a Read, because it is how a blocked
// Read ends.
//
// When a stream of HTTP/2 is reset, net/http closes the body and returns only when
// the Read has ended. Until then nobody can know whether another attempt is to follow.
// So if the Read goes on for MaxBusy, the body is given up and closed.
func (v *view) Close() error {
	o := v.o
	o.mu.Lock()
	if !v.closed && o.holder == v && o.busy() && !o.finished {
		o.blocked = time.AfterFunc(MaxBusy, v.unblock)
	}
	v.closed = true
	return o.closeUnused()
}

// unblock closes the body if the Read of a closed view has not ended. It does nothing
// if TakeBack waits for the Read, because then the attempt is over already.
func (v *view) unblock() {
	o := v.o
	o.mu.Lock()
	if o.holder != v || !o.busy() || o.closed || o.wanted {
		o.mu.Unlock()
		return
	}
	o.closed = true
	o.lose(errBlocked)
	o.mu.Unlock()
	_ = o.body.Close()
}

func (o *original) Finish() {
	o.mu.Lock()
	o.finished = true
	if o.blocked != nil {
		o.blocked.Stop()
	}
	_ = o.closeUnused()
}

// closeUnused closes the body if there will be no further attempt and none holds it;
// the lock is held, and given up.
func (o *original) closeUnused() error {
	unused := o.finished && !o.closed && (o.holder == nil || o.holder.closed)
	o.closed = o.closed || unused
	o.settle()
	o.mu.Unlock()
	if !unused {
		return nil
	}
	return o.body.Close()
}

var errBlocked = fmt.Errorf("its Read went on for %v after the attempt", MaxBusy)

var errSoughtElsewhere = errors.New("it returned another offset")

// TakeBack waits for a Read under way, because its bytes would be missing from the next
// attempt's body. If that takes too long, the attempt keeps the body.
func (o *original) TakeBack(ctx context.Context, limit time.Duration) (renew bool, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if err := o.free(ctx, limit, nil); err != nil {
		return false, err
	}
	if o.seeker != nil && o.moved && o.why == nil {
		if at, err := o.seeker.Seek(o.start, io.SeekStart); err != nil || at != o.start {
			o.lose(fmt.Errorf("its Seek failed: %w", cmp.Or(err, errSoughtElsewhere)))
		} else {
			o.end, o.moved = nil, false
		}
	}
	if o.why == nil && o.holder != nil {
		o.holder.closed = true
		o.holder = nil
	}
	return false, o.why
}

func (o *original) Broke() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.broke
}

func (v *view) Broke() bool { return v.o.Broke() }

// Replayable reports that the body is not replayable if a reason is known.
func (o *original) Replayable() bool { return o.Why() == nil }

func (o *original) Why() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.why
}

func (o *original) Concurrent() bool            { return false }
func (o *original) Renew(context.Context) error { return nil }
func (o *original) Leave(context.Context)       {}
