// Waiting.

package transport

import (
	"context"
	"time"
)

// A sleeper waits, and keeps its timer for the next wait. One goroutine uses it.
type sleeper struct{ timer *time.Timer }

// An awakening says why a sleep ended.
type awakening uint8

const (
	elapsed  awakening = iota // the time is over
	woken                     // ready received something, or is closed
	canceled                  // the context has ended
)

// sleep waits until d is over, ready receives something or ctx ends. If d is not
// positive, it does not wait.
func (s *sleeper) Sleep(ctx context.Context, d time.Duration, ready <-chan struct{}) awakening {
	if d <= 0 {
		if ctx.Err() != nil {
			return canceled
		}
		return elapsed
	}
	if s.timer == nil {
		s.timer = time.NewTimer(d)
	} else {
		s.timer.Reset(d)
	}
	defer s.timer.Stop()
	select {
	case <-s.timer.C:
		return elapsed
	case <-ready:
		return woken
	case <-ctx.Done():
		return canceled
	}
}
