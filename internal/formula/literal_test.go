package formula

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// "Implementing Exponential Back-Off": 1, 2, 4, 8 and 16 s, each with a random
// number of milliseconds of at most 1000. That it stops at n == 5 is
// policy.TestDoOlderGoogleStory.
func TestGoogleOlderPage(t *testing.T) {
	for n, base := range []time.Duration{sec, 2 * sec, 4 * sec, 8 * sec, 16 * sec} {
		for _, b := range []Formula{Exponential{}, Google{}} {
			assert.Equal(t, base, b.At(n, 0, 0))
			assert.Equal(t, base+sec, b.At(n, 0, JustBelowOne))
		}
	}
}

// Google Cloud's "Exponential backoff": min(2^n + random_number_milliseconds,
// maximum_backoff), for both maxima that the page names, on past the cap.
func TestGooglePage(t *testing.T) {
	for _, maximum := range []time.Duration{32 * sec, 64 * sec} {
		b := Google{MaximumBackoff: maximum}
		for n := range 100 {
			for random := range 1001 {
				u := (float64(random) + 0.5) / 1001
				want := maximum
				if n < 10 {
					want = min((1<<n)*sec+time.Duration(random)*ms, maximum)
				}
				require.Equal(t, want, b.At(n, 0, u), "n %d, %d ms, at most %v", n, random, maximum)
			}
		}
	}
}

// macro is the Clojure function's recursion: the waits until time reaches max.
func macro(wait time.Duration, rate float64, longest time.Duration) (waits []time.Duration) {
	for ; wait < longest; wait = time.Duration(float64(wait) * rate) {
		waits = append(waits, wait)
	}
	return waits
}

func TestGeometricMacro(t *testing.T) {
	for _, test := range []struct {
		b    Geometric
		want []time.Duration
	}{
		{Geometric{}, []time.Duration{sec, 2 * sec, 4 * sec, 8 * sec}},
		{Geometric{}, macro(sec, 2, 10*sec)},
		{Geometric{Time: 10 * ms, Rate: 1.5, Max: sec}, macro(10*ms, 1.5, sec)},
		{Geometric{Max: 8 * sec}, macro(sec, 2, 8*sec)}, // 8 s itself is no wait
		{Geometric{Time: 10 * sec}, nil},                // just call f
	} {
		got := walk(test.b, 100, 0.5)
		assert.Len(t, got, len(test.want), "%+v", test.b)
		for i := range test.want {
			assert.InDelta(t, test.want[i], got[i], 20, "%+v", test.b)
		}
		assert.Equal(t, Stop, test.b.At(len(test.want), 0, 0), "%+v", test.b)
		assert.Equal(t, Stop, test.b.At(1_000_000, 0, 0), "%+v", test.b)
	}
}

// The two curves that the article plots, in the middle of their jitter: the
// first waits in milliseconds, to the microsecond.
var curves = map[string]struct {
	b    Normal
	want []float64
}{
	"blue": {
		Normal{MinDelay: 100 * ms, Factor: 2.7, Jitter: 0.1, MaxDelay: 10 * time.Minute},
		[]float64{100, 270, 729, 1968.3, 5314.41, 14348.907, 38742.049, 104603.532, 282429.536, 600000, 600000},
	},
	"green": {
		Normal{MinDelay: sec, Factor: 1.5, Jitter: 0.1, MaxDelay: 5 * time.Minute},
		[]float64{1000, 1500, 2250, 3375, 5062.5, 7593.75, 11390.625, 17085.938, 25628.906, 38443.359,
			57665.039, 86497.559, 129746.338, 194619.507, 291929.26, 300000, 300000},
	},
}

func TestNormalPlottedCurves(t *testing.T) {
	for name, curve := range curves {
		waits := walk(curve.b, len(curve.want), 0.5)
		var own []time.Duration // from n alone, as when prev is lost
		for n := range waits {
			own = append(own, curve.b.At(n, 0, 0.5))
		}
		for n, want := range curve.want {
			assert.InDelta(t, want, waits[n].Seconds()*1000, 0.001, "%s, retry %d", name, n+1)
			assert.InDelta(t, want, own[n].Seconds()*1000, 0.001, "%s, retry %d", name, n+1)
		}
	}
}

