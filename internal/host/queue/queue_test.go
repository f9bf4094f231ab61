package queue

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

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
		for range 200 {
			w := &all[rng.IntN(len(all))]
			if i := slices.Index(want, w); rng.IntN(2) == 0 {
				q.Join(0, w)
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
			for i, w := range want {
				require.True(t, q.Has(w) && w.Waits())
				require.Equal(t, i == 0, q.Turn(0, w))
			}
			require.Equal(t, len(want) == 0, q.First() == nil && q.Turn(0, nil))
		}
	}
}

// The nearest deadline is found, also after waiters have gone from anywhere.
func TestDeadlines(t *testing.T) {
	var none *Deadlines
	assert.Nil(t, none.Nearest())
	for seed := range uint64(100) {
		rng := rand.New(rand.NewPCG(seed, 2))
		var d Deadlines
		var in []*Waiter
		for range 100 {
			if len(in) == 0 || rng.IntN(2) == 0 {
				w := &Waiter{By: instant.Instant(1 + rng.IntN(1000))}
				d.Add(w)
				in = append(in, w)
			} else {
				i := rng.IntN(len(in))
				d.Remove(in[i])
				in = slices.Delete(in, i, i+1)
			}
			nearest := d.Nearest()
			if len(in) == 0 {
				require.Nil(t, nearest)
				continue
			}
			require.Equal(t, slices.MinFunc(in, func(a, b *Waiter) int { return int(a.By - b.By) }).By, nearest.By)
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

// With two levels each level is first in, first out. Background requests come last while they
// are young, and take turns with the others when they are not.
func TestLevels(t *testing.T) {
	for seed := range uint64(300) {
		rng := rand.New(rand.NewPCG(seed, 3))
		var (
			q      Queue
			now    instant.Instant
			picked instant.Instant // when a waiter left last
			levels [2][]*Waiter    // others, background
			served []bool          // whether it was background, since the last change of the others' level
		)
		level := func(w *Waiter) *[]*Waiter {
			if w.Background {
				return &levels[1]
			}
			return &levels[0]
		}
		for range 300 {
			now = now.Add(time.Duration(rng.IntN(2000)) * time.Millisecond)
			first := q.First()
			switch {
			case rng.IntN(2) == 0:
				w := &Waiter{From: now, Background: rng.IntN(2) == 0}
				ahead := q.Ahead(w.Background)
				goes := q.Turn(now, w)
				if !w.Background {
					require.Equal(t, goes, q.Turn(now, nil), "a request that does not wait")
				}
				q.Join(now, w)
				*level(w) = append(*level(w), w)
				require.Equal(t, goes, q.First() == w, "seed %d: who joins is first if it was its turn", seed)
				if w.Background {
					require.Equal(t, len(levels[0])+len(levels[1])-1, ahead)
				} else {
					require.Equal(t, len(levels[0])-1, ahead)
				}
			case first != nil:
				w := first
				if passes := rng.IntN(4) > 0; !passes {
					l := levels[rng.IntN(2)]
					if len(l) == 0 {
						continue
					}
					w, served = l[rng.IntN(len(l))], nil
				}
				require.Equal(t, w == first, q.Turn(now, w))
				picked = now
				if next := q.Leave(w); w == first {
					require.Same(t, q.First(), next)
					served = append(served, w.Background)
				} else {
					require.Nil(t, next)
				}
				l := level(w)
				i := slices.Index(*l, w)
				if w == first {
					require.Zero(t, i, "seed %d: each level is in order", seed)
				}
				*l = slices.Delete(*l, i, i+1)
			}
			if len(levels[0]) == 0 || len(levels[1]) == 0 {
				served = nil
			}
			if first := q.First(); first != nil && first.Background && len(levels[0]) > 0 {
				require.False(t, first.Young(now), "seed %d: no young one goes before others", seed)
				require.False(t, len(served) > 0 && served[len(served)-1], "seed %d: not two in a row", seed)
			}
			if first := q.First(); first != nil && !first.Background && len(levels[1]) > 0 && len(served) > 0 && !served[len(served)-1] {
				require.True(t, levels[1][0].Young(picked), "seed %d: one that has waited has its turn", seed)
			}
			require.Equal(t, len(levels[0])+len(levels[1]), q.Len())
			require.Equal(t, q.Len() > 0 && len(levels[0]) == 0 && levels[1][0].Young(q.back.now), q.Young())
		}
	}
}
