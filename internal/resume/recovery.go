// The state of a body after its first cut, and how long a Read may take from then on.

package resume

import (
	"context"
	"net/http"
	"time"
)

// patience is how long a Read of a body that was cut takes at most, however many requests it
// makes. Without them the reader would have its error by then. A second response may also be a
// stream that begins with silence.
const patience = 10 * time.Second

// A recovery is the state of a body that was cut. The reader alone uses all but cancel and late.
type recovery struct {
	due    error                   // the error that ended the part, if a continuation is due
	cut    error                   // the error that ended the last part; nil: the body has not asked for its rest
	start  int64                   // where the part began
	last   *http.Response          // that continued the body; nil: none did
	cancel context.CancelCauseFunc // ends the last request and its response; nil: none; guarded by mu

	decompressed bool // the parts are

	until time.Time // when the Read ends at the latest
	timer *time.Timer
	late  bool // the Read took too long; guarded by mu
}

// beginRead bounds a Read.
func (b *Body) beginRead() {
	r := b.recovery
	if r.until = time.Now().Add(patience); r.timer == nil {
		r.timer = time.AfterFunc(patience, b.giveUp)
		return
	}
	r.timer.Reset(patience)
}

// CloseGrace is how long the Read of a decompressed part has from the end of its context to a Close. The
// decoder of a base may not bear a Close during a Read.
const CloseGrace = time.Second

// giveUp ends a Read that took too long. It closes the part as well, because a base transport may
// ignore the context.
func (b *Body) giveUp() {
	b.mu.Lock()
	part, cancel, again := b.part, b.recovery.cancel, b.recovery.late
	b.recovery.late = true
	b.mu.Unlock()
	if cancel == nil {
		return // the body ended in the same moment
	}
	cancel(ErrLate)
	if b.recovery.decompressed && !again {
		time.AfterFunc(CloseGrace, b.giveUp)
		return
	}
	defer func() { _ = recover() }() // a panic would end the process here
	_ = part.Close()
}

// isLate reports whether a Read has taken too long.
func (b *Body) isLate() bool {
	if b.recovery == nil {
		return false
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.recovery.late
}

// release frees the context of the last request.
func (b *Body) release() {
	var cancel context.CancelCauseFunc
	b.mu.Lock()
	if r := b.recovery; r != nil {
		cancel, r.cancel = r.cancel, nil
	}
	b.mu.Unlock()
	if cancel != nil {
		cancel(nil)
	}
}

// A readContext is the context of a request for the rest. It has the deadline of the Read. The body
// of the response may be read later than that.
type readContext struct {
	context.Context
	until time.Time
}

func (c *readContext) Deadline() (time.Time, bool) {
	if until, ok := c.Context.Deadline(); ok && until.Before(c.until) {
		return until, true
	}
	return c.until, true
}

func (c *readContext) Err() error {
	if err := c.Context.Err(); err == nil || context.Cause(c.Context) != ErrLate {
		return err
	}
	return context.DeadlineExceeded
}
