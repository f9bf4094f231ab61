package host_test

import (
	"context"
	"hash/maphash"
	"math/rand/v2"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/aplomb-go/aplomb/internal/host"
	"github.com/aplomb-go/aplomb/internal/host/budget"
	"github.com/aplomb-go/aplomb/internal/host/cooldown"
	"github.com/aplomb-go/aplomb/internal/host/gate"
	"github.com/aplomb-go/aplomb/internal/host/instant"
	"github.com/aplomb-go/aplomb/internal/host/pacing"
	"github.com/aplomb-go/aplomb/internal/host/queue"
	"github.com/aplomb-go/aplomb/internal/host/rate"
	"github.com/aplomb-go/aplomb/internal/scope"
)

// waitAt does the part of the transport's loop: it asks until the request may go
// or gives up.
func waitAt(ctx context.Context, start time.Time, w *queue.Waiter, ask func(now instant.Instant) queue.Answer, leave func()) queue.Verb {
	for {
		now := instant.At(time.Since(start))
		a := ask(now)
		if a.Verb != queue.Wait {
			return a.Verb
		}
		var alarm <-chan time.Time
		if a.Ask != instant.Never {
			timer := time.NewTimer(a.Ask.Sub(now))
			defer timer.Stop()
			alarm = timer.C
		}
		select {
		case <-w.Ready:
		case <-alarm:
		case <-ctx.Done():
			leave()
			return queue.Wait
		}
	}
}

// A thousand goroutines go through all machines at once, in virtual time. Some of
// them give up on the way. All of them come to an end, and no waiter is left over.
func TestThousandGoroutines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var (
			start  = time.Now()
			m      host.Machines
			limit  = m.Rate(rate.Config{PerSecond: 200, Burst: 10})
			sent   atomic.Int64
			most   atomic.Int64
			inside atomic.Int64
			begun  atomic.Uint64
			gaveUp atomic.Int64
			wg     sync.WaitGroup
		)
		// The fleet answers within 20 ms, or not at all. All goroutines ask it for the same
		// process.
		askFleet := func(now instant.Instant, u float64) {
			if m.Gate().AskPermit(now) && u < 0.8 {
				time.AfterFunc(time.Duration(u*float64(20*ms)), func() {
					m.Gate().Permit(instant.At(time.Since(start)), u < 0.5, time.Duration(u*float64(sec)))
				})
			}
			limit.Share(now, 4)
			if ask, ok := limit.AskTokens(now, m.Gate().Wants(), rate.AnswerTime, u); ok && u < 0.8 {
				time.AfterFunc(time.Duration(u*float64(20*ms)), func() {
					now := instant.At(time.Since(start))
					limit.Grant(now, ask.Want, now, 5*ms, now)
					m.Gate().WakeFirst()
				})
			}
		}
		// News of other processes, at any time.
		var over atomic.Bool
		others := func(rng *rand.Rand) {
			for !over.Load() {
				time.Sleep(time.Duration(rng.IntN(200)) * ms)
				now, key, wait := instant.At(time.Since(start)), uint64(rng.IntN(7)), time.Duration(rng.IntN(2000))*ms
				switch rng.IntN(5) {
				case 0:
					m.Cooldown.HoldForFleet(now, key, wait, cooldown.Config{Max: sec}, rng.Float64())
				case 1:
					m.Pacing().NoteForFleet(now, key, pacing.Named{Remaining: int64(rng.IntN(100)), Limit: 100, Reset: wait}, 1+rng.IntN(5), pacing.Config{})
				case 2:
					m.Gate().Down(now, now.Add(-wait))
				case 3:
					m.Gate().Up(now, now.Add(wait))
				default:
					m.Gate().News()
				}
			}
		}
		one := func(rng *rand.Rand, key uint64) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Duration(100+rng.IntN(60_000))*ms)
			defer cancel()
			w := queue.NewWaiter()
			m.Budget.CountTo(begun.Add(1))
			var slot gate.Slot
			var mark uint64
			for n := range 4 {
				in := waitAt(ctx, start, w, func(now instant.Instant) queue.Answer { return m.Cooldown.Enter(now, key, w) }, func() { m.Cooldown.Leave(w) }) == queue.Go &&
					waitAt(ctx, start, w, func(now instant.Instant) queue.Answer {
						a := m.Pacing().Enter(now, key, w, pacing.Config{})
						mark = a.Mark
						return a
					}, func() { m.Pacing().Leave(key, w) }) == queue.Go &&
					waitAt(ctx, start, w, func(now instant.Instant) queue.Answer {
						a := m.Gate().Enter(now, &slot, w, gate.Config{Rate: limit, Fleet: true})
						askFleet(now, rng.Float64())
						return a
					}, func() { m.Gate().Leave(w) }) == queue.Go
				if !in {
					gaveUp.Add(1)
					return
				}
				at := instant.At(time.Since(start))
				sent.Add(1)
				if n := inside.Add(1); n > most.Load() {
					most.Store(n)
				}
				time.Sleep(time.Duration(1+rng.IntN(50)) * ms)
				inside.Add(-1)
				now := instant.At(time.Since(start))
				m.Latency().Record(now.Sub(at))
				m.Latency().Quantile(0.98)
				m.Pacing().Note(now, key, pacing.Pass{Mark: mark}, pacing.Named{Remaining: int64(rng.IntN(100)), Limit: 100, Reset: time.Duration(rng.IntN(5)) * sec}, pacing.Config{})
				result := gate.Success
				if rng.IntN(8) == 0 {
					result = gate.Result(rng.IntN(4))
				}
				m.Gate().Result(now, &slot, result)
				m.Gate().Done(now, &slot)
				switch result {
				case gate.Success, gate.Neutral:
					m.Cooldown.Answered(now, key, at)
					return
				case gate.Failed:
					m.Cooldown.Hold(now, key, time.Duration(rng.IntN(2000))*ms, cooldown.Config{Max: sec}, rng.Float64())
				}
				if n == 3 {
					return
				}
				taken := m.Budget.Take(now, now, budget.Config{})
				if taken == nil {
					return
				}
				if rng.IntN(10) == 0 {
					m.Budget.Release(now, budget.Config{}, taken)
					return
				}
				time.Sleep(time.Duration(rng.IntN(100)) * ms)
			}
		}
		for i := range uint64(1000) {
			wg.Go(func() {
				rng := rand.New(rand.NewPCG(i, 1))
				for range 5 {
					one(rng, i%7)
					m.Cooldown.Holds(instant.At(time.Since(start)))
					m.Gate().State()
				}
			})
		}
		var told sync.WaitGroup
		for i := range uint64(4) {
			told.Go(func() { others(rand.New(rand.NewPCG(i, 2))) })
		}
		wg.Wait()
		over.Store(true)
		told.Wait()
		t.Logf("%d attempts, at most %d at once, %d gave up, after %v", sent.Load(), most.Load(), gaveUp.Load(), time.Since(start))
		if got := m.Gate().State(); got.InFlight != 0 || got.Waiting != 0 {
			t.Errorf("%+v", got)
		}
		assert.True(t, sent.Load() >= 100, "%d attempts", sent.Load())
		time.Sleep(time.Hour)
		m.Cooldown.Enter(instant.At(time.Since(start)), 99, nil)
		assert.True(t, m.Cooldown.Quiet(), "not quiet at the end")
	})
}

