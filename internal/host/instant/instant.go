// Package instant has a type for points in time, their clock, and a sleep. With the type the
// compiler tells a point in time from a length of time, which time.Duration alone would both be.
package instant

import (
	"context"
	"math"
	"time"
)

// An Instant is a point in time. It counts from an epoch that its owner chooses, so two
// instants are only comparable if they have the same owner. The zero Instant is the epoch.
type Instant time.Duration

// Never is an instant that does not come. A request that is told to ask again at this
// time waits for a wake-up only.
const Never = Instant(math.MaxInt64)

// Forever is the longest time. It stands for a time without a bound.
const Forever = time.Duration(math.MaxInt64)

// Bound returns how long a setting lets something wait: a minute if it is 0, and [Forever] if it is
// negative.
func Bound(d time.Duration) time.Duration {
	switch {
	case d == 0:
		return time.Minute
	case d < 0:
		return Forever
	}
	return d
}

// At returns the instant that is d after the epoch.
func At(d time.Duration) Instant { return Instant(d) }

// Add returns t + d. It may overflow (see [After]).
func (t Instant) Add(d time.Duration) Instant { return t + Instant(d) }

// Sub returns the time from u to t.
func (t Instant) Sub(u Instant) time.Duration { return time.Duration(t - u) }

// Since returns the time from the epoch to t.
func (t Instant) Since() time.Duration { return time.Duration(t) }

// String returns the time from the epoch to t.
func (t Instant) String() string { return time.Duration(t).String() }

// After returns now + d, or [Never] if that overflows. A negative d counts as zero.
func After(now Instant, d time.Duration) Instant {
	if d <= 0 {
		return now
	}
	if now > Never-Instant(d) {
		return Never
	}
	return now + Instant(d)
}

// A Clock tells the points in time that count from when it was made.
type Clock struct{ epoch time.Time }

// NewClock makes a clock on which no time is 0, which means that a time is not known.
func NewClock() Clock { return Clock{time.Now().Add(-1)} }

// Now returns the instant of now.
func (c *Clock) Now() Instant { return Instant(time.Since(c.epoch)) }

// InstantOf returns the instant of a time.
func (c *Clock) InstantOf(at time.Time) Instant { return Instant(at.Sub(c.epoch)) }

// TimeOf returns the time of an instant by the wall clock of now, which may have been set since the
// clock was made.
func (c *Clock) TimeOf(at Instant) time.Time {
	now := time.Now()
	return now.Add(at.Sub(c.InstantOf(now)))
}

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
