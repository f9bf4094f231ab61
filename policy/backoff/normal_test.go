package backoff

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The two curves that the article plots, in the middle of their jitter: the
// first waits in milliseconds, to the microsecond.
var curves = map[string]struct {
	b    Normal
	want []float64
}{
	"blue": {
		Normal{MinDelay: 100 * ms, Factor: 2.7, Jitter: 0.1, MaxDelay: 10 * time.Minute, Literal: true},
		[]float64{100, 270, 729, 1968.3, 5314.41, 14348.907, 38742.049, 104603.532, 282429.536, 600000, 600000},
	},
	"green": {
		Normal{MinDelay: sec, Factor: 1.5, Jitter: 0.1, MaxDelay: 5 * time.Minute, Literal: true},
		[]float64{1000, 1500, 2250, 3375, 5062.5, 7593.75, 11390.625, 17085.938, 25628.906, 38443.359,
			57665.039, 86497.559, 129746.338, 194619.507, 291929.26, 300000, 300000},
	},
}

func TestNormalPlottedCurves(t *testing.T) {
	for name, curve := range curves {
		waits := walk(curve.b, len(curve.want), 0.5)
		var own []time.Duration // from n alone, as when prev is lost
		for n := range waits {
			own = append(own, curve.b.at(n, 0, 0.5))
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
		for _, u := range []float64{0, 0.1, 0.4, 0.5, 0.77, justBelowOne} {
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

func TestNormalLiteralFirstWaitIsExact(t *testing.T) {
	for _, u := range []float64{0, 0.5, justBelowOne} {
		assert.Equal(t, 100*ms, Normal{Literal: true}.at(0, 0, u))
		assert.Equal(t, 100*ms, Normal{Literal: true}.at(-5, sec, u))
	}
	assert.NotEqual(t, Normal{}.at(0, 0, 0.1), Normal{}.at(0, 0, 0.9))
}

func TestNormalAtTheCap(t *testing.T) {
	assert.Equal(t, 15*time.Minute, Normal{}.at(1000, 0, justBelowOne))
	assert.InDelta(t, 15*time.Minute*7/13, Normal{}.at(1000, 0, 0), 2)
	assert.InDelta(t, 15*time.Minute*13/10, Normal{Literal: true}.at(1000, 0, justBelowOne), 2)
	assert.Equal(t, 15*time.Minute, Normal{Jitter: -1}.at(1000, 0, 0))
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
	assert.InDelta(t, 3, normal(justBelowOne), 1e-9)
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

// addCurves gives seeds for the three formulas with the same kinds of fields.
func addCurves(f *testing.F) {
	nan, inf, most := math.NaN(), math.Inf(1), int64(forever)
	f.Add(int64(0), 0.0, int64(0), 0.0, false, 3, int64(0), uint64(1), uint64(2))
	f.Add(int64(-1), nan, int64(-1), nan, true, 63, int64(-1), uint64(1)<<63, ^uint64(0))
	f.Add(most, inf, most, inf, false, 1, most, uint64(0), ^uint64(0))
	f.Add(most, 1e308, most-65, -29.0, true, 22, most, uint64(0), ^uint64(0)) // float64(top) is above top
	f.Add(most, 1e308, most, 1.0, true, 2, most, uint64(0), ^uint64(0))
	f.Add(int64(sec), -inf, int64(sec), -inf, true, -1, int64(lowest), uint64(0), ^uint64(0))
	f.Add(int64(1), 1.0, int64(1), 0.34, true, 1<<62, int64(1), uint64(0), uint64(1))
	f.Add(int64(ms), 2.7, int64(time.Hour), 1.0/3, false, 9, int64(sec), uint64(7)<<50, uint64(9)<<59)
}

func FuzzNormal(f *testing.F) {
	addCurves(f)
	f.Fuzz(func(t *testing.T, first int64, factor float64, top int64, jitter float64, literal bool, n int, prev int64, x, y uint64) {
		b := Normal{time.Duration(first), factor, time.Duration(top), jitter, literal}
		longest := highest(top, 15*time.Minute)
		if literal {
			longest = exceeding(longest, 1+3*max(b.jitterInUse(), 0))
		}
		meets(t, b, n, time.Duration(prev), x, y, longest)
	})
}

// jitterInUse repeats what the field's comment says.
func (d Normal) jitterInUse() float64 {
	switch {
	case d.Jitter > 0 && d.Jitter <= 1.0/3:
		return d.Jitter
	case d.Jitter < 0 && d.Jitter >= -math.MaxFloat64:
		return 0
	}
	return 0.1
}
