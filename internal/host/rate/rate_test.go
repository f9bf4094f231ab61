package rate

import (
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

func TestRateQueue(t *testing.T) {
	r := New(Config{PerSecond: 10, Burst: 2})
	for i, want := range []queue.Answer{
		{},
		{},
		{Verb: queue.Wait, Ask: 90 * ms, Until: 100 * ms},
		{Verb: queue.Wait, Ask: instant.Never, Until: 200 * ms},
	} {
		assert.Equal(t, want.Until, instant.At(r.Peek(0, 1)), "peek %d", i)
		assert.Equal(t, want, r.Enter(0, queue.NewWaiter()), "request %d", i)
	}
}

// A new rate applies to waiters as well, in their order.
func TestRateTellsOfANewRate(t *testing.T) {
	r := New(Config{PerSecond: 1, Burst: 1})
	r.Take(0, 1)
	first, second := queue.NewWaiter(), queue.NewWaiter()
	before := r.Enter(0, first)
	r.Enter(0, second)
	r.Set(0, Config{PerSecond: 20, Burst: 1})
	require.True(t, hosttest.Woken(first), "not woken")
	if got := r.Enter(0, first); got.Verb != queue.Wait || got.Ask >= before.Ask {
		t.Errorf("%+v, before %+v", got, before)
	}
	assert.NotEqual(t, queue.Go, r.Enter(3*sec, nil).Verb, "a newcomer overtook")
	r.Leave(first)
	require.True(t, hosttest.Woken(second), "the second was not told")
	assert.Equal(t, queue.Go, r.Enter(3*sec, second).Verb)
}

func TestRateTake(t *testing.T) {
	r := New(Config{PerSecond: 10, Burst: 1})
	assert.True(t, r.Take(0, 1) && !r.Take(0, 1) && !r.Take(99*ms, 1) && r.Take(100*ms, 1), "not one per 100 ms")
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
		r := New(tt.conf)
		got := 0
		for r.Take(0, 1) {
			got++
		}
		assert.Equal(t, tt.want, got, "%+v", tt.conf)
	}
}

func TestRateCosts(t *testing.T) {
	r := New(Config{PerSecond: 1e9})
	assert.Zero(t, testing.AllocsPerRun(100, func() {
		r.Enter(0, nil)
		r.Peek(0, 1)
	}), "allocations")
	assert.LessOrEqual(t, unsafe.Sizeof(*r), uintptr(112), "bytes")
}
