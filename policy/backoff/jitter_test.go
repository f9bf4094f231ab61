package backoff

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

// The article's three formulas, computed from the random number as it has them.
func TestAWSFormulas(t *testing.T) {
	const base, top = 50 * ms, 3 * sec
	for n := range 12 {
		bound := min(base<<n, top)
		for i := range 100 {
			u := float64(i) / 100
			assert.InDelta(t, u*float64(bound), FullJitter{base, top}.at(n, 0, u), 2)
			assert.InDelta(t, (1+u)*float64(bound/2), EqualJitter{base, top}.at(n, 0, u), 2)
			for _, prev := range []time.Duration{base, bound, top} {
				drawn := float64(base) + u*float64(3*prev-base)
				assert.InDelta(t, min(drawn, float64(top)), Decorrelated{base, top, true}.at(n, prev, u), 4)
				drawn = float64(base) + u*float64(min(3*prev, top)-base)
				assert.InDelta(t, drawn, Decorrelated{base, top, false}.at(n, prev, u), 4)
			}
		}
	}
}

func TestDecorrelatedStartsFromBase(t *testing.T) {
	for _, prev := range []time.Duration{lowest, -1, 0, 1, 100 * ms} {
		assert.Equal(t, 100*ms, Decorrelated{}.at(0, prev, 0))
		assert.Equal(t, 300*ms, Decorrelated{}.at(0, prev, justBelowOne))
	}
}

// The printed formula returns the cap itself for most draws there; ours returns
// it for one in some thousand millions.
func TestDecorrelatedAtTheCap(t *testing.T) {
	capped := map[bool]int{}
	for i := range 1000 {
		for _, literal := range []bool{false, true} {
			if (Decorrelated{Literal: literal}).at(9, 20*sec, float64(i)/1000) == 20*sec {
				capped[literal]++
			}
		}
	}
	assert.Zero(t, capped[false])
	assert.InDelta(t, 667, capped[true], 2)
}

func FuzzAWS(f *testing.F) {
	f.Add(int64(0), int64(0), false, 3, int64(0), uint64(1), uint64(2))
	f.Add(int64(-1), int64(lowest), true, 63, int64(-1), uint64(1)<<63, ^uint64(0))
	f.Add(int64(forever), int64(forever), true, 1, int64(forever), uint64(0), ^uint64(0))
	f.Fuzz(func(t *testing.T, base, top int64, literal bool, n int, prev int64, x, y uint64) {
		longest := highest(top, 20*sec)
		meets(t, FullJitter{time.Duration(base), time.Duration(top)}, n, time.Duration(prev), x, y, longest)
		meets(t, EqualJitter{time.Duration(base), time.Duration(top)}, n, time.Duration(prev), x, y, longest)
		meets(t, Decorrelated{time.Duration(base), time.Duration(top), literal}, n, time.Duration(prev), x, y, longest)
	})
}
