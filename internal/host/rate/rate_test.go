package rate

import (
	"math/rand/v2"
	"testing"
	"time"
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
		assert.Equal(t, want.Until, instant.At(r.Peek(0, false, 1)), "peek %d", i)
		assert.Equal(t, want, r.Enter(0, queue.NewWaiter()), "request %d", i)
	}
}

// A new rate applies to waiters as well, in their order.
func TestRateTellsOfANewRate(t *testing.T) {
	for name, raise := range map[string]func(*Rate){
		"a new configuration": func(r *Rate) { r.Set(0, Config{PerSecond: 20, Burst: 1}) },
		"successes":           func(r *Rate) { r.Succeeded(sec) },
	} {
		t.Run(name, func(t *testing.T) {
			r := New(Config{PerSecond: 1, Burst: 1, Adaptive: true})
			r.Throttled(0, -sec)
			first, second := queue.NewWaiter(), queue.NewWaiter()
			before := r.Enter(0, first)
			r.Enter(0, second)
			raise(r)
			require.True(t, hosttest.Woken(first), "not woken")
			if got := r.Enter(0, first); got.Verb != queue.Wait || got.Ask >= before.Ask {
				t.Errorf("%+v, before %+v", got, before)
			}
			assert.NotEqual(t, queue.Go, r.Enter(3*sec, nil).Verb, "a newcomer overtook")
			r.Leave(first)
			require.True(t, hosttest.Woken(second), "the second was not told")
			assert.Equal(t, queue.Go, r.Enter(3*sec, second).Verb)
		})
	}
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

func TestRateAdapts(t *testing.T) {
	near := func(t *testing.T, r *Rate, want float64) {
		t.Helper()
		if got := r.PerSecond(); got < want*0.999 || got > want*1.001 {
			t.Fatalf("%v per second, want %v", got, want)
		}
	}
	t.Run("not unless told", func(t *testing.T) {
		r := New(Config{PerSecond: 10})
		r.Throttled(sec, 0)
		near(t, r, 10)
	})
	t.Run("once for the attempts in flight", func(t *testing.T) {
		r := New(Config{PerSecond: 10, Adaptive: true})
		for range 20 {
			r.Throttled(sec, 0)
		}
		near(t, r, 7)
		r.Throttled(2*sec, sec) // sent in the instant of the cut
		near(t, r, 7)
		r.Throttled(2*sec, sec+ms)
		near(t, r, 4.9)
	})
	t.Run("down to a floor", func(t *testing.T) {
		r := New(Config{PerSecond: 10, Adaptive: true})
		for i := range time.Duration(50) {
			r.Throttled(instant.At((i+1)*sec), instant.At(i*sec+ms))
		}
		near(t, r, 0.5)
		r = New(Config{PerSecond: 1, Adaptive: true})
		for i := range time.Duration(50) {
			r.Throttled(instant.At((i+1)*sec), instant.At(i*sec+ms))
		}
		near(t, r, 0.1)
	})
	t.Run("what was really sent counts", func(t *testing.T) {
		r := New(Config{PerSecond: 1000, Adaptive: true})
		for i := range time.Duration(40) {
			r.Take(instant.At(i*100*ms), 1)
		}
		r.Throttled(4*sec, 3900*ms)
		near(t, r, 7)
	})
	t.Run("up again in 30 s, by successes only", func(t *testing.T) {
		r := New(Config{PerSecond: 30, Adaptive: true})
		r.Throttled(0, -sec)
		near(t, r, 21)
		for i := range time.Duration(30) {
			r.Succeeded(instant.At((i + 1) * 100 * ms))
		}
		near(t, r, 24)
		r.Succeeded(instant.At(time.Hour)) // a pause counts for one second
		near(t, r, 25)
		for i := range time.Duration(100) {
			r.Succeeded(instant.At(time.Hour + i*sec))
		}
		near(t, r, 30)
	})
	t.Run("a new configuration", func(t *testing.T) {
		r := New(Config{PerSecond: 10, Adaptive: true})
		r.Set(0, Config{PerSecond: 20, Adaptive: true})
		near(t, r, 20)
		r.Throttled(sec, 0)
		r.Set(sec, Config{PerSecond: 40, Adaptive: true})
		near(t, r, 14)
		r.Set(sec, Config{PerSecond: 10, Adaptive: true})
		near(t, r, 10)
		r.Throttled(2*sec, 1500*ms)
		r.Set(2*sec, Config{PerSecond: 10})
		near(t, r, 10)
	})
}

// A server takes 20 per second, and the client is configured for 100. An adaptive rate
// wastes few attempts and still uses the server's rate.
func TestRateFindsTheServers(t *testing.T) {
	for _, adaptive := range []bool{false, true} {
		r := New(Config{PerSecond: 100, Burst: 1, Adaptive: adaptive})
		cl := &hosttest.Clock{}
		rng := rand.New(rand.NewPCG(1, 1))
		tokens, last := 20.0, time.Duration(0)
		ok, refused := 0, 0
		var send, ask func()
		w := queue.NewWaiter()
		ask = func() {
			if a := r.Enter(cl.Now, w); a.Verb == queue.Wait {
				cl.At(a.Ask, ask)
			} else {
				cl.At(a.Until, send)
			}
		}
		send = func() {
			sent := cl.Now
			tokens = min(20, tokens+20*cl.Now.Sub(instant.At(last)).Seconds())
			last = cl.Now.Since()
			accepted := tokens >= 1
			if accepted {
				tokens--
			}
			cl.At(cl.Now.Add(time.Duration(20+rng.IntN(30))*ms), func() {
				if accepted {
					ok++
					r.Succeeded(cl.Now)
				} else {
					refused++
					r.Throttled(cl.Now, sent)
				}
			})
			cl.At(cl.Now, ask)
		}
		cl.At(0, send)
		cl.RunTo(instant.At(5 * time.Minute))
		t.Logf("adaptive %v: %d served, %d refused", adaptive, ok, refused)
		assert.False(t, ok < 5000 || adaptive && refused > ok/5, "adaptive %v: %d served, %d refused", adaptive, ok, refused)
	}
}

func TestRateCosts(t *testing.T) {
	r := New(Config{PerSecond: 1e9, Adaptive: true})
	assert.Zero(t, testing.AllocsPerRun(100, func() {
		r.Enter(0, nil)
		r.Peek(0, false, 1)
		r.Succeeded(0)
	}), "allocations")
	assert.LessOrEqual(t, unsafe.Sizeof(*r), uintptr(208), "bytes")
}

// A 429 never makes a client faster, even if an Update has raised the floor above the
// present rate.
func TestRateThrottledNeverRaises(t *testing.T) {
	r := New(Config{PerSecond: 0.2, Adaptive: true})
	r.Throttled(0, -sec)
	r.Set(0, Config{PerSecond: 20, Adaptive: true})
	before := r.PerSecond()
	r.Throttled(sec, sec/2)
	assert.LessOrEqual(t, r.PerSecond(), before, "a 429 raised the rate")
}
