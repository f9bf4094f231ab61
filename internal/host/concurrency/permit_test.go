package concurrency

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/aplomb-go/aplomb/internal/host/instant"
	"github.com/aplomb-go/aplomb/internal/host/queue"
	"github.com/aplomb-go/aplomb/internal/host/rate"
)

// toldDown returns a concurrency limit of a fleet whose last success came at the time success, and which
// was told at the time at that the host is down.
func toldDown(success, at, since instant.Instant) (g *Limiter, works bool) {
	g = new(Limiter)
	var s Slot
	g.Enter(success.Add(-50*time.Millisecond), &s, nil, Config{Fleet: true})
	g.End(success, &s, Success)
	return g, g.Down(at, since)
}

// A host that freezes answers some requests that were sent after those that it has lost. A
// success of a request that was sent so soon after the beginning of the failures is no
// objection.
func TestObjection(t *testing.T) {
	for after, want := range map[time.Duration]bool{-time.Second: false, 100 * time.Millisecond: false, 500 * time.Millisecond: true} {
		since := time.Minute
		g, works := toldDown(instant.At(since+after), instant.At(since+2*time.Second), instant.At(since))
		assert.True(t, works == want && g.State().CircuitOpen != want, "a success %v after the failures began: objects %v", after, works)
	}
}

// A limiter that was refused a permit asks again after the time that the fleet named.
func TestPermitRefused(t *testing.T) {
	const told = 62 * sec
	g, _ := toldDown(59*sec, told, 60*sec)
	v, now := member(t, g), instant.Instant(told+5*sec)
	v.enter(now)
	mustAsk(t, g, now)
	g.Permit(now+100*ms, false, 3*time.Second)
	next := now + 3100*ms
	v.mustWait(now+200*ms, next)
	mustNotAsk(t, g, next-1)
	mustAsk(t, g, next)
}

// A fleet that did not answer once costs each later probe 10 ms only, until it answers.
func TestSilentFleet(t *testing.T) {
	g, _ := toldDown(instant.At(time.Minute-time.Second), instant.At(time.Minute), instant.At(time.Minute))
	now := time.Minute
	w := &queue.Waiter{Woken: func(*queue.Waiter) {}}
	// probe sends a probe an hour after the last, and returns how long the limiter kept it.
	probe := func(answer func()) time.Duration {
		now += time.Hour
		came := now
		var s Slot
		for a := g.Enter(instant.At(now), &s, w, Config{Fleet: true}); a.Verb != queue.Go; a = g.Enter(instant.At(now), &s, w, Config{Fleet: true}) {
			if g.AskPermit(instant.At(now)) && answer != nil {
				now += time.Millisecond
				answer()
				continue
			}
			now = max(instant.At(now+1), a.Ask).Since()
		}
		g.End(instant.At(now+time.Second), &s, Lost)
		return now - came
	}
	granted := func() { g.Permit(instant.At(now), true, 0) }
	for i, want := range []struct {
		answer func()
		wait   time.Duration
	}{
		{nil, permitTime}, {nil, rate.AnswerTime}, {nil, rate.AnswerTime},
		{granted, time.Millisecond}, {nil, permitTime}, {nil, rate.AnswerTime},
	} {
		assert.Equal(t, want.wait, probe(want.answer), "probe %d", i)
	}
}

// The first limit is for all processes together, and 2 at least unless the rule says less.
func TestLimiterPart(t *testing.T) {
	for _, tt := range []struct{ start, processes, want int }{
		{0, 1, 10}, {0, 0, 10}, {0, 3, 4}, {0, 5, 2}, {0, 50, 2}, {100, 7, 15}, {1, 50, 1}, {2, 2, 2},
	} {
		assert.Equal(t, tt.want, (Config{Start: tt.start}).ForMember(tt.processes).Start, "%+v", tt)
	}
}

// In a fleet the limit grows only while requests wait.
func TestFleetGateGrows(t *testing.T) {
	for _, fleet := range []bool{false, true} {
		var g Limiter
		conf := Config{Start: 2, Fleet: fleet}
		now := time.Duration(0)
		round := func(waiters int) {
			var slots [2]Slot
			for i := range slots {
				g.Enter(instant.At(now), &slots[i], nil, conf)
			}
			var ws []*queue.Waiter
			for range waiters {
				w := &queue.Waiter{Woken: func(*queue.Waiter) {}}
				g.Enter(instant.At(now), new(Slot), w, conf)
				ws = append(ws, w)
			}
			now += 100 * time.Millisecond
			for i := range slots {
				g.End(instant.At(now), &slots[i], Success)
			}
			for _, w := range ws {
				g.Leave(w)
			}
		}
		round(0)
		if got, want := g.State().Limit, map[bool]int{false: 3, true: 2}[fleet]; got < want || fleet && got > want {
			t.Errorf("fleet %v: a limit of %d after a round without waiters, want %d", fleet, got, want)
		}
		before := g.State().Limit
		for range 3 {
			round(5)
		}
		assert.Greater(t, g.State().Limit, before, "fleet %v: a limit after rounds with waiters", fleet)
	}
}

