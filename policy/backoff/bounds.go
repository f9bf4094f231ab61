// Which waits does a back-off give, as numbers for tables and plots?

package backoff

import (
	"slices"
	"time"
)

// A Bound describes the wait before one retry.
type Bound struct {
	// Lowest and Highest are the shortest and the longest wait possible.
	Lowest, Highest time.Duration
	// Mean is the average wait.
	Mean time.Duration
	// Cumulated is the sum of the means up to and including this one: how long
	// after the first failure, on average, the retry comes if the attempts
	// themselves take no time.
	Cumulated time.Duration
}

// Bounds describes the first n waits of b; Bound i belongs to the retry that
// [Delayer] counts as i. It ends early where b stops. A nil b is Google{}, as in
// a [Rule].
//
// For the back-offs of this package the extremes are exact, and the mean comes
// from numeric integration: it is the same in every run, and correct to a few
// thousandths where it is not exact. Where a wait depends on the one before it, so do its bounds: the
// extremes are those of a client that is unlucky, or lucky, every time. Any
// other Delayer is asked some hundred times per wait, and all four are what
// these samples show.
func Bounds(b Delayer, n int) []Bound {
	if b == nil {
		b = Exponential{}
	}
	next := sampled(b)
	if k, ok := kernelOf(b); ok {
		next = integrated(k)
	}
	var all []Bound
	var total time.Duration
	for i := range max(n, 0) {
		bound, ok := next(i)
		if !ok {
			break
		}
		total = plus(total, bound.Mean)
		bound.Cumulated = total
		all = append(all, bound)
	}
	return all
}

// kernelOf names the types rather than asks for the method: a type of the
// user's that embeds one of ours has its method at too, although its Delay may
// be another.
func kernelOf(b Delayer) (kernel, bool) {
	switch b.(type) {
	case Exponential, FullJitter, EqualJitter, Decorrelated, Randomized, Normal, Geometric, Constant:
		return b.(kernel), true
	}
	return nil, false
}

// integrated follows three chains at once: always the lowest draw, always the
// highest, and the distribution in between. It stands for the distribution of
// one wait by points that are equally likely, and that of the next by the
// results of all of them over a grid of random numbers, of which groups of
// neighbours are then averaged: that keeps the number small and the mean exact.
func integrated(k kernel) func(i int) (Bound, bool) {
	const points = 64
	var low, high time.Duration
	before := []time.Duration{0}
	return func(i int) (Bound, bool) {
		low, high = k.at(i, low, 0), k.at(i, high, justBelowOne)
		var waits []time.Duration
		for _, prev := range before {
			for j := range points {
				waits = append(waits, k.at(i, prev, (float64(j)+0.5)/points))
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

// sampled follows as many chains of waits as there are samples. It ends with the
// first of them that stops.
func sampled(b Delayer) func(i int) (Bound, bool) {
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
	return times(1, sum/float64(len(waits)), forever)
}
