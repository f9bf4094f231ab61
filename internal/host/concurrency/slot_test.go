package concurrency

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/aplomb-go/aplomb/internal/host/instant"
	"github.com/aplomb-go/aplomb/internal/host/queue"
)

// Streams from before the cut neither count as probes nor keep probes out. If a request
// that was sent before the cut succeeds, the next probe goes at once.
func TestLimiterOldRequests(t *testing.T) {
	var g Limiter
	streams := fill(t, &g, 0, 3)
	for _, v := range streams {
		g.Result(0, &v.slot, Success)
		g.Reading(0, &v.slot, false)
	}
	slow, slower, slowest := visit(t, &g), visit(t, &g), visit(t, &g)
	slow.mustGo(instant.At(time.Millisecond))
	slower.mustGo(instant.At(time.Millisecond))
	slowest.mustGo(instant.At(time.Millisecond))
	for _, v := range fill(t, &g, instant.At(time.Second), 4) {
		v.end(instant.At(10*time.Second), Lost)
	}
	now := 10 * time.Second
	for range 6 { // the slots come back one after the other
		v := visit(t, &g)
		v.mustWait(instant.At(now), instant.At(now+soonestSlot))
		v.mustGo(instant.At(now + soonestSlot))
		now += 2 * time.Second
		v.end(instant.At(now), Lost)
	}
	require.True(t, g.State().CircuitOpen && g.State().InFlight == 6, "%+v", g.State())
	probe := visit(t, &g)
	probe.mustWait(instant.At(now), instant.At(now+probeGap))
	slow.end(instant.At(now+1), Success)
	assert.True(t, g.State().CircuitOpen, "closed by an old request")
	assert.True(t, probe.woken(), "the probe was not woken")
	probe.mustGo(instant.At(now + 1))
	slower.end(instant.At(now+2), Success)
	next := visit(t, &g)
	next.mustWait(instant.At(now+2), instant.At(now+1+probeTime))
	probe.end(instant.At(now+time.Second), Failed) // so it only finishes old requests
	slowest.end(instant.At(now+time.Second+1), Success)
	next.mustWait(instant.At(now+time.Second+1), instant.At(now+time.Second+probeGap))
}

func TestLimiterLostRequestsKeepTheirSlot(t *testing.T) {
	var g Limiter
	in := fill(t, &g, 0, 10)
	waiting := visit(t, &g)
	waiting.mustWait(0, instant.Never)
	for _, v := range in[:4] {
		v.end(instant.At(2*time.Second), Lost)
	}
	waiting.mustWait(instant.At(2*time.Second), instant.At(2*time.Second+soonestSlot))
	waiting.woken()
	in[4].end(instant.At(2*time.Second), Success) // the server works off its queue
	require.True(t, waiting.woken(), "no slot after a success")
	in[5].end(instant.At(2*time.Second), Success)
	for _, v := range fill0(t, &g, waiting, instant.At(2*time.Second), 6) {
		v.end(instant.At(2*time.Second), Neutral)
	}
}

func TestLimiterStreams(t *testing.T) {
	var g Limiter
	openCircuit(t, &g, instant.At(10*time.Second))
	now := 20 * time.Second
	streams := 0
	for range 50 {
		v := visit(t, &g)
		require.Equal(t, queue.Go, v.enter(instant.At(now)).Verb, "after %d streams: %+v", streams, g.State())
		g.Result(instant.At(now), &v.slot, Success) // and never Done
		streams++
	}
	v := visit(t, &g)
	v.mustGo(instant.At(now)) // has no response yet, and the next request waits for it
	w := visit(t, &g)
	w.mustWait(instant.At(now), instant.At(10*time.Second+2*useWindow)) // the limit goes back to the start
	g.Result(instant.At(now), &v.slot, Success)
	assert.True(t, w.woken(), "not woken")
	w.mustGo(instant.At(now))

	g2 := Limiter{}
	conf := Config{Max: 12}
	for i := range 12 {
		v := visit(t, &g2)
		v.conf = conf
		v.mustGo(instant.At(time.Duration(i)))
		g2.Result(instant.At(time.Duration(i)), &v.slot, Success)
	}
	v = visit(t, &g2)
	v.conf = conf
	v.mustWait(20, instant.At(bodyTime)) // Max holds for streams as well
}

// Whatever a caller does with a body, its slot ends once.
func TestLimiterRest(t *testing.T) {
	var g Limiter
	conf := Config{Start: 2, Max: 2}
	var a, b, c Slot
	g.Enter(0, &a, nil, conf)
	g.Enter(0, &b, nil, conf)
	g.Idle(0, &a) // has no response yet
	g.Await(0, new(Slot))
	g.Result(0, &a, Success)
	g.Result(0, &b, Success)
	g.Reading(0, &b, false)
	g.Await(0, &b) // has its response
	w := visit(t, &g)
	w.conf = conf
	w.mustWait(sec, instant.At(bodyTime))
	g.Idle(2*sec, &b)
	assert.False(t, w.woken(), "woken without need")
	w.mustGo(instant.At(bodyTime)) // with the slot of a
	assert.Equal(t, 3, g.State().InFlight, "requests in flight")
	assert.Equal(t, queue.Wait, g.Enter(instant.At(bodyTime), &c, nil, conf).Verb, "b is not forgotten yet")
	assert.Equal(t, queue.Go, g.Enter(instant.At(bodyTime+2*sec), &c, nil, conf).Verb)
	g.Reading(instant.At(bodyTime+2*sec), &a, true) // too late
	g.Idle(instant.At(2*bodyTime), &a)
	for _, p := range []*Slot{&a, &b, &c, &w.slot, &a} {
		g.End(instant.At(2*bodyTime), p, Neutral)
	}
	assert.Equal(t, []int{0, 0}, []int{g.State().InFlight, g.slots.used()}, "in flight, and used")
	assert.Equal(t, [3]slotList{}, [3]slotList{g.slots.idle, g.slots.streams, g.slots.uploads})
}

