// Package formula computes the waits of package policy/backoff. The random number is a
// parameter here, so that a formula is a function that can be tabulated and tested. The types
// have the fields of those of package backoff, whose comments describe them.
package formula

import (
	"math"
	"time"
)

// A Formula computes a wait. u is a random number in [0,1). A larger u never gives a shorter
// wait, so that u = 0 and u = [JustBelowOne] give the extremes.
type Formula interface {
	At(n int, prev time.Duration, u float64) time.Duration
}

const (
	// Stop is the wait after which there is no retry.
	Stop time.Duration = -1
	// JustBelowOne is the largest number that rand.Float64 can return.
	JustBelowOne = 1 - 1.0/(1<<53)
	// forever is for sums and products that must not overflow.
	forever time.Duration = math.MaxInt64
)

// grow returns base · factor^n, at most top.
func grow(base time.Duration, factor float64, n int, top time.Duration) time.Duration {
	return Times(base, math.Pow(factor, float64(max(n, 0))), top)
}

// Times returns d · factor to the nearest nanosecond, at least 0 and at most
// top. Up to 104 days the float64 between holds every nanosecond.
func Times(d time.Duration, factor float64, top time.Duration) time.Duration {
	switch x := float64(d) * factor; {
	case x <= 0:
		return 0
	case factor == 1: // exact beyond 104 days, too
		return max(min(d, top), 0)
	case x < float64(top):
		return min(time.Duration(math.Round(x)), top) // float64(top) may be above top
	default: // too large, infinite or NaN
		return max(top, 0)
	}
}

// between draws a number of nanoseconds from low to high, both included. All of
// them are equally likely.
func between(low, high time.Duration, u float64) time.Duration {
	if high <= low {
		return low
	}
	return low + min(time.Duration(u*(float64(high-low)+1)), high-low)
}

// Plus returns a + b without overflow. a and b must not be negative.
func Plus(a, b time.Duration) time.Duration {
	if a > forever-b {
		return forever
	}
	return a + b
}

// positive returns d, or the default if d is zero or invalid.
func positive(d, otherwise time.Duration) time.Duration {
	if d > 0 {
		return d
	}
	return otherwise
}

// growth returns the factor f, or the default if f is zero or invalid.
func growth(f, otherwise float64) float64 {
	if f >= 1 && !math.IsInf(f, 1) {
		return f
	}
	return otherwise
}

// share returns the jitter f, or the default if f is zero or invalid.
func share(f, most, otherwise float64) float64 {
	if f > 0 && f <= most {
		return f
	}
	return otherwise
}

// within3 is the share of a normal distribution within three standard
// deviations of its mean.
var within3 = math.Erf(3 / math.Sqrt2)

// normal turns u into a draw from the standard normal distribution, cut at ±3. It is
// the inverse of the distribution function.
func normal(u float64) float64 {
	// On a grid of 2^-40 two results differ by more than the rounding errors of
	// Erfinv, so a larger u never gives a smaller result. The grid also rounds
	// JustBelowOne to 1, so the result is exactly the upper end.
	const grid = 1 << 40
	u = math.Round(u*grid) / grid
	z := math.Sqrt2 * math.Erfinv((2*u-1)*within3)
	return max(-3, min(z, 3))
}
