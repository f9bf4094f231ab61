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
	"github.com/aplomb-go/aplomb/internal/host/rate"
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

const ms, sec = hosttest.Ms, hosttest.Sec

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

// Max requests go at once, and the others in the order in which they came.
func TestMaxHolds(t *testing.T) {
	var g Limiter
	in := fill(t, &g, 0, 10)
	waiters := make([]*visitor, 5)
	for i := range waiters {
		waiters[i] = visit(t, &g)
		waiters[i].mustWait(0, instant.Never)
	}
	assert.Equal(t, queue.Answer{Verb: queue.Wait, Ask: instant.Never}, g.Enter(0, new(Slot), nil, ten), "a request that does not wait")
	assert.Equal(t, State{Limit: 10, InFlight: 10, Waiting: 5, Cost: 5}, g.State())
	g.End(&in[0].slot)
	assert.True(t, waiters[0].woken() && !waiters[1].woken(), "not the first was woken, or not alone")
	newcomer := visit(t, &g)
	assert.Equal(t, queue.Answer{Verb: queue.Wait, Ask: instant.Never, Room: true}, newcomer.enter(1), "the first waiter gets the free slot")
	waiters[0].mustGo(1)
	assert.False(t, waiters[1].woken(), "the second was woken without a slot")
	g.Leave(waiters[1].w) // gave up
	assert.True(t, waiters[2].woken(), "the third is the first now")
	g.End(&in[1].slot)
	waiters[2].mustGo(2)
	assert.Equal(t, State{Limit: 10, InFlight: 10, Waiting: 3, Cost: 3}, g.State())
	g.End(&in[2].slot)
	g.End(&in[3].slot)
	waiters[3].woken()
	waiters[3].mustGo(3)
	assert.True(t, waiters[4].woken(), "there is another slot")
}

// A request that gets no token of the rate keeps its turn, takes no slot, and counts as no
// waiter of the limiter.
func TestWaitsForTheRate(t *testing.T) {
	var g Limiter
	in := fill(t, &g, 0, 9)
	slow := rate.New(rate.Config{PerSecond: 1, Burst: 1}, nil)
	slow.Take(0, 1, false)
	a, b := visit(t, &g), visit(t, &g)
	a.conf.Rate, b.conf.Rate = slow, slow
	assert.Equal(t, queue.Answer{Verb: queue.Wait, Ask: sec, Until: sec, Room: true, NoToken: true}, a.enter(0))
	g.WakeFirst()
	assert.True(t, a.woken())
	assert.Equal(t, queue.Answer{Verb: queue.Wait, Ask: instant.Never, Room: true, NoToken: true, Until: 2 * sec}, b.enter(0))
	assert.Equal(t, State{Limit: 10, InFlight: 9, ForRate: 2, Cost: 2}, g.State())
	g.End(&in[0].slot)
	assert.False(t, a.woken(), "a slot is no news for a request that waits for its token")
	assert.Equal(t, queue.Answer{Verb: queue.Wait, Ask: instant.Never, Room: true, NoToken: true}, b.enter(sec), "a is first still")
	a.mustGo(sec)
	assert.True(t, b.woken(), "there is a slot for b")
	assert.Equal(t, State{Limit: 10, InFlight: 9, ForRate: 1, Cost: 1}, g.State(), "before b asks again")
	assert.Equal(t, queue.Answer{Verb: queue.Wait, Ask: 2 * sec, Until: 2 * sec, Room: true, NoToken: true}, b.enter(sec))
	c := visit(t, &g)
	c.conf.Rate = slow
	assert.Equal(t, instant.Instant(3*sec), c.enter(sec).Until)
	g.Leave(c.w)
	b.mustGo(2 * sec)
	assert.Equal(t, State{Limit: 10, InFlight: 10}, g.State())
	assert.Equal(t, queue.Answer{Verb: queue.Wait, Ask: 3 * sec, Until: 3 * sec, NoToken: true}, c.enter(2*sec), "neither slot nor token")
	assert.Equal(t, queue.Answer{Verb: queue.Wait, Ask: instant.Never}, c.enter(3*sec), "a token, but no slot")
	assert.Equal(t, State{Limit: 10, InFlight: 10, Waiting: 1, Cost: 1}, g.State())
	assert.EqualValues(t, 3*sec, g.RateTime(5*sec), "waited for the rate")

	g = Limiter{}
	slow = rate.New(rate.Config{PerSecond: 1, Burst: 2}, nil)
	slow.Take(0, 2, false)
	a, b = visit(t, &g), visit(t, &g)
	a.conf.Rate, b.conf.Rate = slow, slow
	a.enter(0)
	b.enter(0)
	a.mustGo(2 * sec)
	assert.Equal(t, State{Limit: 10, InFlight: 1, Waiting: 1, Cost: 1}, g.State(), "there is a token for b")
}

// The time in which somebody waits for the rate ends with who waits.
func TestRateTime(t *testing.T) {
	slow := rate.New(rate.Config{PerSecond: 1, Burst: 1}, nil)
	for name, ends := range map[string]func(g *Limiter, a *visitor){
		"it leaves": func(g *Limiter, a *visitor) { g.Leave(a.w) },
		"it goes":   func(_ *Limiter, a *visitor) { a.conf.Rate = nil; a.mustGo(2 * sec) },
	} {
		var g Limiter
		a := visit(t, &g)
		a.conf.Rate = slow
		slow.Take(sec, 1, false)
		a.mustWait(sec, 2*sec)
		assert.EqualValues(t, sec/2, g.RateTime(1500*ms), name)
		ends(&g, a)
		assert.Equal(t, g.RateTime(5*sec), g.RateTime(6*sec), name)
	}
}

