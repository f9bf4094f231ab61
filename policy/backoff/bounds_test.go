package backoff

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// foreign hides a formula from Bounds.
type foreign struct{ Delayer }

// embedded has a formula's kernel, but waits of its own.
type embedded struct{ Exponential }

func (embedded) Delay(int, time.Duration) time.Duration { return 7 * sec }

func TestBounds(t *testing.T) {
	got := Bounds(Exponential{}, 7)
	require.Len(t, got, 7)
	var total time.Duration
	for i, mean := range []time.Duration{1500, 2500, 4500, 8500, 16500, 31500, 31500} {
		total += mean * ms
		assert.Equal(t, mean*ms, got[i].Lowest+500*ms)
		assert.Equal(t, mean*ms, got[i].Highest-500*ms)
		assert.InDelta(t, mean*ms, got[i].Mean, 10)
		assert.InDelta(t, total, got[i].Cumulated, 100)
	}
}

func TestBoundsEnd(t *testing.T) {
	assert.Len(t, Bounds(Geometric{Literal: true}, 50), 4)
	assert.Len(t, Bounds(foreign{Geometric{Literal: true}}, 50), 4)
	for _, n := range []int{-1, 0} {
		assert.Empty(t, Bounds(Exponential{}, n))
		assert.Empty(t, Bounds(foreign{Exponential{}}, n))
	}
	assert.Equal(t, Bounds(Exponential{}, 8), Bounds(nil, 8))
}

// Where prev matters, the extremes are those of a whole chain, and the mean is
// that over all chains: below the cap (base + 3·mean)/2, by the formula.
func TestBoundsOfAChain(t *testing.T) {
	got := Bounds(Decorrelated{Max: time.Hour}, 6)
	mean := 100.0
	for i, high := range []time.Duration{300, 900, 2700, 8100, 24300, 72900} {
		mean = (100 + 3*mean) / 2
		assert.Equal(t, 100*ms, got[i].Lowest)
		assert.Equal(t, high*ms, got[i].Highest)
		assert.InEpsilon(t, mean*float64(ms), got[i].Mean, 1e-6)
	}
}

func TestBoundsSumsDoNotOverflow(t *testing.T) {
	got := Bounds(Constant(forever), 3)
	assert.Equal(t, Bound{forever, forever, forever, forever}, got[2])
}

// Sampled figures lie within the exact ones, and the mean near the exact mean:
// 512 draws from ±50 % miss it by 0.5/√3/√512 = 1.3 % of it on average, and by
// ten times as much hardly ever.
func TestBoundsBySampling(t *testing.T) {
	exact, sampled := Bounds(Randomized{}, 12), Bounds(foreign{Randomized{}}, 12)
	require.Len(t, sampled, 12)
	for i := range exact {
		assert.GreaterOrEqual(t, sampled[i].Lowest, exact[i].Lowest)
		assert.LessOrEqual(t, sampled[i].Highest, exact[i].Highest)
		assert.InEpsilon(t, exact[i].Mean, sampled[i].Mean, 0.13)
	}
}

func TestBoundsOfATypeThatEmbedsAFormula(t *testing.T) {
	assert.Equal(t, Bound{7 * sec, 7 * sec, 7 * sec, 14 * sec}, Bounds(embedded{}, 2)[1])
}

// A formula that kernelOf forgets would be sampled instead of integrated.
func TestBoundsKnowsEveryFormula(t *testing.T) {
	for name, formula := range formulas {
		_, ok := kernelOf(formula.backoff)
		assert.True(t, ok, name)
	}
}
