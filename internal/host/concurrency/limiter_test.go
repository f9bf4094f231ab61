package concurrency

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

func TestLimiterStartsAtTenAndHolds(t *testing.T) {
	var g Limiter
	in := fill(t, &g, 0, 10)
	waiting := make([]*visitor, 5)
	for i := range waiting {
		waiting[i] = visit(t, &g)
		waiting[i].mustWait(0, instant.Never)
	}
	assert.Equal(t, queue.Wait, g.Enter(0, new(Slot), nil, Config{}).Verb, "one that does not wait")
	assert.Equal(t, 5, g.State().Waiting, "waiters")
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

func TestLimiterLeaveHandsTheTurnOn(t *testing.T) {
	var g Limiter
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

func TestLimiterProbes(t *testing.T) {
	var g Limiter
	const cut = 10 * time.Second
	openCircuit(t, &g, instant.At(cut))
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
	assert.False(t, g.State().CircuitOpen, "open after a success")
	assert.Equal(t, 2, g.State().Limit, "limit after a success")
}

// If the question of a newcomer makes room, the first waiter hears of it.
func TestLimiterTellsOfRoom(t *testing.T) {
	var g Limiter
	openCircuit(t, &g, instant.At(2*time.Second))
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
	assert.True(t, first.woken(), "woken: %+v", g.State())
}

// A request that gets no token of the rate keeps its turn, takes no slot, and counts as no
// waiter of the limiter.
func TestLimiterWaitsForTheRate(t *testing.T) {
	var g Limiter
	fill(t, &g, 0, 9)
	rate := rate.New(rate.Config{PerSecond: 1, Burst: 1})
	rate.Take(0, 1)
	a, b := visit(t, &g), visit(t, &g)
	a.conf.Rate, b.conf.Rate = rate, rate
	assert.Equal(t, queue.Answer{Verb: queue.Wait, Ask: sec, Until: sec, ForRate: true, NoToken: true}, a.enter(0))
	g.WakeFirst()
	assert.True(t, a.woken())
	assert.Equal(t, queue.Answer{Verb: queue.Wait, Ask: instant.Never, ForRate: true, NoToken: true, Until: 2 * sec}, b.enter(0))
	assert.Equal(t, [2]int{9, 0}, [2]int{g.State().InFlight, g.State().Waiting}, "in flight, waiting")
	assert.Equal(t, 1, g.Wants(), "there is one slot")
	b.mustWait(sec, instant.Never) // a is first still
	a.mustGo(sec)
	b.woken()
	got := b.enter(sec)
	assert.True(t, got.Verb == queue.Wait && got.Ask == 2*sec && !got.ForRate, "the rate comes first: %+v", got)
	assert.Equal(t, queue.Answer{Verb: queue.Wait, Ask: instant.Never}, b.enter(2*sec), "the limit is used up")
	assert.Equal(t, [2]int{10, 1}, [2]int{g.State().InFlight, g.State().Waiting}, "in flight, waiting")
	assert.EqualValues(t, 2*sec, g.RateTime(5*sec), "waited for the rate")

	g = Limiter{}
	a, b = visit(t, &g), visit(t, &g)
	a.conf.Rate, b.conf.Rate = rate, rate
	rate.Take(3*sec, 1)
	a.enter(3 * sec)
	b.enter(3 * sec)
	a.mustGo(4 * sec)
	assert.Equal(t, State{Limit: 10, InFlight: 1, ForRate: 1}, g.State(), "before b asks again")
	assert.Equal(t, 1, g.Wants())
	g.Leave(b.w)
	assert.Equal(t, g.RateTime(5*sec), g.RateTime(6*sec), "nobody waits any longer")
	assert.Zero(t, g.Wants())
	a.enter(4 * sec)
	a.mustGo(5 * sec)
	assert.Equal(t, g.RateTime(5*sec), g.RateTime(6*sec), "it went")
	g = Limiter{}
	fill(t, &g, 5*sec, 8)
	for range 4 {
		v := visit(t, &g)
		v.conf.Rate = rate
		v.enter(5 * sec)
	}
	assert.Equal(t, 2, g.Wants(), "there are two slots")
}

func TestLimiterRelease(t *testing.T) {
	var g Limiter
	fill(t, &g, 0, 9)
	a, b := visit(t, &g), visit(t, &g)
	a.mustGo(0)
	b.mustWait(0, instant.Never)
	g.Release(0, &a.slot)
	assert.Equal(t, [2]int{9, 1}, [2]int{g.State().InFlight, g.State().Waiting}, "in flight, waiting")
	assert.True(t, b.woken(), "b was not woken")
	b.mustGo(1)
}

// An Update raised Max. A waiter with the new rule does not wait for a stream although
// a request with the old rule asked last.
func TestLimiterTellsAfterAnUpdate(t *testing.T) {
	var g Limiter
	one, four := Config{Start: 1, Max: 1}, Config{Start: 1, Max: 4}
	var stream Slot
	w := queue.NewWaiter()
	g.Enter(0, &stream, nil, one)
	g.Enter(0, new(Slot), w, one) // behind it, with the old rule
	next := visit(t, &g)
	next.conf = four
	next.mustWait(0, instant.Never)
	g.End(1, &stream, Neutral)
	g.Enter(1, &stream, w, one)
	g.Result(2, &stream, Success) // and it streams
	require.True(t, next.woken(), "not woken")
	next.mustGo(2)

	g = Limiter{}
	fill(t, &g, 0, 1)
	assert.Equal(t, queue.Wait, g.Enter(0, new(Slot), nil, one).Verb)
	wantLimit(t, &g, 1)
	g = Limiter{}
	for now := range instant.Instant(3) {
		g.Enter(now*10*sec, &stream, nil, Config{Max: 4})
		g.End(now*10*sec, &stream, Neutral)
		wantLimit(t, &g, 4)
	}
}

// An Update raised Start. A waiter with the new rule that is first now hears of it,
// although the request before it passed with the old rule.
func TestLimiterTellsAfterAnUpdateOfStart(t *testing.T) {
	var g Limiter
	one, ten := Config{Start: 1}, Config{Start: 10}
	var a, b Slot
	w := queue.NewWaiter()
	g.Enter(0, &a, nil, one)
	g.Enter(0, &b, w, one)
	next := visit(t, &g)
	next.conf = ten
	next.mustWait(0, instant.Never)
	g.End(1, &a, Neutral)
	require.Equal(t, queue.Go, g.Enter(1, &b, w, one).Verb)
	require.True(t, next.woken(), "not woken")
	next.mustWait(1, instant.At(useWindow))
	next.mustGo(instant.At(useWindow))
}

// Requests that get no token of the rate go in the order in which they came.
func TestLimiterKeepsTheOrderForTheRate(t *testing.T) {
	var g Limiter
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

// Answers that come late, twice or unasked neither stop a concurrency limit nor keep a permit from
// others.
func TestLimiterAnswersInAnyOrder(t *testing.T) {
	asked := func(t *testing.T) (*Limiter, *visitor) {
		g := openInFleet(t, cutAt)
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
	t.Run("late, after the circuit has closed", func(t *testing.T) {
		g, v := asked(t)
		v.mustGo(probeAt)
		v.end(probeAt+sec, Success)
		assert.False(t, g.Permit(probeAt+sec+ms, true, 0), "used by a closed circuit")
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
		g := openInFleet(t, cutAt)
		assert.False(t, g.Permit(askAt, true, 0), "used")
		g.Permit(askAt, false, time.Hour)
		v := member(t, g)
		v.mustWait(askAt, probeAt)
		assert.False(t, new(Limiter).Permit(0, true, 0), "used by a new limiter")
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

// If a request leaves before its answer comes, the permit goes back. A concurrency limit whose
// requests do not wait keeps it for the next request.
func TestLimiterPermitOfNobody(t *testing.T) {
	t.Run("the request left before the answer", func(t *testing.T) {
		g := openInFleet(t, cutAt)
		v := member(t, g)
		v.enter(askAt)
		mustAsk(t, g, askAt)
		g.Leave(v.w)
		assert.False(t, g.Permit(askAt+ms, true, 0), "kept")
	})
	t.Run("another request came", func(t *testing.T) {
		g := openInFleet(t, cutAt)
		v, next := member(t, g), member(t, g)
		v.enter(askAt)
		mustAsk(t, g, askAt)
		g.Leave(v.w)
		next.enter(askAt)
		assert.True(t, g.Permit(askAt+ms, true, 0), "given back")
		next.mustGo(probeAt)
	})
	t.Run("the request left after the answer", func(t *testing.T) {
		g := openInFleet(t, cutAt)
		v := member(t, g)
		v.enter(askAt)
		mustAsk(t, g, askAt)
		g.Permit(askAt+ms, true, 0)
		assert.True(t, g.Leave(v.w), "no news")
		wantNews(t, g, News{ProbeFailed: true})
	})
	t.Run("requests that do not wait", func(t *testing.T) {
		g := openInFleet(t, cutAt)
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
func TestLimiterPassesThePermitOn(t *testing.T) {
	for _, answered := range []bool{false, true} {
		g := openInFleet(t, cutAt)
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

// A probe that waits for its caller leaves its permit to the next. A success of an old request lets
// the limiter ask at once, although the fleet has named a later time.
func TestLimiterAsksSooner(t *testing.T) {
	g := openInFleet(t, cutAt)
	v, next := member(t, g), member(t, g)
	v.enter(askAt)
	mustAsk(t, g, askAt)
	g.Permit(askAt, true, 0)
	v.mustGo(probeAt)
	next.enter(probeAt)
	g.Await(probeAt, &v.slot)
	next.mustGo(probeAt + 100*ms)

	g = openInFleet(t, cutAt)
	old := Slot{held: true, sent: cutAt - 3*sec, epoch: g.slots.epoch - 1}
	v = member(t, g)
	v.enter(askAt)
	mustAsk(t, g, askAt)
	g.Permit(askAt, false, time.Minute)
	mustNotAsk(t, g, askAt+sec)
	g.End(askAt+sec, &old, Success)
	mustAsk(t, g, askAt+sec)
}

// If the fleet still refuses a permit 30 s after the first refusal, a probe goes without
// one. The time for which nobody waits does not count.
func TestLimiterRefusedForLong(t *testing.T) {
	g := openInFleet(t, cutAt)
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
		assert.InDelta(t, refusalTime+sec/2, now.Sub(from), float64(sec/2), "how long the probe waits")
		assert.NotEqual(t, lent, g.fleet.permit, "with a permit")
		v.end(now+sec, Lost)
		now = now.Add(time.Minute)
	}
}

// A fleet that says in turn that the host works and that it is down keeps the circuit open for no longer
// than one that refuses permits.
func TestLimiterOfAConfusedFleet(t *testing.T) {
	g := openInFleet(t, cutAt)
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
func TestLimiterProbeHangsInFleet(t *testing.T) {
	g := openInFleet(t, cutAt)
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
					if rare.limiter.State().CircuitOpen {
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
			assert.LessOrEqual(t, longest, tt.within, "how long it stopped at most")
			assert.True(t, used > 0 && (stopped > 0 || tt.within == 0), "stopped in %d cases", stopped)
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
