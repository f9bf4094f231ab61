// How long a Read may take after a cut.

package resume

import (
	"context"
	"time"
)

// patience is how long a Read of a body that was cut takes at most, however many reconnects it
// makes. Without them the reader would have its error by then. A second response may also be a
// stream that begins with silence.
const patience = 10 * time.Second

// A wait is that of a Read for the next byte of a body that was cut.
type wait struct {
	cut   error     // the error of the last cut
	until time.Time // when the Read ends at the latest
	timer *time.Timer
}

// begin begins the wait of another Read.
func (w *wait) begin() {
	w.until = time.Now().Add(patience)
	w.timer.Reset(patience)
}

// giveUp ends a wait that took too long. It closes the body as well, because a base transport may
// ignore the context.
func (b *Body) giveUp() {
	b.mu.Lock()
	body, cancel := b.body, b.extra.cancel
	b.extra.late = true
	b.mu.Unlock()
	if cancel == nil {
		return // the body ended in the same moment
	}
	cancel(ErrLate)
	defer func() { _ = recover() }() // a panic would end the process here
	_ = body.Close()
}

// isLate reports whether a Read has taken too long.
func (b *Body) isLate() bool {
	if b.extra == nil {
		return false
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.extra.late
}

// A waiting is the context of a reconnect. It has the deadline of the Read. The body of the response
// may be read later than that.
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
