package gate

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/aplomb-go/aplomb/internal/host/instant"
	"github.com/aplomb-go/aplomb/internal/host/queue"
	"github.com/aplomb-go/aplomb/internal/host/rate"
)

func TestGateStartsAtTenAndHolds(t *testing.T) {
	var g Gate
	in := fill(t, &g, 0, 10)
	waiting := make([]*visitor, 5)
	for i := range waiting {
		waiting[i] = visit(t, &g)
		waiting[i].mustWait(0, instant.Never)
	}
	if a := g.Enter(0, new(Slot), nil, Config{}); a.Verb != queue.Wait || g.State().Waiting != 5 {
		t.Errorf("one that does not wait: %+v, %+v", a, g.State())
	}
	in[0].end(1, Neutral)
	assert.True(t, waiting[0].woken() && !waiting[1].woken(), "not the first was woken, or not alone")
	newcomer := visit(t, &g)
	newcomer.mustWait(1, instant.Never) // although a slot is free, because the first waiter gets it
	waiting[0].mustGo(1)
	assert.False(t, waiting[1].woken(), "the second was woken without a slot")
	g.Leave(waiting[1].w) // gave up
	in[1].end(2, Neutral)
	waiting[2].mustGo(2)
	assert.Equal(t, State{Limit: 10, InFlight: 10, Waiting: 3}, g.State())
}

func TestGateLeaveHandsTheTurnOn(t *testing.T) {
	var g Gate
	in := fill(t, &g, 0, 10)
	a, b := visit(t, &g), visit(t, &g)
	a.mustWait(0, instant.Never)
	b.mustWait(0, instant.Never)
	in[0].end(1, Neutral) // wakes a, which is about to give up
	g.Leave(a.w)
	require.True(t, b.woken(), "b was not woken")
	b.mustGo(1)
	g.Leave(a.w) // harmless
	g.Leave(b.w)
}

func TestGateProbes(t *testing.T) {
	var g Gate
	const cut = 10 * time.Second
	closeGate(t, &g, instant.At(cut))
	a, b, c := visit(t, &g), visit(t, &g), visit(t, &g)
	a.mustWait(instant.At(cut), instant.At(cut+probeGap))
	b.mustWait(instant.At(cut), instant.Never) // a is asked first
	a.mustGo(instant.At(cut + probeGap))
	b.mustWait(instant.At(cut+probeGap), instant.At(cut+probeGap+probeTime)) // the probe may hang
	c.mustWait(instant.At(cut+probeGap), instant.Never)

	end := cut + probeGap + 2*time.Second
	a.end(instant.At(end), Lost)
	assert.True(t, b.woken() && !c.woken(), "the next probe was not woken, or not alone")
	b.mustWait(instant.At(end), instant.At(end+probeGap))
	b.mustGo(instant.At(end + probeGap))
	end += probeGap + time.Millisecond
	b.end(instant.At(end), Failed)
	assert.True(t, c.woken(), "c was not woken")
	c.mustWait(instant.At(end), instant.At(end+probeGap))
	c.mustGo(instant.At(end + probeGap))
	c.end(instant.At(end+probeGap), Success)
	if got := g.State(); got.Closed || got.Limit != 2 {
		t.Errorf("after a success: %+v", got)
	}
}

// The gap between probes is well below the second that is allowed.
func TestGateProbeGap(t *testing.T) {
	assert.LessOrEqual(t, probeGap, time.Second)
}

// If the question of a newcomer makes room, the first waiter hears of it.
func TestGateTellsOfRoom(t *testing.T) {
	var g Gate
	closeGate(t, &g, instant.At(2*time.Second))
	fill(t, &g, instant.At(3*time.Second), 1)[0].end(instant.At(3*time.Second), Success)
	wantLimit(t, &g, 2)
	fill(t, &g, instant.At(3*time.Second), 2) // slow requests, which use up the limit
	first := visit(t, &g)
	first.mustWait(instant.At(3*time.Second), instant.At(useWindow))
	first.woken()
	for now := 4 * time.Second; g.State().Limit == 2; now += time.Second {
		require.LessOrEqual(t, now, time.Minute, "the limit never went back")
		visit(t, &g).enter(instant.At(now))
	}
	if !first.woken() {
		t.Errorf("not woken: %+v", g.State())
	}
}

