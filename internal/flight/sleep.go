// Waiting.

package flight

import (
	"context"
	"time"
)

// A Sleeper waits, and keeps its timer for the next wait. One goroutine uses it.
type Sleeper struct{ timer *time.Timer }

// An awakening says why a sleep ended.
type awakening uint8

const (
	Elapsed  awakening = iota // the time is over
	woken                     // ready received something, or is closed
	Canceled                  // the context has ended
)

// Sleep waits until d is over, ready receives something or ctx ends. If d is not
// positive, it does not wait.
func (s *Sleeper) Sleep(ctx context.Context, d time.Duration, ready <-chan struct{}) awakening {
	if d <= 0 {
		if ctx.Err() != nil {
			return Canceled
		}
		return Elapsed
	}
	if s.timer == nil {
		s.timer = time.NewTimer(d)
	} else {
		s.timer.Reset(d)
	}
	defer s.timer.Stop()
	select {
	case <-s.timer.C:
		return Elapsed
	case <-ready:
		return woken
	case <-ctx.Done():
		return Canceled
	}
}
