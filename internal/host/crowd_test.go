// The machines in whose queues requests wait: a crowd, with all that they may be told, and whether one waits for nothing.

package host_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/aplomb-go/aplomb/internal/field"
	"github.com/aplomb-go/aplomb/internal/host/concurrency"
	"github.com/aplomb-go/aplomb/internal/host/hosttest"
	"github.com/aplomb-go/aplomb/internal/host/instant"
	"github.com/aplomb-go/aplomb/internal/host/pacing"
	"github.com/aplomb-go/aplomb/internal/host/queue"
	"github.com/aplomb-go/aplomb/internal/host/rate"
	"github.com/aplomb-go/aplomb/internal/host/throttle"
	"github.com/aplomb-go/aplomb/internal/soak"
)

const ms, sec = hosttest.Ms, hosttest.Sec

// exact has no jitter.
var exact = throttle.Config{Jitter: -1}

// An occurrence is something that a machine is told.
type occurrence struct {
	name string
	tell func(now instant.Instant)
}

// A crowd is a machine in whose queue many requests wait.
type crowd struct {
	enter  func(now instant.Instant, w *queue.Waiter) queue.Answer
	leave  func(w *queue.Waiter)
	events []occurrence

	ws     []queue.Waiter
	before []memo // of each waiter
	woken  []*queue.Waiter
}

var crowds = map[string]func() *crowd{"limiter": limiterCrowd, "throttle": throttleCrowd, "pacing": pacingCrowd, "rate": rateCrowd}

// newCrowd returns a machine with so many waiters.
func newCrowd(machine string, n int) *crowd {
	c := crowds[machine]()
	wake := func(w *queue.Waiter) { c.woken = append(c.woken, w) }
	c.ws, c.before = make([]queue.Waiter, n), make([]memo, n)
	for i := range c.ws {
		c.ws[i] = queue.Waiter{ID: i, Woken: wake}
		c.enter(sec, &c.ws[i])
	}
	c.woken = nil
	return c
}

// A memo is all that a machine knows of a waiter: its place in a queue.
type memo [unsafe.Sizeof(queue.Waiter{})]byte

// work returns how many waiters an event woke, and how many it touched. A waiter is
// touched if its memo has changed.
func (c *crowd) work(event func()) (wakes, touched int) {
	look := func(w *queue.Waiter) memo { return *(*memo)(unsafe.Pointer(w)) }
	for i := range c.ws {
		c.before[i] = look(&c.ws[i])
	}
	c.woken = nil
	event()
	for i := range c.ws {
		if look(&c.ws[i]) != c.before[i] {
			touched++
		}
	}
	return len(c.woken), touched
}

// settle lets each woken waiter ask, until no waiter is woken any more. It returns how
// many waiters asked and how many of them are gone, but stops after most of them.
func (c *crowd) settle(now instant.Instant, most int) (asked, gone int) {
	for ; len(c.woken) > 0 && asked < most; asked++ {
		w := c.woken[0]
		c.woken = c.woken[1:]
		if c.enter(now, w).Verb != queue.Wait {
			gone++
		}
	}
	return asked, gone
}

// With 100,000 waiters, or 10,000 in make test, no event wakes more than two of them,
// and none touches more than a few. The waiters that are woken in turn are those that go,
// and the next two.
func TestCrowd(t *testing.T) {
	n := soak.Size(10_000, 100_000)
	for name := range crowds {
		t.Run(name, func(t *testing.T) {
			c := newCrowd(name, n)
			now := instant.At(2 * sec)
			check := func(what string, event func()) {
				t.Helper()
				wakes, touched := c.work(event)
				assert.True(t, wakes <= 2 && touched <= 6, "%s: %s wakes %d waiters and touches %d", name, what, wakes, touched)
				asked, gone := c.settle(now, n/10)
				assert.LessOrEqual(t, asked, 2*gone+2, "%s: waiters ask after %s, and %d are gone", name, what, gone)
			}
			check("a newcomer", func() { c.enter(now, &queue.Waiter{Woken: func(*queue.Waiter) {}, By: sec}) })
			check("a request that does not wait", func() { c.enter(now, nil) })
			check("a look around", func() { c.enter(now, &c.ws[n/2]) })
			for _, i := range []int{0, n / 3, n / 2, n - 1} {
				check(fmt.Sprint("leaving as number ", i), func() { c.leave(&c.ws[i]) })
			}
			for _, event := range c.events {
				now = now.Add(20 * ms)
				check(event.name, func() { event.tell(now) })
			}
		})
	}
}

