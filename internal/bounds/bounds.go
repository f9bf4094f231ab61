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
// For the back-offs of package backoff Lowest and Highest are exact. The mean comes
// from numeric integration. It is the same in every run and correct to a few
// thousandths. If a wait depends on the previous wait, Lowest and Highest belong to
// a client that draws an extreme wait every time.
//
// For any other Backoff, Of calls Delay some hundred times for each wait, and
// the result describes these samples.
func Of(b backoff.Backoff, n int) []Bound {
	if b == nil {
		b = backoff.Exponential{}
	}
	next := sampled(b)
	if f := formulaOf(b); f != nil {
		next = integrated(f)
	}
	var all []Bound
	var total time.Duration
	for i := range n {
		bound, ok := next(i)
		if !ok {
			break
		}
		total = formula.Plus(total, bound.Mean)
		bound.Cumulated = total
		all = append(all, bound)
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

// integrated computes the waits of three clients at once. The first draws the lowest wait
// every time, and the second the highest. The third stands for the distribution,
// which a number of equally likely points represent. The next wait is computed for
// each of these points over a grid of random numbers. Neighbouring results are then
// averaged, which keeps the number of points small and the mean exact.
func integrated(f formula.Formula) func(i int) (Bound, bool) {
	const points = 64
	var low, high time.Duration
	before := []time.Duration{0}
	return func(i int) (Bound, bool) {
		low, high = f.At(i, low, 0), f.At(i, high, formula.JustBelowOne)
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
		return Bound{Lowest: low, Highest: high, Mean: mean(waits)}, low >= 0
	}
}

// sampled draws the waits of 512 clients. It ends when the first of them stops.
func sampled(b backoff.Backoff) func(i int) (Bound, bool) {
	waits := make([]time.Duration, 512)
	return func(i int) (Bound, bool) {
		for j, prev := range waits {
			waits[j] = b.Delay(i, prev)
		}
		low := slices.Min(waits)
		return Bound{Lowest: low, Highest: slices.Max(waits), Mean: mean(waits)}, low >= 0
	}
}

func mean(waits []time.Duration) time.Duration {
	var sum float64
	for _, wait := range waits {
		sum += float64(wait)
	}
	return formula.Times(1, sum/float64(len(waits)), math.MaxInt64)
}
