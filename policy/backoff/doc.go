// Package backoff has formulas for the wait before a retry, such as exponential back-off
// with jitter. Each formula is a plain value that serves all requests, as the field
// Backoff of a policy.Rule.
//
//	policy.Rule{Backoff: backoff.Exponential{Base: 100 * time.Millisecond}}
//
// Exponential is the default of a rule, and Constant is for tests. The others are
// the formulas of well-known articles and libraries:
//
//	Exponential    min(2^n s + random_ms, maximum): Google Cloud's documentation
//	FullJitter     random(0, base · 2^n): AWS Architecture Blog
//	EqualJitter    half of it certain, half random: AWS Architecture Blog
//	Decorrelated   random(base, 3 · previous): AWS Architecture Blog
//	Randomized     interval · multiplier^n · (1 ± factor): cenkalti/backoff
//	Normal         normally distributed jitter: smira/exponential-backoff
//	Geometric      time · rate^n up to max: LispCast
//	Constant       always the same wait
//
// All formulas keep these promises. A zero field stands for the default that its
// comment names. Delay never panics and never overflows, for any n (a negative n
// counts as 0), any prev and any fields. If Validate refuses the value of a
// field, Delay takes the default instead. Every call draws a new random number.
// Unless Literal is set, the maximum is a true upper bound at which the waits
// still differ, so that clients that have reached it do not come back in step.
//
// A negative Jitter turns off the random part of a formula alone. After a timeout a Transport
// waits for a random time that begins at the wait of the formula (see Backoff in policy.Rule).
//
// Bounds describes the waits of a formula in numbers, for tables and plots.
package backoff
