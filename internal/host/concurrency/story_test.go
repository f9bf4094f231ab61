package concurrency

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
	"github.com/aplomb-go/aplomb/internal/soak"
)

// A limitedRequest goes through a concurrency limit in virtual time.
type limitedRequest struct {
	clock   *hosttest.Clock
	limiter *Limiter
	conf    Config
	asks    func() // the fleet for a permit
	result  Result
	takes   time.Duration
	waits   time.Duration // for its caller, from the send on
	reads   time.Duration // the response's body
	streams bool          // the response's body has no length
	gives   time.Duration // up waiting after this; zero: never

	slot    Slot
	used    int // before it asked
	w       *queue.Waiter
	state   int // 0 waiting, 1 sent, 2 left
	onGo    func()
	onLeave func()
	woken   int
}

func (v *limitedRequest) start() {
	v.w = &queue.Waiter{Woken: func(*queue.Waiter) {
		v.woken++
		v.clock.At(v.clock.Now, v.ask)
	}}
	if v.gives > 0 {
		v.clock.At(v.clock.Now.Add(v.gives), func() {
			if v.state == 0 {
				v.state = 2
				v.limiter.Leave(v.w)
				if v.onLeave != nil {
					v.onLeave()
				}
			}
		})
	}
	v.ask()
}

func (v *limitedRequest) ask() {
	if v.state != 0 {
		return
	}
	v.used = v.limiter.slots.used()
	a := v.limiter.Enter(v.clock.Now, &v.slot, v.w, v.conf)
	if v.asks != nil && v.limiter.AskPermit(v.clock.Now) {
		v.asks()
	}
	if a.Verb == queue.Wait {
		if a.Ask != instant.Never {
			v.clock.At(a.Ask, v.ask)
		}
		return
	}
	v.state = 1
	if v.onGo != nil {
		v.onGo()
	}
	if v.waits > 0 {
		v.clock.At(v.clock.Now, func() { v.limiter.Await(v.clock.Now, &v.slot) })
		v.clock.At(v.clock.Now.Add(v.waits), func() { v.limiter.Resume(v.clock.Now, &v.slot) })
	}
	v.clock.At(v.clock.Now.Add(v.takes), func() {
		v.limiter.Result(v.clock.Now, &v.slot, v.result)
		if v.reads > 0 {
			v.limiter.Reading(v.clock.Now, &v.slot, v.streams)
		}
		v.clock.At(v.clock.Now.Add(v.reads), func() { v.limiter.End(v.clock.Now, &v.slot, Neutral) })
	})
}

// Whatever happens, waiters are served in the order of arrival, the limit holds, and a
// open circuit has one probe at most. At the end nothing is left over.
func runGate(t *testing.T, seed uint64, n int) {
	rng := rand.New(rand.NewPCG(seed, 7))
	var g Limiter
	c := &hosttest.Clock{}
	var conf Config
	var asks func()
	if conf.Fleet = seed%2 == 1; conf.Fleet { // it says anything at any time, or nothing
		answer := func() { g.Permit(c.Now, rng.IntN(3) > 0, time.Duration(rng.IntN(800))*ms) }
		asks = func() {
			for range rng.IntN(3) {
				c.At(c.Now.Add(time.Duration(rng.IntN(400))*ms), answer)
			}
		}
		for range 40 {
			c.At(instant.At(time.Duration(rng.IntN(20_000))*ms), func() {
				[]func(){
					answer,
					func() { g.Up(c.Now, c.Now.Add(time.Duration(rng.IntN(3000))*ms)) },
					func() { g.Down(c.Now, c.Now.Add(-time.Duration(rng.IntN(5000))*ms)) },
				}[rng.IntN(3)]()
			})
		}
	}
	var waiting []int // in the order of arrival
	served, left := 0, 0
	mood := Success
	idle := time.Duration(0) // for how long there was no probe although a request waits
	for i := range n {
		c.At(instant.At(time.Duration(rng.IntN(20_000))*time.Millisecond), func() {
			v := &limitedRequest{clock: c, limiter: &g, conf: conf, asks: asks, result: mood, takes: time.Duration(1+rng.IntN(1500)) * time.Millisecond}
			if rng.IntN(10) == 0 {
				v.result = Result(rng.IntN(4))
			}
			if rng.IntN(4) == 0 {
				v.reads, v.streams = time.Duration(rng.IntN(3000))*time.Millisecond, rng.IntN(2) == 0
			}
			if rng.IntN(4) == 0 {
				v.waits = time.Duration(1+rng.IntN(2000)) * time.Millisecond // for its caller
			}
			if rng.IntN(3) == 0 {
				v.gives = time.Duration(1+rng.IntN(4000)) * time.Millisecond
			}
			waiting = append(waiting, i)
			remove := func() int {
				at := slices.Index(waiting, i)
				waiting = slices.Delete(waiting, at, at+1)
				return at
			}
			v.onGo = func() {
				require.Zero(t, remove(), "seed %d: %d went before its turn", seed, i)
				// A slot that comes back from waiting for its caller may exceed the limit.
				require.False(t, g.outage.open && g.slots.inFlight != 1 || !g.outage.open && g.slots.used() > max(g.growth.limit, v.used),
					"seed %d: closed %v, limit %d, %d in flight, %d lost", seed, g.outage.open, g.growth.limit, g.slots.inFlight, g.slots.lost)
				served++
				idle = 0
			}
			v.onLeave = func() { remove(); left++ }
			v.start()
		})
	}
	for at := range 20 {
		c.At(instant.At(time.Duration(at)*time.Second), func() { mood = Result(rng.IntN(4)) })
	}
	c.At(instant.At(20*time.Second), func() { mood = Success })
	for at := instant.Instant(0); at < instant.At(time.Minute); at = at.Add(50 * time.Millisecond) {
		c.At(at, func() {
			if idle += 50 * time.Millisecond; !g.outage.open || g.queue.Len() == 0 || g.slots.inFlight > 0 {
				idle = 0
			}
			// A concurrency limit of a fleet may be told to wait, and it waits for the time to return.
			require.False(t, idle > time.Second && !conf.Fleet || idle > 15*time.Second, "seed %d: no probe for %v", seed, idle)
		})
	}
	c.RunTo(instant.At(time.Hour))
	require.True(t, served+left == n && len(waiting) == 0, "seed %d: %d served, %d left of %d; %d waiting", seed, served, left, n, len(waiting))
	if g.slots.inFlight != 0 || g.slots.answered != 0 || g.slots.old != 0 || g.slots.away != 0 || g.queue != (queue.Queue{}) {
		t.Fatalf("seed %d: left over: %+v", seed, g.State())
	}
}

