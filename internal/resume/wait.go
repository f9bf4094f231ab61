// How long the reader of a cut body waits.

package resume

import (
	"context"
	"time"
)

// patience is how long a reader waits for a new byte after a cut, however many reconnects that
// takes. Without them it would have its error at once. A second response may also be a stream that
// begins with silence.
const patience = 10 * time.Second

// A wait is that for the next byte after a cut.
type wait struct {
	cut   error // the error of the cut
	until time.Time
	timer *time.Timer // is stopped when the byte comes, or when the body ends
}

// giveUp ends a wait that took too long. It closes the body as well, because a base transport may
// ignore the context.
func (b *Body) giveUp() {
	b.mu.Lock()
	x := b.extra
	if x.wait == nil || x.cancel == nil {
		b.mu.Unlock()
		return // the byte came, or the body ended, in the same moment
	}
	x.late = true
	body, cancel := b.body, x.cancel
	b.mu.Unlock()
	cancel(ErrLate)
	defer func() { _ = recover() }() // a panic would end the process here
	_ = body.Close()
}

// isLate reports whether the reader has waited for too long.
func (b *Body) isLate() bool {
	if b.extra == nil {
		return false
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.extra.late
}

// stopWaiting ends the wait when a new byte has come.
func (b *Body) stopWaiting() {
	x := b.extra
	if x == nil || x.wait == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if !x.late {
		x.wait.timer.Stop()
		x.wait = nil
	}
}

// A waiting is the context of a reconnect. It has the deadline of the reader's wait. If a new byte
// comes before that, the deadline no longer matters.
type waiting struct {
	context.Context
	until time.Time
}

func (c *waiting) Deadline() (time.Time, bool) {
	if until, ok := c.Context.Deadline(); ok && until.Before(c.until) {
		return until, true
	}
	return c.until, true
}

func (c *waiting) Err() error {
	if err := c.Context.Err(); err == nil || context.Cause(c.Context) != ErrLate {
		return err
	}
	return context.DeadlineExceeded
}
