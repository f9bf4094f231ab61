package throttle

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/aplomb-go/aplomb/internal/host/hosttest"
	"github.com/aplomb-go/aplomb/internal/host/instant"
	"github.com/aplomb-go/aplomb/internal/host/queue"
)

// A throttleRequest goes through a throttle in virtual time.
type throttleRequest struct {
	clock *hosttest.Clock
	c     *Throttle
	key   uint64
	onGo  func()

	w    *queue.Waiter
	gone bool
}

func (r *throttleRequest) start() {
	r.w = &queue.Waiter{Woken: func(*queue.Waiter) { r.clock.At(r.clock.Now, r.ask) }}
	r.ask()
}

func (r *throttleRequest) leave() {
	r.gone = true
	r.c.Leave(r.w)
}

func (r *throttleRequest) ask() {
	if r.gone {
		return
	}
	switch a := r.c.Enter(r.clock.Now, r.key, r.w); a.Verb {
	case queue.Go:
		r.gone = true
		r.onGo()
	case queue.Wait:
		r.clock.At(a.Ask, r.ask)
	}
}

// One request is told 429 with a wait of 1 s, then 49 others start. They are sent
// after that second, in a ramp that their responses make steeper.
func TestThrottleRamp(t *testing.T) {
	for _, tt := range []struct {
		name     string
		response time.Duration // how long a response takes; zero: there is none
		want     []int         // arrivals by the end of each 100 ms after the hold
	}{
		{"responds after 30 ms", 30 * ms, []int{15, 50}},
		{"responds after 150 ms", 150 * ms, []int{1, 4, 7, 14, 29, 44, 50}},
		{"no response", 0, []int{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var (
				c        Throttle
				cl       = &hosttest.Clock{}
				arrivals []time.Duration
				order    []int
			)
			open := c.Hold(0, 1, sec, Config{}, 0.3)
			for i := range 50 {
				r := &throttleRequest{clock: cl, c: &c, key: 1}
				r.onGo = func() {
					arrivals, order = append(arrivals, cl.Now.Since()), append(order, i)
					sent := cl.Now
					if tt.response > 0 {
						cl.At(cl.Now.Add(tt.response), func() { c.Answered(cl.Now, 1, sent) })
					}
				}
				cl.At(instant.At(time.Duration(i)*10*ms), r.start)
			}
			for i, want := range tt.want {
				cl.RunTo(open.Add(time.Duration(i+1)*100*ms) - 1)
				assert.Equal(t, want, len(arrivals), "arrivals %d ms after the hold", (i+1)*100)
			}
			cl.RunTo(open.Add(rampTime))
			assert.True(t, len(arrivals) == 50 && arrivals[0] >= sec && slices.IsSorted(order), "%d arrivals, the first at %v, in the order %v", len(arrivals), arrivals[0], order)
			c.Enter(open.Add(rampTime)+sec, 9, nil)
			assert.True(t, c.Quiet(), "not quiet at the end")
		})
	}
}

// Whatever happens, nothing passes during a hold. Waiters pass in order and at most as fast as
// the ramp allows. All of them pass in the end.
func runThrottle(t *testing.T, seed uint64, n int) {
	rng := rand.New(rand.NewPCG(seed, 3))
	var (
		c        Throttle
		cl       = &hosttest.Clock{}
		closed   instant.Instant // no request before this
		waiting  []int
		passed   int
		left     int
		since    instant.Instant // the hold's end
		allowed  float64         // by responses since then
		through  int             // since then
		lastHold instant.Instant
	)
	for range 1 + rng.IntN(5) {
		cl.At(instant.At(time.Duration(rng.IntN(8000))*ms), func() {
			wait := time.Duration(1+rng.IntN(3000)) * ms
			closed = max(closed, cl.Now.Add(wait))
			since, allowed, through = closed, 0, 0
			lastHold = cl.Now
			c.Hold(cl.Now, 1, wait, exact, 0)
		})
	}
	for i := range n {
		cl.At(instant.At(time.Duration(rng.IntN(10_000))*ms), func() {
			r := &throttleRequest{clock: cl, c: &c, key: 1}
			waiting = append(waiting, i)
			remove := func() int {
				at := slices.Index(waiting, i)
				waiting = slices.Delete(waiting, at, at+1)
				return at
			}
			r.onGo = func() {
				at := remove()
				passed++
				require.GreaterOrEqual(t, cl.Now, closed, "seed %d: %d passed", seed, i)
				if lastHold == 0 || cl.Now >= since.Add(rampTime) {
					return
				}
				require.Zero(t, at, "seed %d: %d passed before its turn", seed, i)
				through++
				if most := 1 + cl.Now.Sub(since).Seconds()*10 + allowed; float64(through) > most+1e-9 {
					t.Fatalf("seed %d: %d passed %v after the hold, at most %v", seed, through, cl.Now.Sub(since), most)
				}
				sent := cl.Now
				cl.At(cl.Now.Add(time.Duration(rng.IntN(400))*ms), func() {
					if sent >= since {
						allowed += rampGrowth
					}
					c.Answered(cl.Now, 1, sent)
				})
			}
			r.start()
			if rng.IntN(3) == 0 {
				cl.At(cl.Now.Add(time.Duration(rng.IntN(3000))*ms), func() {
					if !r.gone {
						remove()
						left++
						r.leave()
					}
				})
			}
		})
	}
	cl.RunTo(instant.At(time.Minute))
	require.Equal(t, n, passed+left, "seed %d: %d passed and %d left", seed, passed, left)
}

func TestThrottleLetsEverybodyPass(t *testing.T) {
	for seed := range uint64(300) {
		runThrottle(t, seed, 100)
	}
}

func FuzzThrottle(f *testing.F) {
	f.Add(uint64(1), uint8(50))
	f.Fuzz(func(t *testing.T, seed uint64, n uint8) { runThrottle(t, seed, int(n)) })
}

func TestThrottleCosts(t *testing.T) {
	var c Throttle
	assert.Zero(t, testing.AllocsPerRun(100, func() {
		assert.True(t, c.Quiet(), "not quiet")
		c.State(1)
		c.Enter(0, 1, nil)
	}), "allocations")
	c.Hold(0, 1, sec, exact, 0)
	assert.Zero(t, testing.AllocsPerRun(100, func() { c.Enter(0, 1, nil) }), "allocations while held")
	assert.LessOrEqual(t, unsafe.Sizeof(c), uintptr(40), "bytes")
	assert.LessOrEqual(t, unsafe.Sizeof(hold{}), uintptr(96), "bytes of a scope")
}
