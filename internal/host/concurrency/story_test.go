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
}

func (v *limitedRequest) start() {
	v.w = &queue.Waiter{Woken: func(*queue.Waiter) { v.clock.At(v.clock.Now, v.ask) }}
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
	v.used = v.limiter.used
	a := v.limiter.Enter(v.clock.Now, &v.slot, v.w, v.conf)
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
		if v.reads > 0 {
			v.limiter.Respond(v.clock.Now, &v.slot)
			v.limiter.Reading(v.clock.Now, &v.slot, v.streams)
		}
		v.clock.At(v.clock.Now.Add(v.reads), func() { v.limiter.End(&v.slot) })
	})
}

// Whatever happens, waiters are served in the order of arrival, and Max holds. Nobody waits while
// there is room. At the end nothing is left over.
func runLimiter(t *testing.T, seed uint64, n int) {
	rng := rand.New(rand.NewPCG(seed, 7))
	var g Limiter
	c := &hosttest.Clock{}
	conf := Config{Max: 1 + rng.IntN(20)}
	var waiting []int // in the order of arrival
	served, left := 0, 0
	for i := range n {
		c.At(instant.At(time.Duration(rng.IntN(20_000))*ms), func() {
			v := &limitedRequest{clock: c, limiter: &g, conf: conf, takes: time.Duration(1+rng.IntN(1500)) * ms}
			if rng.IntN(4) == 0 {
				v.reads, v.streams = time.Duration(rng.IntN(3000))*ms, rng.IntN(2) == 0
			}
			if rng.IntN(4) == 0 {
				v.waits = time.Duration(1+rng.IntN(2000)) * ms // for its caller
			}
			if rng.IntN(3) == 0 {
				v.gives = time.Duration(1+rng.IntN(4000)) * ms
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
				require.LessOrEqual(t, g.used, max(conf.Max, v.used), "seed %d", seed)
				served++
			}
			v.onLeave = func() { remove(); left++ }
			v.start()
		})
	}
	for at := instant.At(ms / 2); at < instant.At(time.Minute); at = at.Add(50 * ms) { // all else happens at whole milliseconds
		c.At(at, func() {
			require.False(t, len(waiting) > 0 && g.used < conf.Max, "seed %d: %d wait, %+v", seed, len(waiting), g.State())
		})
	}
	c.RunTo(instant.At(time.Hour))
	require.True(t, served+left == n && len(waiting) == 0, "seed %d: %d served, %d left of %d; %d waiting", seed, served, left, n, len(waiting))
	assert.Equal(t, slots{}, g.slots, "seed %d: left over", seed)
	assert.Equal(t, queue.Queue{}, g.queue, "seed %d: left over", seed)
}

func TestServesEverybody(t *testing.T) {
	for seed := range soak.Size[uint64](25, 100) {
		runLimiter(t, seed, 300)
	}
}

func FuzzLimiter(f *testing.F) {
	f.Add(uint64(1), uint8(200))
	f.Fuzz(func(t *testing.T, seed uint64, n uint8) { runLimiter(t, seed, int(n)) })
}

func TestCosts(t *testing.T) {
	var g Limiter
	var p Slot
	assert.Zero(t, testing.AllocsPerRun(100, func() {
		g.Enter(0, &p, nil, ten)
		g.Respond(0, &p)
		g.End(&p)
	}), "allocations")
	assert.LessOrEqual(t, unsafe.Sizeof(g), uintptr(152), "bytes")
	assert.LessOrEqual(t, unsafe.Sizeof(queue.Waiter{}), uintptr(96), "bytes of a waiter")
}

const (
	ms  = hosttest.Ms
	sec = hosttest.Sec
)

// ten lets ten requests go.
var ten = Config{Max: 10}

// A visitor drives one request through a concurrency limit by hand.
type visitor struct {
	t       *testing.T
	limiter *Limiter
	conf    Config
	slot    Slot
	w       *queue.Waiter
}

func visit(t *testing.T, g *Limiter) *visitor { return visitOf(t, g, ten) }

func visitOf(t *testing.T, g *Limiter, c Config) *visitor {
	return &visitor{t: t, limiter: g, conf: c, w: queue.NewWaiter()}
}

func (v *visitor) enter(now instant.Instant) queue.Answer {
	return v.limiter.Enter(now, &v.slot, v.w, v.conf)
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
