package formula

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const (
	ms     = time.Millisecond
	sec    = time.Second
	lowest = math.MinInt64
)

// formulas are all formulas with their defaults, and what they promise.
var formulas = map[string]struct {
	Formula
	longest time.Duration // no wait is longer
	spread  time.Duration // by this much waits after the longest differ at the cap
}{
	"Exponential":  {Exponential{}, 32 * sec, sec},
	"full":         {Exponential{Jitter: "full"}, 32 * sec, 32 * sec},
	"equal":        {Exponential{Jitter: "equal"}, 32 * sec, 16 * sec},
	"decorrelated": {Exponential{Jitter: "decorrelated"}, 32 * sec, 31 * sec},
	"proportional": {Exponential{Jitter: "proportional"}, 32 * sec, 32 * sec * 2 / 3},
	"normal":       {Exponential{Jitter: "normal"}, 32 * sec, 32 * sec * 6 / 13},
	"none":         {Exponential{Jitter: "none"}, 32 * sec, 0},
	"Google":       {Google{}, 32 * sec, 0},
	"Geometric":    {Geometric{}, 10 * sec, 0},
	"Normal":       {Normal{}, 1170 * sec, 540 * sec},
	"Randomized":   {Randomized{}, 90 * sec, 60 * sec},
	"to zero":      {Randomized{RandomizationFactor: 1}, 120 * sec, 120 * sec},
	"Constant":     {Constant(sec), sec, 0},
}

// walk returns the first n waits for one random number, each following the one
// before it. It ends where the back-off stops.
func walk(f Formula, n int, u float64) []time.Duration {
	var waits []time.Duration
	var prev time.Duration
	for i := range n {
		if prev = f.At(i, prev, u); prev < 0 {
			break
		}
		waits = append(waits, prev)
	}
	return waits
}

// meets checks what every formula promises for one input. x and y stand for two
// random numbers.
func meets(t *testing.T, f Formula, n int, prev time.Duration, x, y uint64, longest time.Duration) {
	t.Helper()
	u, v := float64(min(x, y)>>11)/(1<<53), float64(max(x, y)>>11)/(1<<53)
	low, high := f.At(n, prev, u), f.At(n, prev, v)
	assert.True(t, 0 <= low && low <= high && high <= longest, "%#v at n %d, prev %d: %d for u %v, %d for u %v, at most %d", f, n, prev, low, u, high, v, longest)
}

func TestFormulasMeetTheirPromises(t *testing.T) {
	for name, f := range formulas {
		t.Run(name, func(t *testing.T) {
			if v, ok := f.Formula.(interface{ Validate() error }); ok {
				assert.NoError(t, v.Validate())
			}
			for _, n := range []int{lowest, -1, 0, 1, 2, 5, 31, 62, 63, 64, 1000, math.MaxInt64} {
				for _, prev := range []time.Duration{lowest, -1, 0, 1, sec, time.Hour, forever} {
					if f.Formula == (Geometric{}) && n > 3 {
						assert.Equal(t, Stop, f.At(n, prev, 0.5))
						continue
					}
					for _, x := range []uint64{0, 1 << 40, 1 << 63, math.MaxUint64} {
						meets(t, f.Formula, n, prev, x, math.MaxUint64, f.longest)
					}
				}
			}
		})
	}
}

func TestTheWholeSpreadIsPossibleAtTheCap(t *testing.T) {
	for name, f := range formulas {
		low, high := f.At(1000, f.longest, 0), f.At(1000, f.longest, JustBelowOne)
		assert.InDelta(t, f.spread, high-low, 2, name)
		assert.True(t, high == Stop || max(high, f.longest)-min(high, f.longest) < 2, "%s: %v", name, high)
	}
	assert.EqualValues(t, -1, Stop)
}

func TestDrawsAreUniform(t *testing.T) {
	counts := make([]int, 11)
	const grid = 1100
	for i := range grid {
		counts[between(5, 15, float64(i)/grid)-5]++
	}
	for i, n := range counts {
		assert.Equal(t, grid/11, n, "of %d", i+5)
	}
	assert.Equal(t, forever, between(0, forever, JustBelowOne)+1023, "float64 has no more digits than that")
	assert.Equal(t, 3*sec, between(3*sec, 2*sec, 0.5))
}

