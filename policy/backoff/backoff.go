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

import (
	"math/rand/v2"
	"time"

	"github.com/aplomb-go/aplomb/internal/formula"
)

// A Backoff computes the wait before a retry.
//
// n counts the retries from 0, so it is 0 before the first retry. prev is the
// value that the Backoff returned before the previous retry. It is 0 at n == 0,
// and it is never the wait that a server asked for. If the result is negative, such as
// [Stop], there is no further retry.
//
// Delay must be a pure function of n, prev and a random number. It must be safe
// for concurrent use, because one Backoff serves all requests.
type Backoff interface {
	Delay(n int, prev time.Duration) time.Duration
}

// Stop is the Delay after which there is no retry.
const Stop time.Duration = -1

// Constant always waits the same time. Constant(0) does not wait at all. With a
// negative Constant there is no retry. Constant(2 * time.Second) waits
//
//	retry  lowest  mean  highest
//	1      2s      2s    2s
//	2      2s      2s    2s
//
// After a failure of the server, all clients with a fixed interval come back at the
// same moments, and their load can keep the server down. So use Constant for tests,
// or if something else makes the waits random.
type Constant time.Duration

// Delay returns the wait. It depends neither on n nor on prev.
func (c Constant) Delay(n int, prev time.Duration) time.Duration { return time.Duration(c) }

// Exponential waits w = min(Base · Factor^n, Max), and makes that random. It is the default of a
// policy.Rule, and follows Google Cloud's pages on exponential back-off (see [Google]), but for
// the waits at the cap. Google's formula has no randomness there, because 32 s plus a random time
// is cut to 32 s. Clients that failed together then come back together. So here the cap of w
// leaves room for the random part. No wait exceeds Max, and the waits still differ at the
// cap. The zero value waits
//
//	retry  lowest  mean   highest
//	1      1s      1.5s   2s
//	2      2s      2.5s   3s
//	3      4s      4.5s   5s
//	4      8s      8.5s   9s
//	5      16s     16.5s  17s
//	6      31s     31.5s  32s
//	7      31s     31.5s  32s
type Exponential struct {
	// Base is the first wait, before jitter. Default 1 s.
	Base time.Duration
	// Factor is the factor from one wait to the next, at least 1. Default 2. It has no
	// meaning for JitterDecorrelated.
	Factor float64
	// Max is the longest wait, jitter included. Default 32 s.
	Max time.Duration
	// Jitter says how the wait is made random. Default JitterAdd.
	Jitter Jitter
	// JitterFactor is the size of the random part. Its default and its meaning are those
	// of the Jitter. JitterFull, JitterEqual, JitterDecorrelated and JitterNone have none.
	JitterFactor float64
}

// A Jitter is a way to make a wait random. w is the wait, and f the JitterFactor. The AWS
// Architecture Blog is "Exponential Backoff And Jitter" there. The zero Jitter means JitterAdd.
type Jitter string

const (
	// JitterAdd adds a time from 0 to f · Base, and at most half of Max. f is 1 by default.
	// That is the jitter of Google Cloud.
	JitterAdd Jitter = "add"
	// JitterFull waits from 0 to w (AWS Architecture Blog). If many clients compete, it needs
	// the fewest calls of the formulas there, because it spreads the clients over the whole
	// interval. In return a retry may follow at once.
	JitterFull Jitter = "full"
	// JitterEqual waits from w/2 to w (AWS Architecture Blog), so that no retry follows at
	// once.
	JitterEqual Jitter = "equal"
	// JitterDecorrelated waits from Base to three times the previous wait, and at most Max
	// (AWS Architecture Blog). So the waits grow by chance, and may become shorter again.
	JitterDecorrelated Jitter = "decorrelated"
	// JitterProportional waits from w · (1−f) to w · (1+f). f is at most 1, and 0.5 by
	// default. That is the jitter of cenkalti/backoff.
	JitterProportional Jitter = "proportional"
	// JitterNormal is normally distributed around w. f · w is the standard deviation, and
	// three of them are the most by which a wait differs from w. f is at most 1/3, and 0.1 by
	// default. That is the jitter of smira/exponential-backoff.
	JitterNormal Jitter = "normal"
	// JitterNone waits for w.
	JitterNone Jitter = "none"
)

// Delay returns the wait before retry n. With JitterDecorrelated alone it depends on prev.
func (e Exponential) Delay(n int, prev time.Duration) time.Duration {
	return e.formula().At(n, prev, rand.Float64())
}

// Validate returns an error for each field with an invalid value, joined by errors.Join.
func (e Exponential) Validate() error { return e.formula().Validate() }

func (e Exponential) formula() formula.Exponential {
	return formula.Exponential{Base: e.Base, Factor: e.Factor, Max: e.Max, Jitter: string(e.Jitter), JitterFactor: e.JitterFactor}
}

// Google is the formula of Google Cloud's pages on exponential back-off:
//
//	min(2^n s + random_number_milliseconds, maximum_backoff)
//
// The random number is a whole number from 0 to 1000. At the cap the waits are no longer
// random. [Exponential] is the same formula with waits that differ there. The zero value
// waits
//
//	retry  lowest  mean   highest
//	1      1s      1.5s   2s
//	2      2s      2.5s   3s
//	3      4s      4.5s   5s
//	4      8s      8.5s   9s
//	5      16s     16.5s  17s
//	6      32s     32s    32s
//
// An older version of the page has no cap and stops after the wait of 16 s. That is the same as
// MaxAttempts: 6, the default of a rule.
type Google struct {
	// MaximumBackoff is the longest wait. Default 32 s. The page names 64 s as well.
	MaximumBackoff time.Duration
}

