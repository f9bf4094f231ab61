package latency

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/assert"

	"github.com/aplomb-go/aplomb/internal/soak"
)

func TestLatencyBounds(t *testing.T) {
	assert.Equal(t, lowest, bounds[0])
	assert.InDelta(t, 123*time.Second, bounds[buckets-1], float64(3*time.Second))
	for i := 1; i < buckets; i++ {
		assert.InDelta(t, 1.0495, float64(bounds[i])/float64(bounds[i-1]), 0.00051, "bucket %d", i)
	}
}

func TestLatencyNeedsSamples(t *testing.T) {
	for _, tt := range []struct {
		q    float64
		need int // 0: never
	}{
		{0.01, 20}, {0.5, 20}, {0.9, 20}, {0.95, 40}, {0.98, 100}, {0.99, 200}, {0.999, 2000},
		{0.9999, 0}, {1, 0}, {0, 0}, {-0.1, 0}, {math.NaN(), 0},
	} {
		var l Latency
		got := 0
		for i := 1; i <= 10_000 && got == 0; i++ {
			l.Record(time.Millisecond)
			if d, ok := l.Quantile(tt.q); ok {
				got = i
			} else {
				assert.Zero(t, d)
			}
		}
		assert.Equal(t, tt.need, got, "q %v: after %d samples", tt.q, got)
	}
}

// A duration at a bound counts below it. The counts are halved at the 4096th.
func TestLatencyCounts(t *testing.T) {
	var l Latency
	for range 4095 {
		l.Record(bounds[1])
	}
	d, _ := l.Quantile(0.5)
	assert.Equal(t, bounds[1], d)
	assert.EqualValues(t, 4095, l.total)
	l.Record(bounds[1])
	assert.EqualValues(t, 2048, l.total)
}

// exactQuantile returns the smallest sample that at most (1−q)·n exceed.
func exactQuantile(samples []time.Duration, q float64) time.Duration {
	s := slices.Clone(samples)
	slices.Sort(s)
	return s[len(s)-1-int((1-q)*float64(len(s))+1e-9)]
}

// Compared with the exact quantile of the same samples: never less, at most 5 %
// more.
func checkLatency(t *testing.T, samples []time.Duration) {
	t.Helper()
	var l Latency
	for _, d := range samples {
		l.Record(d)
	}
	for _, q := range []float64{0.01, 0.1, 0.5, 0.9, 0.95, 0.98, 0.99, 0.999} {
		got, ok := l.Quantile(q)
		if !ok {
			continue
		}
		want := exactQuantile(samples, q)
		if want > bounds[buckets-1] {
			continue // all values beyond the last bound are in one bucket
		}
		assert.True(t, got >= want && float64(got) <= max(float64(want)*1.05, float64(lowest)), "q %v of %d samples: %v, exact %v", q, len(samples), got, want)
	}
}

func TestLatencyQuantiles(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	for range soak.Size(40, 200) {
		samples := make([]time.Duration, rng.IntN(full-1))
		spread := rng.Float64() * 6
		for i := range samples {
			samples[i] = time.Duration(1e5 * math.Exp(rng.NormFloat64()*spread+3))
		}
		checkLatency(t, samples)
	}
}

func FuzzLatency(f *testing.F) {
	f.Add([]byte("some samples are enough for a median, I hope"))
	f.Fuzz(func(t *testing.T, data []byte) {
		samples := make([]time.Duration, 0, len(data))
		for _, b := range data[:min(len(data), full-1)] {
			samples = append(samples, time.Duration(1)<<(b%64)+time.Duration(b))
		}
		checkLatency(t, samples)
	})
}

// Halving keeps every quantile where it is, also when the tail is so thin that
// its buckets hold one sample each.
func TestLatencyForgetsEvenly(t *testing.T) {
	var l Latency
	for i := range full - 1 {
		d := 10 * time.Millisecond
		if i%100 == 0 {
			d = time.Duration(100+i) * time.Millisecond // a bucket of its own for most
		}
		l.Record(d)
	}
	before, _ := l.Quantile(0.995)
	l.Record(10 * time.Millisecond)
	assert.Equal(t, full/2, int(l.total), "samples left")
	after, _ := l.Quantile(0.995)
	assert.InDelta(t, 1, float64(after)/float64(before), 0.1, "from %v to %v", before, after)
	got, _ := l.Quantile(0.98)
	assert.LessOrEqual(t, got, 11*time.Millisecond)
	// Old samples are forgotten in the end.
	for range 6 * full {
		l.Record(time.Millisecond)
	}
	got, _ = l.Quantile(0.99)
	assert.LessOrEqual(t, got, 2*time.Millisecond, "after a change")
}

func TestLatencyCosts(t *testing.T) {
	var l Latency
	assert.Zero(t, testing.AllocsPerRun(100, func() { l.Record(time.Millisecond); l.Quantile(0.98) }), "allocations")
	assert.LessOrEqual(t, unsafe.Sizeof(l), uintptr(700), "bytes")
}
