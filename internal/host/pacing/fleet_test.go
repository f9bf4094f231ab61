package pacing

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/aplomb-go/aplomb/internal/host/hosttest"
	"github.com/aplomb-go/aplomb/internal/host/instant"
	"github.com/aplomb-go/aplomb/internal/host/queue"
)

// sendPaced lets one request pass and returns its mark.
func sendPaced(t *testing.T, p *Pacing, now instant.Instant) uint64 {
	t.Helper()
	a := p.Enter(now, 1, nil, Config{})
	require.True(t, a.Verb == queue.Go && a.Mark != 0, "at %v: %+v, want Go", now, a)
	return a.Mark
}

// If a fleet shares a quota, each process takes its part of the rest, until the window
// ends.
func TestPacingInAFleet(t *testing.T) {
	var p Pacing
	p.NoteForFleet(0, 1, Named{Remaining: 9, Limit: 100, Reset: 10 * sec}, 4, Config{})
	pass(t, &p, 0, 1)
	paced(t, &p, 0, 4*10*sec/9)                                                           // 8 are left, so 9 gaps, and 4 processes
	p.NoteForFleet(sec, 1, Named{Remaining: 4, Limit: 100, Reset: 9 * sec}, 2, Config{})  // others use it, too
	p.NoteForFleet(sec, 1, Named{Remaining: 50, Limit: 100, Reset: 9 * sec}, 2, Config{}) // an old response
	p.NoteForFleet(sec, 1, Named{Remaining: 0, Limit: 0, Reset: 0}, 9, Config{})
	p.NoteForFleet(sec, 1, Named{Remaining: 0, Limit: 0, Reset: -sec}, 9, Config{})
	pass(t, &p, 5*sec, 1)
	paced(t, &p, 5*sec, 5*sec+2*5*sec/4) // 3 are left, and 2 processes

	// The window ends. This process alone is told of the next window.
	p.Note(10*sec, 1, Pass{}, Named{Remaining: 4, Limit: 100, Reset: 10 * sec}, Config{})
	pass(t, &p, 10*sec, 1)
	paced(t, &p, 10*sec, 12500*ms)

	// The same if the next window is assumed.
	p = Pacing{}
	p.NoteForFleet(0, 1, Named{Remaining: 2, Limit: 2, Reset: 10 * sec}, 4, Config{})
	pass(t, &p, 10*sec, 1)
	assert.Zero(t, p.quotas[1].windows[0].members, "shared although nobody said so in this window")
	p.Note(11*sec, 1, Pass{}, Named{Remaining: 0, Limit: 2, Reset: 8 * sec}, Config{})
	a := p.Enter(11*sec, 1, nil, Config{})
	assert.Equal(t, queue.Answer{Verb: queue.Wait, Ask: 19 * sec, Until: 19 * sec}, a, "the server itself said so")
}

func TestPacingInAFleetAtTheLimits(t *testing.T) {
	for _, members := range []int{math.MinInt, -1, 0, 1, 1 << 24, math.MaxInt} {
		for _, conf := range []Config{{}, {MaxWait: -1}} {
			var p Pacing
			p.NoteForFleet(0, 1, Named{Remaining: math.MaxInt64, Limit: math.MaxInt64, Reset: math.MaxInt64}, members, conf)
			p.NoteForFleet(0, 1, Named{Remaining: 1, Limit: 100, Reset: 10 * sec}, members, conf)
			p.NoteForFleet(sec, 1, Named{Remaining: 1, Limit: 100, Reset: 10 * sec}, members, conf)
			p.Enter(sec, 1, nil, conf)
			a := p.Enter(sec, 1, nil, conf)
			assert.True(t, a.Verb != queue.Wait || sec < a.Until && a.Until <= instant.At(maxReset), "%d members: %+v", members, a)
		}
	}
}

