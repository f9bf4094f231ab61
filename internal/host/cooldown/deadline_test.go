package cooldown

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/aplomb-go/aplomb/internal/host/hosttest"
	"github.com/aplomb-go/aplomb/internal/host/instant"
	"github.com/aplomb-go/aplomb/internal/host/queue"
)

func TestCooldownLeaveHandsTheTurnOn(t *testing.T) {
	var c Cooldown
	c.Hold(0, 1, Refusal{Code: TooMany, Wait: sec}, Config{}, 0)
	first, second := queue.NewWaiter(), queue.NewWaiter()
	c.Enter(0, 1, first)
	c.Enter(0, 1, second)
	c.Leave(1, first)
	assert.True(t, hosttest.Woken(second), "the second in the queue was not woken")
}

// The news of a longer hold reaches every waiter with a deadline before its end, even if
// the waiter that has to pass it on gives up before it asks.
func TestCooldownLeavePassesTheWordOn(t *testing.T) {
	var c Cooldown
	c.Hold(0, 1, Refusal{Code: TooMany, Wait: sec}, Config{}, 0)
	ws := []*queue.Waiter{queue.NewWaiter(), queue.NewWaiter(), queue.NewWaiter()}
	for i, w := range ws {
		w.By = instant.At(time.Duration(i+2) * sec)
		c.Enter(0, 1, w)
	}
	c.Hold(0, 1, Refusal{Code: TooMany, Wait: 30 * sec}, Config{}, 0)
	for i, w := range ws {
		assert.True(t, hosttest.Woken(w), "waiter %d still counts on 1 s", i)
		c.Leave(1, w)
	}
}

// Whatever happens, two things hold when all woken waiters have asked. No waiter waits
// for a time after its deadline. And the waiter with the nearest deadline knows when
// its own turn comes at the latest.
func TestCooldownDeadlines(t *testing.T) {
	hurries := 0
	for seed := range uint64(500) {
		var c Cooldown
		rng := rand.New(rand.NewPCG(seed, 1))
		now := instant.At(sec)
		waiting := map[*queue.Waiter]bool{}
		var all, woken []*queue.Waiter // all in the order of their coming, for the same run with the same seed
		ask := func(w *queue.Waiter) {
			key := uint64(w.ID)
			a := c.Enter(now, key, w)
			switch {
			case a.Verb != queue.Wait:
				delete(waiting, w)
			case w.By > 0 && (a.Until >= w.By || now >= w.By):
				c.Leave(key, w)
				delete(waiting, w)
			}
		}
		for range 100 {
			switch op := rng.IntN(8); {
			case op < 3:
				w := &queue.Waiter{ID: 1 + rng.IntN(2), Woken: func(w *queue.Waiter) { woken = append(woken, w) }}
				if rng.IntN(3) > 0 {
					w.By = now.Add(time.Duration(1 + rng.Int64N(int64(20*sec))))
				}
				all, waiting[w] = append(all, w), true
				ask(w)
			case op == 3:
				c.Hold(now, uint64(1+rng.IntN(2)), Refusal{Code: Code(rng.IntN(2)), Wait: time.Duration(rng.Int64N(int64(8 * sec)))}, Config{Jitter: 4 * sec, Max: 6 * sec, Stop: rng.IntN(6) == 0}, rng.Float64())
			case op == 4:
				c.Answered(now, uint64(1+rng.IntN(2)), now.Add(-time.Duration(rng.Int64N(int64(3*sec)))), rng.IntN(3) > 0)
			case op == 5:
				if len(all) > 0 {
					w := all[rng.IntN(len(all))]
					c.Leave(uint64(w.ID), w)
					delete(waiting, w)
				}
			default:
				now = now.Add(time.Duration(rng.Int64N(int64(2 * sec))))
				for _, w := range all {
					if waiting[w] && (w.Told <= now || w.By > 0 && w.By <= now) {
						ask(w)
					}
				}
			}
			for ; len(woken) > 0; woken = woken[1:] {
				if waiting[woken[0]] {
					ask(woken[0])
				}
			}
			for key, h := range c.holds {
				if w := h.hurried(); w != nil && !h.undecided(now) {
					t.Fatalf("seed %d, at %v: a waiter of scope %d with the deadline %v asks at %v; named %v, opens %v", seed, now, key, w.By, w.Told, h.named(), h.opens(w))
				}
				for w := range waiting {
					if h.queue.Has(w) && w.By > now && w.By <= h.named() && !h.undecided(now) {
						t.Fatalf("seed %d, at %v: a waiter with the deadline %v waits until %v", seed, now, w.By, h.named())
					}
					if h.queue.Has(w) && h.opens(w) < h.open {
						hurries++
					}
				}
			}
		}
	}
	assert.GreaterOrEqual(t, hurries, 100, "only %d waiters had a nearer turn of their own", hurries)
}

