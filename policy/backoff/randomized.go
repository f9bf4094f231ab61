// Randomized: the formula of cenkalti/backoff.

package backoff

import (
	"math/rand/v2"
	"time"
)

// Randomized is the formula and the defaults of github.com/cenkalti/backoff,
// whose parameters the article "Exponential Backoff In Go" explains:
//
//	Interval · Multiplier^n · (1 ± RandomizationFactor)
//
// The original caps the interval at MaxInterval before the randomization, so a wait
// may exceed MaxInterval by RandomizationFactor. Here the interval is capped at
// MaxInterval / (1 + RandomizationFactor). So no wait is longer than MaxInterval, and
// the waits are as random at the cap as before. The zero value waits
//
//	retry  lowest   mean     highest
//	1      250ms    500ms    750ms
//	2      375ms    750ms    1.125s
//	3      563ms    1.125s   1.688s
//	4      844ms    1.688s   2.531s
//	5      1.266s   2.531s   3.797s
//	6      1.898s   3.797s   5.695s
//	7      2.848s   5.695s   8.543s
//	8      4.271s   8.543s   12.814s
//	9      6.407s   12.814s  19.222s
//	10     9.611s   19.222s  28.833s
//	11     14.416s  28.833s  43.249s
//	12     20s      40s      60s
//
// The table in the original's documentation differs a little from the ninth row on,
// because it computes each row from the rounded values of the row before.
//
// MaxElapsedTime of the original is policy.Rule.MaxElapsedTime here.
type Randomized struct {
	// Interval is the first interval. Default 500 ms.
	Interval time.Duration
	// Multiplier is the factor from one interval to the next, at least 1. Default
	// 1.5.
	Multiplier float64
	// MaxInterval is the longest wait. Default 60 s.
	MaxInterval time.Duration
	// RandomizationFactor is the share of the interval by which a wait is
	// longer or shorter, at most 1. Default 0.5. Negative: no jitter.
	RandomizationFactor float64
	// Literal caps the interval before the randomization, as the original does. The
	// longest wait is then MaxInterval · (1 + RandomizationFactor).
	Literal bool
}

// Delay returns the wait before retry n. It does not depend on prev.
func (r Randomized) Delay(n int, prev time.Duration) time.Duration {
	return r.at(n, prev, rand.Float64())
}

// Validate returns an [*Invalid] for every field with an invalid value, joined by
// errors.Join.
func (r Randomized) Validate() error {
	first, _, top, _ := r.fields()
	return faults(
		checkDuration("Interval", r.Interval),
		checkGrowth("Multiplier", r.Multiplier),
		checkDuration("MaxInterval", r.MaxInterval),
		checkShare("RandomizationFactor", r.RandomizationFactor, 1),
		checkOrder("Interval", first, "MaxInterval", top))
}

func (r Randomized) fields() (first time.Duration, factor float64, top time.Duration, jitter float64) {
	return positive(r.Interval, 500*time.Millisecond), growth(r.Multiplier, 1.5),
		positive(r.MaxInterval, time.Minute), share(r.RandomizationFactor, 1, 0.5)
}

func (r Randomized) at(n int, _ time.Duration, u float64) time.Duration {
	first, factor, top, jitter := r.fields()
	limit, bound := top, forever
	if !r.Literal {
		limit, bound = times(top, 1/(1+jitter), top), top
	}
	interval := grow(first, factor, n, limit)
	return between(times(interval, 1-jitter, bound), times(interval, 1+jitter, bound), u)
}
