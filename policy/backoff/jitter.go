// FullJitter, EqualJitter and Decorrelated: the formulas of the AWS Architecture Blog.

package backoff

import (
	"math/rand/v2"
	"time"
)

// The defaults of the three formulas. The article does not name values. 20 s is the
// cap of the AWS SDKs, and 100 ms is about the time of a request to another zone.
const (
	awsBase = 100 * time.Millisecond
	awsMax  = 20 * time.Second
)

// FullJitter draws each wait between zero and an exponential bound (AWS
// Architecture Blog, "Exponential Backoff And Jitter"). If many clients compete, it
// needs the fewest calls of the formulas there, because it spreads the clients over
// the whole interval. In return a retry may follow at once.
//
//	random_between(0, min(cap, base · 2^attempt))
//
// The zero value waits
//
//	retry  lowest  mean   highest
//	1      0s      50ms   100ms
//	2      0s      100ms  200ms
//	3      0s      200ms  400ms
//	4      0s      400ms  800ms
//	5      0s      800ms  1.6s
//	6      0s      1.6s   3.2s
//	7      0s      3.2s   6.4s
//	8      0s      6.4s   12.8s
//	9      0s      10s    20s
type FullJitter struct {
	// Base bounds the first wait. Default 100 ms.
	Base time.Duration
	// Max bounds every wait. Default 20 s.
	Max time.Duration
}

// Delay returns the wait before retry n. It does not depend on prev.
func (f FullJitter) Delay(n int, prev time.Duration) time.Duration {
	return f.at(n, prev, rand.Float64())
}

// Validate returns an [*Invalid] for every field with an invalid value, joined by
// errors.Join.
func (f FullJitter) Validate() error { return checkAWS(f.Base, f.Max) }

func (f FullJitter) at(n int, _ time.Duration, u float64) time.Duration {
	return between(0, awsGrow(f.Base, f.Max, n), u)
}

// EqualJitter draws each wait from the upper half of the time up to an exponential
// bound (AWS Architecture Blog, "Exponential Backoff And Jitter"). Half of the bound
// is certain, so no retry follows at once.
//
//	temp = min(cap, base · 2^attempt); temp/2 + random_between(0, temp/2)
//
// The zero value waits
//
//	retry  lowest  mean   highest
//	1      50ms    75ms   100ms
//	2      100ms   150ms  200ms
//	3      200ms   300ms  400ms
//	4      400ms   600ms  800ms
//	5      800ms   1.2s   1.6s
//	6      1.6s    2.4s   3.2s
//	7      3.2s    4.8s   6.4s
//	8      6.4s    9.6s   12.8s
//	9      10s     15s    20s
type EqualJitter struct {
	// Base bounds the first wait, which is at least half of Base. Default 100 ms.
	Base time.Duration
	// Max bounds every wait. Default 20 s.
	Max time.Duration
}

// Delay returns the wait before retry n. It does not depend on prev.
func (e EqualJitter) Delay(n int, prev time.Duration) time.Duration {
	return e.at(n, prev, rand.Float64())
}

// Validate returns an [*Invalid] for every field with an invalid value, joined by
// errors.Join.
func (e EqualJitter) Validate() error { return checkAWS(e.Base, e.Max) }

func (e EqualJitter) at(n int, _ time.Duration, u float64) time.Duration {
	bound := awsGrow(e.Base, e.Max, n)
	return between(bound/2, bound, u)
}

// Decorrelated draws each wait between Base and three times the previous wait (AWS
// Architecture Blog, "Exponential Backoff And Jitter"). So the waits grow by chance,
// and may become shorter again.
//
//	sleep = min(cap, random_between(base, sleep · 3))
//
// With this formula about two of three waits at the cap are the cap itself. So here
// the wait is drawn between Base and min(3·prev, Max). The zero value waits
//
//	retry  lowest  mean    highest
//	1      100ms   200ms   300ms
//	2      100ms   350ms   900ms
//	3      100ms   575ms   2.7s
//	4      100ms   913ms   8.1s
//	5      100ms   1.419s  20s
//	6      100ms   2.119s  20s
type Decorrelated struct {
	// Base is the shortest wait. It also stands for the previous wait at the first
	// retry. Default 100 ms.
	Base time.Duration
	// Max bounds every wait. Default 20 s.
	Max time.Duration
	// Literal follows the formula of the article, which caps the wait after the draw.
	Literal bool
}

// Delay returns the wait after the previous wait prev. If prev is shorter than Base,
// Base takes its place. The result does not depend on n.
func (d Decorrelated) Delay(n int, prev time.Duration) time.Duration {
	return d.at(n, prev, rand.Float64())
}

// Validate returns an [*Invalid] for every field with an invalid value, joined by
// errors.Join.
func (d Decorrelated) Validate() error { return checkAWS(d.Base, d.Max) }

func (d Decorrelated) at(_ int, prev time.Duration, u float64) time.Duration {
	top := positive(d.Max, awsMax)
	base := min(positive(d.Base, awsBase), top)
	high := times(max(prev, base), 3, forever)
	if d.Literal {
		return min(between(base, high, u), top)
	}
	return between(base, min(high, top), u)
}

func awsGrow(base, top time.Duration, n int) time.Duration {
	return grow(positive(base, awsBase), 2, n, positive(top, awsMax))
}

func checkAWS(base, top time.Duration) error {
	return faults(
		checkDuration("Base", base),
		checkDuration("Max", top),
		checkOrder("Base", positive(base, awsBase), "Max", positive(top, awsMax)))
}
