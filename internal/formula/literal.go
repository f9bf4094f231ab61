// The formulas of documents, to the letter.

package formula

import (
	"errors"
	"time"
)

// A Constant is a backoff.Constant.
type Constant time.Duration

// At returns the wait.
func (c Constant) At(int, time.Duration, float64) time.Duration { return time.Duration(c) }

// A Google is a backoff.Google.
type Google struct{ MaximumBackoff time.Duration }

// At returns the wait before retry n.
func (g Google) At(n int, _ time.Duration, u float64) time.Duration {
	top := positive(g.MaximumBackoff, 32*time.Second)
	return min(Plus(grow(time.Second, 2, n, top), between(0, 1000, u)*time.Millisecond), top)
}

// Validate returns a Fault if the field is invalid.
func (g Google) Validate() error {
	return errors.Join(checkDuration("MaximumBackoff", g.MaximumBackoff))
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
	return curve("Time", g.Time, first, "Rate", g.Rate, "Max", g.Max, top)
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
	return errors.Join(curve("MinDelay", d.MinDelay, first, "Factor", d.Factor, "MaxDelay", d.MaxDelay, top),
		checkShare("Jitter", d.Jitter, mostNormal))
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
	return errors.Join(checkShare("RandomizationFactor", r.RandomizationFactor, 1),
		curve("InitialInterval", r.InitialInterval, first, "Multiplier", r.Multiplier, "MaxInterval", r.MaxInterval, top))
}
