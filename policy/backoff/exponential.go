// How long does Exponential's formula wait?

package backoff

import (
	"math/rand/v2"
	"time"
)

// Exponential is the formula of Exponential Cloud's "Exponential backoff" pages, and the
// default of [Rule.Backoff]:
//
//	min(2^n s + random_number_milliseconds, maximum_backoff)
//
// As printed there, it loses its randomness at the cap: 32 s plus something is
// cut to 32 s, and clients that failed together come back together. So 2^n·Base
// is capped at Max − Jitter, and then a random time from 0 to Jitter is added:
// Max is never exceeded, and the waits still differ there. The zero value waits
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
// An older page of the same text stops at n == 5, after 16 s, and has no cap;
// that is Attempts: 6, the default of [Rule].
type Exponential struct {
	// Base is the first wait, before the random part. Default 1 s.
	Base time.Duration
	// Jitter is the longest random time added. Default 1 s. Negative: none.
	Jitter time.Duration
	// Max is the longest wait in all. Default 32 s; the page also names 64 s.
	Max time.Duration
	// Literal takes the formula as printed: the random time is a whole number
	// of milliseconds, 0 and Jitter included (a fraction of one in Jitter is
	// dropped), and the cap comes last.
	Literal bool
}

// Delay returns the wait before retry n. prev has no influence.
func (g Exponential) Delay(n int, prev time.Duration) time.Duration {
	return g.at(n, prev, rand.Float64())
}

// Validate names every field with a value that means nothing.
func (g Exponential) Validate() error {
	base, jitter, top := g.fields()
	if g.Literal {
		jitter = 0 // its cap comes last and needs no room
	}
	return faults(
		checkDuration("Base", g.Base),
		checkDuration("Max", g.Max),
		checkOrder("Base", base, "Max", top),
		checkOrder("Jitter", jitter, "Max", top))
}

func (g Exponential) fields() (base, jitter, top time.Duration) {
	return positive(g.Base, time.Second), optional(g.Jitter, time.Second), positive(g.Max, 32*time.Second)
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
