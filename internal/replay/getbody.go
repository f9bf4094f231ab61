package replay

import (
	"context"
	"errors"
	"io"
	"net/http"
	"time"
)

// A getBodyBody is a body that the caller's GetBody makes anew for each attempt.
//
// Two results of GetBody may be the same reader, sought back. So GetBody is called
// only when the previous body is closed and no Read of it is running. An attempt
// that is over can neither read nor close the body any more.
type getBodyBody struct {
	getBody func() (io.ReadCloser, error) // the caller's

	lease                  // its mu guards all below, and the fields of every reader
	current *getBodyReader // of the latest body
	first   getBodyReader  // of the request's own body
	turn    int            // changes when a body is made or detached
}

// A getBodyReader is a body of the caller, and the reader of the attempt that has it.
type getBodyReader struct {
	b     *getBodyBody
	body  io.ReadCloser
	phase phase
	end   error // how the body ended, once it did
	shut  bool  // body is closed
	at    int64 // how much of it was read
}

// A phase is where a body is in its life. It only moves forward.
type phase uint8

const (
	unused   phase = iota
	attached       // an attempt has it
	detached       // from its attempt; GetBody is to make the next one
)

func newGetBodyBody(req *http.Request) *getBodyBody {
	b := &getBodyBody{getBody: req.GetBody}
	b.first = getBodyReader{b: b, body: req.Body}
	b.current, b.over.L = &b.first, &b.mu
	return b
}

func (b *getBodyBody) Next(ctx context.Context, _ int) (io.ReadCloser, func() (io.ReadCloser, error)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.attach(), b.forBase(ctx)
}

// attach returns the body for an attempt. Of a body in memory that is a copy, because net/http sends the head
// and a body of a type that it knows at once. The reader would notice if the body is shorter than before; the
// lock is held.
func (b *getBodyBody) attach() io.ReadCloser {
	r := b.current
	r.phase = attached
	if inMemory, ok := memoryReader(r.body).(interface{ Len() int }); ok && int64(inMemory.Len()) >= b.sent {
		b.sent = int64(inMemory.Len()) // perhaps
		return copyOf(r.body)
	}
	return r
}

func (r *getBodyReader) Read(p []byte) (n int, err error) {
	b := r.b
	b.mu.Lock()
	defer b.mu.Unlock()
	for {
		switch {
		case r.phase == detached:
			return 0, ErrDetached
		case len(p) == 0:
			return 0, nil
		case r.end != nil:
			return 0, r.end
		case b.busy():
			b.over.Wait()
		case b.wanted:
			return 0, ErrDetached // the body is about to be detached
		default:
			return r.readBody(p)
		}
	}
}

// readBody reads the body, also a closed one, which says so itself; the lock is held.
func (r *getBodyReader) readBody(p []byte) (n int, err error) {
	n, err = r.b.read(r.body, p, r.at)
	r.at += int64(n)
	r.end = err
	// A Close during the Read makes the Read fail. Such an error says nothing.
	if err != nil && !errors.Is(err, io.EOF) && !r.shut {
		r.b.broken("Read", err)
	}
	return n, err
}

// Close closes the body at once, even during a Read, because that is how a blocked
// Read ends. GetBody is not called before the Close is over.
func (r *getBodyReader) Close() (err error) {
	b := r.b
	b.mu.Lock()
	defer b.mu.Unlock()
	if r.shut {
		return nil
	}
	r.shut = true
	b.use(func() { err = r.body.Close() })
	if err != nil {
		b.broken("Close", err)
	}
	return err
}

func (b *getBodyBody) Rewind(ctx context.Context, limit time.Duration) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := b.free(ctx, limit, nil); err != nil {
		return err
	}
	b.turn++
	b.detach()
	return nil
}

func (b *getBodyBody) Detach(ctx context.Context) { _ = b.Rewind(ctx, MaxBusy) }

// detach takes the current body from its attempt, if any has it; the lock is held, and given up
// while the body is closed. The body is not busy.
func (b *getBodyBody) detach() {
	r := b.current
	if r.phase != attached {
		return
	}
	r.phase = detached
	if !r.shut {
		r.shut = true
		b.use(func() { _ = r.body.Close() }) // its error changes nothing: the attempt is over
	}
}

