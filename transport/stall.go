// Timeouts for the body of a response that makes no progress.
//
// Time counts only during a Read of the body, when the reader waits for the server. It
// does not count between Reads, when the caller is busy.

package transport

import (
	"context"
	"io"
	"sync"
	"time"
)

// ErrStalled is in the error of an attempt or of a response's body that made no progress
// for Rule.Stall.Timeout, or that was slower than Rule.Stall.MinBytesPerSecond.
// errors.Is(err, context.DeadlineExceeded) and Timeout() hold, as for the timeouts of
// net/http.
var ErrStalled error = &stallError{}

type stallError struct {
	after time.Duration
	rate  int64 // the demanded bytes per second; 0: any progress is enough
}

func (e *stallError) Error() string {
	switch {
	case e.rate > 0:
		return "transport: less than the demanded throughput for " + e.after.String()
	case e.after > 0:
		return "transport: no progress for " + e.after.String()
	}
	return "transport: no progress"
}
func (*stallError) Timeout() bool   { return true }
func (*stallError) Temporary() bool { return true }
func (*stallError) Is(target error) bool {
	return target == ErrStalled || target == context.DeadlineExceeded
}

// throughputWindow is the time over which the throughput is averaged if the rule has no
// Stall.Timeout.
const throughputWindow = 30 * time.Second

// stallLimits are the limits of a rule for stalls. The zero value is off.
type stallLimits struct {
	quiet time.Duration // the longest wait for a byte; not positive: off
	rate  int64         // the least bytes per second; not positive: off
}

func (l stallLimits) on() bool { return l.quiet > 0 || l.rate > 0 }

// window returns the time over which the throughput is averaged, and the number of
// bytes that have to arrive in that time.
func (l stallLimits) window() (time.Duration, int64) {
	w := throughputWindow
	if l.quiet > 0 {
		w = l.quiet
	}
	return w, max(1, int64(float64(l.rate)*w.Seconds()))
}

// A watchedBody is a response's body that ends when it stalls. The timer runs only during
// a Read. When it fires, it cancels the attempt's context to end a Read that blocks in
// the base transport. It also closes the body, because a base transport may ignore the
// context.
type watchedBody struct {
	io.ReadCloser
	limits stallLimits
	caller context.Context
	cancel context.CancelCauseFunc // ends the attempt
	close  func() error            // closes the body once, for the timer or for the caller

	mu      sync.Mutex // guards the fields below; not held during a Read
	timer   *time.Timer
	reading bool
	closed  bool
	began   time.Time   // when the present Read began
	due     time.Time   // when the present Read is cut
	cause   *stallError // the error if it is cut
	fired   *stallError // not nil: a Read was cut

	quiet time.Duration // the wait for the next byte in earlier Reads
	spent time.Duration // the time used of the window
	got   int64         // the bytes in the window
}

// watched returns a body that ends when it stalls.
func watched(body io.ReadCloser, limits stallLimits, caller context.Context, cancel context.CancelCauseFunc) *watchedBody {
	return &watchedBody{ReadCloser: body, limits: limits, caller: caller, cancel: cancel, close: sync.OnceValue(body.Close)}
}

// Read reads from the body and fails if the body stalls.
func (b *watchedBody) Read(p []byte) (int, error) {
	if err := b.begin(); err != nil {
		return 0, err
	}
	n, err := b.ReadCloser.Read(p)
	if stalled := b.end(n); stalled != nil && err != nil && err != io.EOF {
		err = stalled
	}
	return n, err
}

// begin starts the clock. It fails if an earlier Read was cut whose bytes still came at
// the last moment.
func (b *watchedBody) begin() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.fired != nil {
		return b.stalled()
	}
	b.began, b.reading = time.Now(), true
	wait := b.wait()
	b.due = b.began.Add(wait)
	if b.timer == nil {
		b.timer = time.AfterFunc(wait, b.fire)
	} else {
		b.timer.Reset(wait)
	}
	return nil
}

// wait returns how long the Read may take, and sets cause. Both are known when the Read
// begins, because no byte counts before the Read returns. Called with mu held.
func (b *watchedBody) wait() time.Duration {
	wait := time.Duration(-1)
	if b.limits.quiet > 0 {
		wait = b.limits.quiet - b.quiet
		b.cause = &stallError{after: b.limits.quiet}
	}
	if b.limits.rate > 0 {
		window, need := b.limits.window()
		left := window - b.spent
		if b.got >= need {
			left += window // this window has enough bytes, so the next window decides
		}
		if wait < 0 || left < wait {
			wait = left
			b.cause = &stallError{after: window, rate: b.limits.rate}
		}
	}
	return wait
}

// end stops the clock. It returns an error if the Read was cut.
func (b *watchedBody) end(n int) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.reading = false
	b.timer.Stop()
	if b.fired != nil {
		return b.stalled()
	}
	took := time.Since(b.began)
	if b.quiet += took; n > 0 {
		b.quiet = 0
	}
	if b.limits.rate > 0 {
		b.count(int64(max(n, 0)), took)
	}
	return nil
}

// count adds the bytes and the time of a Read to the window. Called with mu held.
func (b *watchedBody) count(n int64, took time.Duration) {
	window, need := b.limits.window()
	if b.spent += took; b.spent < window {
		b.got += n
		return
	}
	if b.got+n < need { // the timer was stopped before it could fire
		b.fired = &stallError{after: window, rate: b.limits.rate}
	}
	b.spent %= window
	b.got = n
}

// stalled returns the error of a body that was cut. If the caller's context has ended,
// the error of the context comes first. Called with mu held.
func (b *watchedBody) stalled() error {
	if b.caller.Err() != nil {
		return contextErr(b.caller)
	}
	return b.fired
}

// fire runs when the timer fires. It recovers a panic of the base's Close, which would
// end the process here. sync.OnceValue raises the panic again in the reader's Close.
func (b *watchedBody) fire() {
	b.mu.Lock()
	// The timer may have been reset while this call waited for the lock.
	if !b.reading || b.closed || b.fired != nil || time.Until(b.due) > 0 {
		b.mu.Unlock()
		return
	}
	b.fired = b.cause
	b.mu.Unlock()
	b.cancel(b.cause)
	defer func() { _ = recover() }()
	_ = b.close()
}

// Close stops the timer and closes the body.
func (b *watchedBody) Close() error {
	b.mu.Lock()
	b.closed = true
	if b.timer != nil {
		b.timer.Stop()
	}
	b.mu.Unlock()
	return b.close()
}
