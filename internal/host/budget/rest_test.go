package budget

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/aplomb-go/aplomb/internal/host/failures"
	"github.com/aplomb-go/aplomb/internal/host/instant"
	"github.com/aplomb-go/aplomb/internal/soak"
)

// An owned Budget has an owner that counts the failures.
type owned struct {
	Budget
	run failures.Run
}

// fail lets so many retries in a row fail.
func (b *owned) fail(n int) {
	for range n {
		b.run.RetryFailed()
	}
}

// known completes a config by what the owner knows.
func (b *owned) known(c Config) Config {
	c.Rests = b.run.Helpless()
	return c
}

// takes returns how many of n retries are granted.
func (b *owned) takes(now instant.Instant, c Config, n int) (granted int) {
	for range n {
		if b.Take(now, now, b.known(c)) != nil {
			granted++
		}
	}
	return granted
}

func TestRest(t *testing.T) {
	after := instant.At
	t.Run("19 failures are none", func(t *testing.T) {
		var b owned
		b.fail(19)
		assert.Equal(t, 30, b.takes(0, Config{}, 40))
	})
	t.Run("a rest begins with nothing, and a minute earns one", func(t *testing.T) {
		var b owned
		b.fail(20)
		assert.Zero(t, b.takes(0, Config{}, 40))
		assert.Zero(t, b.takes(after(59*time.Second), Config{}, 1))
		assert.Equal(t, 1, b.takes(after(61*time.Second), Config{}, 40))
		assert.Equal(t, 1, b.takes(after(time.Hour), Config{}, 40), "it has room for one")
	})
	t.Run("fifty requests earn one", func(t *testing.T) {
		var b owned
		b.fail(20)
		require.Zero(t, b.takes(0, Config{}, 1))
		for range 49 {
			b.requests.Add(1)
		}
		assert.Zero(t, b.takes(0, Config{}, 1))
		b.requests.Add(1)
		assert.Equal(t, 1, b.takes(0, Config{}, 2))
	})
	t.Run("a success restores everything", func(t *testing.T) {
		var b owned
		b.fail(20)
		require.Zero(t, b.takes(0, Config{}, 1))
		b.run.Succeeded()
		assert.Equal(t, 30, b.takes(0, Config{}, 40))
	})
	t.Run("a success in between begins the count anew", func(t *testing.T) {
		var b owned
		b.fail(19)
		b.run.Succeeded()
		b.fail(19)
		assert.Equal(t, 30, b.takes(0, Config{}, 40))
	})
	t.Run("smaller values stay", func(t *testing.T) {
		var b owned
		small := Config{Ratio: -1, PerSecond: 1. / 3600, Burst: 5}
		b.fail(20)
		require.Zero(t, b.takes(0, small, 1))
		assert.Zero(t, b.takes(after(59*time.Minute), small, 1))
		assert.Equal(t, 1, b.takes(after(61*time.Minute), small, 9))
	})
	t.Run("the members of a fleet share the minute", func(t *testing.T) {
		var b owned
		b.fail(20)
		part := Config{}.Complete().ForMember(10)
		require.Zero(t, b.takes(0, part, 1))
		assert.Zero(t, b.takes(after(599*time.Second), part, 1))
		assert.Equal(t, 1, b.takes(after(601*time.Second), part, 9))
	})
	t.Run("a budget that is off does not rest", func(t *testing.T) {
		var b owned
		b.fail(20)
		assert.Equal(t, 40, b.takes(0, Config{Ratio: -1, PerSecond: -1}, 40))
	})
	t.Run("a release gives the retry of a rest back", func(t *testing.T) {
		var b owned
		b.fail(20)
		require.Zero(t, b.takes(0, Config{}, 1))
		first := b.Take(after(time.Minute+time.Second), after(time.Minute+time.Second), b.known(Config{}))
		require.NotNil(t, first)
		b.Release(after(time.Minute+time.Second), b.known(Config{}), first)
		second := b.Take(after(time.Minute+time.Second), after(time.Minute+time.Second), b.known(Config{}))
		require.NotNil(t, second)
		b.Release(after(time.Minute+time.Second), b.known(Config{}), first)
		assert.Nil(t, b.Take(after(time.Minute+time.Second), after(time.Minute+time.Second), b.known(Config{})), "the first was released already")
	})
	t.Run("what is left", func(t *testing.T) {
		var b owned
		b.fail(20)
		assert.Zero(t, b.Left(0, b.known(Config{})))
		assert.InDelta(t, 0.5, b.Left(after(30*time.Second), b.known(Config{})), 1e-6)
	})
}

// TestRestHoldsInEveryWindow plays random traces with rests. In every window within a rest the
// retries keep its rule, and in every window of any kind those of the budget.
func TestRestHoldsInEveryWindow(t *testing.T) {
	type entry struct {
		at             instant.Instant
		request, retry bool
		rests          bool
	}
	rng := rand.New(rand.NewPCG(3, 4))
	rested := 0
	for range soak.Size(40, 400) {
		var (
			b     owned
			now   instant.Instant
			trace []entry
		)
		for range 300 {
			e := entry{at: now}
			switch rng.IntN(8) {
			case 0, 1:
				b.requests.Add(1)
				e.request = true
			case 2, 3, 4:
				e.retry = b.Take(now, now, b.known(Config{})) != nil
				if b.fail(1); e.retry && b.rests {
					rested++
				}
			case 5:
				now = now.Add(time.Duration(rng.IntN(20_000)) * time.Millisecond)
				continue
			case 6:
				now = now.Add(time.Duration(rng.IntN(100)) * time.Millisecond)
				continue
			default:
				if rng.IntN(20) == 0 {
					b.run.Succeeded()
				}
				continue
			}
			e.rests = b.rests
			trace = append(trace, e)
		}
		for i := range trace {
			requests, retries, rests := 0., 0., true
			for _, e := range trace[i:] {
				if e.request {
					requests++
				}
				if e.retry {
					retries++
				}
				passed := e.at.Sub(trace[i].at)
				bound := 0.2*requests + 3*passed.Seconds() + 30
				if rests = rests && e.rests; rests {
					bound = min(bound, requests/50+passed.Minutes()+1)
				}
				require.LessOrEqual(t, retries, math.Nextafter(bound+1e-6, bound+1), "retries from %v to %v, %v requests", trace[i].at, e.at, requests)
			}
		}
	}
	assert.Positive(t, rested, "retries in a rest")
}