func TestArithmeticKeepsToItsBounds(t *testing.T) {
	assert.Equal(t, forever, Times(forever, 2, forever))
	assert.Equal(t, forever-65, Times(forever-65, 1, forever))
	assert.Equal(t, 5*sec, Times(sec, math.Inf(1), 5*sec))
	assert.Equal(t, 5*sec, Times(sec, math.NaN(), 5*sec))
	assert.Zero(t, Times(sec, math.Inf(-1), 5*sec))
	assert.Zero(t, Times(sec, 1, -1))
	assert.Equal(t, sec, grow(sec, 2, lowest, forever))
	assert.Equal(t, forever, grow(1, 2, 63, forever))
}

func TestValidateNamesEveryBadField(t *testing.T) {
	nan, inf := math.NaN(), math.Inf(1)
	for _, test := range []struct {
		formula interface{ Validate() error }
		want    string // the faults, in order
	}{
		{Exponential{Base: -1, Factor: 0.5, Max: -1}, "Base: -1ns is negative\nFactor: 0.5 is not a finite number of at least 1\nMax: -1ns is negative"},
		{Exponential{Max: 500 * ms}, "Max: 500ms is less than Base (1s)"},
		{Exponential{Base: 500 * ms, Max: 500 * ms, JitterFactor: 100}, ""},
		{Exponential{Jitter: "Full"}, "Jitter: Full is none of add, full, equal, decorrelated, proportional, normal, none"},
		{Exponential{Jitter: "equal", JitterFactor: 0.5}, "JitterFactor: 0.5 has no effect with this Jitter"},
		{Exponential{Jitter: "decorrelated", Factor: 3}, "Factor: 3 has no effect with Jitter decorrelated"},
		{Exponential{Jitter: "add", JitterFactor: -1}, "JitterFactor: -1 is not a finite number above zero"},
		{Exponential{JitterFactor: nan}, "JitterFactor: NaN is not a finite number above zero"},
		{Exponential{Jitter: "proportional", JitterFactor: 1.5}, "JitterFactor: 1.5 is not a number from 0 to 1"},
		{Exponential{Jitter: "normal", JitterFactor: nan}, "JitterFactor: NaN is not a number from 0 to 0.3333"},
		{Google{}, ""},
		{Google{MaximumBackoff: -1}, "MaximumBackoff: -1ns is negative"},
		{Geometric{Time: -1, Rate: nan, Max: -1}, "Time: -1ns is negative\nRate: NaN is not a finite number of at least 1\nMax: -1ns is negative"},
		{Geometric{Time: 2 * sec, Max: sec}, "Max: 1s is less than Time (2s)"},
		{Normal{MinDelay: -1, Factor: -1, MaxDelay: -1, Jitter: 0.34},
			"MinDelay: -1ns is negative\nFactor: -1 is not a finite number of at least 1\nMaxDelay: -1ns is negative\nJitter: 0.34 is not a number from 0 to 0.3333"},
		{Normal{Factor: 1, Jitter: 1.0 / 3}, ""},
		{Randomized{InitialInterval: -1, Multiplier: inf, MaxInterval: -1, RandomizationFactor: -inf},
			"RandomizationFactor: -Inf is not a number from 0 to 1\nInitialInterval: -1ns is negative\nMultiplier: +Inf is not a finite number of at least 1\nMaxInterval: -1ns is negative"},
		{Randomized{Multiplier: 1, RandomizationFactor: 1}, ""},
		{Randomized{MaxInterval: 100 * ms}, "MaxInterval: 100ms is less than InitialInterval (500ms)"},
	} {
		if err := test.formula.Validate(); test.want == "" {
			assert.NoError(t, err, "%+v", test.formula)
		} else {
			assert.EqualError(t, err, test.want)
		}
	}
}

