package news

import (
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The end of a condition is told after its beginning, although whoever tells the beginning is
// slow. Who finds out about the end waits for nobody.
func TestOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var n News
		var told []string
		slow := make(chan struct{})
		go n.Begin(Record{}, func() { <-slow; told = append(told, "begins") })
		synctest.Wait()
		n.End(Key{}, func() { told = append(told, "ends") })
		n.Begin(Record{}, func() { told = append(told, "begins again") })
		assert.Empty(t, told)
		close(slow)
		synctest.Wait()
		assert.Equal(t, []string{"begins", "ends", "begins again"}, told)
		assert.False(t, n.Quiet())
	})
}

// A beginning is told once, and so is an end.
func TestOnce(t *testing.T) {
	var n News
	var began, ended int
	for range 2 {
		n.Begin(Record{Until: 5}, func() { began++ })
	}
	assert.Equal(t, 1, began)
	n.Extend(Key{}, 10)
	assert.Empty(t, n.Due(9, Key{Kind: 1}))
	assert.Equal(t, []Record{{Until: 10}}, n.Due(10, Key{Kind: 1}))
	for range 2 {
		n.End(Key{}, func() { ended++ })
	}
	assert.Equal(t, 1, ended)
	assert.True(t, n.Quiet())
	n.Extend(Key{}, 20)
	assert.True(t, n.Quiet(), "what is over begins by Begin alone")
}

// A hook that panics keeps nobody else from being told.
func TestPanic(t *testing.T) {
	var n News
	assert.Panics(t, func() { n.Begin(Record{}, func() { panic("hook") }) })
	told := false
	n.End(Key{}, func() { told = true })
	assert.True(t, told)
}

// What is kept is bounded.
func TestBounds(t *testing.T) {
	var n News
	told := 0
	for i := range uint64(2 * most) {
		n.Hear(Record{Key: Key{Scope: i}})
		n.Begin(Record{Key: Key{Scope: i}}, func() { told++ })
	}
	assert.Equal(t, most, told)
	require.Len(t, n.Heard(), most)
	assert.Empty(t, n.Heard())
	assert.Len(t, n.lasting, most)
}

// Whoever is told and does not return costs bounded memory.
func TestWhoeverIsToldMayBlock(t *testing.T) {
	var n News
	told := 0
	n.Begin(Record{Key: Key{Kind: 1}}, func() {
		for range 10_000 { // nothing of it is told before this returns
			n.Begin(Record{Key: Key{Kind: 2}}, func() { told++ })
			n.End(Key{Kind: 2}, func() { told++ })
		}
	})
	assert.True(t, told != 0 && told <= 2*most, "%d changes are told", told)
}
