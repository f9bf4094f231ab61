// The formulas of documents, to the letter.

package backoff

import (
	"math/rand/v2"
	"time"

	"github.com/aplomb-go/aplomb/internal/formula"
)

// Google is the formula of Google Cloud's pages on exponential back-off:
//
//	min(2^n s + random_number_milliseconds, maximum_backoff)
//
// The random number is a whole number from 0 to 1000. At the cap the waits are no longer
// random. [Exponential] is the same formula with waits that differ there. The zero value
// waits
//
//	retry  lowest  mean   highest
//	1      1s      1.5s   2s
//	2      2s      2.5s   3s
//	3      4s      4.5s   5s
//	4      8s      8.5s   9s
//	5      16s     16.5s  17s
//	6      32s     32s    32s
//
// An older version of the page has no cap and stops after the wait of 16 s. That is the same as
// MaxAttempts: 6, the default of a rule.
type Google struct {
	// MaximumBackoff is the longest wait. Default 32 s. The page names 64 s as well.
	MaximumBackoff time.Duration
}

// Delay returns the wait before retry n. It does not depend on prev.
func (g Google) Delay(n int, prev time.Duration) time.Duration {
	return formula.Google(g).At(n, prev, rand.Float64())
}

// Validate returns an error if the field has an invalid value.
func (g Google) Validate() error { return formula.Google(g).Validate() }

// Geometric is the Clojure macro in LispCast's "Exponential Backoff". It has no jitter:
//
//	wait time, then time·rate, then time·rate², … while that is less than max
//
// Then there is no further retry. For retries that go on at the cap, there is
// [Exponential]. The zero value waits
//
//	retry  lowest  mean  highest
//	1      1s      1s    1s
//	2      2s      2s    2s
//	3      4s      4s    4s
//	4      8s      8s    8s
type Geometric struct {
	// Time is the first wait. Default 1 s.
	Time time.Duration
	// Rate is the factor from one wait to the next, at least 1. Default 2.
	Rate float64
	// Max is the time that each wait is shorter than. Default 10 s.
	Max time.Duration
}

// Delay returns the wait before retry n, or [Stop]. It does not depend on prev.
func (g Geometric) Delay(n int, prev time.Duration) time.Duration {
	return formula.Geometric(g).At(n, prev, 0)
}

// Validate returns an error for each field with an invalid value, joined by errors.Join.
func (g Geometric) Validate() error { return formula.Geometric(g).Validate() }

// Normal is the pseudo-code of the article that comes with the simulation
// github.com/smira/exponential-backoff:
//
//	delay = MinDelay, at first
//	delay = min(delay · Factor, MaxDelay)
//	delay = delay + norm_variate(delay · Jitter)
//
// The first wait is the same for all clients, the jitter adds up from wait to wait, and a
// wait can exceed MaxDelay. The normal distribution is cut at three standard deviations. This
// changes every 370th draw and gives every wait a bound. [Exponential] with [JitterNormal]
// has waits that all are random and none longer than Max. The zero value waits
//
//	retry  lowest  mean   highest
//	1      100ms   100ms  100ms
//	2      140ms   200ms  260ms
//	3      196ms   400ms  676ms
//	4      274ms   800ms  1.758s
//	5      384ms   1.6s   4.57s
//	6      538ms   3.2s   11.881s
//
// and at most 19.5 min.
type Normal struct {
	// MinDelay is the first wait. Default 100 ms.
	MinDelay time.Duration
	// Factor is the factor from one wait to the next, at least 1. Default 2.
	Factor float64
	// MaxDelay is the longest wait before jitter. Default 15 min.
	MaxDelay time.Duration
	// Jitter is the standard deviation as a share of the wait. Default 0.1. It is at most 1/3, so
	// that three standard deviations do not reach below zero.
	Jitter float64
}

// Delay returns the wait after the wait prev. If prev is 0, the wait is computed from n.
func (d Normal) Delay(n int, prev time.Duration) time.Duration {
	return formula.Normal(d).At(n, prev, rand.Float64())
}

// Validate returns an error for each field with an invalid value, joined by errors.Join.
func (d Normal) Validate() error { return formula.Normal(d).Validate() }

// Randomized is the formula of github.com/cenkalti/backoff, whose parameters the article
// "Exponential Backoff In Go" explains:
//
//	InitialInterval · Multiplier^n · (1 ± RandomizationFactor)
//
// The interval is capped at MaxInterval before the randomization, so a wait may exceed
// MaxInterval by RandomizationFactor. No wait of [Exponential] with [JitterProportional] is
// longer than its Max. The zero value waits
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
//	12     21.624s  43.249s  64.873s
//	13     30s      60s      90s
//
// The table in the original's documentation differs a little from the ninth row on,
// because it computes each row from the rounded values of the row before.
//
// MaxElapsedTime of the original is policy.Rule.MaxElapsedTime here.
type Randomized struct {
	// InitialInterval is the first interval. Default 500 ms.
	InitialInterval time.Duration
	// RandomizationFactor is the share of the interval by which a wait is longer or
	// shorter, at most 1. Default 0.5.
	RandomizationFactor float64
	// Multiplier is the factor from one interval to the next, at least 1. Default 1.5.
	Multiplier float64
	// MaxInterval is the longest interval. Default 60 s.
	MaxInterval time.Duration
}

// Delay returns the wait before retry n. It does not depend on prev.
func (r Randomized) Delay(n int, prev time.Duration) time.Duration {
	return formula.Randomized(r).At(n, prev, rand.Float64())
}

// Validate returns an error for each field with an invalid value, joined by errors.Join.
func (r Randomized) Validate() error { return formula.Randomized(r).Validate() }
