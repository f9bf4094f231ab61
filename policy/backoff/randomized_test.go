package backoff

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

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
		b := Randomized{Interval: row[0] * us, Literal: true}
		assert.Equal(t, row[1]*us, cut(b.at(0, 0, 0), row[1]), "lowest of row %d", i+1)
		assert.Equal(t, row[0]*us, b.at(0, 0, 0.5), "interval of row %d", i+1)
		assert.Equal(t, row[2]*us, cut(b.at(0, 0, justBelowOne), row[2]), "highest of row %d", i+1)
		if i+1 < len(printed) {
			assert.Equal(t, printed[i+1][0]*us, b.at(1, 0, 0.5).Truncate(ms), "interval of row %d", i+2)
		}
	}
}

// Without that rounding the numbers are the printed ones to 0.06 %, and never
// below them.
func TestRandomizedTable(t *testing.T) {
	for _, b := range []Randomized{{}, {Literal: true}} {
		low, mid, high := walk(b, 9, 0), walk(b, 9, 0.5), walk(b, 9, justBelowOne)
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
}

// The article: "RetryInterval = 2 and RandomizationFactor = 0.5" give [1, 3],
// with the multiplier "between 2 and 6".
func TestRandomizedWordedExample(t *testing.T) {
	b := Randomized{Interval: 2 * sec, Multiplier: 2, RandomizationFactor: 0.5, Literal: true}
	assert.Equal(t, sec, b.at(0, 0, 0))
	assert.Equal(t, 3*sec, b.at(0, 0, justBelowOne))
	assert.Equal(t, 2*sec, b.at(1, 0, 0))
	assert.Equal(t, 6*sec, b.at(1, 0, justBelowOne))
}

func TestRandomizedAtTheCap(t *testing.T) {
	for _, test := range []struct {
		b         Randomized
		low, high time.Duration
	}{
		{Randomized{}, 20 * sec, 60 * sec},
		{Randomized{Literal: true}, 30 * sec, 90 * sec},
		{Randomized{RandomizationFactor: 1}, 0, 60 * sec},
		{Randomized{RandomizationFactor: -1}, 60 * sec, 60 * sec},
		{Randomized{RandomizationFactor: -1, Literal: true}, 60 * sec, 60 * sec},
	} {
		assert.Equal(t, test.low, test.b.at(1000, 0, 0), "%+v", test.b)
		assert.Equal(t, test.high, test.b.at(1000, 0, justBelowOne), "%+v", test.b)
	}
}

func FuzzRandomized(f *testing.F) {
	addCurves(f)
	f.Fuzz(func(t *testing.T, first int64, factor float64, top int64, jitter float64, literal bool, n int, prev int64, x, y uint64) {
		b := Randomized{time.Duration(first), factor, time.Duration(top), jitter, literal}
		longest := highest(top, 60*sec)
		if literal && !(jitter < 0) {
			if !(jitter > 0 && jitter <= 1) {
				jitter = 0.5
			}
			longest = exceeding(longest, 1+jitter)
		}
		if literal && jitter < -1e300 { // minus infinity is refused
			longest = exceeding(longest, 1.5)
		}
		meets(t, b, n, time.Duration(prev), x, y, longest)
	})
}
