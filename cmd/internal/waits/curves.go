// The back-offs that are shown.

package waits

import (
	"time"

	"github.com/aplomb-go/aplomb/policy"
	"github.com/aplomb-go/aplomb/policy/backoff"
)

// A curve is a back-off with its name in tables, pictures and files.
type curve struct {
	name    string
	file    string
	about   string // the formula
	backoff policy.Backoff
}

// curves are all back-offs of package policy/backoff, each with its defaults.
var curves = []curve{
	{"Exponential", "exponential", "Google's 2ⁿ s + up to 1 s, at most 32 s, the default", backoff.Exponential{}},
	{"Exponential, Literal", "exponential-literal", "the same as printed by Google: not random at the cap", backoff.Exponential{Literal: true}},
	{"FullJitter", "full-jitter", "random from 0 to 100 ms · 2ⁿ, at most 20 s", backoff.FullJitter{}},
	{"EqualJitter", "equal-jitter", "random from 50 ms · 2ⁿ to 100 ms · 2ⁿ, at most 20 s", backoff.EqualJitter{}},
	{"Decorrelated", "decorrelated", "random from 100 ms to 3 · the wait before, at most 20 s", backoff.Decorrelated{}},
	{"Randomized", "randomized", "500 ms · 1.5ⁿ · (1 ± 0.5), at most 60 s", backoff.Randomized{}},
	{"Normal", "normal", "100 ms · 2ⁿ, normally distributed, at most 15 min", backoff.Normal{}},
	{"Geometric", "geometric", "1 s · 2ⁿ, up to a fifth less, at most 10 s", backoff.Geometric{}},
	{"Constant", "constant", "always 2 s", backoff.Constant(2 * time.Second)},
}

// article are the two curves of the article whose experiment lab/storm
// repeats, as its pseudo-code computes them. It adds the jitter after the cap, so a wait
// can be 1.3 times as long as the cap.
var article = []curve{
	{"100 ms · 2.7ⁿ, at most 10 min before jitter", "article-a", "jitter 0.1 after the cap, so at most 13 min", backoff.Normal{
		MinDelay: 100 * time.Millisecond, Factor: 2.7, Jitter: 0.1, MaxDelay: 10 * time.Minute, Literal: true}},
	{"1 s · 1.5ⁿ, at most 5 min before jitter", "article-b", "jitter 0.1 after the cap, so at most 6.5 min", backoff.Normal{
		MinDelay: time.Second, Factor: 1.5, Jitter: 0.1, MaxDelay: 5 * time.Minute, Literal: true}},
}

// printed is the table of github.com/cenkalti/backoff's defaults as that
// library's documentation prints it, in seconds: interval, lowest, highest.
var printed = [][3]float64{
	{0.5, 0.25, 0.75},
	{0.75, 0.375, 1.125},
	{1.125, 0.562, 1.687},
	{1.687, 0.8435, 2.53},
	{2.53, 1.265, 3.795},
	{3.795, 1.897, 5.692},
	{5.692, 2.846, 8.538},
	{8.538, 4.269, 12.807},
	{12.807, 6.403, 19.210},
}
