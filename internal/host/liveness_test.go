package host_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/aplomb-go/aplomb/internal/field"
	"github.com/aplomb-go/aplomb/internal/host/concurrency"
	"github.com/aplomb-go/aplomb/internal/host/instant"
	"github.com/aplomb-go/aplomb/internal/host/pacing"
	"github.com/aplomb-go/aplomb/internal/host/queue"
	"github.com/aplomb-go/aplomb/internal/host/rate"
	"github.com/aplomb-go/aplomb/internal/host/throttle"
	"github.com/aplomb-go/aplomb/internal/soak"
)

// A rig is a machine with a queue, for TestNobodyWaitsForNothing.
type rig struct {
	enter func(now instant.Instant, w *queue.Waiter) queue.Answer
	leave func(w *queue.Waiter)
	event func(now instant.Instant) // something that the machine is told
}

func limiterRig(rng *rand.Rand) rig {
	var (
		g      concurrency.Limiter
		flying []*concurrency.Slot
		bodies []*concurrency.Slot // of responses, not closed yet
		conf   = concurrency.Config{Max: 1 + rng.IntN(4)}
	)
	enter := func(now instant.Instant, w *queue.Waiter) queue.Answer {
		p := new(concurrency.Slot)
		a := g.Enter(now, p, w, conf)
		if a.Verb == queue.Go {
			flying = append(flying, p)
		}
		return a
	}
	event := func(now instant.Instant) {
		if len(bodies) > 0 && rng.IntN(3) == 0 {
			b := bodies[rng.IntN(len(bodies))]
			[]func(){func() { g.Reading(now, b, rng.IntN(2) == 0) }, func() { g.Idle(now, b) }, func() { g.End(b) }}[rng.IntN(3)]()
		}
		if len(flying) == 0 {
			return
		}
		i := rng.IntN(len(flying))
		switch rng.IntN(5) {
		case 0:
			g.Await(now, flying[i])
			return
		case 1:
			g.Resume(now, flying[i])
			return
		case 2:
			g.Respond(now, flying[i])
			bodies = append(bodies, flying[i])
		default:
			g.End(flying[i])
		}
		flying = append(flying[:i], flying[i+1:]...)
	}
	return rig{enter, g.Leave, event}
}

func throttleRig(rng *rand.Rand) rig {
	var (
		c    throttle.Throttle
		sent []instant.Instant
	)
	enter := func(now instant.Instant, w *queue.Waiter) queue.Answer {
		a := c.Enter(now, 1, w)
		if a.Verb == queue.Go {
			sent = append(sent, now)
		}
		return a
	}
	event := func(now instant.Instant) {
		if len(sent) > 0 && rng.IntN(3) > 0 {
			c.Answered(now, 1, sent[rng.IntN(len(sent))])
			return
		}
		wait, conf := time.Duration(rng.Int64N(int64(5*sec))), throttle.Config{Max: 3 * sec}
		c.Hold(now, 1, wait, conf, rng.Float64())
	}
	return rig{enter, func(w *queue.Waiter) { c.Leave(w) }, event}
}

func pacingRig(rng *rand.Rand) rig {
	var p pacing.Pacing
	var passed uint64
	conf := pacing.Config{MaxWait: []time.Duration{0, -1, sec}[rng.IntN(3)]}
	event := func(now instant.Instant) {
		p.Note(now, 1, pacing.Pass{Mark: max(passed, 3) - uint64(rng.IntN(4))}, field.Quota{Remaining: rng.Int64N(20), Limit: 20, Reset: time.Duration(rng.IntN(10)) * sec}, conf)
	}
	enter := func(now instant.Instant, w *queue.Waiter) queue.Answer {
		a := p.Enter(now, 1, w, conf)
		passed = max(passed, a.Mark)
		return a
	}
	return rig{enter, p.Leave, event}
}

func rateRig(rng *rand.Rand) rig {
	conf := rate.Config{PerSecond: []float64{0.2, 1, 20}[rng.IntN(3)], Burst: 1 + rng.IntN(3)}
	r, g := rate.New(conf, nil), new(concurrency.Limiter)
	event := func(now instant.Instant) {
		if rng.IntN(4) == 0 {
			conf.PerSecond = []float64{0.2, 1, 20}[rng.IntN(3)]
			r.Set(now, conf)
			g.WakeFirst()
		}
	}
	enter := func(now instant.Instant, w *queue.Waiter) queue.Answer {
		return g.Enter(now, nil, w, concurrency.Config{Max: concurrency.NoMax, Rate: r})
	}
	return rig{enter, g.Leave, event}
}

