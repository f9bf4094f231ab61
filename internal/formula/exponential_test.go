package formula

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

func TestExponentialMaxHolds(t *testing.T) {
	for _, test := range []struct {
		b         Exponential
		low, high time.Duration // at the cap
	}{
		{Exponential{}, 31 * sec, 32 * sec},
		{Exponential{Jitter: "none"}, 32 * sec, 32 * sec},
		{Exponential{Max: 64 * sec}, 63 * sec, 64 * sec},
		{Exponential{Max: 500 * ms}, 250 * ms, 500 * ms},
		{Exponential{Max: forever}, forever - sec, forever},
		{Exponential{Base: forever, Max: forever}, forever - forever/2, forever},
		{Exponential{Jitter: "proportional", JitterFactor: 1}, 0, 32 * sec},
		{Exponential{Jitter: "normal", JitterFactor: 1.0 / 3}, 0, 32 * sec},
	} {
		assert.InDelta(t, test.low, test.b.At(1000, 0, 0), 1, "%+v", test.b)
		assert.InDelta(t, test.high, test.b.At(1000, 0, JustBelowOne), 1023, "%+v, as far as float64 goes", test.b)
	}
}

// The random time of JitterAdd follows Base, so that a short Base is not followed by a random
// second.
func TestExponentialJitterFollowsBase(t *testing.T) {
	for _, test := range []struct {
		b         Exponential
		low, high time.Duration // of the first wait
	}{
		{Exponential{}, sec, 2 * sec},
		{Exponential{Base: 100 * ms}, 100 * ms, 200 * ms},
		{Exponential{Base: 100 * ms, Jitter: "add", JitterFactor: 10}, 100 * ms, 1100 * ms},
		{Exponential{Base: 100 * ms, Max: 150 * ms}, 75 * ms, 150 * ms},
		{Exponential{Base: 5 * sec}, 5 * sec, 10 * sec},
		{Exponential{Base: 20 * sec}, 16 * sec, 32 * sec},
		{Exponential{Base: 32 * sec, JitterFactor: 2}, 16 * sec, 32 * sec},
	} {
		assert.Equal(t, test.low, test.b.At(0, 0, 0), "%+v", test.b)
		assert.Equal(t, test.high, test.b.At(0, 0, JustBelowOne), "%+v", test.b)
	}
}

// The three formulas of the AWS Architecture Blog, computed from the random number as it has
// them. The cap of the third comes before the draw here, because about two of three waits at
// the cap would be the cap itself.
func TestAWSFormulas(t *testing.T) {
	const base, top = 50 * ms, 3 * sec
	for n := range 12 {
		bound := min(base<<n, top)
		for i := range 100 {
			u := float64(i) / 100
			assert.InDelta(t, u*float64(bound), Exponential{Base: base, Max: top, Jitter: "full"}.At(n, 0, u), 2)
			assert.InDelta(t, (1+u)*float64(bound/2), Exponential{Base: base, Max: top, Jitter: "equal"}.At(n, 0, u), 2)
			for _, prev := range []time.Duration{base, bound, top} {
				drawn := float64(base) + u*float64(min(3*prev, top)-base)
				assert.InDelta(t, drawn, Exponential{Base: base, Max: top, Jitter: "decorrelated"}.At(n, prev, u), 4)
			}
		}
	}
}

func TestDecorrelatedStartsFromBase(t *testing.T) {
	for _, prev := range []time.Duration{lowest, -1, 0, 1, sec} {
		assert.Equal(t, sec, Exponential{Jitter: "decorrelated"}.At(0, prev, 0))
		assert.Equal(t, 3*sec, Exponential{Jitter: "decorrelated"}.At(0, prev, JustBelowOne))
	}
}

// With the parameters of a document, proportional and normal jitter are the document's below the
// cap.
func TestJitterOfDocuments(t *testing.T) {
	for _, u := range []float64{0, 0.1, 0.5, 0.77, JustBelowOne} {
		for n := range 8 {
			proportional := Exponential{Base: 500 * ms, Factor: 1.5, Max: time.Minute, Jitter: "proportional"}
			assert.Equal(t, Randomized{}.At(n, 0, u), proportional.At(n, 0, u))
		}
		normally := Exponential{Base: 200 * ms, Max: 15 * time.Minute, Jitter: "normal"}
		assert.Equal(t, Normal{}.At(1, 0, u), normally.At(0, 0, u))
	}
}
