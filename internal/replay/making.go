package replay

import (
	"context"
	"errors"
	"io"
)

// A making is a call of the caller's GetBody. It runs in a goroutine of its own, because
// GetBody may block for longer than the context of the request lasts. The lease is in use
// until somebody has taken its body or closed it, so GetBody is never called beside it.
type making struct {
	done     chan struct{} // closed when GetBody has returned
	body     io.ReadCloser
	err      error
	panicked any
	over     bool // GetBody has returned; as left, guarded by the mu of the remade
	left     bool // nobody waits for the body any more
}

// callGetBody calls GetBody and returns its results, or ErrEnded if ctx ends first; the lock
// is held, and given up meanwhile. The body is not busy.
func (r *remade) callGetBody(ctx context.Context) (io.ReadCloser, error) {
	if ctx.Err() != nil {
		return nil, ErrEnded
	}
	m := &making{done: make(chan struct{}), err: errors.New("Request.GetBody ended its goroutine")}
	r.users++
	go r.make(m)
	r.mu.Unlock()
	select {
	case <-m.done:
	case <-ctx.Done():
	}
	r.mu.Lock()
	if !m.over {
		m.left, r.why = true, ErrEnded
		return nil, ErrEnded
	}
	r.leave()
	if m.panicked != nil {
		r.why = errors.New("Request.GetBody panicked")
		panic(m.panicked)
	}
	r.why = m.err
	return m.body, m.err
}

// make calls GetBody. If it returns late, nobody gets its body or hears of its panic.
func (r *remade) make(m *making) {
	defer close(m.done)
	defer func() {
		m.panicked = recover()
		r.mu.Lock()
		defer r.mu.Unlock()
		m.over = true
		if m.left {
			r.mu.Unlock()
			m.closeLate()
			r.mu.Lock()
			r.leave()
		}
	}()
	m.body, m.err = checked(r.getBody())
}

// closeLate closes a body that nobody waits for. Nobody hears of a panic of its Close either.
func (m *making) closeLate() {
	defer func() { _ = recover() }()
	if m.body != nil && m.err == nil {
		_ = m.body.Close()
	}
}
