package rate

import (
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/assert"

	"github.com/aplomb-go/aplomb/internal/host/hosttest"
	"github.com/aplomb-go/aplomb/internal/host/instant"
)

const ms, sec = hosttest.Ms, hosttest.Sec

// The figures are those that the comments name.
func TestFigures(t *testing.T) {
	assert.EqualValues(t, 10*ms, lateness)
}

// A request that comes now waits for its own tokens and for those of others.
func TestRatePeek(t *testing.T) {
	r := New(Config{PerSecond: 10, Burst: 2}, nil)
	assert.True(t, r.Take(0, 2, false))
	assert.Equal(t, []time.Duration{100 * ms, 400 * ms, 500 * ms}, []time.Duration{r.Peek(0, 1, 0), r.Peek(0, 2, 2), r.Peek(0, 9, 3)})
	assert.Equal(t, []time.Duration{100 * ms, 200 * ms, 0}, []time.Duration{r.ReadyIn(0, 0), r.ReadyIn(0, 9), r.ReadyIn(100*ms, 1)})
	r.Set(0, Config{PerSecond: 20, Burst: 2})
	assert.EqualValues(t, 50*ms, r.Peek(0, 1, 0), "a new rate")
	r.Set(0, Config{PerSecond: 20, Burst: 4})
	assert.EqualValues(t, 200*ms, r.Peek(0, 9, 0), "a new burst")
}

func TestRateTake(t *testing.T) {
	r := New(Config{PerSecond: 10, Burst: 1}, nil)
	assert.True(t, r.Take(0, 0, false) && !r.Take(0, 1, false) && !r.Take(99*ms, 1, false) && r.Take(100*ms, 1, false), "not one per 100 ms")
}

func TestRateBurst(t *testing.T) {
	for _, tt := range []struct {
		conf Config
		want int
	}{
		{Config{PerSecond: 0.1}, 1},
		{Config{PerSecond: 2.5}, 3},
		{Config{PerSecond: 10}, 10},
		{Config{PerSecond: 10, Burst: 4}, 4},
	} {
		r := New(tt.conf, nil)
		r.Set(0, tt.conf)
		assert.Equal(t, []int{tt.want, tt.want}, []int{taken(r, 0), tt.conf.Tokens(1000)}, "%+v", tt.conf)
	}
}

func TestRateCosts(t *testing.T) {
	r := New(Config{PerSecond: 1e9}, nil)
	assert.Zero(t, testing.AllocsPerRun(100, func() {
		r.Take(0, 1, false)
		r.Peek(0, 1, 0)
	}), "allocations")
	assert.LessOrEqual(t, unsafe.Sizeof(*r), uintptr(96), "bytes")
}

// taken returns how many tokens can be used now by those who come now.
func taken(r *Rate, now instant.Instant) (n int) {
	for n < 1000 && r.Take(now, 1, false) {
		n++
	}
	return n
}

// A cost takes a full bucket at most.
func TestRateTokens(t *testing.T) {
	r := New(Config{PerSecond: 1, Burst: 5}, nil)
	assert.Equal(t, []int{1, 1, 3, 5}, []int{r.conf.Tokens(0), r.conf.Tokens(1), r.conf.Tokens(3), r.conf.Tokens(7)})
	assert.True(t, r.Take(0, 7, false) && !r.Take(5*sec-ms, 7, false) && r.Take(5*sec, 7, false))
}

// What comes while a request is late for its token is not lost to those who have waited, too, unless it is very late. Otherwise a
// full bucket gets no more.
func TestBucketOfALateRequest(t *testing.T) {
	for late, want := range map[instant.Instant]int{0: 1, 9 * ms: 10, 10 * ms: 11, 11 * ms: 1, sec: 1} {
		r := New(Config{PerSecond: 1000, Burst: 1}, nil)
		assert.Equal(t, 1, taken(r, sec))
		n := 0
		for r.Take(sec+ms+late, 1, true) {
			n++
		}
		assert.Equal(t, want, n, "%v late", late)

		r = New(Config{PerSecond: 1000, Burst: 1}, nil)
		assert.Equal(t, 1, taken(r, sec))
		assert.Equal(t, 1, taken(r, sec+ms+late), "%v late, and nobody has waited", late)
	}
	r := New(Config{PerSecond: 1000, Burst: 1}, nil)
	assert.Equal(t, 1, taken(r, 5*ms), "nobody has waited yet")
	assert.Equal(t, 1, taken(r, sec))
	r.Set(sec, Config{PerSecond: 500, Burst: 2})
	assert.Equal(t, 2, taken(r, sec+9*ms), "nobody waits since then")
}

// A bucket may owe tokens, and all but some may be cut. Nobody waits for longer than for ever.
func TestBucket(t *testing.T) {
	var b Bucket
	b.Set(0, Config{PerSecond: 2, Burst: 4})
	b.Owe(0, 6)
	assert.EqualValues(t, 1500*ms, b.WaitFor(0, 1, false))
	b.Cut(5*sec, 1.5)
	assert.EqualValues(t, 250*ms, b.WaitFor(5*sec, 2, true))
	b.Cut(5*sec, 2)
	assert.EqualValues(t, 250*ms, b.WaitFor(5*sec, 2, true), "it gets no more by that")
	b.Cut(5*sec, 1)
	b.Set(5*sec, Config{PerSecond: 1e6, Burst: 4})
	assert.EqualValues(t, 1000, b.WaitFor(5*sec, 2, true), "a microsecond is some time")
	b.Set(5*sec, Config{PerSecond: 1e-300, Burst: 4})
	assert.Equal(t, instant.Forever, b.WaitFor(5*sec, 2, true))
	ask, ok := b.Take(5*sec, 2, false)
	assert.True(t, !ok && ask == instant.Never)
}
