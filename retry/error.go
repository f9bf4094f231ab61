// LimitError: the error of Do if a limit stopped the retries.

package retry

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/aplomb-go/aplomb/internal/trait"
	"github.com/aplomb-go/aplomb/policy"
)

// A LimitError is the error of [Do] and [DoValue] if a limit stopped the retries of
// an error.
type LimitError struct {
	// Attempts is the number of calls of f. It is 0 if ctx had ended before the
	// first call.
	Attempts int
	// Err is f's last error. It is nil if f was not called.
	Err error

	reason  string // names the limit in words
	ended   error  // ctx's error; DeadlineExceeded if the wait would pass the deadline
	cause   error  // ctx's cause
	timeout error  // policy.ErrAttemptTimeout if that ended the last attempt
}

// Reasons that gaveUp treats in a special way.
const (
	overDeadline = "the wait would not end before the context's deadline"
	contextEnded = "the context ended"
)

func (r *run) gaveUp(reason string, last error, timedOut bool) error {
	g := &LimitError{Attempts: r.attempts, reason: reason, Err: last}
	switch {
	case r.ctx.Err() != nil:
		g.ended, g.cause = r.ctx.Err(), context.Cause(r.ctx)
	case reason == overDeadline:
		g.ended = context.DeadlineExceeded
	}
	if timedOut {
		g.timeout = policy.ErrAttemptTimeout
	}
	return g
}

// Error returns the number of attempts, the reason and the last error.
func (g *LimitError) Error() string {
	why := g.reason
	for _, err := range []error{g.cause, g.Err} {
		if err != nil {
			why += ": " + err.Error()
		}
	}
	if g.Attempts == 0 {
		return "retry: gave up before the first attempt: " + why
	}
	return fmt.Sprintf("retry: gave up after attempt %d: %s", g.Attempts, why)
}

// Unwrap returns the last error and the error of the limit. If ctx has ended, that
// is the error of ctx and its context.Cause. If the wait would have passed the
// deadline of ctx, that is context.DeadlineExceeded. If the last attempt ran out of
// time, [policy.ErrAttemptTimeout] is in the list, too.
func (g *LimitError) Unwrap() []error {
	return slices.DeleteFunc([]error{g.Err, g.ended, g.cause, g.timeout}, func(err error) bool { return err == nil })
}

// GaveUp returns true. The errors of package transport have the same method. A
// layer that retries leaves such an error alone, so that retries are not
// multiplied.
func (*LimitError) GaveUp() bool { return true }

// Timeout reports whether the deadline of ctx was the limit. If ctx was not the
// limit, Timeout reports whether the last error is a timeout. os.IsTimeout and
// net.Error use this method.
func (g *LimitError) Timeout() bool { return trait.Timeout(cmp.Or(g.ended, g.Err)) }
