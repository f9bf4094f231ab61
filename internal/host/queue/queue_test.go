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
				leave := q.Leave
				if i >= 0 {
					leave = (*Waiter).Leave
					want = slices.Delete(want, i, i+1)
				}
				if next := leave(w); i == 0 && len(want) > 0 {
					require.Same(t, want[0], next, "the first is gone")
				} else {
					require.Nil(t, next, "the first is still there, or nobody is")
				}
				require.False(t, q.Has(w) || w.Waits())
			}
			require.Equal(t, len(want), q.Len())
			cost := 0
			for i, w := range want {
				cost += max(1, w.Cost)
				require.True(t, q.Has(w) && w.Waits())
				require.Equal(t, i == 0, q.Turn(w) && q.First() == w)
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

// The figures are those that the comments name.
func TestFigures(t *testing.T) {
	assert.Equal(t, 1, (*Waiter)(nil).Costs())
	assert.Equal(t, []any{256, 32, 10 * time.Millisecond}, []any{MaxScopes, spares, spareTime})
}

// Of the scopes that are new or have changed, the one that is missed least makes room, as if all
// were looked at each time.
func TestSpareIsMissedLeast(t *testing.T) {
	for seed := range uint64(20) {
		rng := rand.New(rand.NewPCG(seed, 1))
		draw := func() Worth { return Worth{Class: rng.IntN(4), End: instant.Instant(rng.IntN(1000))} }
		scopes := map[uint64]Worth{}
		for len(scopes) < MaxScopes {
			scopes[rng.Uint64()] = draw()
		}
		var s Spares
		for range 1000 {
			least, below := Worth{Class: 9}, rng.IntN(5)
			for _, w := range scopes {
				if w.less(least) {
					least = w
				}
			}
			key, found := Spare(&s, 0, scopes, below, func(w Worth) Worth { return w })
			require.Equal(t, least.Class < below, found)
			if !found {
				key = s.list[rng.IntN(len(s.list))].key // changes, and is not new
			} else {
				require.Equal(t, least, scopes[key])
				delete(scopes, key)
				key = rng.Uint64()
			}
			scopes[key] = draw()
			s.Note(key, scopes[key])
		}
	}
}

// A new scope costs about ten looks at a scope, and not one at each. What changes by itself is
// seen after 10 ms.
func TestSpareLooksSeldom(t *testing.T) {
	scopes, looks := map[uint64]Worth{}, 0
	for key := range uint64(MaxScopes) {
		scopes[key] = Worth{Class: 1, End: instant.At(time.Duration(key))}
	}
	worth := func(w Worth) Worth { looks++; return w }
	var s Spares
	for i := range uint64(10_000) {
		key, found := Spare(&s, 0, scopes, 2, worth)
		require.Equal(t, i, key)
		require.True(t, found)
		delete(scopes, key)
		scopes[MaxScopes+i] = Worth{Class: 1, End: instant.At(time.Duration(MaxScopes + i))}
		s.Note(MaxScopes+i, scopes[MaxScopes+i])
	}
	assert.Less(t, looks, 100_000)
	looks = 0
	for range 1000 {
		_, found := Spare(&s, 0, scopes, 1, worth)
		require.False(t, found)
	}
	assert.LessOrEqual(t, looks, 1000+MaxScopes)
	scopes[10_200] = Worth{}
	key, found := Spare(&s, instant.At(spareTime), scopes, 1, worth)
	assert.True(t, found && key == 10_200)
}
