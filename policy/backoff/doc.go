// Package backoff has formulas for the wait before a retry, such as exponential back-off
// with jitter. Each formula is a plain value that serves all requests, as the field
// Backoff of a policy.Rule.
//
//	policy.Rule{Backoff: backoff.Exponential{Base: 100 * time.Millisecond}}
//
// Exponential is the default of a rule, with several kinds of jitter, and Constant is for tests.
// The others are the formulas of documents, with the documents' names and defaults. They also have
// what the documents leave undone: waits beyond the maximum, no jitter at the cap, or none at all.
//
//	Google       min(2^n s + random_ms, maximum): Google Cloud's documentation
//	Geometric    time · rate^n below max: LispCast
//	Normal       normally distributed jitter: smira/exponential-backoff
//	Randomized   interval · multiplier^n · (1 ± factor): cenkalti/backoff
//
// All formulas keep these promises. A zero field stands for the default that its
// comment names. Delay never panics and never overflows, for any n (a negative n
// counts as 0), any prev and any fields. If Validate refuses the value of a
// field, Delay takes the default instead. Every call draws a new random number.
//
// After a timeout a Transport waits for a random time that begins at the wait of the formula (see
// Backoff in policy.Rule).
package backoff
