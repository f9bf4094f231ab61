// The back-offs that the tables show.

package waits

import (
	"time"

	"github.com/aplomb-go/aplomb/policy/backoff"
)

// A curve is a back-off with its name and its formula.
type curve struct {
	name, about string
	backoff     backoff.Backoff
}

// allCurves returns all back-offs of package policy/backoff, each with its defaults.
func allCurves() []curve {
	return []curve{
		{"Exponential", "Google's 2ⁿ s + up to 1 s, at most 32 s, the default", backoff.Exponential{}},
		{"JitterFull", "random from 0 to 2ⁿ s, at most 32 s", backoff.Exponential{Jitter: backoff.JitterFull}},
		{"JitterEqual", "random from half of 2ⁿ s to 2ⁿ s, at most 32 s", backoff.Exponential{Jitter: backoff.JitterEqual}},
		{"JitterDecorrelated", "random from 1 s to 3 · the wait before, at most 32 s", backoff.Exponential{Jitter: backoff.JitterDecorrelated}},
		{"JitterProportional", "2ⁿ s · (1 ± 0.5), at most 32 s", backoff.Exponential{Jitter: backoff.JitterProportional}},
		{"JitterNormal", "2ⁿ s, normally distributed, at most 32 s", backoff.Exponential{Jitter: backoff.JitterNormal}},
		{"JitterNone", "2ⁿ s, at most 32 s", backoff.Exponential{Jitter: backoff.JitterNone}},
		{"Google", "as printed by Google: not random at the cap", backoff.Google{}},
		{"Geometric", "1 s · 2ⁿ, no retry after 8 s", backoff.Geometric{}},
		{"Normal", "100 ms · 2ⁿ, normally distributed, at most 19.5 min", backoff.Normal{}},
		{"Randomized", "500 ms · 1.5ⁿ · (1 ± 0.5), at most 90 s", backoff.Randomized{}},
		{"Constant", "always 2 s", backoff.Constant(2 * time.Second)},
	}
}

// articleCurves returns the two curves of the article whose experiment lab/storm repeats, as its
// pseudo-code computes them. It adds the jitter after the cap, so a wait can be 1.3 times
// as long as the cap.
func articleCurves() []curve {
	return []curve{
		{"100 ms · 2.7ⁿ, at most 10 min before jitter", "jitter 0.1 after the cap, so at most 13 min", backoff.Normal{
			MinDelay: 100 * time.Millisecond, Factor: 2.7, Jitter: 0.1, MaxDelay: 10 * time.Minute}},
		{"1 s · 1.5ⁿ, at most 5 min before jitter", "jitter 0.1 after the cap, so at most 6.5 min", backoff.Normal{
			MinDelay: time.Second, Factor: 1.5, Jitter: 0.1, MaxDelay: 5 * time.Minute}},
	}
}
