package concurrency

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/aplomb-go/aplomb/internal/host/instant"
	"github.com/aplomb-go/aplomb/internal/host/queue"
)

// The figures are those that the comments name.
func TestFigures(t *testing.T) {
	assert.Equal(t, []time.Duration{10 * time.Second, 500 * time.Millisecond, 100 * time.Millisecond}, []time.Duration{bodyTime, streamTime, callerTime})
}

// Bodies that are read keep their slots. A stream does not, and neither does a body that nobody reads.
func TestBodies(t *testing.T) {
	for name, row := range map[string]struct {
		do    func(g *Limiter, s *Slot)
		until instant.Instant // when the slot no longer counts
	}{
		"no response":                 {func(*Limiter, *Slot) {}, instant.Never},
		"nobody reads":                {func(g *Limiter, s *Slot) { g.Respond(sec, s) }, 11 * sec},
		"a second response":           {func(g *Limiter, s *Slot) { g.Respond(sec, s); g.Respond(2*sec, s) }, 11 * sec},
		"somebody reads":              {func(g *Limiter, s *Slot) { g.Respond(sec, s); g.Reading(2*sec, s, false) }, instant.Never},
		"somebody reads a stream":     {func(g *Limiter, s *Slot) { g.Respond(sec, s); g.Reading(2*sec, s, true) }, 2500 * ms},
		"a stream is read again":      {func(g *Limiter, s *Slot) { g.Respond(sec, s); g.Reading(2*sec, s, true); g.Idle(3*sec, s) }, 13 * sec},
		"nobody reads any more":       {func(g *Limiter, s *Slot) { g.Respond(sec, s); g.Reading(2*sec, s, false); g.Idle(3*sec, s) }, 13 * sec},
		"reads without a response":    {func(g *Limiter, s *Slot) { g.Reading(sec, s, true); g.Idle(2*sec, s) }, instant.Never},
		"an upload with its response": {func(g *Limiter, s *Slot) { g.Await(sec, s); g.Respond(sec, s); g.Await(2*sec, s) }, 11 * sec},
		"an upload":                   {func(g *Limiter, s *Slot) { g.Await(sec, s) }, 1100 * ms},
		"an upload goes on":           {func(g *Limiter, s *Slot) { g.Await(sec, s); g.Resume(1050*ms, s) }, instant.Never},
	} {
		var g Limiter
		var s Slot
		w := visit(t, &g)
		w.conf.Max = 1
		assert.Equal(t, queue.Go, g.Enter(0, &s, nil, w.conf).Verb)
		w.mustWait(0, instant.Never)
		w.woken()
		row.do(&g, &s)
		assert.True(t, w.woken() || row.until == instant.Never, "%s: does not hear that it may go", name)
		if row.until == instant.Never {
			w.mustWait(instant.At(time.Hour), instant.Never)
			g.End(&s)
			assert.True(t, w.woken(), name)
			continue
		}
		w.mustWait(row.until-1, row.until)
		w.mustGo(row.until)
		assert.Equal(t, State{Limit: 1, InFlight: 2}, g.State(), name)
		g.Respond(row.until, &s)
		g.Reading(row.until, &s, true) // too late, but for an upload
		g.Idle(row.until, &s)
		g.End(&s)
		g.End(&s)
		assert.Equal(t, State{Limit: 1, InFlight: 1}, g.State(), name)
		w.conf.Max = 2
		visitOf(t, &g, w.conf).mustGo(row.until)
		visitOf(t, &g, w.conf).mustWait(row.until, instant.Never)
		assert.Equal(t, [3]slotList{}, [3]slotList{g.idle, g.streams, g.uploads}, name)
	}
}

// The slots of a list end in the order in which they came, and each but once.
func TestSlotsEndInOrder(t *testing.T) {
	var g Limiter
	in := fill(t, &g, 0, 3)
	for i, v := range in {
		g.Respond(instant.Instant(i*sec), &v.slot)
	}
	g.Idle(5*sec, &in[0].slot) // the last now
	w := visitOf(t, &g, Config{Max: 3})
	w.mustWait(6*sec, 11*sec)
	w.mustGo(11 * sec)
	next := visitOf(t, &g, Config{Max: 3})
	next.mustWait(11*sec, 12*sec)
	g.Reading(11*sec, &in[2].slot, false)
	next.mustWait(12*sec, 15*sec)
	next.mustGo(15 * sec)
	g.End(&in[0].slot)
	g.End(&in[1].slot)
	assert.Equal(t, [2]int{3, 3}, [2]int{g.held, g.used})
}

// An attempt that waits for its caller most of the time has no slot from then on, until a Read returns.
func TestAwaitsTheCaller(t *testing.T) {
	var g Limiter
	w := visitOf(t, &g, Config{Max: 1})
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
	assert.Equal(t, [2]int{2, 1}, [2]int{g.held, g.used})
	next := visitOf(t, &g, w.conf)
	next.mustWait(161*ms, instant.Never)
	g.Resume(sec, &a) // beside the other
	assert.Equal(t, [2]int{2, 2}, [2]int{g.held, g.used})
	g.Await(1201*ms, &a) // it has waited for 100 ms of the last 400
	assert.False(t, a.state == waiting)
	g.Resume(1201*ms, &a)
	assert.True(t, next.woken(), "it might have gone soon")
	g.End(&w.slot)
	assert.False(t, next.woken(), "the limit is used up still")
	g.Await(sec+sec/2, &a)
	g.Resume(2*sec, &a)
	g.Await(2*sec, &a) // it waited for long, of which 200 ms count
	assert.True(t, next.woken(), "not woken")
	g.Respond(2*sec, &a) // the server does not wait for the rest
	assert.Equal(t, [2]int{1, 1}, [2]int{g.held, g.used})
	next.mustWait(2*sec, 12*sec)
	g.Resume(3*sec, &a)
	assert.Equal(t, answered, a.state)
}

// A waiter that is first after another went hears of the next time at which a slot may come free.
func TestTheNextHearsWhenASlotMayComeFree(t *testing.T) {
	var g Limiter
	conf := Config{Max: 2}
	a, b := visitOf(t, &g, conf), visitOf(t, &g, conf)
	a.mustGo(0)
	b.mustGo(0)
	first, second := visitOf(t, &g, conf), visitOf(t, &g, conf)
	first.mustWait(0, instant.Never)
	second.mustWait(0, instant.Never)
	g.Respond(sec, &a.slot)
	first.mustWait(sec, 11*sec)
	first.woken()
	g.Respond(2*sec, &b.slot)
	assert.False(t, first.woken(), "it knows of an earlier time")
	first.mustGo(11 * sec)
	assert.True(t, second.woken(), "not woken")
	second.mustWait(11*sec, 12*sec)
	second.mustGo(12 * sec)
}

func TestEmptySlots(t *testing.T) {
	var g Limiter
	var s Slot
	g.Await(0, &s)
	g.Resume(0, &s)
	g.Respond(0, &s)
	g.Reading(0, &s, true)
	g.Idle(0, &s)
	g.End(&s)
	assert.Equal(t, Slot{}, s)
	assert.Equal(t, slots{}, g.slots)
}
