package replay

import (
	"context"
	"sync"
	"time"
)

// A lease lets a single goroutine at a time use the caller's body. To use the body
// means to read it, to make it anew, or to move its bytes to or from the disk. A lease
// is part of each [original] and [remade].
//
// The habits of base transports make the rules. Over HTTP/1, net/http may stay in a
// Read for ever after an early response. Over HTTP/2, it closes the body from another
// goroutine during a Read. So the Close of an attempt never waits for a Read, and a
// body is taken back only when no Read is running.
type lease struct {
	mu       sync.Mutex    // guards the lease and the fields of its owner that are listed after it
	busy     chan struct{} // not nil while a goroutine uses the body, and closed when it is done
	wanted   bool          // a goroutine waits to take the body back, and no Read begins meanwhile
	finished bool          // there will be no further attempt
	why      error         // why the body cannot be produced again, nil if it can
}

// use runs f, which uses the caller's body, without the lock. It is called with mu
// held and busy nil. It returns with mu held, also when f panics.
func (l *lease) use(f func()) {
	over := make(chan struct{})
	l.busy = over
	l.mu.Unlock()
	defer func() {
		l.mu.Lock()
		l.busy = nil
		close(over)
	}()
	f()
}

// wait waits until the use under way ends. It is called with mu held, gives it up
// while it waits, and returns with mu held.
func (l *lease) wait() {
	busy := l.busy
	l.mu.Unlock()
	<-busy
	l.mu.Lock()
}

// free waits until nobody uses the body. It returns ErrBusy if that takes longer
// than limit, or if still is not nil and reports false. It returns ErrEnded if ctx
// ends. It is called with mu held, gives it up while it waits, and returns with mu
// held.
func (l *lease) free(ctx context.Context, limit time.Duration, still func() bool) error {
	defer func() { l.wanted = false }()
	var late error
	var timeout <-chan time.Time
	for {
		switch {
		case still != nil && !still():
			return ErrBusy
		case l.busy == nil:
			return nil
		case late != nil:
			return late
		case timeout == nil:
			timer := time.NewTimer(limit)
			defer timer.Stop()
			timeout = timer.C
		}
		busy := l.busy
		l.wanted = true // otherwise a busy upload would begin its next Read at once
		l.mu.Unlock()
		select {
		case <-busy:
		case <-timeout:
			late = ErrBusy
		case <-ctx.Done():
			late = ErrEnded
		}
		l.mu.Lock()
	}
}
