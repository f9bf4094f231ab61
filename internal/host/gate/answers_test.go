package gate

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/aplomb-go/aplomb/internal/host/instant"
	"github.com/aplomb-go/aplomb/internal/host/queue"
	"github.com/aplomb-go/aplomb/internal/host/rate"
	"github.com/aplomb-go/aplomb/internal/soak"
)

// Answers that come late, twice or unasked neither stop a gate nor keep a permit from
// others.
func TestGateAnswersInAnyOrder(t *testing.T) {
	asked := func(t *testing.T) (*Gate, *visitor) {
		g := closedInFleet(t, cutAt)
		v := member(t, g)
		v.enter(askAt)
		mustAsk(t, g, askAt)
		return g, v
	}
	t.Run("late, during the probe", func(t *testing.T) {
		g, v := asked(t)
		v.mustGo(probeAt)
		assert.True(t, g.Permit(probeAt+ms, true, 0), "given back")
		v.end(probeAt+sec, Failed)
		assert.True(t, g.News().ProbeFailed, "the fleet does not hear of the end")
		next := member(t, g)
		next.mustWait(probeAt+sec, (probeAt + sec).Add(2*probeGap)) // the others have their turn
	})
	t.Run("refused late, during the probe", func(t *testing.T) {
		g, v := asked(t)
		v.mustGo(probeAt)
		g.Permit(probeAt+ms, false, 3*sec)
		v.end(probeAt+sec, Failed)
		next := member(t, g)
		next.mustWait(probeAt+sec, probeAt+ms+3*sec)
	})
	t.Run("late, after the probe", func(t *testing.T) {
		g, v := asked(t)
		v.mustGo(probeAt)
		v.end(probeAt+sec, Failed)
		assert.False(t, g.Permit(probeAt+sec+ms, true, 0), "the fleet was told that the probe has ended, and the permit is used all the same")
		g.Permit(probeAt+sec+ms, false, time.Hour)
		next := member(t, g)
		next.mustWait(probeAt+sec+ms, (probeAt + sec).Add(probeGap).Add(-permitTime))
	})
	t.Run("late, after the gate has opened", func(t *testing.T) {
		g, v := asked(t)
		v.mustGo(probeAt)
		v.end(probeAt+sec, Success)
		assert.False(t, g.Permit(probeAt+sec+ms, true, 0), "used by an open gate")
		g.Permit(probeAt+sec+ms, false, time.Hour)
		member(t, g).mustGo(probeAt + sec + ms)
	})
	t.Run("twice", func(t *testing.T) {
		g, v := asked(t)
		for range 2 {
			assert.True(t, g.Permit(askAt, true, 0), "the permit in use is given back")
		}
		g.Permit(askAt, false, time.Hour)
		v.mustGo(probeAt)
		assert.True(t, g.Permit(probeAt, true, 0), "the permit of the probe under way is given back")
	})
	t.Run("unasked", func(t *testing.T) {
		g := closedInFleet(t, cutAt)
		assert.False(t, g.Permit(askAt, true, 0), "used")
		g.Permit(askAt, false, time.Hour)
		v := member(t, g)
		v.mustWait(askAt, probeAt)
		assert.False(t, new(Gate).Permit(0, true, 0), "used by a new gate")
	})
	t.Run("refused", func(t *testing.T) {
		for wait, next := range map[time.Duration]time.Duration{
			math.MinInt64: rate.AnswerTime, 0: rate.AnswerTime, sec: sec, time.Hour: longestNo, math.MaxInt64: longestNo,
		} {
			g, v := asked(t)
			g.Permit(askAt, false, wait)
			assert.True(t, v.woken(), "the first waiter did not hear of it")
			at := max(askAt.Add(next), probeAt.Add(-permitTime))
			v.mustWait(askAt, at)
			v.mustWait(at, max(at.Add(permitTime), probeAt))
			mustAsk(t, g, at)
		}
	})
}

