// Normal: exponential back-off with normally distributed jitter.

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
// In the article the first wait is the same for all clients, the jitter adds up
// from wait to wait, and a wait can exceed MaxDelay. Here every wait, also the first,
// is min(MinDelay · Factor^n, MaxDelay / (1 + 3·Jitter)) plus or minus a random part
// of that. So no wait is longer than MaxDelay, and the waits still differ at the cap.
// Both cut the distribution at three standard deviations. This changes every 370th
// draw and gives every wait a bound. The zero value waits
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
	// MinDelay is the first wait, before jitter. Default 100 ms.
	MinDelay time.Duration
	// Factor is the factor from one wait to the next, at least 1. Default 2.
	Factor float64
	// MaxDelay is the longest wait. Default 15 min.
	MaxDelay time.Duration
	// Jitter is the standard deviation as a share of the wait. It is at most 1/3, so
	// that three standard deviations do not reach below zero. Default 0.1. Negative: no jitter.
	Jitter float64
	// Literal follows the article. The first wait is MinDelay without jitter. Every
	// other wait is computed from the previous wait and its jitter. The longest wait
	// is MaxDelay · (1 + 3·Jitter). If the previous wait is not known (prev is 0), the
	// wait is computed from n.
	Literal bool
}

// mostJitter is the jitter at which three standard deviations reach zero.
const mostJitter = 1.0 / 3

// Delay returns the wait before retry n. With Literal, it depends on prev.
func (d Normal) Delay(n int, prev time.Duration) time.Duration {
	return d.at(n, prev, rand.Float64())
}

// Validate returns an [*Invalid] for every field with an invalid value, joined by
// errors.Join.
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
	case n <= 0: // the loop of the article sleeps before it computes
		return wait
	case prev > 0:
		wait = times(prev, factor, top)
	}
	return times(wait, 1+jitter*normal(u), bound)
}

// within3 is the share of a normal distribution within three standard
// deviations of its mean.
var within3 = math.Erf(3 / math.Sqrt2)

// normal turns u into a draw from the standard normal distribution, cut at ±3. It is
// the inverse of the distribution function.
func normal(u float64) float64 {
	// On a grid of 2^-40 two results differ by more than the rounding errors of
	// Erfinv, so a larger u never gives a smaller result. The grid also rounds
	// justBelowOne to 1, so the result is exactly the upper end.
	const grid = 1 << 40
	u = math.Round(u*grid) / grid
	z := math.Sqrt2 * math.Erfinv((2*u-1)*within3)
	return max(-3, min(z, 3))
}