// A success that ends a hold is no named end. So the waiters with a deadline return in
// the ramp like the others, whatever their deadlines are.
func TestCooldownRampAfterAnEarlyEnd(t *testing.T) {
	const begin = time.Hour
	var c Cooldown
	c.Hold(instant.At(begin), 1, Refusal{Code: TooMany, Wait: 20 * sec}, exact, 0)
	ws := make([]*queue.Waiter, 10)
	for i := range ws {
		ws[i] = queue.NewWaiter()
		ws[i].By = instant.At(begin + time.Minute)
		mustHold(t, &c, instant.At(begin), 1, ws[i], instant.At(begin+20*sec))
	}
	for range minDoubt {
		c.Answered(instant.At(begin+sec), 1, 0, true)
	}
	mustPass(t, &c, instant.At(begin+sec), 1, ws[0]) // the probe
	c.Answered(instant.At(begin+2*sec), 1, instant.At(begin+sec), true)
	passed := 0
	for _, w := range ws[1:] {
		if c.Enter(instant.At(begin+2*sec), 1, w).Verb == queue.Go {
			passed++
		}
	}
	assert.Equal(t, rampGrowth, passed, "requests that return at once")
}

// The last turn of a ramp is not after the ramp's end.
func TestCooldownRampEnds(t *testing.T) {
	var c Cooldown
	c.Hold(0, 1, Refusal{Code: TooMany, Wait: sec}, Config{}, 0)
	now := instant.At(sec).Add(rampTime) - 20*ms
	c.Enter(now, 1, nil)
	assert.LessOrEqual(t, c.Enter(now, 1, queue.NewWaiter()).Ask, instant.At(sec+rampTime), "the ramp ends at %v", sec+rampTime)
}

// A request that comes after the time that the server named is not spread. Requests
// that were held are spread.
func TestCooldownArrive(t *testing.T) {
	var c Cooldown
	assert.True(t, c.Arrive(0, 1), "nothing is held")
	c.Hold(0, 1, Refusal{Code: TooMany, Wait: sec}, Config{}, 0.9) // open at 1450 ms
	w, v := queue.NewWaiter(), queue.NewWaiter()
	mustHold(t, &c, 0, 1, w, sec)
	mustHold(t, &c, 0, 1, v, sec)
	assert.False(t, c.Arrive(sec-1, 1), "passed during the hold")
	for range 5 {
		assert.True(t, c.Arrive(sec, 1), "held after the time that was named")
	}
	mustHold(t, &c, sec, 1, w, sec)
	mustPass(t, &c, 1450*ms, 1, w)
	assert.Equal(t, queue.Wait, c.Enter(1450*ms, 1, v).Verb, "the ramp lets one go")
	assert.True(t, c.Arrive(1450*ms, 1), "held by the ramp")
}

// The jitter takes at most half of what a deadline leaves after the time that
// was named.
func TestCooldownJitterEndsBeforeTheDeadline(t *testing.T) {
	for by, want := range map[time.Duration]time.Duration{
		0:                1450 * ms, // no deadline
		time.Minute:      1450 * ms,
		sec + 500*ms:     1250 * ms,
		sec + 10*ms:      1005 * ms,
		sec + 900*ms:     1450 * ms,
		sec - 500*ms:     1450 * ms, // the transport refuses it
		sec:              1450 * ms,
		sec + 899*ms - 1: sec + (899*ms-1)/2,
	} {
		var c Cooldown
		c.Hold(0, 1, Refusal{Code: TooMany, Wait: sec}, Config{}, 0.9)
		first, w := queue.NewWaiter(), queue.NewWaiter()
		w.By = instant.At(by)
		mustHold(t, &c, 0, 1, first, sec)
		mustHold(t, &c, 0, 1, w, sec)
		if a := c.Enter(sec, 1, w); want < 1450*ms && a.Ask != instant.At(want) {
			t.Errorf("by %v: %+v, want to ask at %v", by, a, want)
		}
		a := c.Enter(instant.At(want-1), 1, w)
		b := c.Enter(instant.At(want), 1, w)
		assert.True(t, a.Verb == queue.Wait && (b.Verb == queue.Go) == (want < 1450*ms), "by %v: %+v, then %+v", by, a, b)
	}
}
