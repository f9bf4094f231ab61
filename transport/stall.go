// When is a connection that says nothing taken for a lost one?
//
// The time counts only while somebody waits for the server: during a Read of a
// response's body, not between Reads, where the caller is at work.

package transport

import (
	"context"
	"io"
	"sync"
	"time"
)

// ErrStalled is in the error of an attempt, or of a response's body, that made
// no progress for Rule.StallTimeout or less than Rule.MinThroughput.
// errors.Is(err, context.DeadlineExceeded) and Timeout() hold, as for the
// timeouts of net/http.
var ErrStalled error = &stallError{}

type stallError struct {
	after time.Duration
	rate  int64 // demanded; 0: any progress would have done
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

// throughputWindow is how long the throughput is averaged over where no
// StallTimeout says otherwise.
const throughputWindow = 30 * time.Second

// stallLimits is what a rule says about stalls. The zero value is off.
type stallLimits struct {
	quiet time.Duration // the longest wait for a byte; not positive: off
	rate  int64         // the least bytes per second; not positive: off
}

func (l stallLimits) on() bool { return l.quiet > 0 || l.rate > 0 }

// window returns how long the throughput is averaged over, and how many bytes
// have to come in that time.
func (l stallLimits) window() (time.Duration, int64) {
	w := throughputWindow
	if l.quiet > 0 {
		w = l.quiet
	}
	return w, max(1, int64(float64(l.rate)*w.Seconds()))
}

// A watchedBody is a response's body that ends when it stalls. A Read that the
// base transport blocks in is ended by cancelling the attempt's context, and,
// for bases that do not look at it, by closing the body. The timer runs during
// a Read only.
type watchedBody struct {
	io.ReadCloser
	limits stallLimits
	caller context.Context
	cancel context.CancelCauseFunc // ends the attempt
	close  func() error            // once, be it for a stall or by the caller

	mu      sync.Mutex // guards all below; not held during a Read
	timer   *time.Timer
	reading bool
	closed  bool
	began   time.Time   // when the Read under way did
	due     time.Time   // when it is cut
	cause   *stallError // why, then
	fired   *stallError // it was cut

	quiet time.Duration // waited for the next byte in earlier Reads
	spent time.Duration // of the window
	got   int64         // in the window
}

func watched(body io.ReadCloser, limits stallLimits, caller context.Context, cancel context.CancelCauseFunc) *watchedBody {
	return &watchedBody{ReadCloser: body, limits: limits, caller: caller, cancel: cancel, close: sync.OnceValue(body.Close)}
}

// Read reads, and ends what stalls.
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

// begin starts the clock. It fails where an earlier Read, whose bytes came at
// the last moment, was cut.
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

// wait returns how long this Read may take, and sets cause. As no byte is
// counted before it returns, that is known when it begins. Called with mu held.
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
			left += window // this window is won; the next one counts
		}
		if wait < 0 || left < wait {
			wait = left
			b.cause = &stallError{after: window, rate: b.limits.rate}
		}
	}
	return wait
}

// end stops the clock, and returns an error where the Read was cut.
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

// count counts towards the throughput. Called with mu held.
func (b *watchedBody) count(n int64, took time.Duration) {
	window, need := b.limits.window()
	if b.spent += took; b.spent < window {
		b.got += n
		return
	}
	if b.got+n < need { // and the timer comes too late to say so
		b.fired = &stallError{after: window, rate: b.limits.rate}
	}
	b.spent %= window
	b.got = n
}

// stalled returns the error of a cut body: the caller's own end comes first.
// Called with mu held.
func (b *watchedBody) stalled() error {
	if b.caller.Err() != nil {
		return contextErr(b.caller)
	}
	return b.fired
}

// fire is the timer's. A panic of the base's Close would end the process here.
// The reader's own Close raises it again (sync.OnceValue).
func (b *watchedBody) fire() {
	b.mu.Lock()
	// The timer may have been set anew while this call waited for the lock.
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

// Close closes the body.
func (b *watchedBody) Close() error {
	b.mu.Lock()
	b.closed = true
	if b.timer != nil {
		b.timer.Stop()
	}
	b.mu.Unlock()
	return b.close()
}
