package rate

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/aplomb-go/aplomb/internal/host/hosttest"
	"github.com/aplomb-go/aplomb/internal/host/instant"
	"github.com/aplomb-go/aplomb/internal/host/queue"
	"github.com/aplomb-go/aplomb/internal/ledger"
	"github.com/aplomb-go/aplomb/internal/soak"
)

// Processes with uneven loads share a rate. Together they send nearly as much as it
// allows, and no more. None of them starves.
func TestRateOfAFleet(t *testing.T) {
	const perSecond, burst, members = 100.0, 10, 20
	for seed := range soak.Size[uint64](3, 50) {
		rng := rand.New(rand.NewPCG(seed, 5))
		var cl hosttest.Clock
		var tokens ledger.Tokens
		var sends []time.Duration
		each, waiting := make([]int, members), make([]int, members)
		for m := range members {
			r := New(Config{PerSecond: perSecond, Burst: burst})
			r.Share(0, members)
			var request func()
			request = func() {
				waiting[m]++
				began, gone := cl.Now, false
				w := new(queue.Waiter)
				var ask func()
				ask = func() {
					if gone {
						return
					}
					a := r.Enter(cl.Now, w)
					if q, ok := r.AskTokens(cl.Now, r.Waiting(), AnswerTime, rng.Float64()); ok {
						cl.At(cl.Now.Add(time.Duration(rng.Int64N(int64(4*ms)))), func() {
							n, first, every, again := tokens.Take(cl.Now, q.PerSecond, q.Burst, q.Want)
							asked := cl.Now
							cl.At(cl.Now.Add(time.Duration(rng.Int64N(int64(4*ms)))), func() {
								r.Grant(cl.Now, n, first, every, asked.Add(again))
							})
						})
					}
					switch {
					case a.Verb == queue.Go:
						gone = true
						waiting[m]--
						cl.At(a.Until, func() {
							sends = append(sends, cl.Now.Since())
							each[m]++
						})
					case a.Ask < instant.Never:
						cl.At(a.Ask, ask)
					}
				}
				w.Woken = func(*queue.Waiter) { cl.At(cl.Now, ask) }
				ask()
				if next := began.Add(time.Duration(rng.Int64N(int64(sec))) / time.Duration(1+2*m)); next < 12*sec && waiting[m] < 50 {
					cl.At(next, request)
				} else {
					cl.At(cl.Now+100*ms, request)
				}
			}
			cl.At(instant.At(time.Duration(rng.Int64N(int64(sec)))), request)
		}
		cl.RunTo(12 * sec)
		n := 0
		for i, at := range sends {
			if at >= 2*sec {
				n++
			}
			for j := range i {
				require.LessOrEqual(t, float64(i-j+1), burst+perSecond*((at-sends[j])+tokenLife).Seconds()+1, "seed %d: sends", seed)
			}
		}
		assert.True(t, n >= 950 && n <= 1010, "seed %d: %d sends in 10 s", seed, n)
		for m := range members {
			if each[m] < 8 {
				t.Errorf("seed %d: process %d has sent %d requests", seed, m, each[m])
			}
		}
	}
}

// Whatever a fleet grants, the process takes no more than the whole rate and its burst. It
// can use the tokens that the fleet saved up, although their times are long past.
func TestRateBoundsTheFleet(t *testing.T) {
	r := New(Config{PerSecond: 1, Burst: 10})
	r.Share(0, 4)
	require.True(t, mayAsk(r, 20*sec, 10), "does not ask")
	r.Grant(20*sec, 10, 11*sec, sec, 0)
	assert.Equal(t, 10, taken(r, 20*sec), "tokens at once, not the burst")
	n := 0
	for now := instant.At(21 * sec); now < 81*sec; now += 50 * ms {
		if ask, ok := r.AskTokens(now, 5, AnswerTime, 0); ok {
			r.Grant(now, ask.Want, now.Add(-time.Duration(n%3)*sec), 0, 0)
		}
		n += taken(r, now)
	}
	assert.True(t, n >= 55 && n <= 61, "%d tokens in a minute at one per second", n)
}