// Requests that get no token of the rate go in the order in which they came.
func TestKeepsTheOrderForTheRate(t *testing.T) {
	var g Limiter
	in := fill(t, &g, 0, 10)
	slow := rate.New(rate.Config{PerSecond: 1, Burst: 1}, nil)
	slow.Take(0, 1, false)
	first, second := visit(t, &g), visit(t, &g)
	first.conf.Rate, second.conf.Rate = slow, slow
	first.mustWait(0, sec)
	second.mustWait(0, instant.Never)
	g.End(&in[0].slot)
	g.End(&in[1].slot)
	second.mustWait(1, instant.Never)
	first.mustWait(1, sec)
	second.mustWait(sec, instant.Never)
	first.mustGo(sec)
	second.mustWait(sec, 2*sec)
}

// An Update changed Max. The first waiter hears of room that the question of another makes, and a limit that is
// lower than the requests in flight lets nobody go until enough of them have ended.
func TestAnUpdateOfMax(t *testing.T) {
	var g Limiter
	in := fill(t, &g, 0, 10)
	a, b := visit(t, &g), visit(t, &g)
	a.mustWait(0, instant.Never)
	b.conf.Max = 12
	b.mustWait(0, instant.Never)
	require.True(t, a.woken(), "not woken")
	a.conf.Max = 12
	a.mustGo(0)
	assert.True(t, b.woken(), "there is room for both")
	b.mustGo(0)
	c := visit(t, &g)
	c.conf.Max = 11
	c.mustWait(0, instant.Never)
	g.End(&in[0].slot)
	assert.False(t, c.woken(), "there is no room")
	g.End(&in[1].slot)
	assert.True(t, c.woken(), "there is")
	c.mustGo(0)
	assert.Equal(t, State{Limit: 11, InFlight: 11}, g.State())
}

// An Update removed the rate. Who waited for it goes at once, in order.
func TestAnUpdateRemovesTheRate(t *testing.T) {
	var g Limiter
	slow := rate.New(rate.Config{PerSecond: 0.1, Burst: 1}, nil)
	slow.Take(0, 1, false)
	a, b, c := visit(t, &g), visit(t, &g), visit(t, &g)
	a.conf.Rate, b.conf.Rate = slow, slow
	a.mustWait(0, 10*sec)
	b.mustWait(0, instant.Never)
	g.WakeFirst()
	assert.Equal(t, queue.Answer{Verb: queue.Wait, Ask: instant.Never, Room: true}, c.enter(sec), "behind them, but not for the rate")
	require.True(t, a.woken())
	for _, v := range []*visitor{a, b, c} {
		v.conf.Rate = nil
		v.mustGo(sec)
	}
	assert.True(t, b.woken() && c.woken())
}

// Requests that have waited for the rate and are late lose no tokens. One that comes then has no more than a full bucket.
func TestLateRequestsLoseNoTokens(t *testing.T) {
	g, conf := new(Limiter), Config{Max: NoMax, Rate: rate.New(rate.Config{PerSecond: 1000, Burst: 1}, nil)}
	enter := func(now instant.Instant, w *queue.Waiter) queue.Verb { return g.Enter(now, nil, w, conf).Verb }
	first, second := queue.NewWaiter(), queue.NewWaiter()
	assert.Equal(t, []queue.Verb{queue.Go, queue.Wait, queue.Wait}, []queue.Verb{enter(0, nil), enter(0, first), enter(0, second)})
	assert.Equal(t, []queue.Verb{queue.Go, queue.Go}, []queue.Verb{enter(5*ms, first), enter(5*ms, second)})
	assert.Equal(t, []queue.Verb{queue.Go, queue.Wait}, []queue.Verb{enter(5*ms, nil), enter(5*ms, nil)})
}

// A request that had to wait for a slot takes its token when it gets that, however long that was there.
func TestSlotsDoNotMakeTokens(t *testing.T) {
	g, conf := new(Limiter), Config{Max: 1, Rate: rate.New(rate.Config{PerSecond: 200, Burst: 1}, nil)}
	var slots [4]Slot
	enter := func(now instant.Instant, i int, w *queue.Waiter) queue.Verb {
		return g.Enter(now, &slots[i], w, conf).Verb
	}
	assert.Equal(t, queue.Go, enter(0, 0, nil))
	g.End(&slots[0])
	first, second, third := queue.NewWaiter(), queue.NewWaiter(), queue.NewWaiter()
	assert.Equal(t, []queue.Verb{queue.Wait, queue.Wait, queue.Wait}, []queue.Verb{enter(0, 1, first), enter(0, 2, second), enter(0, 3, third)})
	assert.Equal(t, queue.Go, enter(5*ms, 1, first))
	g.End(&slots[1])
	assert.Equal(t, queue.Go, enter(14*ms, 2, second))
	g.End(&slots[2])
	assert.Equal(t, []queue.Verb{queue.Wait, queue.Go}, []queue.Verb{enter(18*ms, 3, third), enter(19*ms, 3, third)})
	g.End(&slots[3])

	g, slots = new(Limiter), [4]Slot{}
	conf.Rate, conf.Max = rate.New(rate.Config{PerSecond: 200, Burst: 1}, nil), 2
	assert.Equal(t, []queue.Verb{queue.Go, queue.Wait, queue.Wait}, []queue.Verb{enter(0, 0, nil), enter(0, 1, first), enter(0, 2, second)})
	conf.Max = 1
	assert.Equal(t, queue.Wait, enter(5*ms, 1, first), "the slot is gone")
	conf.Max = 2
	assert.Equal(t, queue.Go, enter(9*ms, 1, first))
	g.End(&slots[0])
	assert.Equal(t, []queue.Verb{queue.Wait, queue.Go}, []queue.Verb{enter(13*ms, 2, second), enter(14*ms, 2, second)})
}