// A value that Validate refuses counts as the default.
func TestRefusedFieldsCountAsDefaults(t *testing.T) {
	nan, inf := math.NaN(), math.Inf(1)
	for _, test := range []struct{ bad, good Formula }{
		{Exponential{-1, nan, -1, "foo", -1}, Exponential{}},
		{Exponential{-1, 0.5, -1, "add", inf}, Exponential{}},
		{Exponential{-1, inf, -1, "proportional", 1.1}, Exponential{Jitter: "proportional"}},
		{Google{-1}, Google{}},
		{Geometric{-1, nan, -1}, Geometric{}},
		{Normal{-1, -inf, -1, 0.34}, Normal{}},
		{Randomized{-1, nan, 0.9, -1}, Randomized{}},
		{Randomized{-1, 1.1, inf, -1}, Randomized{}},
	} {
		for _, u := range []float64{0, 0.3, 0.5, JustBelowOne} {
			assert.Equal(t, walk(test.good, 20, u), walk(test.bad, 20, u), "%+v", test.bad)
		}
	}
}

// The draws are those of a normal distribution cut at ±3, whose figures are known.
func TestNormalDistribution(t *testing.T) {
	const grid = 100_000
	var sum, squares float64
	within := map[int]int{}
	last := math.Inf(-1)
	for i := range grid {
		z := normal((float64(i) + 0.5) / grid)
		require.Greater(t, z, last)
		last = z
		sum += z
		squares += z * z
		for sigmas := 1; sigmas <= 3; sigmas++ {
			if math.Abs(z) < float64(sigmas) {
				within[sigmas]++
			}
		}
	}
	density := 3 * math.Exp(-4.5) / math.Sqrt(2*math.Pi)
	assert.InDelta(t, 0, sum/grid, 1e-9)
	assert.InDelta(t, 1-2*density/within3, squares/grid, 1e-4, "variance")
	assert.InDelta(t, math.Erf(1/math.Sqrt2)/within3, float64(within[1])/grid, 1e-4)
	assert.InDelta(t, math.Erf(2/math.Sqrt2)/within3, float64(within[2])/grid, 1e-4)
	assert.Equal(t, grid, within[3])
	assert.InDelta(t, -3, normal(0), 1e-9)
	assert.InDelta(t, 3, normal(JustBelowOne), 1e-9)
	assert.Zero(t, normal(0.5))
}

// Neighbours on the grid of random numbers keep their order wherever Erfinv
// changes from one of its polynomials to another.
func TestNormalKeepsOrder(t *testing.T) {
	for _, near := range []float64{0, 0.074, 0.075, 0.25, 0.5, 0.75, 0.925, 0.926, 0.999} {
		last := math.Inf(-1)
		for i := range 10_000 {
			z := normal(near + float64(i)/(1<<40))
			require.GreaterOrEqual(t, z, last, "after %v at %v", last, near)
			last = z
		}
	}
}

func FuzzFormulas(f *testing.F) {
	nan, inf, most := math.NaN(), math.Inf(1), int64(forever)
	for kind := range byte(len(Jitters) + 4) {
		f.Add(kind, int64(0), 0.0, int64(0), 0.0, 3, int64(0), uint64(1), uint64(2))
		f.Add(kind, int64(-1), nan, int64(-1), nan, 63, int64(-1), uint64(1)<<63, ^uint64(0))
		f.Add(kind, most, inf, most, inf, 1, most, uint64(0), ^uint64(0))
		f.Add(kind, most, 1e308, most-65, -29.0, 22, most, uint64(0), ^uint64(0)) // float64(top) is above top
		f.Add(kind, most, 1e308, most, 1.0, 2, most, uint64(0), ^uint64(0))
		f.Add(kind, int64(sec), -inf, int64(sec), -inf, -1, int64(lowest), uint64(0), ^uint64(0))
		f.Add(kind, int64(1), 1.0, int64(1), 0.34, 1<<62, int64(1), uint64(0), uint64(1))
		f.Add(kind, int64(ms), 2.7, int64(time.Hour), 1.0/3, 9, int64(sec), uint64(7)<<50, uint64(9)<<59)
	}
	f.Fuzz(func(t *testing.T, kind byte, base int64, factor float64, top int64, jitter float64, n int, prev int64, x, y uint64) {
		first, last := time.Duration(base), time.Duration(top)
		var b Formula
		var longest time.Duration
		switch kind %= byte(len(Jitters) + 4); int(kind) - len(Jitters) {
		case 0:
			b, longest = Google{last}, positive(last, 32*sec)
		case 1:
			if b, longest = (Geometric{first, factor, last}), positive(last, 10*sec); b.At(n, 0, 0) == Stop {
				return
			}
		case 2:
			d := Normal{first, factor, last, jitter}
			_, _, top, jitter := d.fields()
			b, longest = d, exceeding(top, 1+3*jitter)
		case 3:
			r := Randomized{first, jitter, factor, last}
			_, _, top, jitter := r.fields()
			b, longest = r, exceeding(top, 1+jitter)
		default:
			b, longest = Exponential{first, factor, last, Jitters[kind], jitter}, positive(last, 32*sec)
		}
		meets(t, b, n, time.Duration(prev), x, y, longest)
	})
}

