package rate

import (
	"math"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/aplomb-go/aplomb/internal/host/hosttest"
	"github.com/aplomb-go/aplomb/internal/host/instant"
	"github.com/aplomb-go/aplomb/internal/host/queue"
)

const (
	ms  = hosttest.Ms
	sec = hosttest.Sec
)

// The figures are those that the comments name.
func TestFigures(t *testing.T) {
	assert.EqualValues(t, 10*ms, lateness)
}

func TestRateQueue(t *testing.T) {
	r := New(Config{PerSecond: 10, Burst: 2}, nil)
	var ws [4]*queue.Waiter
	for i, want := range []queue.Answer{
		{},
		{},
		{Verb: queue.Wait, Ask: 100 * ms, Until: 100 * ms},
		{Verb: queue.Wait, Ask: instant.Never, Until: 200 * ms},
	} {
		assert.Equal(t, want.Until, instant.At(r.Peek(0, 1)), "peek %d", i)
		ws[i] = queue.NewWaiter()
		assert.Equal(t, want, r.Enter(0, ws[i]), "request %d", i)
	}
	assert.Equal(t, []int{2, 2}, []int{r.Queue(), r.Waiting()}, "requests that wait, and their tokens")
	assert.Equal(t, queue.Answer{}, r.Enter(100*ms, ws[2]))
}

// A new rate applies to waiters as well, in their order.
func TestRateTellsOfANewRate(t *testing.T) {
	r := New(Config{PerSecond: 1, Burst: 1}, nil)
	r.Take(0, 1)
	first, second := queue.NewWaiter(), queue.NewWaiter()
	before := r.Enter(0, first)
	r.Enter(0, second)
	r.Set(0, Config{PerSecond: 20, Burst: 1})
	require.True(t, hosttest.Woken(first), "not woken")
	got := r.Enter(0, first)
	assert.True(t, got.Verb == queue.Wait && got.Ask < before.Ask, "%+v, before %+v", got, before)
	assert.NotEqual(t, queue.Go, r.Enter(3*sec, nil).Verb, "a newcomer overtook")
	r.Leave(first)
	require.True(t, hosttest.Woken(second), "the second was not told")
	assert.Equal(t, queue.Go, r.Enter(3*sec, second).Verb)
}

func TestRateTake(t *testing.T) {
	r := New(Config{PerSecond: 10, Burst: 1}, nil)
	assert.True(t, r.Take(0, 0) && !r.Take(0, 1) && !r.Take(99*ms, 1) && r.Take(100*ms, 1), "not one per 100 ms")
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
		r.Enter(0, nil)
		r.Peek(0, 1)
	}), "allocations")
	assert.LessOrEqual(t, unsafe.Sizeof(*r), uintptr(96), "bytes")
}

// taken returns how many tokens can be used now.
func taken(r *Rate, now instant.Instant) (n int) {
	for n < 1000 && r.Take(now, 1) {
		n++
	}
	return n
}

// A cost takes a full bucket at most.
func TestRateTokens(t *testing.T) {
	r := New(Config{PerSecond: 1, Burst: 5}, nil)
	assert.Equal(t, []int{1, 1, 3, 5}, []int{r.conf.Tokens(0), r.conf.Tokens(1), r.conf.Tokens(3), r.conf.Tokens(7)})
	assert.True(t, r.Take(0, 7) && !r.Take(5*sec-ms, 7) && r.Take(5*sec, 7))
	assert.Equal(t, instant.Forever, r.Peek(0, math.MaxInt))
}

// What comes while a request is late for its token is not lost, unless it is very late. Otherwise a full bucket gets no more.
func TestBucketOfALateRequest(t *testing.T) {
	for late, want := range map[instant.Instant]int{0: 1, 9 * ms: 10, 10 * ms: 11, 11 * ms: 1, sec: 1} {
		r := New(Config{PerSecond: 1000, Burst: 1}, nil)
		assert.Equal(t, 1, taken(r, sec))
		assert.Equal(t, want, taken(r, sec+ms+late), "%v late", late)
	}
	r := New(Config{PerSecond: 1000, Burst: 1}, nil)
	assert.Equal(t, 1, taken(r, sec))
	r.Set(sec, Config{PerSecond: 500, Burst: 2})
	assert.Equal(t, 2, taken(r, sec+9*ms), "nobody waits since then")
}

// A bucket may owe tokens, and all but some may be cut. Nobody waits for longer than for ever.
func TestBucket(t *testing.T) {
	var b Bucket
	b.Set(0, Config{PerSecond: 2, Burst: 4})
	b.Owe(6)
	assert.EqualValues(t, 1500*ms, b.WaitFor(0, 1, false))
	b.Cut(5*sec, 1.5)
	assert.EqualValues(t, 250*ms, b.WaitFor(5*sec, 2, true))
	b.Cut(5*sec, 2)
	assert.EqualValues(t, 250*ms, b.WaitFor(5*sec, 2, true), "it gets no more by that")
	b.Set(5*sec, Config{PerSecond: 1e-300, Burst: 4})
	assert.Equal(t, instant.Forever, b.WaitFor(5*sec, 2, true))
	ask, ok := b.Take(5*sec, 2)
	assert.True(t, !ok && ask == instant.Never)
}