// One request is told 429 with a wait of 1 s; then 49 others start, as
// goroutines on channels.
func TestCooldownWithGoroutines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var (
			start = time.Now()
			c     cooldown.Cooldown
			mu    sync.Mutex
			at    []instant.Instant
			wg    sync.WaitGroup
		)
		open := c.Hold(0, 1, sec, cooldown.Config{}, 0.5)
		for range 50 {
			wg.Go(func() {
				w := queue.NewWaiter()
				waitAt(t.Context(), start, w, func(now instant.Instant) queue.Answer { return c.Enter(now, 1, w) }, nil)
				now := instant.At(time.Since(start))
				mu.Lock()
				at = append(at, now)
				mu.Unlock()
				time.Sleep(20 * ms)
				c.Answered(instant.At(time.Since(start)), 1, now)
			})
		}
		wg.Wait()
		if len(at) != 50 || at[0] != open || at[1] == open || at[49] > open+300*ms {
			t.Errorf("held until %v, arrivals at %v", open, at)
		}
	})
}

// An idle host has a bounded size, without and with its first hold.
func TestFirstTryCosts(t *testing.T) {
	var (
		b    budget.Budget
		c    cooldown.Cooldown
		p    pacing.Pacing
		seed = maphash.MakeSeed()
		h    = http.Header{"Authorization": {"Bearer abc"}}
	)
	if n := testing.AllocsPerRun(100, func() {
		b.CountTo(1)
		assert.True(t, c.Quiet() && p.Quiet(), "not quiet")
		scope.Key(seed, h)
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
