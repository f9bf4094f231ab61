package replay

import (
	"context"
	"sync"
	"time"
)

// A lease sees to it that one goroutine at a time uses the caller's body: reads
// it, closes it to make room for another, makes it anew, or moves its bytes from
// or to the disk. It is part of [original] and of [remade].
//
// Base transports need it. Over HTTP/1, net/http may stay in a Read for ever after
// an early response. Over HTTP/2, it closes the body from another goroutine during
// a Read. So the Close of an attempt never waits for a Read, and a body is taken
// back only when no Read is running.
type lease struct {
	mu       sync.Mutex    // guards the lease and the fields that its owner says
	busy     chan struct{} // not nil while somebody uses the body; closed when the use ends
	wanted   int           // how many goroutines wait to take the body back; no Read begins meanwhile
	finished bool          // there will be no further attempt
	why      error         // why the body cannot be produced again; nil if it can
}

// use runs f, which uses the caller's body, without the lock. It is called with mu
// held and nobody else at work, and returns with mu held, also when f panics.
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
		l.wanted++ // without it, a busy upload would begin the next Read at once
		l.mu.Unlock()
		select {
		case <-busy:
		case <-timeout:
			late = ErrBusy
		case <-ctx.Done():
			late = ErrEnded
		}
		l.mu.Lock()
		l.wanted--
	}
}
