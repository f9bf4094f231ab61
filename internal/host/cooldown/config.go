// The bounds of a hold.

package cooldown

import (
	"time"

	"github.com/aplomb-go/aplomb/internal/host/instant"
)

// A Config bounds holds. Zero fields take the defaults.
type Config struct {
	// Max is the longest time for which a single response can hold a scope. The
	// default is 1 min. A negative Max means no bound.
	Max time.Duration
	// Jitter is the width of the jitter at the end of a hold. The jitter keeps
	// members that were told the same time from coming back in the same
	// instant. It only ever makes a hold longer. The default is half the wait,
	// at most 1 s. A negative Jitter means no jitter.
	Jitter time.Duration
}

// Longest returns the longest time for which a response can hold a scope.
func (c Config) Longest() time.Duration {
	switch {
	case c.Max == 0:
		return time.Minute
	case c.Max < 0:
		return instant.Forever
	}
	return c.Max
}

// memberGap is the mean time between two members of a fleet that come back after a hold.
const memberGap = 20 * time.Millisecond

// ForMember returns the config for a hold in each of so many members of a fleet. The jitter
// spreads them 20 ms apart, over at most the time of the wait and Max, so that a size that is
// not true holds nobody for hours.
func (c Config) ForMember(members int, wait time.Duration) Config {
	if members > 1 && c.Jitter == 0 {
		c.Jitter = min(max(time.Duration(members)*memberGap, c.jitter(wait)), wait, c.Longest())
	}
	return c
}

// jitter returns the width of the jitter after a wait.
func (c Config) jitter(wait time.Duration) time.Duration {
	if c.Jitter == 0 {
		return min(wait/2, time.Second)
	}
	return max(0, c.Jitter)
}
