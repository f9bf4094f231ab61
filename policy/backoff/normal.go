// How long does exponential back-off with normally distributed jitter wait?

package backoff

import (
	"math"
	"math/rand/v2"
	"time"
)

// Normal is exponential back-off whose jitter follows the normal distribution,
// as in the article that comes with the simulation
// github.com/smira/exponential-backoff:
//
//	delay = MinDelay, at first
//	delay = min(delay · Factor, MaxDelay)
//	delay = delay + norm_variate(delay · Jitter)
//
// There the first wait is the same for everybody, the jitter adds up from wait
// to wait, and MaxDelay can be exceeded. Here every wait, the first one too, is
// min(MinDelay · Factor^n, MaxDelay / (1 + 3·Jitter)) and a random part of that:
// no wait is longer than MaxDelay, and the waits still differ there. In both,
// the distribution is cut at three standard deviations, which changes one draw
// in 370 and gives every wait a bound. The zero value waits
//
//	retry  lowest  mean   highest
//	1      70ms    100ms  130ms
//	2      140ms   200ms  260ms
//	3      280ms   400ms  520ms
//	4      560ms   800ms  1.04s
//	5      1.12s   1.6s   2.08s
//	6      2.24s   3.2s   4.16s
//	7      4.48s   6.4s   8.32s
//	8      8.96s   12.8s  16.64s
//	9      17.92s  25.6s  33.28s
//	10     35.84s  51.2s  66.56s
//
// and at most 15 min.
type Normal struct {
	// MinDelay is the first wait, without jitter. Default 100 ms.
	MinDelay time.Duration
	// Factor is what each wait is multiplied by, at least 1. Default 2.
	Factor float64
	// MaxDelay is the longest wait. Default 15 min.
	MaxDelay time.Duration
	// Jitter is the standard deviation as a share of the wait, at most 1/3:
	// beyond that, three of them would reach below zero. Default 0.1.
	// Negative: none.
	Jitter float64
	// Literal takes the pseudo-code as printed: the first wait is MinDelay
	// without jitter, each other one is computed from the one before it with
	// its jitter, and the longest is MaxDelay · (1 + 3·Jitter). A wait whose
	// predecessor is not known (prev is 0) is computed from n.
	Literal bool
}

// mostJitter is where three standard deviations reach down to zero.
const mostJitter = 1.0 / 3

// Delay returns the wait before retry n; with Literal, the one that follows
// prev.
func (d Normal) Delay(n int, prev time.Duration) time.Duration {
	return d.at(n, prev, rand.Float64())
}

// Validate names every field with a value that means nothing.
func (d Normal) Validate() error {
	first, _, top, _ := d.fields()
	return faults(
		checkDuration("MinDelay", d.MinDelay),
		checkGrowth("Factor", d.Factor),
		checkDuration("MaxDelay", d.MaxDelay),
		checkShare("Jitter", d.Jitter, mostJitter),
		checkOrder("MinDelay", first, "MaxDelay", top))
}

func (d Normal) fields() (first time.Duration, factor float64, top time.Duration, jitter float64) {
	return positive(d.MinDelay, 100*time.Millisecond), growth(d.Factor, 2),
		positive(d.MaxDelay, 15*time.Minute), share(d.Jitter, mostJitter, 0.1)
}

func (d Normal) at(n int, prev time.Duration, u float64) time.Duration {
	first, factor, top, jitter := d.fields()
	wait, bound := grow(first, factor, n, top), forever
	switch {
	case !d.Literal:
		wait, bound = min(wait, times(top, 1/(1+3*jitter), top)), top
	case n <= 0: // the printed loop sleeps before it computes
		return wait
	case prev > 0:
		wait = times(prev, factor, top)
	}
	return times(wait, 1+jitter*normal(u), bound)
}

// within3 is the share of a normal distribution within three standard
// deviations of its mean.
var within3 = math.Erf(3 / math.Sqrt2)

// normal turns u into a draw from the standard normal distribution cut at ±3:
// the inverse of its distribution function.
func normal(u float64) float64 {
	// On a grid of 2^-40 the results lie further apart than Erfinv's rounding
	// errors reach, so that a larger u never gives less. It also takes
	// justBelowOne to 1, and so to exactly the upper end.
	const grid = 1 << 40
	u = math.Round(u*grid) / grid
	z := math.Sqrt2 * math.Erfinv((2*u-1)*within3)
	return max(-3, min(z, 3))
}