// Quotas that the fleet brings take no room from those that this process was told.
func TestPacingOfALargeFleet(t *testing.T) {
	var p Pacing
	for key := range uint64(queue.MaxScopes) {
		p.Note(0, key, Pass{}, Named{Remaining: 0, Limit: 10, Reset: sec + time.Duration(key)}, Config{})
	}
	p.NoteForFleet(0, 1000, Named{Remaining: 0, Limit: 10, Reset: sec}, 4, Config{})
	assert.NotContains(t, p.quotas, uint64(1000), "another quota had to go")
	p.NoteForFleet(0, 7, Named{Remaining: 0, Limit: 10, Reset: sec}, 4, Config{})
	assert.Equal(t, 4, p.quotas[7].windows[0].members, "a known quota is not shared")
	p.NoteForFleet(10*sec, 1001, Named{Remaining: 0, Limit: 10, Reset: sec}, 4, Config{})
	_, _, ok := p.Left(10*sec, 1001, "")
	assert.True(t, ok, "those that are over make room")
}

// The first waiter hears what the fleet says.
func TestPacingInAFleetWakes(t *testing.T) {
	var p Pacing
	p.Note(0, 1, Pass{}, Named{Remaining: 0, Limit: 10, Reset: 20 * sec}, Config{})
	w := queue.NewWaiter()
	p.Enter(0, 1, w, Config{})
	p.NoteForFleet(sec, 1, Named{Remaining: 10, Limit: 10, Reset: 40 * sec}, 2, Config{})
	assert.True(t, hosttest.Woken(w), "not woken")
}

// Quotas that only the fleet named make room for those that this process was told.
func TestPacingEvictsHearsayFirst(t *testing.T) {
	var p Pacing
	for key := range uint64(queue.MaxScopes / 2) {
		p.Note(0, key, Pass{}, Named{Remaining: 0, Limit: 10, Reset: 10 * sec}, Config{})
		p.NoteForFleet(0, 1000+key, Named{Remaining: 0, Limit: 10, Reset: time.Hour}, 4, Config{})
	}
	for key := range uint64(queue.MaxScopes / 2) {
		p.NoteForFleet(sec, 3000+key, Named{Remaining: 0, Limit: 10, Reset: 2 * time.Hour}, 4, Config{})
		p.Note(2*sec, 2000+key, Pass{}, Named{Remaining: 0, Limit: 10, Reset: 10 * sec}, Config{})
	}
	for key := range uint64(queue.MaxScopes / 2) {
		require.True(t, p.quotas[key] != nil && p.quotas[2000+key] != nil && len(p.quotas) == queue.MaxScopes, "a quota that this process was told had to go")
	}
}

