package model

import (
	"math/rand/v2"
	"time"

	"github.com/aplomb-go/aplomb/policy"
	"github.com/aplomb-go/aplomb/policy/backoff"
)

// A Strategy is how the clients retry.
type Strategy struct {
	Key  string // for flags and file names
	Name string
	Rule policy.Rule
	// Shared gives all clients the same Transport. Otherwise each client has its
	// own, as if it were a process of its own.
	Shared bool
	// FromThink makes a request's back-off begin with the time that its client
	// thought before the request.
	FromThink bool
}

// Describe returns the rule as it is printed.
func (s Strategy) Describe() string {
	if s.FromThink {
		return s.Rule.String() + ", where the first retry comes after Factor times the last think time"
	}
	return s.Rule.String()
}

// Strategies returns the strategies that are compared. An attempt ends after the
// timeout of the scenario. The first strategies have no limit besides their
// back-off and do not give up before the end of the run. Those of aplomb are the
// default rule with its six attempts, plus the named settings.
//
// The article's exponential back-off is there twice. As the article prints it, it
// waits 0.1, 0.27, 0.74, 2.0, 5.5 s … The article's program keeps the think time
// before a request in the variable of the last wait. So it begins with e times the
// think time, which is 27 s on average. The article's result is that of its
// program.
func Strategies(timeout time.Duration) []Strategy {
	plain := func(b policy.Backoff) policy.Rule { return plain(timeout, b) }
	return []Strategy{
		{Key: "fixed", Name: "fixed delay", Rule: plain(backoff.Constant(100 * time.Millisecond))},
		{Key: "printed", Name: "exponential as printed", Rule: plain(DefaultArticle())},
		{Key: "program", Name: "exponential as programmed", Rule: plain(DefaultArticle()), FromThink: true},
		{Key: "google", Name: "Google's formula", Rule: plain(backoff.Exponential{Literal: true})},
		{Key: "own", Name: "aplomb, a Transport each", Rule: policy.Rule{AttemptTimeout: timeout}},
		{Key: "shared", Name: "aplomb, one Transport", Shared: true, Rule: policy.Rule{
			AttemptTimeout: timeout, Gate: policy.Gate{Mode: policy.GateWait}}},
	}
}

// Others returns further strategies, for a closer look.
func Others(timeout time.Duration) []Strategy {
	list := []Strategy{
		{Key: "once", Name: "no retries at all", Rule: policy.Rule{Attempts: 1, AttemptTimeout: timeout}},
		{Key: "thrifty", Name: "a Transport each, thrifty", Rule: policy.Rule{
			AttemptTimeout: timeout, Budget: policy.Budget{PerSecond: 0.02, Burst: 5}}},
		{Key: "ungated", Name: "one Transport, no gate", Shared: true, Rule: policy.Rule{AttemptTimeout: timeout}},
		{Key: "uncooled", Name: "one Transport, no cooldown", Shared: true, Rule: policy.Rule{
			AttemptTimeout: timeout, Gate: policy.Gate{Mode: policy.GateWait}, Cooldown: policy.Off}},
	}
	for _, b := range []struct {
		key, name string
		backoff   policy.Backoff
	}{
		{"google-base2", "Google, Base 2 s", backoff.Exponential{Base: 2 * time.Second}},
		{"google-base4", "Google, Base 4 s", backoff.Exponential{Base: 4 * time.Second}},
		{"google-spread2", "Google, Spread 2 s", backoff.Exponential{Jitter: 2 * time.Second}},
		{"google-spread4", "Google, Spread 4 s", backoff.Exponential{Jitter: 4 * time.Second}},
		{"google-max64", "Google, Max 64 s", backoff.Exponential{Max: 64 * time.Second}},
		{"full", "full jitter", backoff.FullJitter{}},
		{"full2", "full jitter, Base 2 s", backoff.FullJitter{Base: 2 * time.Second, Max: 32 * time.Second}},
		{"equal", "equal jitter", backoff.EqualJitter{}},
		{"decorrelated", "decorrelated jitter", backoff.Decorrelated{}},
		{"randomized", "randomized", backoff.Randomized{}},
		{"exponential", "exponential to 10 s", backoff.Geometric{}},
		{"normal", "normal", backoff.Normal{}},
	} {
		list = append(list, Strategy{Key: b.key, Name: b.name, Rule: plain(timeout, b.backoff)})
	}
	return list
}

// plain is a rule with a back-off and no other limit.
func plain(timeout time.Duration, b policy.Backoff) policy.Rule {
	return policy.Rule{
		Attempts: 1000, AttemptTimeout: timeout, Backoff: b,
		Budget: policy.Budget{Burst: policy.Off}, Cooldown: policy.Off,
	}
}

// An Article is the back-off of the article's program. It is like backoff.Normal,
// but its jitter is a time and not a share of the wait. The first wait is MinDelay.
// Each further wait is the wait before it times Factor, at most MaxDelay. A normally
// distributed time with the standard deviation Jitter is added.
type Article struct {
	MinDelay, MaxDelay, Jitter time.Duration
	Factor                     float64
}

// DefaultArticle returns the program's parameters.
func DefaultArticle() Article {
	return Article{MinDelay: 100 * time.Millisecond, Factor: 2.71828, Jitter: 100 * time.Millisecond, MaxDelay: 5 * time.Minute}
}

// Delay returns the wait before retry n.
func (a Article) Delay(n int, prev time.Duration) time.Duration {
	if n == 0 && prev == 0 {
		return a.MinDelay
	}
	wait := min(float64(prev)*a.Factor, float64(a.MaxDelay))
	return max(0, time.Duration(wait+rand.NormFloat64()*float64(a.Jitter)))
}
