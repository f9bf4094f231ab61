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
	a.Wake()
	b.Wake()
	(*Waiter)(nil).Wake()
	assert.Equal(t, []int{1, 2}, woken)
}

// The figures are those that the comments name.
func TestFigures(t *testing.T) {
	assert.Equal(t, 1, (*Waiter)(nil).Costs())
	assert.Equal(t, []any{256, 16}, []any{MaxScopes, looks})
}

// A scope ends, unless somebody waits in it.
type scope struct {
	end   instant.Instant
	waits bool
}

func (s scope) Spare() (instant.Instant, bool) { looked++; return s.end, !s.waits }

var looked int // the tests of this package do not run at the same time

// The one that ends first makes room, of sixteen or more. None makes room in which somebody waits.
func TestScopesMakeRoom(t *testing.T) {
	var s Scopes[scope]
	assert.True(t, s.Quiet())
	for key := range uint64(MaxScopes) {
		require.True(t, s.Add(key, scope{end: instant.Instant(key), waits: key%64 > 0}))
	}
	assert.False(t, s.Quiet())
	for i := range uint64(4) {
		require.True(t, s.Add(1000+i, scope{waits: true}))
		assert.Len(t, s.All(), MaxScopes)
	}
	assert.False(t, s.Add(2000, scope{}), "somebody waits in each")
	s.Drop(1000)
	require.True(t, s.Add(2000, scope{end: instant.Never}))
	require.True(t, s.Add(2001, scope{end: 1}), "one that never ends makes room, too")
	assert.NotContains(t, s.All(), uint64(2000))
	for key := range s.All() {
		s.Drop(key)
	}
	assert.True(t, s.Quiet() && s.All() == nil)

	for key := range uint64(MaxScopes) {
		s.Add(key, scope{end: instant.Instant(key)})
	}
	looked = 0
	s.Add(1000, scope{})
	assert.Equal(t, 16, looked, "scopes that were looked at")
	for key := range uint64(MaxScopes) {
		if _, known := s.All()[key]; !known {
			assert.LessOrEqual(t, key, uint64(MaxScopes-16), "the first of sixteen")
		}
	}
}
