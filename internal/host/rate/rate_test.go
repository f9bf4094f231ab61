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
	assert.EqualValues(t, 10*ms, ahead)
}

func TestRateQueue(t *testing.T) {
	r := New(Config{PerSecond: 10, Burst: 2}, nil)
	var ws [4]*queue.Waiter
	for i, want := range []queue.Answer{
		{},
		{},
		{Verb: queue.Wait, Ask: 90 * ms, Until: 100 * ms},
		{Verb: queue.Wait, Ask: instant.Never, Until: 200 * ms},
	} {
		assert.Equal(t, want.Until, instant.At(r.Peek(0, 1)), "peek %d", i)
		ws[i] = queue.NewWaiter()
		assert.Equal(t, want, r.Enter(0, ws[i]), "request %d", i)
	}
	assert.Equal(t, []int{2, 2}, []int{r.Queue(), r.Waiting()}, "requests that wait, and their tokens")
	assert.Equal(t, queue.Answer{Until: 100 * ms}, r.Enter(90*ms, ws[2]))
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
		assert.Equal(t, []int{tt.want, tt.want}, []int{taken(r, 0), tt.conf.Bucket()}, "%+v", tt.conf)
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
	assert.Equal(t, []int{1, 1, 3, 5}, []int{r.Tokens(0), r.Tokens(1), r.Tokens(3), r.Tokens(7)})
	assert.True(t, r.Take(0, 7) && !r.Take(5*sec-ms, 7) && r.Take(5*sec, 7))
	assert.Equal(t, instant.Forever, r.WaitFor(0, math.MaxInt))
}
