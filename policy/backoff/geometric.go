// Geometric: time × rate up to max.

package backoff

import (
	"math/rand/v2"
	"time"
)

// Geometric multiplies the wait by a rate up to a maximum, with the parameters
// and the defaults of the Clojure macro in LispCast's "Exponential Backoff":
//
//	wait time, then time·rate, then time·rate², … while that is less than max
//
// The macro has no jitter, and it stops after the last wait below max. With its
// defaults it waits 1, 2, 4 and 8 s. Here retries go on at the cap for as long as
// the rule allows. Jitter shortens each wait by a random part, so that Max remains a
// bound. The default is small, because the waits of this formula are meant to be
// nearly known in advance. The zero value waits
//
//	retry  lowest  mean   highest
//	1      800ms   900ms  1s
//	2      1.6s    1.8s   2s
//	3      3.2s    3.6s   4s
//	4      6.4s    7.2s   8s
//	5      8s      9s     10s
//	6      8s      9s     10s
type Geometric struct {
	// First is the first wait. Default 1 s.
	First time.Duration
	// Rate is the factor from one wait to the next, at least 1. Default 2.
	Rate float64
	// Max is the longest wait. Default 10 s.
	Max time.Duration
	// Jitter is the largest share by which a wait is shortened at random, at most 1.
	// Default 0.2. Negative: no jitter. Jitter may not be set together with Literal.
	Jitter float64
	// Literal does the same as the macro. There is no jitter, and there is no further
	// retry as soon as the wait would reach Max. Rule.MaxAttempts still applies.
	Literal bool
}

// Delay returns the wait before retry n. It does not depend on prev.
func (e Geometric) Delay(n int, prev time.Duration) time.Duration {
	return e.at(n, prev, rand.Float64())
}

// Validate returns an [*Invalid] for every field with an invalid value, joined by
// errors.Join.
func (e Geometric) Validate() error {
	first, _, top, _ := e.fields()
	var unused error
	if e.Literal && e.Jitter > 0 {
		unused = &Invalid{Field: "Jitter", Value: e.Jitter, Reason: "has no effect with Literal"}
	}
	return faults(
		checkDuration("First", e.First),
		checkGrowth("Rate", e.Rate),
		checkDuration("Max", e.Max),
		checkShare("Jitter", e.Jitter, 1),
		checkOrder("First", first, "Max", top),
		unused)
}

func (e Geometric) fields() (first time.Duration, factor float64, top time.Duration, jitter float64) {
	return positive(e.First, time.Second), growth(e.Rate, 2),
		positive(e.Max, 10*time.Second), share(e.Jitter, 1, 0.2)
}

func (e Geometric) at(n int, _ time.Duration, u float64) time.Duration {
	first, factor, top, jitter := e.fields()
	wait := grow(first, factor, n, top)
	switch {
	case !e.Literal:
		return between(times(wait, 1-jitter, top), wait, u)
	case wait < top:
		return wait
	default:
		return stop
	}
}
