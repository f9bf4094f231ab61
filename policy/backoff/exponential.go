// Exponential back-off, with all kinds of jitter.

package backoff

import (
	"math/rand/v2"
	"time"

	"github.com/aplomb-go/aplomb/internal/formula"
)

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