// GetBody makes the body for the next attempt, unless no attempt has had the last.
func (b *getBodyBody) GetBody(ctx context.Context) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	for b.busy() {
		b.over.Wait()
	}
	_, err := b.remake(ctx)
	return err
}

// remake calls GetBody if the current body is detached, and reports whether there is a
// new body; the lock is held, and given up meanwhile. The body is not busy.
func (b *getBodyBody) remake(ctx context.Context) (done bool, err error) {
	if b.current.phase != detached {
		return false, nil
	}
	body, err := b.callGetBody(ctx)
	if err != nil {
		return false, err
	}
	r := &getBodyReader{b: b, body: body}
	b.current = r
	b.wanted = false // the old body was
	b.turn++         // no base transport of an older attempt may detach it
	if b.finished {  // nobody is to read the body
		r.shut, r.phase = true, detached
		b.use(func() { _ = body.Close() })
		return false, nil
	}
	return true, nil
}

// forBase returns the GetBody for the base transport during the attempt that is about
// to be sent. net/http calls it when it sends again by itself. It serves no later
// attempt; the lock is held.
func (b *getBodyBody) forBase(ctx context.Context) func() (io.ReadCloser, error) {
	turn := b.turn
	return func() (io.ReadCloser, error) {
		b.mu.Lock()
		defer b.mu.Unlock()
		current := func() bool { return turn == b.turn && !b.finished }
		if err := b.free(ctx, MaxBusy, current); err == ErrEnded {
			return nil, err
		} else if err != nil {
			return nil, ErrDetached
		}
		b.detach()
		done, err := b.remake(ctx)
		turn = b.turn
		switch {
		case err != nil:
			return nil, err
		case !done: // the loop has made a body for the next attempt
			return nil, ErrDetached
		}
		return b.attach(), nil // mu was held since remake, so the loop cannot have detached it
	}
}

// Finish closes the current body, unless an attempt reads it.
func (b *getBodyBody) Finish() {
	b.mu.Lock()
	b.finished = true
	r := b.current
	idle := !r.shut && r.phase != attached
	r.shut = r.shut || idle
	b.mu.Unlock()
	if idle {
		_ = r.body.Close()
	}
}

// Concurrent reports whether the body is in memory, so that each attempt has a copy.
func (b *getBodyBody) Concurrent() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return memoryReader(b.current.body) != nil
}

// A made has the results of a call of the caller's GetBody.
type made struct {
	body     io.ReadCloser
	err      error
	panicked any
}

// callGetBody calls GetBody and returns its results, or ErrEnded if ctx ends first; the lock
// is held, and given up meanwhile. The body is not busy. GetBody has a goroutine of its own, because
// it may block for longer than the context of the request lasts. The lease is in use until somebody
// has taken its body or closed it, so GetBody is never called beside it.
func (b *getBodyBody) callGetBody(ctx context.Context) (io.ReadCloser, error) {
	if ctx.Err() != nil {
		return nil, ErrEnded
	}
	results, left := make(chan made), make(chan struct{})
	b.users++
	b.mu.Unlock()
	go b.run(results, left)
	select {
	case <-ctx.Done():
		close(left)
		b.mu.Lock()
		b.why = ErrEnded
		return nil, ErrEnded
	case m := <-results:
		b.mu.Lock()
		b.leave()
		if b.why = m.err; m.panicked != nil {
			panic(m.panicked)
		}
		return m.body, m.err
	}
}

// run calls GetBody. If it returns when left is closed, nobody gets its body, or hears of its panic or
// of one of the Close.
func (b *getBodyBody) run(results chan<- made, left <-chan struct{}) {
	m := made{err: errors.New("Request.GetBody panicked or ended its goroutine")}
	defer func() {
		m.panicked = recover()
		select {
		case results <- m:
			return
		case <-left:
		}
		defer func() {
			_ = recover()
			b.mu.Lock()
			b.leave()
			b.mu.Unlock()
		}()
		if m.body != nil {
			_ = m.body.Close()
		}
	}()
	m.body, m.err = checked(b.getBody())
}
