// Waiting.

package attempt

import (
	"context"
	"time"
)

// Sleep waits until d is over, ready receives something or ctx ends. If d is not
// positive, it does not wait. It reports whether ready received something, or is closed.
func Sleep(ctx context.Context, d time.Duration, ready <-chan struct{}) (woken bool) {
	if d <= 0 {
		return false
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	case <-ready:
		return true
	}
	return false
}
