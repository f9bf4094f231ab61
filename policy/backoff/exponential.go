// Exponential: min(2^n s + random_ms, maximum_backoff).

package backoff

import (
	"math/rand/v2"
	"time"
)

// Exponential is the formula of Google Cloud's pages on exponential back-off, and
// the default of a policy.Rule:
//
//	min(2^n s + random_number_milliseconds, maximum_backoff)
//
// Google's formula has no randomness at the cap, because 32 s plus a random time is
// cut to 32 s. Clients that failed together then come back together. So here
// 2^n·Base is capped at Max − Jitter, and then a random time from 0 to Jitter is
// added. No wait exceeds Max, and the waits still differ at the cap. The zero value
// waits
//
//	retry  lowest  mean   highest
//	1      1s      1.5s   2s
//	2      2s      2.5s   3s
//	3      4s      4.5s   5s
//	4      8s      8.5s   9s
//	5      16s     16.5s  17s
//	6      31s     31.5s  32s
//	7      31s     31.5s  32s
//
// An older version of the page has no cap and stops after the wait of 16 s. That is
// the same as MaxAttempts: 6, the default of a rule.
type Exponential struct {
	// Base is the first wait, before the random part. Default 1 s.
	Base time.Duration
	// Jitter is the longest random time that is added. Default 1 s, or if Base is set
	// the same as Base, but at most half of Max. Negative: no jitter.
	Jitter time.Duration
	// Max is the longest wait, jitter included. Default 32 s. Google names 64 s as
	// well.
	Max time.Duration
	// Literal follows Google's formula exactly. The random time is a whole number of
	// milliseconds from 0 to Jitter, both included. A fraction of a millisecond in
	// Jitter is dropped. The cap comes last.
	Literal bool
}

// Delay returns the wait before retry n. It does not depend on prev.
func (g Exponential) Delay(n int, prev time.Duration) time.Duration {
	return g.at(n, prev, rand.Float64())
}

// Validate returns an [*Invalid] for every field with an invalid value, joined by
// errors.Join.
func (g Exponential) Validate() error {
	base, jitter, top := g.fields()
	if g.Literal {
		jitter = 0 // the cap comes last, so Jitter may exceed Max
	}
	return faults(
		checkDuration("Base", g.Base),
		checkDuration("Max", g.Max),
		checkOrder("Base", base, "Max", top),
		checkOrder("Jitter", jitter, "Max", top))
}

func (g Exponential) fields() (base, jitter, top time.Duration) {
	base, top = positive(g.Base, time.Second), positive(g.Max, 32*time.Second)
	jitter = base
	if g.Base > 0 {
		jitter = min(base, top/2) // otherwise a Base near Max would make the waits shorter than Base/2
	}
	return base, optional(g.Jitter, jitter), top
}

func (g Exponential) at(n int, _ time.Duration, u float64) time.Duration {
	base, jitter, top := g.fields()
	if g.Literal {
		random := between(0, jitter/time.Millisecond, u) * time.Millisecond
		return min(plus(grow(base, 2, n, top), random), top)
	}
	jitter = min(jitter, top)
	return grow(base, 2, n, top-jitter) + between(0, jitter, u)
}
