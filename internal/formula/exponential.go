// Exponential, with all kinds of jitter.

package formula

import (
	"errors"
	"math"
	"slices"
	"strings"
	"time"
)

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
	var unknown, jitter, factor error
	if e.Jitter != "" && !slices.Contains(Jitters, e.Jitter) {
		unknown = &Fault{"Jitter", e.Jitter, "is none of " + strings.Join(Jitters, ", ")}
	}
	if jitter = checkShare("JitterFactor", e.JitterFactor, most); jitter != nil && most == 0 {
		jitter = &Fault{"JitterFactor", e.JitterFactor, "has no effect with Jitter " + e.Jitter}
	}
	if e.Factor != 0 && e.Jitter == "decorrelated" {
		factor = &Fault{"Factor", e.Factor, "has no effect with Jitter decorrelated"}
	}
	return errors.Join(curve("Base", e.Base, base, "Factor", e.Factor, "Max", e.Max, top), factor, unknown, jitter)
}