// exceeding is d · factor with room for float64's rounding.
func exceeding(d time.Duration, factor float64) time.Duration {
	x := float64(d) * factor * (1 + 1e-12)
	if x >= math.MaxInt64 {
		return math.MaxInt64
	}
	return time.Duration(x) + 1
}

// No wait exceeds Max. The random time of JitterAdd follows Base, so that a short Base is not followed by a random
// second.
func TestExponentialBounds(t *testing.T) {
	const late = 1000 // at the cap
	for _, test := range []struct {
		n         int
		b         Exponential
		low, high time.Duration
	}{
		{late, Exponential{}, 31 * sec, 32 * sec},
		{late, Exponential{Jitter: "none"}, 32 * sec, 32 * sec},
		{late, Exponential{Max: 64 * sec}, 63 * sec, 64 * sec},
		{late, Exponential{Max: 500 * ms}, 250 * ms, 500 * ms},
		{late, Exponential{Max: forever}, forever - sec, forever},
		{late, Exponential{Base: forever, Max: forever}, forever - forever/2, forever},
		{late, Exponential{Jitter: "proportional", JitterFactor: 1}, 0, 32 * sec},
		{late, Exponential{Jitter: "normal", JitterFactor: 1.0 / 3}, 0, 32 * sec},
		{0, Exponential{}, sec, 2 * sec},
		{0, Exponential{Base: 100 * ms}, 100 * ms, 200 * ms},
		{0, Exponential{Base: 100 * ms, Jitter: "add", JitterFactor: 10}, 100 * ms, 1100 * ms},
		{0, Exponential{Base: 100 * ms, Max: 150 * ms}, 75 * ms, 150 * ms},
		{0, Exponential{Base: 5 * sec}, 5 * sec, 10 * sec},
		{0, Exponential{Base: 20 * sec}, 16 * sec, 32 * sec},
		{0, Exponential{Base: 32 * sec, JitterFactor: 2}, 16 * sec, 32 * sec},
	} {
		assert.InDelta(t, test.low, test.b.At(test.n, 0, 0), 1, "%+v", test.b)
		delta := 0.0
		if test.high == forever {
			delta = 1023 // as far as float64 goes
		}
		assert.InDelta(t, test.high, test.b.At(test.n, 0, JustBelowOne), delta+1, "%+v", test.b)
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
		{Geometric{Time: 10*sec - 1}, []time.Duration{10*sec - 1}},
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
			assert.Equal(t, b.MinDelay, b.At(-5, sec, u), "the first wait is exact")
			delay := float64(b.MinDelay)
			for n, got := range walk(b, 20, u) {
				assert.InDelta(t, delay, got, 1e-7*delay, "%s, u %v, retry %d", name, u, n+1)
				delay = min(delay*b.Factor, float64(b.MaxDelay))
				delay += normal(u) * delay * b.Jitter
			}
		}
	}
}

// The lowest and highest waits in the documentation of cenkalti/backoff, cut to milliseconds. It computes a row from
// the interval that it has printed for the row before.
func TestRandomizedPrintedTable(t *testing.T) {
	interval := 500 * ms
	for _, row := range [][2]time.Duration{
		{250, 750}, {375, 1125}, {562, 1687}, {843, 2530}, {1265, 3795}, {1897, 5692}, {2846, 8538}, {4269, 12807}, {6403, 19210},
	} {
		b := Randomized{InitialInterval: interval}
		assert.Equal(t, row, [2]time.Duration{b.At(0, 0, 0) / ms, b.At(0, 0, JustBelowOne) / ms})
		interval = b.At(1, 0, 0.5).Truncate(ms)
	}
}
