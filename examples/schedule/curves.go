// The back-offs that are shown.

package main

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

// curves are all back-offs of package policy, each with its defaults.
var curves = []curve{
	{"Google", "google", "2ⁿ s + up to 1 s, at most 32 s: the default of a Rule", backoff.Exponential{}},
	{"Google, literal", "google-literal", "the same as printed: at the cap no random part is left", backoff.Exponential{Literal: true}},
	{"FullJitter", "full-jitter", "random from 0 to 100 ms · 2ⁿ, at most 20 s", backoff.FullJitter{}},
	{"EqualJitter", "equal-jitter", "random from half of 100 ms · 2ⁿ to all of it, at most 20 s", backoff.EqualJitter{}},
	{"Decorrelated", "decorrelated", "random from 100 ms to 3 times the wait before, at most 20 s", backoff.Decorrelated{}},
	{"Randomized", "randomized", "500 ms · 1.5ⁿ · (1 ± 0.5), at most 60 s", backoff.Randomized{}},
	{"Normal", "normal", "100 ms · 2ⁿ, normally distributed, at most 15 min", backoff.Normal{}},
	{"Exponential", "exponential", "1 s · 2ⁿ, up to a fifth less, at most 10 s", backoff.Geometric{}},
	{"Constant", "constant", "always 2 s", backoff.Constant(2 * time.Second)},
}

// article are the two curves of the article whose experiment experiments/storm
// repeats, as its pseudo-code computes them.
var article = []curve{
	{"100 ms · 2.7ⁿ, at most 10 min", "article-a", "jitter 0.1", backoff.Normal{
		MinDelay: 100 * time.Millisecond, Factor: 2.7, Jitter: 0.1, MaxDelay: 10 * time.Minute, Literal: true}},
	{"1 s · 1.5ⁿ, at most 5 min", "article-b", "jitter 0.1", backoff.Normal{
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