// The pseudo-code, run beside the formula with the same draws.
func TestNormalPseudoCode(t *testing.T) {
	for name, curve := range curves {
		for _, u := range []float64{0, 0.1, 0.4, 0.5, 0.77, JustBelowOne} {
			b := curve.b
			delay := float64(b.MinDelay)
			for n, got := range walk(b, 20, u) {
				assert.InDelta(t, delay, got, 1e-7*delay, "%s, u %v, retry %d", name, u, n+1)
				delay = min(delay*b.Factor, float64(b.MaxDelay))
				delay += normal(u) * delay * b.Jitter
			}
		}
	}
}

func TestNormalFirstWaitIsExact(t *testing.T) {
	for _, u := range []float64{0, 0.5, JustBelowOne} {
		assert.Equal(t, 100*ms, Normal{}.At(0, 0, u))
		assert.Equal(t, 100*ms, Normal{}.At(-5, sec, u))
	}
}

// printed is the table that comes with cenkalti/backoff and is repeated in
// "Exponential Backoff In Go": interval, lowest, highest, in microseconds.
var printed = [][3]time.Duration{
	{500_000, 250_000, 750_000},
	{750_000, 375_000, 1_125_000},
	{1_125_000, 562_000, 1_687_000},
	{1_687_000, 843_500, 2_530_000},
	{2_530_000, 1_265_000, 3_795_000},
	{3_795_000, 1_897_000, 5_692_000},
	{5_692_000, 2_846_000, 8_538_000},
	{8_538_000, 4_269_000, 12_807_000},
	{12_807_000, 6_403_000, 19_210_000},
}

// The table cuts every number to three decimals (one lowest is left at four) and
// computes each row from the interval that it has printed for the row before. By
// this rule it comes out digit for digit.
func TestRandomizedPrintedTable(t *testing.T) {
	us := time.Microsecond
	cut := func(d time.Duration, like time.Duration) time.Duration {
		if like%1000 != 0 {
			return d.Truncate(us)
		}
		return d.Truncate(ms)
	}
	for i, row := range printed {
		b := Randomized{InitialInterval: row[0] * us}
		assert.Equal(t, row[1]*us, cut(b.At(0, 0, 0), row[1]), "lowest of row %d", i+1)
		assert.Equal(t, row[0]*us, b.At(0, 0, 0.5), "interval of row %d", i+1)
		assert.Equal(t, row[2]*us, cut(b.At(0, 0, JustBelowOne), row[2]), "highest of row %d", i+1)
		if i+1 < len(printed) {
			assert.Equal(t, printed[i+1][0]*us, b.At(1, 0, 0.5).Truncate(ms), "interval of row %d", i+2)
		}
	}
}

// Without that rounding the numbers are the printed ones to 0.06 %, and never
// below them.
func TestRandomizedTable(t *testing.T) {
	b := Randomized{}
	low, mid, high := walk(b, 9, 0), walk(b, 9, 0.5), walk(b, 9, JustBelowOne)
	exact := 500 * float64(ms)
	for i, row := range printed {
		assert.InDelta(t, exact, mid[i], 1)
		assert.InDelta(t, exact/2, low[i], 1)
		assert.InDelta(t, exact*3/2, high[i], 1)
		for j, got := range []time.Duration{mid[i], low[i], high[i]} {
			assert.GreaterOrEqual(t, got, row[j]*time.Microsecond)
			assert.InEpsilon(t, row[j]*time.Microsecond, got, 0.0009)
		}
		exact *= 1.5
	}
}

// The article: "RetryInterval = 2 and RandomizationFactor = 0.5" give [1, 3],
// with the multiplier "between 2 and 6".
func TestRandomizedWordedExample(t *testing.T) {
	b := Randomized{InitialInterval: 2 * sec, Multiplier: 2, RandomizationFactor: 0.5}
	assert.Equal(t, sec, b.At(0, 0, 0))
	assert.Equal(t, 3*sec, b.At(0, 0, JustBelowOne))
	assert.Equal(t, 2*sec, b.At(1, 0, 0))
	assert.Equal(t, 6*sec, b.At(1, 0, JustBelowOne))
}