func TestLimiterServesEverybody(t *testing.T) {
	for seed := range soak.Size[uint64](25, 100) {
		runGate(t, seed, 300)
	}
}

func FuzzLimiter(f *testing.F) {
	f.Add(uint64(1), uint8(200))
	f.Fuzz(func(t *testing.T, seed uint64, n uint8) { runGate(t, seed, int(n)) })
}

func TestLimiterCosts(t *testing.T) {
	var g Limiter
	var p Slot
	assert.Zero(t, testing.AllocsPerRun(100, func() {
		g.Enter(0, &p, nil, Config{})
		g.Result(0, &p, Success)
		g.End(0, &p, Neutral)
	}), "allocations")
	assert.LessOrEqual(t, unsafe.Sizeof(g), uintptr(344), "bytes")
	assert.LessOrEqual(t, unsafe.Sizeof(queue.Waiter{}), uintptr(96), "bytes of a waiter")
}

const (
	ms  = hosttest.Ms
	sec = hosttest.Sec
)

// A visitor drives one request through a concurrency limit by hand.
type visitor struct {
	t       *testing.T
	limiter *Limiter
	conf    Config
	slot    Slot
	w       *queue.Waiter
}

func visit(t *testing.T, g *Limiter) *visitor {
	return &visitor{t: t, limiter: g, w: queue.NewWaiter()}
}

func (v *visitor) enter(now instant.Instant) queue.Answer {
	return v.limiter.Enter(now, &v.slot, v.w, v.conf)
}

func (v *visitor) end(now instant.Instant, r Result) {
	v.limiter.Result(now, &v.slot, r)
	v.limiter.End(now, &v.slot, Neutral)
}

func (v *visitor) woken() bool { return hosttest.Woken(v.w) }

func (v *visitor) mustGo(now instant.Instant) {
	v.t.Helper()
	if a := v.enter(now); a.Verb != queue.Go {
		v.t.Fatalf("at %v: %+v, want Go", now, a)
	}
}

func (v *visitor) mustWait(now, ask instant.Instant) {
	v.t.Helper()
	if a := v.enter(now); a.Verb != queue.Wait || a.Ask != ask {
		v.t.Fatalf("at %v: %+v, want queue.Wait until %v", now, a, ask)
	}
}

// fill sends n requests.
func fill(t *testing.T, g *Limiter, now instant.Instant, n int) []*visitor {
	t.Helper()
	vs := make([]*visitor, n)
	for i := range vs {
		vs[i] = visit(t, g)
		vs[i].mustGo(now)
	}
	return vs
}

// openCircuit makes a concurrency limit with the first limit fail wholesale, so that it is closed at
// that time.
func openCircuit(t *testing.T, g *Limiter, at instant.Instant) {
	t.Helper()
	g.pulse.gap = 0 // as if there had been much traffic before
	for _, v := range fill(t, g, at.Add(-2*time.Second), 10) {
		v.end(at, Lost)
	}
	assert.True(t, g.State().CircuitOpen, "open")
}

func wantLimit(t *testing.T, g *Limiter, want int) {
	t.Helper()
	require.Equal(t, want, g.State().Limit, "limit")
}

// round uses up the limit with successes once, and returns the limit after that.
func round(t *testing.T, g *Limiter, now instant.Instant) int {
	t.Helper()
	in := fill(t, g, now, g.State().Limit)
	next := visit(t, g) // a request always waits, so the limit is used up
	next.enter(now)
	for _, v := range in {
		v.end(now, Success)
	}
	g.Leave(next.w)
	return g.State().Limit
}

// fill0 lets the first waiter go, and then n−1 more requests.
func fill0(t *testing.T, g *Limiter, first *visitor, now instant.Instant, n int) []*visitor {
	t.Helper()
	first.mustGo(now)
	return append([]*visitor{first}, fill(t, g, now, n-1)...)
}

// calmLimiter is a concurrency limit that has been healthy for a window.
func calmLimiter(t *testing.T) *Limiter {
	g := &Limiter{}
	for _, now := range []time.Duration{0, useWindow} {
		fill(t, g, instant.At(now), 1)[0].end(instant.At(now+100*ms), Success)
	}
	return g
}
