// The machines in whose queues a crowd waits, and all that they may be told.

package host_test

import (
	"fmt"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/assert"

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

const (
	ms  = hosttest.Ms
	sec = hosttest.Sec
)

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
	r.Take(0, 1)
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
