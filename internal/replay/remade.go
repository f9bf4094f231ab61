package replay

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/aplomb-go/aplomb/internal/counted"
)

// A remade is a body that the caller's GetBody makes anew for each attempt.
//
// Two results of GetBody may be the same reader, sought back. So GetBody is called
// only when the previous body is closed and no Read of it is running. An attempt
// that is over can neither read nor close the body any more.
//
// A body of one of net/http's types in memory is never read itself. Each attempt
// gets a copy that shares no state with it. So net/http sees a type that it knows,
// and attempts may run beside each other.
//
// A body that ends before a byte that an earlier attempt had is not whole. Its Read fails
// there, because without a length the server could not know.
type remade struct {
	getBody func() (io.ReadCloser, error) // the caller's

	lease            // its mu guards all below, and the fields of every edition
	current *edition // the latest body
	first   edition  // the request's own body
	turn    int      // changes when a body that is not in memory is made or taken back
	failed  error    // of reading or closing a body
	sent    int64    // the most bytes that an attempt had
}

// An edition is one body of the caller, and the reader of the attempt that has it.
type edition struct {
	r     *remade
	body  io.ReadCloser
	phase phase
	end   error // how the body ended, once it did
	shut  bool  // body is closed
	at    int64 // how much of it was read
}

// A phase is where an edition is in its life. It only moves forward.
type phase uint8

const (
	waiting phase = iota // for an attempt
	lent                 // an attempt has it, or a copy
	over                 // taken back; GetBody is to make the next one
)

func newRemade(req *http.Request) *remade {
	r := &remade{getBody: req.GetBody}
	r.first = edition{r: r, body: req.Body}
	r.current = &r.first
	return r
}

func (r *remade) Next(ctx context.Context, _ int) (io.ReadCloser, func() (io.ReadCloser, error)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.lend(), r.forBase(ctx)
}

// lend returns the body for one attempt; the lock is held.
func (r *remade) lend() io.ReadCloser {
	e := r.current
	e.phase = lent
	n, known := length(e.body)
	if !known || n < r.sent { // e counts what is read
		return e
	}
	r.sent = n // perhaps
	if e.body == http.NoBody {
		return http.NoBody
	}
	return detached(e.body)
}

func (e *edition) Read(p []byte) (n int, err error) {
	r := e.r
	r.mu.Lock()
	defer r.mu.Unlock()
	for {
		switch {
		case e.phase == over:
			return 0, ErrLent
		case len(p) == 0:
			return 0, nil
		case e.end != nil:
			return 0, e.end
		case r.busy():
			r.wait()
		case r.wanted:
			return 0, ErrLent // the body is about to be taken back
		default:
			return e.readBody(p)
		}
	}
}

// readBody reads the body, also a closed one, which says so itself; the lock is held.
func (e *edition) readBody(p []byte) (n int, err error) {
	r := e.r
	r.use(func() { n, err = counted.Read(e.body, p) })
	e.at += int64(n)
	r.sent = max(r.sent, e.at)
	if err == io.EOF && e.at < r.sent {
		err = endsEarly(e.at, r.sent)
	}
	e.end = err
	// A Close during the Read makes the Read fail. Such an error says nothing.
	if err != nil && !errors.Is(err, io.EOF) && !e.shut {
		r.broken("Read", err)
	}
	return n, err
}

// endsEarly returns the error of a body that ends before a byte that an earlier attempt had.
func endsEarly(at, sent int64) error {
	return fmt.Errorf("transport: the request's body ends at byte %d, and an earlier attempt had sent %d", at, sent)
}

// Close closes the body at once, even during a Read, because that is how a blocked
// Read ends. GetBody is not called before the Close is over.
func (e *edition) Close() (err error) {
	r := e.r
	r.mu.Lock()
	defer r.mu.Unlock()
	if e.shut {
		return nil
	}
	e.shut = true
	r.use(func() { err = e.body.Close() })
	if err != nil {
		r.broken("Close", err)
	}
	return err
}