// A request waits for three quarters of its time at most for what only a fleet said. If its
// turn comes later, it goes after half of its time. Others wait for their turn.
func TestPacingHearsay(t *testing.T) {
	for _, conf := range []Config{{}, {MaxWait: -1}} {
		var p Pacing
		p.NoteForFleet(sec, 1, Named{Remaining: 0, Limit: 100, Reset: 24 * time.Hour}, 4, conf)
		turn := instant.After(sec, min(conf.maxWait(), queue.MaxHeard))
		assert.Equal(t, queue.Answer{Verb: queue.Wait, Ask: turn}, p.Enter(sec, 1, nil, conf))
		w := queue.NewWaiter()
		wait := turn.Sub(sec)
		w.From, w.By = sec, turn.Add(wait/3+4)
		assert.Equal(t, queue.Answer{Verb: queue.Wait, Ask: turn, Until: turn}, p.Enter(sec, 1, w, conf))
		w.By = turn.Add(wait/3 - 4) // there would be too little time after its turn
		a := p.Enter(sec, 1, w, conf)
		assert.True(t, a.Verb == queue.Wait && a.Ask < turn, "%+v", a)
		w.By = turn
		half := instant.At(sec + wait/2)
		assert.Equal(t, queue.Answer{Verb: queue.Wait, Ask: half, Until: half}, p.Enter(sec, 1, w, conf))
		second := queue.NewWaiter()
		p.Enter(sec, 1, second, conf)
		a = p.Enter(half, 1, w, conf)
		assert.True(t, a.Verb == queue.Go && hosttest.Woken(second), "%+v", a)
		assert.Equal(t, half.Add(wait), p.Enter(half, 1, second, conf).Ask)

		// The response names no quota, so the fleet is wrong.
		p.Unnamed(half+sec, 1, 0) // it passed before the fleet spoke
		assert.Equal(t, queue.Wait, p.Enter(half+sec, 1, second, conf).Verb)
		p.Unnamed(half+sec, 1, a.Mark)
		c := p.Enter(half+sec, 1, second, conf)
		assert.True(t, hosttest.Woken(second) && c.Verb == queue.Go && p.Quiet(), "%+v", c)
		p.NoteForFleet(half+2*sec, 1, Named{Remaining: 0, Limit: 100, Reset: 24 * time.Hour}, 4, conf)
		p.NoteForFleet(half+2*sec, 2, Named{Remaining: 0, Limit: 100, Reset: 24 * time.Hour}, 4, conf)
		p.Unnamed(half+3*sec, 1, 0)
		p.NoteForFleet(half+12*sec, 1, Named{Remaining: 0, Limit: 100, Reset: 24 * time.Hour}, 4, conf)
		assert.True(t, p.Quiet(), "the fleet is believed")
		p.NoteForFleet(half+13*sec, 1, Named{Remaining: 0, Limit: 100, Reset: 24 * time.Hour}, 4, conf)
		assert.False(t, p.Quiet(), "the fleet is not believed again")
		p.Note(half+14*sec, 1, Pass{}, Named{Remaining: 50, Limit: 100, Reset: time.Minute}, conf) // of a request that passed before
		pass(t, &p, half+14*sec, 10)
	}

	// A quota that this process was told is not doubted because of another response.
	for _, first := range []bool{true, false} {
		var p Pacing
		quota := Named{Remaining: 0, Limit: 100, Reset: 24 * time.Hour}
		if first {
			p.Note(0, 1, Pass{}, quota, Config{})
		}
		p.NoteForFleet(0, 1, quota, 4, Config{})
		if !first {
			p.Note(0, 1, Pass{}, quota, Config{})
		}
		p.Unnamed(0, 1, 1)
		w := queue.NewWaiter()
		w.By = 30 * sec
		a := p.Enter(0, 1, w, Config{})
		assert.Equal(t, []any{queue.Wait, first}, []any{a.Verb, a.Until == instant.At(time.Minute)}, "told this process first: %v", first)
	}
}

// A request with a deadline does not wait behind others until its time is over, if only a
// fleet said that all have to wait.
func TestPacingHearsayBehindOthers(t *testing.T) {
	for _, heard := range []bool{true, false} {
		var p Pacing
		first, second := queue.NewWaiter(), queue.NewWaiter()
		second.From, second.By = sec, 9*sec
		p.Note(sec, 1, Pass{}, Named{Unit: "tokens", Remaining: 100, Limit: 100, Reset: time.Minute}, Config{})
		enter := func(now instant.Instant, w *queue.Waiter) queue.Answer { return p.Enter(now, 1, w, Config{}) }
		if heard {
			p.NoteForFleet(sec, 1, Named{Remaining: 0, Limit: 100, Reset: time.Minute}, 4, Config{})
		} else {
			p.Note(sec, 1, Pass{}, Named{Remaining: 0, Limit: 100, Reset: time.Minute}, Config{})
		}
		enter(sec, first)
		assert.Equal(t, instant.Instant(5*sec), enter(2*sec, second).Ask, "heard %v", heard)
		a := enter(5*sec, second)
		assert.True(t, heard == (a.Verb == queue.Go) && (heard || a.Ask == 7*sec), "heard %v: %+v", heard, a)
		assert.Equal(t, queue.Wait, enter(6*sec, queue.NewWaiter()).Verb, "one without a deadline")
		assert.True(t, heard || enter(7*sec, second).Ask == instant.Never)
	}
}
