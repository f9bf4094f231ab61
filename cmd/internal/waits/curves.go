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