// If a request leaves before its answer comes, the permit goes back. A gate whose
// requests do not wait keeps it for the next request.
func TestGatePermitOfNobody(t *testing.T) {
	t.Run("the request left before the answer", func(t *testing.T) {
		g := closedInFleet(t, cutAt)
		v := member(t, g)
		v.enter(askAt)
		mustAsk(t, g, askAt)
		g.Leave(v.w)
		assert.False(t, g.Permit(askAt+ms, true, 0), "kept")
	})
	t.Run("another request came", func(t *testing.T) {
		g := closedInFleet(t, cutAt)
		v, next := member(t, g), member(t, g)
		v.enter(askAt)
		mustAsk(t, g, askAt)
		g.Leave(v.w)
		next.enter(askAt)
		assert.True(t, g.Permit(askAt+ms, true, 0), "given back")
		next.mustGo(probeAt)
	})
	t.Run("the request left after the answer", func(t *testing.T) {
		g := closedInFleet(t, cutAt)
		v := member(t, g)
		v.enter(askAt)
		mustAsk(t, g, askAt)
		g.Permit(askAt+ms, true, 0)
		assert.True(t, g.Leave(v.w), "no news")
		wantNews(t, g, News{ProbeFailed: true})
	})
	t.Run("requests that do not wait", func(t *testing.T) {
		g := closedInFleet(t, cutAt)
		var s Slot
		g.Enter(probeAt, &s, nil, inFleet)
		mustAsk(t, g, probeAt)
		assert.True(t, g.Permit(probeAt+ms, true, 0), "given back")
		assert.Equal(t, queue.Go, g.Enter(probeAt.Add(time.Minute), &s, nil, inFleet).Verb)
		assert.NotEqual(t, lent, g.fleet.permit, "a permit of a minute ago counts")
	})
}

// A request that takes the slot and cannot go, because its deadline is too near, leaves its
// permit to the next request. If each of them cost a permit, no probe would ever go behind
// a queue of such requests.
func TestGatePassesThePermitOn(t *testing.T) {
	for _, answered := range []bool{false, true} {
		g := closedInFleet(t, cutAt)
		v := member(t, g)
		queue := make([]*visitor, 20)
		v.enter(askAt)
		for i := range queue {
			queue[i] = member(t, g)
			queue[i].enter(askAt)
		}
		mustAsk(t, g, askAt)
		if answered {
			g.Permit(askAt, true, 0)
		}
		for _, next := range queue {
			v.mustGo(probeAt)
			require.False(t, g.Release(probeAt, &v.slot), "the permit is given back")
			v = next
		}
		v.mustGo(probeAt)
		assert.True(t, g.Release(probeAt, &v.slot) && g.News().ProbeFailed, "the last permit is kept")
	}
}

// If the fleet still refuses a permit 30 s after the first refusal, a probe goes without
// one. The time for which nobody waits does not count.
func TestGateRefusedForLong(t *testing.T) {
	g := closedInFleet(t, cutAt)
	now := askAt
	for range 3 {
		v := member(t, g)
		v.enter(now)
		mustAsk(t, g, now)
		g.Permit(now, false, sec)
		g.Leave(v.w)

		now = now.Add(time.Minute)
		v, from := member(t, g), now
		for a := v.enter(now); a.Verb == queue.Wait; a = v.enter(now) {
			if g.AskPermit(now) {
				g.Permit(now, false, 700*ms)
			} else {
				now = a.Ask
			}
			require.LessOrEqual(t, now, from.Add(time.Minute), "no probe for a minute")
		}
		if waited := now.Sub(from); waited < refusalTime || waited > refusalTime+sec {
			t.Errorf("the probe goes after %v", waited)
		}
		assert.NotEqual(t, lent, g.fleet.permit, "with a permit")
		v.end(now+sec, Lost)
		now = now.Add(time.Minute)
	}
}

// A fleet that says in turn that the host works and that it is down keeps the gate closed for no longer
// than one that refuses permits.
func TestGateOfAConfusedFleet(t *testing.T) {
	g := closedInFleet(t, cutAt)
	v := member(t, g)
	v.enter(cutAt)
	for now := askAt; v.enter(now).Verb == queue.Wait; now += 50 * ms {
		require.Less(t, now, askAt.Add(2*refusalTime), "no probe")
		g.Up(now, instant.Never)
		g.Down(now, now.Add(-2*sec))
		if g.AskPermit(now) {
			g.Permit(now, false, sec)
		}
	}
}

