package backoff

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// "Implementing Exponential Back-Off": 1, 2, 4, 8 and 16 s, each with a random
// number of milliseconds of at most 1000. That it stops at n == 5 is
// [TestDoOlderGoogleStory].
func TestExponentialOlderPage(t *testing.T) {
	for n, base := range []time.Duration{sec, 2 * sec, 4 * sec, 8 * sec, 16 * sec} {
		for _, b := range []Exponential{{}, {Literal: true}} {
			assert.Equal(t, base, b.at(n, 0, 0))
			assert.Equal(t, base+sec, b.at(n, 0, justBelowOne))
		}
	}
}

// Google Cloud's "Exponential backoff": min(2^n + random_number_milliseconds,
// maximum_backoff), for both maxima that the page names, on past the cap.
func TestExponentialPage(t *testing.T) {
	for _, maximum := range []time.Duration{32 * sec, 64 * sec} {
		b := Exponential{Max: maximum, Literal: true}
		for n := range 100 {
			for random := range 1001 {
				u := (float64(random) + 0.5) / 1001
				want := maximum
				if n < 10 {
					want = min((1<<n)*sec+time.Duration(random)*ms, maximum)
				}
				require.Equal(t, want, b.at(n, 0, u), "n %d, %d ms, at most %v", n, random, maximum)
			}
		}
	}
}

func TestExponentialLiteralDrawsWholeMilliseconds(t *testing.T) {
	b := Exponential{Literal: true}
	seen := map[time.Duration]bool{}
	for i := range 10_000 {
		wait := b.at(0, 0, float64(i)/10_000)
		assert.Zero(t, wait%ms)
		seen[wait] = true
	}
	assert.Len(t, seen, 1001, "0 and 1000 ms included")
}

func TestExponentialMaxHolds(t *testing.T) {
	for _, test := range []struct {
		b         Exponential
		low, high time.Duration // at the cap
	}{
		{Exponential{}, 31 * sec, 32 * sec},
		{Exponential{Literal: true}, 32 * sec, 32 * sec},
		{Exponential{Jitter: -1}, 32 * sec, 32 * sec},
		{Exponential{Max: 64 * sec}, 63 * sec, 64 * sec},
		{Exponential{Max: 500 * ms}, 0, 500 * ms}, // Jitter is cut to Max
		{Exponential{Max: forever}, forever - sec, forever},
		{Exponential{Max: forever, Literal: true}, forever, forever},
		{Exponential{Base: forever, Jitter: forever, Max: forever}, 0, forever - 1023}, // as far as float64 goes
	} {
		assert.Equal(t, test.low, test.b.at(1000, 0, 0), "%+v", test.b)
		assert.Equal(t, test.high, test.b.at(1000, 0, justBelowOne), "%+v", test.b)
	}
}

// Without a Jitter of its own, a short Base is not followed by a random second.
func TestExponentialJitterFollowsBase(t *testing.T) {
	for _, test := range []struct {
		b         Exponential
		low, high time.Duration // of the first wait
	}{
		{Exponential{}, sec, 2 * sec},
		{Exponential{Base: 100 * ms}, 100 * ms, 200 * ms},
		{Exponential{Base: 100 * ms, Literal: true}, 100 * ms, 200 * ms},
		{Exponential{Base: 100 * ms, Jitter: sec}, 100 * ms, 1100 * ms},
		{Exponential{Base: 100 * ms, Jitter: -1}, 100 * ms, 100 * ms},
		{Exponential{Base: 100 * ms, Max: 150 * ms}, 75 * ms, 150 * ms},
		{Exponential{Base: 5 * sec}, 5 * sec, 10 * sec},
		{Exponential{Base: 20 * sec}, 16 * sec, 32 * sec},
		{Exponential{Base: 32 * sec}, 16 * sec, 32 * sec},
		{Exponential{Max: 1500 * ms}, 500 * ms, 1500 * ms},
	} {
		assert.Equal(t, test.low, test.b.at(0, 0, 0), "%+v", test.b)
		assert.Equal(t, test.high, test.b.at(0, 0, justBelowOne), "%+v", test.b)
	}
}

func FuzzExponential(f *testing.F) {
	f.Add(int64(0), int64(0), int64(0), false, 3, int64(0), uint64(1), uint64(2))
	f.Add(int64(-1), int64(lowest), int64(-1), true, 63, int64(-1), uint64(1)<<63, ^uint64(0))
	f.Add(int64(forever), int64(forever), int64(forever), false, 1, int64(forever), uint64(0), ^uint64(0))
	f.Fuzz(func(t *testing.T, base, jitter, top int64, literal bool, n int, prev int64, x, y uint64) {
		b := Exponential{time.Duration(base), time.Duration(jitter), time.Duration(top), literal}
		longest := highest(top, 32*sec)
		meets(t, b, n, time.Duration(prev), x, y, longest)
	})
}
