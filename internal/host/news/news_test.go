package news

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/aplomb-go/aplomb/internal/host/instant"
)

// The end of a condition is told after its beginning, although whoever tells the beginning is
// slow. Who finds out about the end waits for nobody.
func TestOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var n News
		var told []string
		slow := make(chan struct{})
		go n.Begin(Change{}, func() { <-slow; told = append(told, "begins") })
		synctest.Wait()
		n.End(Key{}, func() { told = append(told, "ends") })
		n.Begin(Change{}, func() { told = append(told, "begins again") })
		n.Tell(func() { told = append(told, "state") })
		assert.Empty(t, told)
		assert.False(t, n.Quiet())
		close(slow)
		synctest.Wait()
		assert.Equal(t, []string{"begins", "ends", "begins again", "state"}, told)
		assert.False(t, n.Quiet())
	})
}

// A beginning is told once, and so is an end.
func TestOnce(t *testing.T) {
	var n News
	var began, ended int
	for range 2 {
		n.Begin(Change{Until: 5}, func() { began++ })
	}
	n.Begin(Change{Until: 10}, func() { began++ })
	assert.Equal(t, 1, began, "times told")
	assert.Empty(t, n.Due(9, Key{Scope: 1}))
	assert.Equal(t, []Change{{Until: 10}}, n.Due(10, Key{Scope: 1}))
	sooner := Change{Key: Key{Scope: 2}, Until: 8}
	n.Begin(sooner, func() {})
	assert.Equal(t, []Change{sooner}, n.Due(9, Key{Scope: 1}))
	assert.ElementsMatch(t, []Change{{Until: 10}}, n.Due(7, Key{}), "its own comes at any time")
	n.End(sooner.Key, func() {})
	got, ok := n.Lasts(Key{})
	assert.Equal(t, Change{Until: 10}, got)
	assert.True(t, ok)
	for range 2 {
		n.End(Key{}, func() { ended++ })
	}
	assert.Equal(t, 1, ended, "times told")
	assert.True(t, n.Quiet())
}

// A hook that panics keeps nobody else from being told.
func TestPanic(t *testing.T) {
	var n News
	n.Failed(Cause{Status: 503})
	assert.Equal(t, Cause{Status: 503}, n.Failure())
	assert.Panics(t, func() { n.Begin(Change{}, func() { panic("hook") }) })
	told := false
	n.End(Key{}, func() { told = true })
	assert.True(t, told)
}

// A request is not kept for as long as changes come. Later requests tell the rest.
func TestTellsSome(t *testing.T) {
	var n News
	told := 0
	var tell func()
	tell = func() {
		if told++; told < 24 {
			n.Tell(tell) // another change has come meanwhile
		}
	}
	n.Tell(tell)
	for i := 1; i < 3; i++ {
		assert.Equal(t, i*8, told)
		assert.False(t, n.Quiet())
		n.TellRest()
	}
	assert.Equal(t, 24, told)
	assert.True(t, n.Quiet())
}

// What is kept is bounded.
func TestBounds(t *testing.T) {
	var n News
	told := 0
	for i := range uint64(2 * most) {
		n.Begin(Change{Key: Key{Scope: i}}, func() { told++ })
	}
	assert.Equal(t, 520, told, "two for each scope, and eight")
	assert.Len(t, n.lasting, most)
}

// Whoever is told and does not return costs bounded memory.
func TestWhoeverIsToldMayBlock(t *testing.T) {
	var n News
	told := 0
	tell := func() { told++ }
	n.Begin(Change{Key: Key{Scope: 1}}, func() {
		for range 10_000 { // nothing of it is told before this returns
			n.Begin(Change{Key: Key{Scope: 2}}, tell)
			n.End(Key{Scope: 2}, tell)
		}
		n.Tell(tell)
	})
	for !n.Quiet() && told < 10_000 {
		n.End(Key{Scope: 1}, tell)
	}
	assert.Equal(t, 520+1, told, "and the end of the first")
}

// Single requests have six lines of their own within any minute, and the next line says how many were left out.
func TestLinesOfRequests(t *testing.T) {
	var n News
	take := func(s int) []any {
		left, ok := n.TakeRequestLine(instant.At(time.Duration(s) * time.Second))
		return []any{left, ok}
	}
	for i := range 6 {
		n.TakeLine(0, Change{})
		assert.Equal(t, []any{0, true}, take(i))
	}
	for i := range 3 {
		assert.Equal(t, false, take(10 + i)[1])
	}
	assert.True(t, n.Quiet(), "changes keep their lines")
	assert.Equal(t, []any{3, true}, take(60))
	assert.Equal(t, []any{0, true}, take(61))
	assert.Equal(t, false, take(61)[1])
}

// A condition lasts anywhere if it lasts in any scope.
func TestLastsAnywhere(t *testing.T) {
	var n News
	n.Begin(Change{Key: Key{Condition: Held, Scope: 7}}, func() {})
	assert.True(t, n.LastsAnywhere(Held))
	assert.False(t, n.LastsAnywhere(Down))
}

// The log has six lines within any minute. After a change without a line it has one that says what
// lasts, and no other before that.
func TestLines(t *testing.T) {
	var n News
	at := func(s int) instant.Instant { return instant.At(time.Duration(s) * time.Second) }
	for i := range 6 {
		assert.True(t, n.TakeLine(at(i), Change{}), i)
	}
	_, ok := n.TakeState(at(6))
	assert.False(t, ok, "the log has all changes")
	assert.True(t, n.Quiet())
	n.Begin(Change{Key: Key{Condition: Held, Scope: 1}, Since: at(7)}, func() { assert.False(t, n.TakeLine(at(7), Change{})) })
	n.Begin(Change{Key: Key{Condition: Held, Scope: 2}, Since: at(6)}, func() { assert.False(t, n.TakeLine(at(7), Change{})) })
	n.Begin(Change{Key: Key{Condition: Down}, Since: at(8)}, func() { assert.False(t, n.TakeLine(at(59), Change{})) })
	_, ok = n.TakeState(at(59))
	assert.False(t, ok)
	assert.False(t, n.TakeLine(at(60), Change{}), "the state comes first")
	all, ok := n.TakeState(at(60))
	assert.True(t, ok)
	assert.Equal(t, []Key{{Condition: Down}, {Condition: Held, Scope: 2}, {Condition: Held, Scope: 1}}, []Key{all[0].Key, all[1].Key, all[2].Key})
	last := Change{Key: Key{Condition: Held}, Until: at(99)}
	assert.False(t, n.TakeLine(at(60), last), "the line of second 1 counts until 61")
	assert.False(t, n.TakeLine(at(60), Change{Key: Key{Condition: Pool}}))
	for k := range n.lasting {
		n.End(k, func() {})
	}
	assert.False(t, n.Quiet(), "until the state is told")
	all, ok = n.TakeState(at(61))
	assert.True(t, ok)
	assert.Equal(t, []Change{{Key: last.Key, Over: true}}, all, "nothing lasts, so it is told what changed last; other connections have no reason")
	assert.True(t, n.Quiet())
}
