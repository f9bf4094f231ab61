// The parts that all formulas share.

package backoff

import (
	"errors"
	"fmt"
	"math"
	"time"
)

// A Delayer computes the wait before a retry. It is the interface that the field
// Backoff of a rule in package policy takes; policy.Backoff has its rules.
type Delayer interface {
	Delay(n int, prev time.Duration) time.Duration
}

// A kernel is a Backoff's formula with the random number as a parameter, which
// makes it a function that can be tabulated and tested. u is in [0,1), and a
// larger u never gives a shorter wait, so that u = 0 and u = [justBelowOne] give
// the extremes.
type kernel interface {
	at(n int, prev time.Duration, u float64) time.Duration
}

const (
	// stop is the wait after which there is no retry.
	stop time.Duration = -1
	// forever is for sums and products that must not overflow.
	forever time.Duration = math.MaxInt64
	// justBelowOne is the largest number that rand.Float64 can return.
	justBelowOne = 1 - 1.0/(1<<53)
)

// grow returns base · factor^n, at most top.
func grow(base time.Duration, factor float64, n int, top time.Duration) time.Duration {
	return times(base, math.Pow(factor, float64(max(n, 0))), top)
}

// times returns d · factor to the nearest nanosecond, at least 0 and at most
// top. Up to 104 days the float64 between holds every nanosecond.
func times(d time.Duration, factor float64, top time.Duration) time.Duration {
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

// plus returns a + b without overflow. a and b must not be negative.
func plus(a, b time.Duration) time.Duration {
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

// optional is like positive, but a negative duration means zero.
func optional(d, otherwise time.Duration) time.Duration {
	if d < 0 {
		return 0
	}
	return positive(d, otherwise)
}

// growth returns the factor f, or the default if f is zero or invalid.
func growth(f, otherwise float64) float64 {
	if f >= 1 && !math.IsInf(f, 1) {
		return f
	}
	return otherwise
}

// share returns the jitter f, 0 if f is negative, or the default if f is zero or
// invalid.
func share(f, most, otherwise float64) float64 {
	switch {
	case f > 0 && f <= most:
		return f
	case f < 0 && !math.IsInf(f, -1):
		return 0
	default:
		return otherwise
	}
}

// An Invalid says which field of a back-off has an invalid value. The Validate
// methods return all faults at once, joined by errors.Join.
type Invalid struct {
	// Field is the name of the field.
	Field string
	// Value is its value.
	Value any
	// Reason continues the sentence after the value, as in "is negative".
	Reason string
}

// Error returns "Field: value reason".
func (e *Invalid) Error() string { return fmt.Sprintf("%s: %v %s", e.Field, e.Value, e.Reason) }

// The checks below refuse exactly the values that their namesakes above replace
// by a default. They return nil for every other value.

// faults joins the results of checks.
func faults(list ...error) error { return errors.Join(list...) }

func checkDuration(field string, d time.Duration) error {
	if d < 0 {
		return &Invalid{Field: field, Value: d, Reason: "is negative"}
	}
	return nil
}

// checkOrder takes the values with their defaults filled in, because a cap can be
// too low for a default as well as for a given value.
func checkOrder(small string, low time.Duration, large string, high time.Duration) error {
	if low > high {
		return &Invalid{Field: large, Value: high, Reason: fmt.Sprintf("is less than %s (%v)", small, low)}
	}
	return nil
}

func checkGrowth(field string, f float64) error {
	if f != 0 && growth(f, 0) == 0 {
		return &Invalid{Field: field, Value: f, Reason: "is not a finite number of at least 1"}
	}
	return nil
}

func checkShare(field string, f, most float64) error {
	if f != 0 && share(f, most, -1) == -1 {
		return &Invalid{Field: field, Value: f, Reason: fmt.Sprintf("is not a number up to %.4g", most)}
	}
	return nil
}