type stander struct {
	w     *queue.Waiter
	woken bool
	wakes int
	ask   instant.Instant
}

// stir uses a machine at random, and returns the first waiter after that, or nil if
// there is none.
func stir(t *testing.T, rng *rand.Rand, r rig, steps int) (now instant.Instant, first *stander) {
	waits := map[*queue.Waiter]*stander{}
	var all []*stander // in order of their coming, for the same choice in every run
	now = sec
	ask := func(s *stander) {
		s.woken = false
		a := r.enter(now, s.w)
		if s.ask = a.Ask; a.Verb != queue.Wait {
			r.leave(s.w)
			delete(waits, s.w)
		}
	}
	for range steps {
		var waiting, due []*stander
		for _, s := range all {
			if waits[s.w] != nil {
				waiting = append(waiting, s)
				if s.woken || s.ask <= now {
					due = append(due, s)
				}
			}
		}
		wakes := 0
		for _, s := range waiting {
			s.wakes = 0
		}
		switch op := rng.IntN(10); {
		case op < 3 && len(waiting) < 8:
			s := &stander{}
			s.w = &queue.Waiter{Woken: func(*queue.Waiter) { s.woken = true; s.wakes++ }, From: now}
			waits[s.w] = s
			all = append(all, s)
			ask(s)
		case op < 6 && len(due) > 0:
			ask(due[rng.IntN(len(due))])
		case op == 6 && len(waiting) > 0:
			s := waiting[rng.IntN(len(waiting))]
			r.leave(s.w)
			delete(waits, s.w)
		case op < 9:
			r.event(now)
		default:
			now = now.Add(time.Duration(rng.Int64N(int64([]time.Duration{ms, 100 * ms, sec, 11 * sec}[rng.IntN(4)]))))
		}
		for _, s := range waiting {
			wakes += s.wakes
		}
		require.LessOrEqual(t, wakes, 40, "wakes for one event")
	}
	for _, s := range all {
		if waits[s.w] != nil {
			return now, s
		}
	}
	return now, nil
}

// Whatever has happened before, let nothing more happen. Then the first waiter, which
// asks only when it is told or woken, passes as soon as a waiter that asks all the time.
func TestNobodyWaitsForNothing(t *testing.T) {
	const step, horizon = 100 * ms, 90 * sec // longer than a body is kept that nobody reads
	for name, build := range map[string]func(*rand.Rand) rig{
		"limiter": limiterRig, "throttle": throttleRig, "pacing": pacingRig, "rate": rateRig,
	} {
		t.Run(name, func(t *testing.T) {
			waited := 0
			seeds := soak.Size[uint64](300, 2000)
			for seed := range seeds {
				at := [2]time.Duration{instant.Forever, instant.Forever} // when it went: asking all the time, and when told
				for told := range at {
					rng := rand.New(rand.NewPCG(seed, 1))
					r := build(rng)
					start, s := stir(t, rng, r, 20+rng.IntN(100))
					if s == nil {
						break
					}
					waited += told
					now := start
					for asks := 0; now < start+horizon; asks++ {
						if told == 1 && !s.woken {
							now = max(now, s.ask)
						}
						s.woken = false
						a := r.enter(now, s.w)
						if a.Verb != queue.Wait {
							at[told] = now.Since()
							break
						}
						if s.ask = a.Ask; told == 0 {
							now += step
						} else if asks > 500 {
							t.Fatalf("seed %d: asked %d times until %v", seed, asks, now)
						}
					}
				}
				require.True(t, at[1]-step <= at[0] || instant.At(at[0]) >= instant.Never,
					"seed %d: goes at %v where it asks all the time, at %v where it asks when it is told", seed, at[0], at[1])
			}
			assert.GreaterOrEqual(t, waited, int(seeds)/10, "somebody waited in %d runs only", waited)
		})
	}
}