// A request that gets no token of the rate keeps its turn, takes no slot, and counts as no
// waiter of the gate.
func TestGateWaitsForTheRate(t *testing.T) {
	var g Gate
	fill(t, &g, 0, 9)
	rate := rate.New(rate.Config{PerSecond: 1, Burst: 1})
	rate.Take(0, 1)
	a, b := visit(t, &g), visit(t, &g)
	a.conf.Rate, b.conf.Rate = rate, rate
	assert.Equal(t, queue.Answer{Verb: queue.Wait, Ask: sec, Until: sec, ForRate: true, NoToken: true}, a.enter(0))
	if got := b.enter(0); got.Verb != queue.Wait || got.Ask != instant.Never || !got.ForRate {
		t.Errorf("%+v", got)
	}
	if got := g.State(); got.InFlight != 9 || got.Waiting != 0 {
		t.Errorf("%+v", got)
	}
	b.mustWait(sec, instant.Never) // a is first still
	a.mustGo(sec)
	b.woken()
	if got := b.enter(sec); got.Verb != queue.Wait || got.Ask != 2*sec || got.ForRate {
		t.Errorf("the rate comes first: %+v", got)
	}
	if got := b.enter(2 * sec); got.Verb != queue.Wait || got.Ask != instant.Never || got.ForRate {
		t.Errorf("the limit is used up: %+v", got)
	}
	if got := g.State(); got.InFlight != 10 || got.Waiting != 1 {
		t.Errorf("%+v", got)
	}
	assert.EqualValues(t, 2*sec, g.RateTime(5*sec), "waited for the rate")
}

func TestGateRelease(t *testing.T) {
	var g Gate
	fill(t, &g, 0, 9)
	a, b := visit(t, &g), visit(t, &g)
	a.mustGo(0)
	b.mustWait(0, instant.Never)
	g.Release(0, &a.slot)
	if got := g.State(); got.InFlight != 9 || got.Waiting != 1 {
		t.Errorf("%+v", got)
	}
	assert.True(t, b.woken(), "b was not woken")
	b.mustGo(1)
}

// An Update raised Max. A waiter with the new rule does not wait for a stream although
// a request with the old rule asked last.
func TestGateTellsAfterAnUpdate(t *testing.T) {
	var g Gate
	one, four := Config{Start: 1, Max: 1}, Config{Start: 1, Max: 4}
	var stream Slot
	w := queue.NewWaiter()
	g.Enter(0, &stream, nil, one)
	g.Enter(0, new(Slot), w, one) // behind it, with the old rule
	next := visit(t, &g)
	next.conf = four
	next.mustWait(0, instant.Never)
	g.Done(1, &stream)
	g.Enter(1, &stream, w, one)
	g.Result(2, &stream, Success) // and it streams
	require.True(t, next.woken(), "not woken")
	next.mustGo(2)
}

// An Update raised Start. A waiter with the new rule that is first now hears of it,
// although the request before it passed with the old rule.
func TestGateTellsAfterAnUpdateOfStart(t *testing.T) {
	var g Gate
	one, ten := Config{Start: 1}, Config{Start: 10}
	var a, b Slot
	w := queue.NewWaiter()
	g.Enter(0, &a, nil, one)
	g.Enter(0, &b, w, one)
	next := visit(t, &g)
	next.conf = ten
	next.mustWait(0, instant.Never)
	g.Done(1, &a)
	require.Equal(t, queue.Go, g.Enter(1, &b, w, one).Verb)
	require.True(t, next.woken(), "not woken")
	next.mustWait(1, instant.At(useWindow))
	next.mustGo(instant.At(useWindow))
}

// Requests that get no token of the rate go in the order in which they came.
func TestGateKeepsTheOrderForTheRate(t *testing.T) {
	var g Gate
	in := fill(t, &g, 0, 10)
	rate := rate.New(rate.Config{PerSecond: 1, Burst: 1})
	rate.Take(0, 1)
	first, second := visit(t, &g), visit(t, &g)
	first.conf.Rate, second.conf.Rate = rate, rate
	first.mustWait(0, sec)
	second.mustWait(0, instant.Never)
	in[0].end(1, Neutral)
	in[1].end(1, Neutral)
	second.mustWait(1, instant.Never)
	first.mustWait(1, sec)
	second.mustWait(sec, instant.Never)
	first.mustGo(sec)
	second.mustWait(sec, 2*sec)
}
