package replay

import (
	"context"
	"sync"
	"time"
)

// A lease lets a single goroutine at a time use the caller's body. To use the body
// means to read it or to make it anew. A lease is part of each [streamBody] and [getBodyBody].
//
// The habits of base transports make the rules. Over HTTP/1, net/http may stay in a
// Read for ever after an early response. Over HTTP/2, it closes the body from another
// goroutine during a Read. So the Close of an attempt never waits for a Read, and a
// body is detached only when neither a Read nor a Close is running.
type lease struct {
	mu       sync.Mutex    // guards the lease and the fields of its owner that are listed after it
	users    int           // how many goroutines use the body: at most one, and its Close beside it
	over     chan struct{} // closed when users becomes 0; nil if nobody waits for that
	wanted   bool          // a goroutine waits to detach the body, and no Read begins meanwhile
	finished bool          // there will be no further attempt
	why      error         // why the body cannot be produced again, nil if it can
}

// busy reports whether a goroutine uses the body; the lock is held.
func (l *lease) busy() bool { return l.users > 0 }

// use runs f, which uses the caller's body, without the lock. Before and afterwards, also
// when f panics, the lock is held. The body is not busy unless f closes it.
func (l *lease) use(f func()) {
	l.users++
	l.mu.Unlock()
	defer func() {
		l.mu.Lock()
		l.leave()
	}()
	f()
}

// leave ends a use; the lock is held.
func (l *lease) leave() {
	if l.users--; l.users == 0 && l.over != nil {
		close(l.over)
		l.over = nil
	}
}

// done returns a channel that is closed when the use under way ends. The lease is busy; the
// lock is held.
func (l *lease) done() <-chan struct{} {
	if l.over == nil {
		l.over = make(chan struct{})
	}
	return l.over
}

// wait waits until the use under way ends; the lock is held, and given up while it
// waits.
func (l *lease) wait() {
	done := l.done()
	l.mu.Unlock()
	<-done
	l.mu.Lock()
}

// free waits until nobody uses the body. It returns ErrBusy if that takes longer than
// limit, or if still is not nil and reports false. It returns ErrEnded if ctx ends; the
// lock is held, and given up while it waits.
func (l *lease) free(ctx context.Context, limit time.Duration, still func() bool) error {
	defer func() { l.wanted = false }()
	var late error
	var timeout <-chan time.Time
	for {
		switch {
		case still != nil && !still():
			return ErrBusy
		case !l.busy():
			return nil
		case late != nil:
			return late
		case timeout == nil:
			timer := time.NewTimer(limit)
			defer timer.Stop()
			timeout = timer.C
		}
		done := l.done()
		l.wanted = true // otherwise a busy upload would begin its next Read at once
		l.mu.Unlock()
		select {
		case <-done:
		case <-timeout:
			late = ErrBusy
		case <-ctx.Done():
			late = ErrEnded
		}
		l.mu.Lock()
	}
}
