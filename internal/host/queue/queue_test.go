package queue

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/aplomb-go/aplomb/internal/host/instant"
)

// A queue does the same as a slice, whatever happens in which order.
func TestQueueIsFirstInFirstOut(t *testing.T) {
	for seed := range uint64(100) {
		rng := rand.New(rand.NewPCG(seed, 1))
		var q Queue
		var want []*Waiter
		all := make([]Waiter, 8)
		for i := range all {
			all[i].Cost = i
		}
		for range 200 {
			w := &all[rng.IntN(len(all))]
			if i := slices.Index(want, w); rng.IntN(2) == 0 {
				q.Join(w)
				if i < 0 {
					want = append(want, w)
				}
			} else {
				next := q.Leave(w)
				if i >= 0 {
					want = slices.Delete(want, i, i+1)
				}
				if i == 0 && len(want) > 0 {
					require.Same(t, want[0], next, "the first is gone")
				} else {
					require.Nil(t, next, "the first is still there, or nobody is")
				}
			}
			require.Equal(t, len(want), q.Len())
			cost := 0
			for i, w := range want {
				cost += w.Costs()
				require.True(t, q.Has(w) && w.Waits())
				require.Equal(t, i == 0, q.Turn(w))
			}
			require.Equal(t, cost, q.Cost())
			require.Equal(t, len(want) == 0, q.First() == nil && q.Turn(nil) && q.Turn(new(Waiter)))
		}
	}
}

// A waiter that is woken twice before it looks asks once.
func TestWake(t *testing.T) {
	w := NewWaiter()
	w.Wake()
	w.Wake()
	assert.Len(t, w.Ready, 1)

	var woken []int
	note := func(w *Waiter) { woken = append(woken, w.ID) }
	a, b := &Waiter{ID: 1, Woken: note}, &Waiter{ID: 2, Woken: note}
	Pair{a, b}.Wake()
	Pair{a, a}.Wake()
	Pair{nil, b}.Wake()
	Pair{}.Wake()
	assert.Equal(t, []int{1, 2, 1, 2}, woken)
}

func TestHalf(t *testing.T) {
	assert.Equal(t, instant.Instant(15), (&Waiter{From: 10, By: 20}).Half())
	assert.Equal(t, instant.Instant(25), (&Waiter{From: 10, By: 30}).Late())
}