// A probe that hangs keeps neither its slot nor its permit for more than 10 s.
func TestGateProbeHangsInFleet(t *testing.T) {
	g := closedInFleet(t, cutAt)
	v, next := member(t, g), member(t, g)
	v.enter(askAt)
	mustAsk(t, g, askAt)
	g.Permit(askAt, true, 0)
	v.mustGo(probeAt)
	hangs := probeAt.Add(probeTime)
	next.mustWait(probeAt, hangs)
	next.mustWait(hangs, hangs.Add(permitTime))
	mustAsk(t, g, hangs)
	g.Permit(hangs, true, 0)
	v.end(hangs, Lost) // this is the end of the old probe
	assert.False(t, g.News().ProbeFailed, "the new permit is given back")
	next.mustGo(hangs)
}

// Processes that cannot reach the host stop a process that has not used the host lately.
// When it uses the host, it gets its turn to probe, after 30 s at the latest, and ends the
// outage. A process that uses the host is never stopped.
func TestFleetOfTheSick(t *testing.T) {
	for _, tt := range []struct {
		name   string
		sick   int
		frozen bool // the sick get no response
		within time.Duration
	}{
		{"a single sick process", 1, false, 0},
		{"two", 2, true, 0},
		{"three that fail at once", 3, false, 3 * sec},
		{"three whose requests are lost", 3, true, 5 * sec},
		{"many that fail at once", soak.Size(8, 20), false, 3 * sec},
		{"many whose requests are lost", soak.Size(8, 20), true, 5 * sec},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var longest time.Duration
			stopped, used := 0, 0
			for seed := range soak.Size[uint64](1, 20) {
				r := &fleetRun{t: t, seed: seed, rng: rand.New(rand.NewPCG(seed, 4)), frozen: tt.frozen, works: true, delay: 2 * ms}
				for i := range tt.sick + 2 {
					r.processes = append(r.processes, &process{run: r, id: int64(i + 1), sick: i > 1})
				}
				rare, busy, works := r.processes[0], r.processes[1], false
				for at := instant.Instant(0); at < instant.At(4*time.Minute); at += 100 * ms {
					r.clock.At(at, func() {
						for _, p := range r.processes[2:] {
							p.start(false)
						}
						if at > instant.At(3*time.Minute) {
							v := busy.start(true)
							require.False(t, works && !v.gone, "seed %d: the busy process is stopped at %v", seed, at)
							works = v.gone
							used++
						}
					})
				}
				r.clock.RunTo(sec)
				rare.start(true)
				for range 3 {
					r.clock.RunTo(r.clock.Now + 50*sec)
					if rare.gate.State().Closed {
						stopped++
					}
					v, begin := rare.start(true), r.clock.Now
					for !v.gone {
						r.clock.RunTo(r.clock.Now + 10*ms)
					}
					longest = max(longest, r.clock.Now.Sub(begin))
				}
				r.clock.RunTo(instant.At(5 * time.Minute))
			}
			t.Logf("stopped in %d cases, for %v at most", stopped, longest)
			if longest > tt.within || stopped == 0 && tt.within > 0 || used == 0 {
				t.Errorf("stopped in %d cases, for %v at most", stopped, longest)
			}
		})
	}
}

// News that nobody should send costs two minutes at most.
func TestFleetTalksNonsense(t *testing.T) {
	var longest time.Duration
	for seed := range soak.Size[uint64](40, 5000) {
		_, took := runFleet(t, seed, true)
		if longest = max(longest, took); took > longestNo+sec {
			t.Fatalf("seed %d: %v until all requests were sent", seed, took)
		}
	}
	t.Log(longest)
}

func FuzzFleet(f *testing.F) {
	f.Add(uint64(1), true)
	f.Add(uint64(1), false)
	f.Fuzz(func(t *testing.T, seed uint64, noisy bool) { runFleet(t, seed, noisy) })
}
