// Package formula computes the waits of package policy/backoff. The random number is a
// parameter here, so that a formula is a function that can be tabulated and tested. The types
// have the fields of those of package backoff, whose comments describe them.
package formula

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
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
	// forever is for products that must not overflow.
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

// positive returns d, or the default if d is zero or invalid.
func positive(d, otherwise time.Duration) time.Duration { return cmp.Or(max(d, 0), otherwise) }

// growth returns the factor f, or the default if f is zero or invalid.
func growth(f, otherwise float64) float64 {
	if f >= 1 && f <= math.MaxFloat64 {
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

// An Exponential is a backoff.Exponential.
type Exponential struct {
	Base         time.Duration
	Factor       float64
	Max          time.Duration
	Jitter       string
	JitterFactor float64
}

// Jitters are the kinds of jitter.
var Jitters = []string{"add", "full", "equal", "decorrelated", "proportional", "normal", "none"}

// jitterFactor returns the default of JitterFactor, and its highest value, which is zero if the
// kind of jitter has no factor.
func (e Exponential) jitterFactor() (otherwise, most float64) {
	switch e.Jitter {
	case "full", "equal", "decorrelated", "none":
		return 0, 0
	case "proportional":
		return 0.5, 1
	case "normal":
		return 0.1, mostNormal
	default:
		return 1, math.MaxFloat64
	}
}

// mostNormal is the jitter at which three standard deviations reach zero.
const mostNormal = 1.0 / 3

func (e Exponential) fields() (base time.Duration, factor float64, top time.Duration, jitter float64) {
	otherwise, most := e.jitterFactor()
	return positive(e.Base, time.Second), growth(e.Factor, 2), positive(e.Max, 32*time.Second), share(e.JitterFactor, most, otherwise)
}

// At returns the wait before retry n.
func (e Exponential) At(n int, prev time.Duration, u float64) time.Duration {
	base, factor, top, f := e.fields()
	wait := grow(base, factor, n, top)
	switch e.Jitter {
	case "none":
		return wait
	case "full":
		return between(0, wait, u)
	case "equal":
		return between(wait/2, wait, u)
	case "decorrelated":
		base = min(base, top)
		return between(base, min(Times(max(prev, base), 3, forever), top), u)
	case "proportional":
		wait = min(wait, Times(top, 1/(1+f), top))
		return between(Times(wait, 1-f, top), Times(wait, 1+f, top), u)
	case "normal":
		wait = min(wait, Times(top, 1/(1+3*f), top))
		return Times(wait, 1+f*normal(u), top)
	default:
		random := Times(base, f, top/2) // a Base near Max would make the waits shorter than half of it
		return min(wait, top-random) + between(0, random, u)
	}
}

// Validate returns a Fault for each invalid field.
func (e Exponential) Validate() error {
	base, _, top, _ := e.fields()
	_, most := e.jitterFactor()
	var bad faults
	bad.curve("Base", e.Base, base, "Factor", e.Factor, "Max", e.Max, top)
	add(&bad, e.Factor != 0 && e.Jitter == "decorrelated", "Factor", e.Factor, "has no effect with Jitter decorrelated")
	if e.Jitter != "" && !slices.Contains(Jitters, e.Jitter) {
		add(&bad, true, "Jitter", e.Jitter, "is none of "+strings.Join(Jitters, ", "))
	}
	add(&bad, e.JitterFactor != 0 && most == 0, "JitterFactor", e.JitterFactor, "has no effect with this Jitter")
	bad.share("JitterFactor", e.JitterFactor, most)
	return errors.Join(bad...)
}

// A Constant is a backoff.Constant.
type Constant time.Duration

// At returns the wait.
func (c Constant) At(int, time.Duration, float64) time.Duration { return time.Duration(c) }

// A Google is a backoff.Google.
type Google struct{ MaximumBackoff time.Duration }

// At returns the wait before retry n.
func (g Google) At(n int, _ time.Duration, u float64) time.Duration {
	top := positive(g.MaximumBackoff, 32*time.Second)
	random := min(between(0, 1000, u)*time.Millisecond, top)
	return min(grow(time.Second, 2, n, top), top-random) + random
}

// Validate returns a Fault if the field is invalid.
func (g Google) Validate() error {
	var bad faults
	add(&bad, g.MaximumBackoff < 0, "MaximumBackoff", g.MaximumBackoff, "is negative")
	return errors.Join(bad...)
}

// A Geometric is a backoff.Geometric.
type Geometric struct {
	Time time.Duration
	Rate float64
	Max  time.Duration
}

func (g Geometric) fields() (first time.Duration, rate float64, top time.Duration) {
	return positive(g.Time, time.Second), growth(g.Rate, 2), positive(g.Max, 10*time.Second)
}

// At returns the wait before retry n, or [Stop].
func (g Geometric) At(n int, _ time.Duration, _ float64) time.Duration {
	first, rate, top := g.fields()
	if wait := grow(first, rate, n, top); wait < top {
		return wait
	}
	return Stop
}

// Validate returns a Fault for each invalid field.
func (g Geometric) Validate() error {
	first, _, top := g.fields()
	var bad faults
	bad.curve("Time", g.Time, first, "Rate", g.Rate, "Max", g.Max, top)
	return errors.Join(bad...)
}

// A Normal is a backoff.Normal.
type Normal struct {
	MinDelay time.Duration
	Factor   float64
	MaxDelay time.Duration
	Jitter   float64
}

func (d Normal) fields() (first time.Duration, factor float64, top time.Duration, jitter float64) {
	return positive(d.MinDelay, 100*time.Millisecond), growth(d.Factor, 2),
		positive(d.MaxDelay, 15*time.Minute), share(d.Jitter, mostNormal, 0.1)
}

// At returns the wait before retry n, which follows the wait prev. If that is not known, the
// wait is computed from n.
func (d Normal) At(n int, prev time.Duration, u float64) time.Duration {
	first, factor, top, jitter := d.fields()
	wait := grow(first, factor, n, top)
	switch {
	case n <= 0: // the loop of the article sleeps before it computes
		return wait
	case prev > 0:
		wait = Times(prev, factor, top)
	}
	return Times(wait, 1+jitter*normal(u), forever)
}

// Validate returns a Fault for each invalid field.
func (d Normal) Validate() error {
	first, _, top, _ := d.fields()
	var bad faults
	bad.curve("MinDelay", d.MinDelay, first, "Factor", d.Factor, "MaxDelay", d.MaxDelay, top)
	bad.share("Jitter", d.Jitter, mostNormal)
	return errors.Join(bad...)
}

// A Randomized is a backoff.Randomized.
type Randomized struct {
	InitialInterval     time.Duration
	RandomizationFactor float64
	Multiplier          float64
	MaxInterval         time.Duration
}

func (r Randomized) fields() (first time.Duration, factor float64, top time.Duration, jitter float64) {
	return positive(r.InitialInterval, 500*time.Millisecond), growth(r.Multiplier, 1.5),
		positive(r.MaxInterval, time.Minute), share(r.RandomizationFactor, 1, 0.5)
}

// At returns the wait before retry n.
func (r Randomized) At(n int, _ time.Duration, u float64) time.Duration {
	first, factor, top, jitter := r.fields()
	interval := grow(first, factor, n, top)
	return between(Times(interval, 1-jitter, forever), Times(interval, 1+jitter, forever), u)
}

// Validate returns a Fault for each invalid field.
func (r Randomized) Validate() error {
	first, _, top, _ := r.fields()
	var bad faults
	bad.share("RandomizationFactor", r.RandomizationFactor, 1)
	bad.curve("InitialInterval", r.InitialInterval, first, "Multiplier", r.Multiplier, "MaxInterval", r.MaxInterval, top)
	return errors.Join(bad...)
}

// A Fault is a field with an invalid value.
type Fault struct {
	Field  string // its name
	Value  any
	Reason string // continues the sentence after the value, as in "is negative"
}

// Error returns "Field: value reason".
func (f *Fault) Error() string { return fmt.Sprintf("%s: %v %s", f.Field, f.Value, f.Reason) }

// faults are the faults of a formula. They refuse exactly the values that the functions above replace by
// a default.
type faults []error

// add appends a fault if the value is wrong. Rules may be made for each request, so a value that is right
// is not put into an interface.
func add[T any](bad *faults, wrong bool, field string, value T, reason string) {
	if wrong {
		*bad = append(*bad, &Fault{field, value, reason})
	}
}

// share checks a jitter, which has no effect if most is zero.
func (f *faults) share(field string, jitter, most float64) {
	wrong := jitter != 0 && share(jitter, most, 0) == 0
	add(f, wrong && most == math.MaxFloat64, field, jitter, "is not a finite number above zero")
	if wrong && most > 0 && most <= 1 {
		add(f, true, field, jitter, fmt.Sprintf("is not a number from 0 to %.4g", most))
	}
}

// curve checks the fields that most formulas have: the first wait, the factor between the waits
// and the cap. low and high are the first wait and the cap with their defaults filled in, because a cap can
// be too low for a default as well as for a given value.
func (f *faults) curve(first string, d, low time.Duration, factor string, by float64, last string, top, high time.Duration) {
	add(f, d < 0, first, d, "is negative")
	add(f, by != 0 && growth(by, 0) == 0, factor, by, "is not a finite number of at least 1")
	add(f, top < 0, last, top, "is negative")
	if low > high {
		add(f, true, last, high, fmt.Sprintf("is less than %s (%v)", first, low))
	}
}
