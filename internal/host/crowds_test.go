// The machines in whose queues a crowd waits, and all that they may be told.

package host_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/aplomb-go/aplomb/internal/host/cooldown"
	"github.com/aplomb-go/aplomb/internal/host/gate"
	"github.com/aplomb-go/aplomb/internal/host/instant"
	"github.com/aplomb-go/aplomb/internal/host/pacing"
	"github.com/aplomb-go/aplomb/internal/host/queue"
	"github.com/aplomb-go/aplomb/internal/host/rate"
)

func gateCrowd(t testing.TB) *crowd {
	g, slots := new(gate.Gate), make([]gate.Slot, 30)
	conf := gate.Config{Start: len(slots)}
	for i := range slots {
		g.Enter(0, &slots[i], nil, conf)
	}
	i := 0
	ends := func(r gate.Result) func(instant.Instant) {
		return func(now instant.Instant) {
			g.Result(now, &slots[i], r)
			g.Done(now, &slots[i])
			i++
		}
	}
	return &crowd{
		enter: func(now instant.Instant, w *queue.Waiter) queue.Answer { return g.Enter(now, new(gate.Slot), w, conf) },
		leave: func(w *queue.Waiter) { g.Leave(w) },
		events: []occurrence{
			{"a success", ends(gate.Success)},
			{"a failure", ends(gate.Failed)},
			{"a loss", ends(gate.Lost)},
			{"a cancelled request", ends(gate.Neutral)},
			{"a request that was not sent", func(now instant.Instant) { g.Release(now, &slots[i]); i++ }},
			{"a body", func(now instant.Instant) {
				g.Result(now, &slots[i], gate.Success)
				g.Reading(now, &slots[i], false)
				g.Idle(now, &slots[i])
			}},
			{"a stream", func(now instant.Instant) {
				g.Result(now, &slots[i], gate.Success)
				g.Reading(now, &slots[i], true)
				i++
			}},
			{"a slow caller", func(now instant.Instant) {
				g.Await(now, &slots[i])
				g.Resume(now, &slots[i])
				i++
			}},
		},
	}
}

// closedCrowd is a gate of a fleet that is closed.
func closedCrowd(t testing.TB) *crowd {
	g, slot, conf := new(gate.Gate), new(gate.Slot), gate.Config{Fleet: true}
	g.Enter(0, slot, nil, conf)
	g.Release(0, slot)
	g.Down(0, 0)
	ask := func(now instant.Instant) {
		t.Helper()
		assert.True(t, g.AskPermit(now), "nothing to ask at %v", now)
	}
	return &crowd{
		step:  3 * sec,
		enter: func(now instant.Instant, w *queue.Waiter) queue.Answer { return g.Enter(now, slot, w, conf) },
		leave: func(w *queue.Waiter) { g.Leave(w) },
		events: []occurrence{
			{"a second Down", func(now instant.Instant) { g.Down(now, now) }},
			{"a refusal", func(now instant.Instant) { ask(now); g.Permit(now, false, sec) }},
			{"a permit", func(now instant.Instant) { ask(now); g.Permit(now, true, 0) }},
			{"a probe that was not sent", func(now instant.Instant) { g.Release(now, slot) }},
			{"a failed probe", func(now instant.Instant) { g.End(now, slot, gate.Failed) }},
			{"Up", func(now instant.Instant) { g.Up(now, now+ms) }},
			{"the return", func(now instant.Instant) { g.Up(now, now); g.WakeFirst() }},
		},
	}
}

// sharedCrowd is a rate whose tokens come from a fleet.
func sharedCrowd(t testing.TB) *crowd {
	r := rate.New(rate.Config{PerSecond: 10, Burst: 1})
	r.Share(0, 10)
	ask := func(now instant.Instant, waiting int) {
		t.Helper()
		if _, ok := r.AskTokens(now, waiting, rate.AnswerTime, 0); !ok {
			t.Errorf("nothing to ask at %v", now)
		}
	}
	return &crowd{
		step:  3 * sec,
		enter: r.Enter,
		leave: r.Leave,
		events: []occurrence{
			{"a fleet that grows", func(now instant.Instant) { r.Share(now, 11) }},
			{"tokens for later", func(now instant.Instant) { ask(now, 1); r.Grant(now, 1, now+sec/2, sec, 0) }},
			{"no tokens", func(now instant.Instant) { ask(now, 9); r.Grant(now, 0, 0, 0, now+sec) }},
			{"tokens", func(now instant.Instant) { ask(now, 9); r.Grant(now, 3, now-sec/2, ms, 0) }},
			{"a late answer", func(now instant.Instant) { r.Grant(now, 1, now, 0, 0) }},
		},
	}
}

func cooldownCrowd(testing.TB) *crowd {
	c := new(cooldown.Cooldown)
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
			{"a hold of the fleet", func(now instant.Instant) { c.HoldForFleet(now, 1, 41*sec, exact, 0) }},
			{"a snapshot", func(now instant.Instant) { c.Holds(now); c.Holding(now); c.Held(now, 1); c.Named(now, 1) }},
		},
	}
}

func pacingCrowd(t testing.TB) *crowd {
	p := new(pacing.Pacing)
	note := func(left int64, reset time.Duration) func(instant.Instant) {
		return func(now instant.Instant) {
			p.Note(now, 1, pacing.Pass{}, pacing.Named{Remaining: left, Limit: 100, Reset: reset}, pacing.Config{})
		}
	}
	note(0, 30*sec)(0)
	return &crowd{
		enter: func(now instant.Instant, w *queue.Waiter) queue.Answer { return p.Enter(now, 1, w, pacing.Config{}) },
		leave: func(w *queue.Waiter) { p.Leave(1, w) },
		events: []occurrence{
			{"a later reset", note(0, 60*sec)},
			{"another scope", func(now instant.Instant) {
				p.Note(now, 2, pacing.Pass{}, pacing.Named{Remaining: 0, Limit: 9, Reset: sec}, pacing.Config{})
			}},
			{"a quota of the fleet", func(now instant.Instant) {
				p.NoteForFleet(now, 1, pacing.Named{Remaining: 0, Limit: 100, Reset: 61 * sec}, 4, pacing.Config{})
			}},
			{"a fresh quota", note(90, 62*sec)},
		},
	}
}

func rateCrowd(t testing.TB) *crowd {
	conf := rate.Config{PerSecond: 0.5, Burst: 1}
	r := rate.New(conf)
	r.Take(0, 1)
	return &crowd{
		enter: r.Enter,
		leave: r.Leave,
		events: []occurrence{
			{"an update", func(now instant.Instant) { r.Set(now, rate.Config{PerSecond: 0.4, Burst: 1}) }},
			{"a look", func(now instant.Instant) { r.Peek(now, 1) }},
		},
	}
}