func limiterCrowd() *crowd {
	g, slots := new(concurrency.Limiter), make([]concurrency.Slot, 30)
	conf := concurrency.Config{Max: len(slots)}
	for i := range slots {
		g.Enter(0, &slots[i], nil, conf)
	}
	i := 0
	return &crowd{
		enter: func(now instant.Instant, w *queue.Waiter) queue.Answer {
			return g.Enter(now, new(concurrency.Slot), w, conf)
		},
		leave: g.Leave,
		events: []occurrence{
			{"an end", func(instant.Instant) { g.End(&slots[i]); i++ }},
			{"a body", func(now instant.Instant) {
				g.Respond(now, &slots[i])
				g.Reading(now, &slots[i], false)
				g.Idle(now, &slots[i])
			}},
			{"a stream", func(now instant.Instant) {
				g.Respond(now, &slots[i])
				g.Reading(now, &slots[i], true)
				i++
			}},
			{"a slow caller", func(now instant.Instant) {
				g.Await(now, &slots[i])
				g.Resume(now, &slots[i])
				i++
			}},
			{"an Update", func(instant.Instant) { g.WakeFirst() }},
		},
	}
}

func throttleCrowd() *crowd {
	c := new(throttle.Throttle)
	hold := func(wait time.Duration) func(instant.Instant) {
		return func(now instant.Instant) { c.Hold(now, 1, wait, exact, 0) }
	}
	hold(20 * sec)(0)
	return &crowd{
		enter: func(now instant.Instant, w *queue.Waiter) queue.Answer { return c.Enter(now, 1, w) },
		leave: c.Leave,
		events: []occurrence{
			{"a longer hold", hold(30 * sec)},
			{"a shorter hold", hold(sec)},
			{"an answer", func(now instant.Instant) { c.Answered(now, 1, 0) }},
			{"another scope", func(now instant.Instant) { c.Hold(now, 2, sec, exact, 0) }},
			{"a snapshot", func(now instant.Instant) { c.Holds(now); c.Holding(now); c.State(1) }},
		},
	}
}

func pacingCrowd() *crowd {
	p := new(pacing.Pacing)
	note := func(left int64, reset time.Duration) func(instant.Instant) {
		return func(now instant.Instant) {
			p.Note(now, 1, pacing.Pass{}, field.Quota{Remaining: left, Limit: 100, Reset: reset}, pacing.Config{})
		}
	}
	note(0, 30*sec)(0)
	return &crowd{
		enter: func(now instant.Instant, w *queue.Waiter) queue.Answer { return p.Enter(now, 1, w, pacing.Config{}) },
		leave: p.Leave,
		events: []occurrence{
			{"a later reset", note(0, 60*sec)},
			{"another scope", func(now instant.Instant) {
				p.Note(now, 2, pacing.Pass{}, field.Quota{Remaining: 0, Limit: 9, Reset: sec}, pacing.Config{})
			}},
			{"a fresh quota", note(90, 62*sec)},
		},
	}
}

func rateCrowd() *crowd {
	g, r := new(concurrency.Limiter), rate.New(rate.Config{PerSecond: 0.5, Burst: 1}, nil)
	r.Take(0, 1, false)
	return &crowd{
		enter: func(now instant.Instant, w *queue.Waiter) queue.Answer {
			return g.Enter(now, nil, w, concurrency.Config{Max: concurrency.NoMax, Rate: r})
		},
		leave: g.Leave,
		events: []occurrence{
			{"an update", func(now instant.Instant) { r.Set(now, rate.Config{PerSecond: 0.4, Burst: 1}); g.WakeFirst() }},
			{"a look", func(now instant.Instant) { r.Peek(now, 1, g.State().Cost) }},
		},
	}
}

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