// broken notes that a body failed; the lock is held.
func (r *remade) broken(method string, err error) {
	if r.failed == nil {
		r.failed = fmt.Errorf("its %s failed: %w", method, err)
	}
}

// TakeBack makes the replacement of a body in memory itself, because Renew is not
// called before a hedge.
func (r *remade) TakeBack(ctx context.Context, limit time.Duration) (renew bool, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	err = r.end(ctx, limit)
	if err == nil && inMemory(r.current.body) {
		_, err = r.remake(ctx)
	}
	return r.current.phase == over, err
}

func (r *remade) Leave(ctx context.Context) {
	r.mu.Lock()
	defer r.mu.Unlock()
	_ = r.end(ctx, MaxBusy)
}

// end waits for a Read under way, and takes the body from the attempt that has it; the
// lock is held.
func (r *remade) end(ctx context.Context, limit time.Duration) error {
	if err := r.free(ctx, limit, nil); err != nil {
		return err
	}
	if !inMemory(r.current.body) { // attempts with copies are in nobody's way
		r.turn++
	}
	r.revoke()
	return nil
}

// revoke ends the current edition if an attempt has it; the lock is held, and given up
// while the body is closed. The body is not busy.
func (r *remade) revoke() {
	e := r.current
	if e.phase != lent {
		return
	}
	e.phase = over
	if !e.shut {
		e.shut = true
		r.use(func() { _ = e.body.Close() }) // its error changes nothing: the attempt is over
	}
}

// Renew makes the body for the next attempt, unless TakeBack did.
func (r *remade) Renew(ctx context.Context) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	for r.busy() {
		r.wait()
	}
	_, err := r.remake(ctx)
	return err
}

// remake calls GetBody if the current edition is over, and reports whether there is a
// new edition; the lock is held, and given up meanwhile. The body is not busy.
func (r *remade) remake(ctx context.Context) (done bool, err error) {
	if r.current.phase != over {
		return false, nil
	}
	body, err := r.callGetBody(ctx)
	if err != nil {
		return false, err
	}
	e := &edition{r: r, body: body}
	r.current = e
	r.wanted = false     // the old body was
	if !inMemory(body) { // no base transport of an older attempt may take it back
		r.turn++
	}
	if r.finished { // nobody is to read the body
		e.shut, e.phase = true, over
		r.use(func() { _ = body.Close() })
		return false, nil
	}
	return true, nil
}

// forBase returns the GetBody for the base transport during the attempt that is about
// to be sent. net/http calls it when it sends again by itself. It serves no later
// attempt; the lock is held.
func (r *remade) forBase(ctx context.Context) func() (io.ReadCloser, error) {
	turn := r.turn
	return func() (io.ReadCloser, error) {
		r.mu.Lock()
		defer r.mu.Unlock()
		current := func() bool { return turn == r.turn && !r.finished }
		if err := r.free(ctx, MaxBusy, current); err == ErrEnded {
			return nil, err
		} else if err != nil {
			return nil, ErrLent
		}
		r.revoke()
		done, err := r.remake(ctx)
		turn = r.turn
		switch {
		case err != nil:
			return nil, err
		case !done: // the loop has made a body for the next attempt
			return nil, ErrLent
		}
		return r.lend(), nil // mu was held since remake, so the loop cannot have taken it back
	}
}

// Finish closes the current body, unless an attempt reads it.
func (r *remade) Finish() {
	r.mu.Lock()
	r.finished = true
	e := r.current
	unused := !e.shut && (e.phase != lent || inMemory(e.body) || e.body == http.NoBody)
	e.shut = e.shut || unused
	r.mu.Unlock()
	if unused {
		_ = e.body.Close()
	}
}

func (r *remade) Broke() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.failed != nil
}

func (e *edition) Broke() bool { return e.r.Broke() }

// Replayable reports that the body is replayable unless it broke, because only GetBody itself can
// tell more.
func (r *remade) Replayable() bool { return !r.Broke() }

func (r *remade) Why() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return cmp.Or(r.why, r.failed)
}

func (r *remade) Concurrent() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return inMemory(r.current.body)
}