// Delay returns the wait before retry n. It does not depend on prev.
func (g Google) Delay(n int, prev time.Duration) time.Duration {
	return formula.Google(g).At(n, prev, rand.Float64())
}

// Validate returns an error if the field has an invalid value.
func (g Google) Validate() error { return formula.Google(g).Validate() }

// Geometric is the Clojure macro in LispCast's "Exponential Backoff". It has no jitter:
//
//	wait time, then time·rate, then time·rate², … while that is less than max
//
// Then there is no further retry. For retries that go on at the cap, there is
// [Exponential]. The zero value waits
//
//	retry  lowest  mean  highest
//	1      1s      1s    1s
//	2      2s      2s    2s
//	3      4s      4s    4s
//	4      8s      8s    8s
type Geometric struct {
	// Time is the first wait. Default 1 s.
	Time time.Duration
	// Rate is the factor from one wait to the next, at least 1. Default 2.
	Rate float64
	// Max is the time that each wait is shorter than. Default 10 s.
	Max time.Duration
}

// Delay returns the wait before retry n, or [Stop]. It does not depend on prev.
func (g Geometric) Delay(n int, prev time.Duration) time.Duration {
	return formula.Geometric(g).At(n, prev, rand.Float64())
}

// Validate returns an error for each field with an invalid value, joined by errors.Join.
func (g Geometric) Validate() error { return formula.Geometric(g).Validate() }

// Normal is the pseudo-code of the article that comes with the simulation
// github.com/smira/exponential-backoff:
//
//	delay = MinDelay, at first
//	delay = min(delay · Factor, MaxDelay)
//	delay = delay + norm_variate(delay · Jitter)
//
// The first wait is the same for all clients, the jitter adds up from wait to wait, and a
// wait can exceed MaxDelay. The normal distribution is cut at three standard deviations. This
// changes every 370th draw and gives every wait a bound. [Exponential] with [JitterNormal]
// has waits that all are random and none longer than Max. The zero value waits
//
//	retry  lowest  mean   highest
//	1      100ms   100ms  100ms
//	2      140ms   200ms  260ms
//	3      196ms   400ms  676ms
//	4      274ms   800ms  1.758s
//	5      384ms   1.6s   4.57s
//	6      538ms   3.2s   11.881s
//
// and at most 19.5 min.
type Normal struct {
	// MinDelay is the first wait. Default 100 ms.
	MinDelay time.Duration
	// Factor is the factor from one wait to the next, at least 1. Default 2.
	Factor float64
	// MaxDelay is the longest wait before jitter. Default 15 min.
	MaxDelay time.Duration
	// Jitter is the standard deviation as a share of the wait. Default 0.1. It is at most 1/3, so
	// that three standard deviations do not reach below zero.
	Jitter float64
}

// Delay returns the wait after the wait prev. If prev is 0, the wait is computed from n.
func (d Normal) Delay(n int, prev time.Duration) time.Duration {
	return formula.Normal(d).At(n, prev, rand.Float64())
}

// Validate returns an error for each field with an invalid value, joined by errors.Join.
func (d Normal) Validate() error { return formula.Normal(d).Validate() }

// Randomized is the formula of github.com/cenkalti/backoff, whose parameters the article
// "Exponential Backoff In Go" explains:
//
//	InitialInterval · Multiplier^n · (1 ± RandomizationFactor)
//
// The interval is capped at MaxInterval before the randomization, so a wait may exceed
// MaxInterval by RandomizationFactor. No wait of [Exponential] with [JitterProportional] is
// longer than its Max. The zero value waits
//
//	retry  lowest   mean     highest
//	1      250ms    500ms    750ms
//	2      375ms    750ms    1.125s
//	3      563ms    1.125s   1.688s
//	4      844ms    1.688s   2.531s
//	5      1.266s   2.531s   3.797s
//	6      1.898s   3.797s   5.695s
//	7      2.848s   5.695s   8.543s
//	8      4.271s   8.543s   12.814s
//	9      6.407s   12.814s  19.222s
//	10     9.611s   19.222s  28.833s
//	11     14.416s  28.833s  43.249s
//	12     21.624s  43.249s  64.873s
//	13     30s      60s      90s
//
// The table in the original's documentation differs a little from the ninth row on,
// because it computes each row from the rounded values of the row before.
//
// MaxElapsedTime of the original is policy.Rule.MaxElapsedTime here.
type Randomized struct {
	// InitialInterval is the first interval. Default 500 ms.
	InitialInterval time.Duration
	// RandomizationFactor is the share of the interval by which a wait is longer or
	// shorter, at most 1. Default 0.5.
	RandomizationFactor float64
	// Multiplier is the factor from one interval to the next, at least 1. Default 1.5.
	Multiplier float64
	// MaxInterval is the longest interval. Default 60 s.
	MaxInterval time.Duration
}

// Delay returns the wait before retry n. It does not depend on prev.
func (r Randomized) Delay(n int, prev time.Duration) time.Duration {
	return formula.Randomized(r).At(n, prev, rand.Float64())
}

// Validate returns an error for each field with an invalid value, joined by errors.Join.
func (r Randomized) Validate() error { return formula.Randomized(r).Validate() }
