package concurrency

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/aplomb-go/aplomb/internal/host/instant"
	"github.com/aplomb-go/aplomb/internal/host/queue"
	"github.com/aplomb-go/aplomb/internal/host/rate"
)

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
	slow.Take(0, 1)
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
	slow.Take(0, 2)
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
		slow.Take(sec, 1)
		a.mustWait(sec, 2*sec)
		assert.EqualValues(t, sec/2, g.RateTime(1500*ms), name)
		ends(&g, a)
		assert.Equal(t, g.RateTime(5*sec), g.RateTime(6*sec), name)
	}
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
	slow.Take(0, 1)
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
