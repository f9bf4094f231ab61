// Waiting.

package flight

import (
	"context"
	"time"
)

// A Sleeper waits, and keeps its timer for the next wait. One goroutine uses it.
type Sleeper struct{ timer *time.Timer }

// Sleep waits until d is over, ready receives something or ctx ends. If d is not
// positive, it does not wait. It reports whether ready received something, or is closed.
func (s *Sleeper) Sleep(ctx context.Context, d time.Duration, ready <-chan struct{}) (woken bool) {
	if d <= 0 {
		return false
	}
	if s.timer == nil {
		s.timer = time.NewTimer(d)
	} else {
		s.timer.Reset(d)
	}
	defer s.timer.Stop()
	select {
	case <-s.timer.C:
	case <-ctx.Done():
	case <-ready:
		return true
	}
	return false
}
