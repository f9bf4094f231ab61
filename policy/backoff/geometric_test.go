package backoff

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

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
		{Geometric{Literal: true}, []time.Duration{sec, 2 * sec, 4 * sec, 8 * sec}},
		{Geometric{Literal: true}, macro(sec, 2, 10*sec)},
		{Geometric{First: 10 * ms, Rate: 1.5, Max: sec, Literal: true}, macro(10*ms, 1.5, sec)},
		{Geometric{Max: 8 * sec, Literal: true}, macro(sec, 2, 8*sec)}, // 8 s itself is no wait
		{Geometric{First: 10 * sec, Literal: true}, nil},               // just call f
	} {
		got := walk(test.b, 100, 0.5)
		assert.Len(t, got, len(test.want), "%+v", test.b)
		for i := range test.want {
			assert.InDelta(t, test.want[i], got[i], 20, "%+v", test.b)
		}
		assert.Equal(t, stop, test.b.Delay(len(test.want), 0), "%+v", test.b)
		assert.Equal(t, stop, test.b.Delay(1_000_000, 0), "%+v", test.b)
	}
}

func TestGeometricGoesOnAtTheCap(t *testing.T) {
	for n := 4; n < 2000; n += 37 {
		assert.Equal(t, 8*sec, Geometric{}.at(n, 0, 0))
		assert.Equal(t, 10*sec, Geometric{}.at(n, 0, justBelowOne))
		assert.Equal(t, 10*sec, Geometric{Jitter: -1}.at(n, 0, 0))
		assert.Equal(t, time.Duration(0), Geometric{Jitter: 1}.at(n, 0, 0))
	}
}

func FuzzGeometric(f *testing.F) {
	addCurves(f)
	f.Fuzz(func(t *testing.T, first int64, rate float64, top int64, jitter float64, literal bool, n int, prev int64, x, y uint64) {
		b := Geometric{time.Duration(first), rate, time.Duration(top), jitter, literal}
		longest := highest(top, 10*sec)
		if literal && b.Delay(n, time.Duration(prev)) == stop {
			return
		}
		meets(t, b, n, time.Duration(prev), x, y, longest)
	})
}
