// Timeouts for the body of a response that makes no progress.
//
// Time counts only during a Read of the body, when the reader waits for the server. It
// does not count between Reads, when the caller is busy.

package flight

import (
	"io"
	"sync"
	"time"

	"github.com/aplomb-go/aplomb/internal/resume"
	"github.com/aplomb-go/aplomb/policy"
)

// throughputWindow is the time over which the throughput is averaged if the rule has no
// Stall.Timeout.
const throughputWindow = 30 * time.Second

// stallLimits are the limits of a rule for stalls, with their errors. The zero value is
// off.
type stallLimits struct {
	quiet  time.Duration // the longest wait for a byte; not positive: off
	rate   int64         // the least bytes per second; not positive: off
	window time.Duration // the time over which the throughput is averaged
	need   int64         // the bytes that have to arrive in the window
	silent error         // there was no byte for too long
	slow   error         // there were too few bytes in the window
}

// stallLimitsOf returns the limits of a rule for stalls.
func stallLimitsOf(r *policy.Rule) stallLimits {
	l := stallLimits{quiet: min(r.Stall.Timeout, lifetime), rate: r.Stall.MinBytesPerSecond, window: throughputWindow}
	if l.quiet > 0 {
		l.window = l.quiet
	}
	l.need = max(1, int64(float64(l.rate)*l.window.Seconds()))
	l.silent = &TimeoutError{"transport: no progress for %v", l.quiet, ErrStalled}
	l.slow = &TimeoutError{"transport: less than the demanded throughput for %v", l.window, ErrStalled}
	return l
}

func (l *stallLimits) On() bool { return l.quiet > 0 || l.rate > 0 }

// An attemptBody is the body of the response to a timed attempt. It frees the attempt's
// context when the body has ended or is closed.
type attemptBody struct {
	io.ReadCloser
	ctx *attemptContext
}

func (b *attemptBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if n > 0 && b.ctx.lane != nil {
		b.ctx.lane.Hear(b.ctx.home.Now())
	}
	if err != nil {
		b.ctx.happens(bodyEnds, nil)
	}
	return n, err
}

// ResumeTried reports whether a Transport below has asked for the rest of the body.
func (b *attemptBody) ResumeTried() bool { return resume.Tried(b.ReadCloser) }

func (b *attemptBody) Close() error {
	defer b.ctx.happens(leaves, nil)
	return b.ReadCloser.Close()
}

// A watchedBody is an attemptBody that also ends when it stalls. The alarm of the attempt
// is for its Reads. When it rings during one that takes too long, it cancels the
// attempt's context to end a Read that blocks in the base transport. It also closes the
// body, because a base transport may ignore the context.
type watchedBody struct {
	attemptBody

	closing  sync.Once // the body is closed once, by the timer or by the caller
	closeErr error
	panicked any // the value that the Close panicked with

	// The lock of the attempt's context guards the fields below. It is not held during
	// a Read.
	reading bool
	closed  bool
	began   time.Duration // when the present Read began, on the clock of the alarms
	late    error         // the error if the present Read is cut
	fired   error         // not nil: a Read was cut

	quiet time.Duration // the wait for the next byte in earlier Reads
	spent time.Duration // the time used of the window
	got   int64         // the bytes in the window
}

// Read reads from the body and fails if the body stalls.
func (b *watchedBody) Read(p []byte) (int, error) {
	if err := b.begin(); err != nil {
		return 0, err
	}
	n, err := b.attemptBody.Read(p)
	if stalled := b.end(n, err); stalled != nil && err != nil && err != io.EOF {
		err = stalled
	}
	return n, err
}

// begin starts the clock. It fails if an earlier Read was cut whose bytes still came at
// the last moment.
func (b *watchedBody) begin() error {
	b.ctx.mu.Lock()
	defer b.ctx.mu.Unlock()
	if b.fired != nil {
		return b.stalled()
	}
	b.began, b.reading = b.ctx.Alarms.Now(), true
	b.ctx.set(b.began, b.wait())
	return nil
}

// wait returns how long the Read may take, and sets late. Both are known when the Read
// begins, because no byte counts before the Read returns; the lock is held.
func (b *watchedBody) wait() time.Duration {
	wait, limits := time.Duration(-1), &b.ctx.Stall
	if limits.quiet > 0 {
		wait = limits.quiet - b.quiet
		b.late = limits.silent
	}
	if limits.rate > 0 {
		left := limits.window - b.spent
		if b.got >= limits.need {
			left += limits.window // this window has enough bytes, so the next window decides
		}
		if wait < 0 || left < wait {
			wait = left
			b.late = limits.slow
		}
	}
	return wait
}

// end notes the end of a Read, so that the alarm cuts nothing if it still rings. It returns an error
// if the Read was cut. After the end of the body nobody asks for the time.
func (b *watchedBody) end(n int, err error) error {
	b.ctx.mu.Lock()
	defer b.ctx.mu.Unlock()
	b.reading = false
	if b.fired != nil {
		return b.stalled()
	}
	if err == io.EOF {
		return nil
	}
	took := b.ctx.Alarms.Now() - b.began
	if b.quiet += took; n > 0 {
		b.quiet = 0
	}
	if b.ctx.Stall.rate > 0 {
		b.count(int64(max(n, 0)), took)
	}
	return nil
}

// count adds the bytes and the time of a Read to the window; the lock is held.
func (b *watchedBody) count(n int64, took time.Duration) {
	limits := &b.ctx.Stall
	if b.spent += took; b.spent < limits.window {
		b.got += n
		return
	}
	if b.got+n < limits.need { // the timer was stopped before it could fire
		b.fired = limits.slow
	}
	b.spent %= limits.window
	b.got = n
}

// stalled returns the error of a body that was cut. If the caller's context has ended,
// the error of the context comes first; the lock is held.
func (b *watchedBody) stalled() error {
	if b.ctx.Context.Err() != nil {
		return ContextErr(b.ctx.Context)
	}
	return b.fired
}

// cut cancels the attempt if a Read takes too long, and reports whether it does. The lock is held.
func (b *watchedBody) cut() bool {
	if !b.reading || b.closed || b.fired != nil {
		return false
	}
	b.fired = b.late
	b.ctx.on(leaves, b.late)
	return true
}

// closeCut closes a body that was cut. It recovers a panic of the base's Close, which would end
// the process here. The reader's Close raises the panic again.
func (b *watchedBody) closeCut() {
	defer func() { _ = recover() }()
	_ = b.close()
}

// Close closes the body and frees the attempt's context.
func (b *watchedBody) Close() error {
	b.ctx.mu.Lock()
	b.closed = true
	b.ctx.mu.Unlock()
	return b.close()
}

// close closes the body once. Every call gets the result of that one Close.
func (b *watchedBody) close() error {
	b.closing.Do(func() {
		defer func() { b.panicked = recover() }()
		b.closeErr = b.attemptBody.Close()
	})
	if b.panicked != nil {
		panic(b.panicked)
	}
	return b.closeErr
}