// What happens to the permit, by the state that it is in. Each column is a state. An x is
// an event that cannot happen then.
func TestPermitTransitions(t *testing.T) {
	const now, x = 100 * sec, permit(255)
	answer := func(granted bool) func(*Limiter) { return func(g *Limiter) { g.Permit(now, granted, sec) } }
	probes := func(lapses instant.Instant) func(*Limiter) {
		return func(g *Limiter) { g.fleet.lapses = lapses; g.fleet.probing(now) }
	}
	for name, row := range map[string]struct {
		event func(*Limiter)
		want  [6]permit
		told  string // the states in which the fleet hears that the probe has ended
	}{
		"the limiter asks for a permit":                  {func(g *Limiter) { g.AskPermit(now) }, [6]permit{asked, asked, orphaned, ready, lent, unsure}, ""},
		"the fleet grants it":                            {answer(true), [6]permit{none, ready, none, ready, lent, lent}, ""},
		"the fleet refuses it":                           {answer(false), [6]permit{none, none, none, ready, lent, unsure}, ""},
		"a request comes that waits for the probe":       {func(g *Limiter) { g.fleet.wanted() }, [6]permit{none, asked, asked, ready, lent, unsure}, ""},
		"nobody waits for the probe any more":            {func(g *Limiter) { g.fleet.unused() }, [6]permit{none, orphaned, orphaned, none, lent, unsure}, "ready"},
		"a probe goes while a permit counts":             {probes(now + 1), [6]permit{none, unsure, unsure, lent, x, x}, ""},
		"a probe goes after a permit has lapsed":         {probes(now), [6]permit{none, unsure, unsure, unsure, x, x}, ""},
		"the probe ends":                                 {func(g *Limiter) { g.probeEnded(now) }, [6]permit{none, x, x, x, none, none}, "lent unsure"},
		"the probe does not go, and a request waits":     {func(g *Limiter) { g.fleet.passOn(1) }, [6]permit{none, x, x, x, ready, ready}, ""},
		"the probe does not go, and nobody waits":        {func(g *Limiter) { g.fleet.passOn(0) }, [6]permit{none, x, x, x, none, none}, "lent unsure"},
		"the fleet says that the host works":             {func(g *Limiter) { g.Up(now, now+sec) }, [6]permit{none, none, none, none, lent, unsure}, "ready"},
		"the circuit closes":                             {func(g *Limiter) { g.closeCircuit() }, [6]permit{none, none, none, none, none, none}, "ready"},
		"the circuit opens":                              {func(g *Limiter) { g.openCircuit(now) }, [6]permit{none, none, none, none, none, none}, ""},
		"the fleet says once more that the host is down": {func(g *Limiter) { g.Down(now, now) }, [6]permit{none, asked, orphaned, ready, lent, unsure}, ""},
	} {
		for from, want := range row.want {
			if want == x {
				continue
			}
			var g Limiter
			g.configure(0, Config{Fleet: true})
			g.openCircuit(0)
			g.fleet.permit = permit(from)
			if g.fleet.owes() {
				g.slots.inFlight = 1
			}
			row.event(&g)
			name := fmt.Sprint(name, ", when it is ", states[from])
			assert.Equal(t, states[want], states[g.fleet.permit], name)
			assert.Equal(t, strings.Contains(row.told, states[from]), g.News().ProbeFailed, name)
		}
	}
}

var states = [6]string{"none", "asked", "orphaned", "ready", "lent", "unsure"}

// The limiter asks before the probe may go, so that it loses no time.
func TestLimiterAsksForAPermit(t *testing.T) {
	g := openInFleet(t, cutAt)
	first, second := member(t, g), member(t, g)
	first.mustWait(cutAt, askAt)
	mustNotAsk(t, g, cutAt)
	second.mustWait(askAt, instant.Never)
	first.mustWait(askAt, probeAt)
	mustAsk(t, g, askAt)
	assert.True(t, g.Permit(askAt+ms, true, 0) && first.woken(), "the permit is not used, or nobody heard of it")
	first.mustWait(askAt+ms, probeAt)
	mustNotAsk(t, g, askAt+ms)
	first.mustGo(probeAt)
	second.mustWait(probeAt, probeAt.Add(probeTime))
	mustNotAsk(t, g, probeAt)

	// It waits twice as long after its probe has failed, so that others have their turn.
	failed := probeAt + sec
	assert.True(t, g.End(failed, &first.slot, Lost), "no news")
	wantNews(t, g, News{ProbeFailed: true, Failures: 11, Since: 8 * sec})
	second.woken()
	second.mustWait(failed, failed.Add(2*probeGap))
	mustNotAsk(t, g, failed.Add(2*probeGap)-1)
	second.mustWait(failed.Add(2*probeGap), failed.Add(2*probeGap).Add(permitTime))
	mustAsk(t, g, failed.Add(2*probeGap))
	g.Permit(failed.Add(2*probeGap), true, 0)
	second.mustGo(failed.Add(2 * probeGap))
	assert.True(t, g.End(failed+2*sec, &second.slot, Success) && !g.State().CircuitOpen, "no news, or closed")
	wantNews(t, g, News{Working: true})
}

// A concurrency limit without waiters asks when a request comes, and waits 250 ms for the answer.
func TestLimiterAsksLate(t *testing.T) {
	g := openInFleet(t, cutAt)
	v := member(t, g)
	now := instant.At(cutAt).Add(time.Hour)
	v.mustWait(now, now.Add(permitTime))
	mustAsk(t, g, now)
	v.mustWait(now.Add(permitTime)-1, now.Add(permitTime))
	v.mustGo(now.Add(permitTime))
}
