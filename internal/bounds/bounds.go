// Package bounds describes the waits of a back-off in numbers, for tables.
package bounds

import (
	"math"
	"slices"
	"time"

	"github.com/aplomb-go/aplomb/internal/formula"
	"github.com/aplomb-go/aplomb/policy/backoff"
)

// A Bound describes the wait before a retry.
type Bound struct {
	// Lowest and Highest are the shortest and the longest wait possible.
	Lowest, Highest time.Duration
	// Mean is the average wait.
	Mean time.Duration
	// Cumulated is the sum of the means up to this retry. If attempts take no time,
	// the retry comes so long after the first failure on average.
	Cumulated time.Duration
}

// Of describes the first n waits of b. Element i of the result belongs to
// Delay(i, …). The result is shorter if b stops earlier. A nil b stands for
// backoff.Exponential{}, the default of a policy.Rule.
//
// Lowest and Highest are exact. The mean comes from numeric integration. It is the same in
// every run and correct to a few thousandths. If a wait depends on the previous wait, Lowest
// and Highest belong to a client that draws an extreme wait every time. The result is empty
// if b is not of package backoff.
func Of(b backoff.Backoff, n int) []Bound {
	if b == nil {
		b = backoff.Exponential{}
	}
	f := formulaOf(b)
	if f == nil {
		return nil
	}
	// Three clients are computed at once. The first draws the lowest wait every time, and the
	// second the highest. The third stands for the distribution, which a number of equally likely
	// points represent. The next wait is computed for each of these points over a grid of random
	// numbers. Neighbouring results are then averaged, which keeps the number of points small and
	// the mean exact.
	const points = 64
	var all []Bound
	var low, high, total time.Duration
	before := []time.Duration{0}
	for i := range n {
		low, high = f.At(i, low, 0), f.At(i, high, formula.JustBelowOne)
		if low < 0 {
			break
		}
		var waits []time.Duration
		for _, prev := range before {
			for j := range points {
				waits = append(waits, f.At(i, prev, (float64(j)+0.5)/points))
			}
		}
		slices.Sort(waits)
		before = before[:0]
		for group := range slices.Chunk(waits, len(waits)/points) {
			before = append(before, mean(group))
		}
		total += min(mean(waits), math.MaxInt64-total)
		all = append(all, Bound{Lowest: low, Highest: high, Mean: mean(waits), Cumulated: total})
	}
	return all
}

// formulaOf returns the formula of a back-off of package backoff, whose random number is a
// parameter. A type that embeds one of them has a Delay of its own, and no such formula.
func formulaOf(b backoff.Backoff) formula.Formula {
	switch b := b.(type) {
	case backoff.Exponential:
		return formula.Exponential{Base: b.Base, Factor: b.Factor, Max: b.Max, Jitter: string(b.Jitter), JitterFactor: b.JitterFactor}
	case backoff.Google:
		return formula.Google(b)
	case backoff.Geometric:
		return formula.Geometric(b)
	case backoff.Normal:
		return formula.Normal(b)
	case backoff.Randomized:
		return formula.Randomized(b)
	case backoff.Constant:
		return formula.Constant(b)
	}
	return nil
}

func mean(waits []time.Duration) time.Duration {
	var sum float64
	for _, wait := range waits {
		sum += float64(wait)
	}
	return formula.Times(1, sum/float64(len(waits)), math.MaxInt64)
}