// While an attempt waits for the caller's body, its slot counts for 100 ms, or not at all if the attempt
// has waited most of its time. If that is a probe, its end does not put off the probe that went instead.
func TestLimiterAwaitsTheCaller(t *testing.T) {
	var g Limiter
	w := visit(t, &g)
	w.conf = Config{Start: 1, Max: 1}
	var a Slot
	g.Enter(0, &a, nil, w.conf)
	g.Await(0, &a)
	g.Resume(60*ms, &a)
	g.Await(90*ms, &a)
	g.Resume(150*ms, &a)
	g.Await(150*ms, &a) // 90 ms in all, less 30 ms between the two
	w.mustWait(151*ms, 250*ms)
	g.Resume(160*ms, &a)
	w.mustWait(160*ms, instant.Never)
	w.woken()
	g.Await(160*ms, &a) // 100 ms
	assert.True(t, w.woken(), "not woken")
	w.mustGo(160 * ms)
	assert.Equal(t, 2, g.State().InFlight, "requests in flight")

	g = Limiter{}
	openCircuit(t, &g, 10*sec)
	probe, instead, next := visit(t, &g), visit(t, &g), visit(t, &g)
	probe.mustGo(instant.At(10*sec + probeGap))
	g.Await(11*sec, &probe.slot)
	instead.mustGo(instant.At(11*sec + callerTime))
	probe.end(12*sec, Neutral)
	next.mustWait(12*sec, instant.At(11*sec+callerTime+probeTime))
}

// A waiter knows of no time at which a slot may come free. When the caller stops
// reading a body, the waiter is woken and learns such a time.
func TestLimiterRestTellsWhoWaits(t *testing.T) {
	var g Limiter
	conf := Config{Start: 1, Max: 1}
	var a Slot
	g.Enter(0, &a, nil, conf)
	g.Result(0, &a, Success)
	g.Reading(0, &a, false)
	w := visit(t, &g)
	w.conf = conf
	w.mustWait(0, instant.Never)
	g.Idle(sec, &a)
	require.True(t, w.woken(), "not woken")
	w.mustWait(sec, instant.At(sec+bodyTime))
	w.mustGo(instant.At(sec + bodyTime))

	g.Result(11*sec, &w.slot, Success)
	g.Reading(11*sec, &w.slot, true)
	next := visit(t, &g)
	next.conf = conf
	next.mustWait(11*sec, 11500*ms)
	next.mustWait(11499*ms, 11500*ms)
	next.mustGo(11500 * ms) // beside a stream
}

// The slots of lost requests come back by time, however many requests ask.
func TestLimiterLostSlotsComeBackByTime(t *testing.T) {
	var g Limiter
	for _, v := range fill(t, &g, 0, 9) {
		v.end(instant.At(2*time.Second), Lost)
	}
	require.EqualValues(t, 9, g.slots.lost, "slots kept")
	fill(t, &g, instant.At(time.Hour), 10)
	assert.Zero(t, g.slots.lost, "slots kept")
}

func TestLimiterDoneTwice(t *testing.T) {
	var g Limiter
	v := fill(t, &g, 0, 1)[0]
	v.end(0, Success)
	v.end(0, Success)
	g.End(0, &Slot{}, Neutral)
	g.Result(0, &Slot{}, Failed)
	assert.Equal(t, [2]int{0, 10}, [2]int{g.State().InFlight, g.State().Limit}, "in flight, limit")
}

// End leaves a concurrency limit as Result and Done leave it, whatever has happened before.
func TestLimiterEnd(t *testing.T) {
	for seed := range uint64(200) {
		var limiters [2]Limiter
		var flying [2][]*Slot
		rng := rand.New(rand.NewPCG(seed, 1))
		conf := Config{Start: 1 + rng.IntN(20), Max: rng.IntN(3) * 20}
		now := instant.At(sec)
		for range 500 {
			now = now.Add(time.Duration(rng.Int64N(int64(200 * ms))))
			if op := rng.IntN(2); op == 0 || len(flying[0]) == 0 {
				for i := range limiters {
					if s := new(Slot); limiters[i].Enter(now, s, nil, conf).Verb == queue.Go {
						flying[i] = append(flying[i], s)
					}
				}
				continue
			}
			n, r := rng.IntN(len(flying[0])), Result(rng.IntN(4))
			if rng.IntN(3) > 0 {
				r = Failed // an outage now and then
			}
			limiters[0].Result(now, flying[0][n], r)
			limiters[0].End(now, flying[0][n], Neutral)
			limiters[1].End(now, flying[1][n], r)
			for i := range flying {
				flying[i] = slices.Delete(flying[i], n, n+1)
			}
			a, b := limiters[0].State(), limiters[1].State()
			require.False(t, a != b || len(flying[0]) != len(flying[1]) || limiters[0].growth.threshold != limiters[1].growth.threshold || limiters[0].outage.probe != limiters[1].outage.probe,
				"seed %d: %+v after Result and Done, %+v after End", seed, a, b)
		}
	}
}
