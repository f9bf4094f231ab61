package fleet

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

// A Redis that restarts empty and dies again, over and over, changes no size. If it lives, the
// members learn of a smaller fleet.
func TestHeldSize(t *testing.T) {
	var h heldSize
	now := time.Unix(1e9, 0)
	assert.Equal(t, 1, h.hear(now, 1, beatEach, 1))
	assert.Equal(t, 20, h.hear(now, 20, beatEach, 1))
	for range 100 {
		now = now.Add(20 * time.Second)
		assert.Equal(t, 20, h.hear(now, 1, beatEach, 1))
		now = now.Add(300 * time.Millisecond)
		assert.Equal(t, 20, h.hear(now, 4, beatEach, 1))
	}
	now = now.Add(20 * time.Second)
	for at := time.Duration(0); at < 7*time.Second; at += beatEach {
		assert.Equal(t, 20, h.hear(now.Add(at), 4, beatEach, 1), at)
	}
	assert.Equal(t, 4, h.hear(now.Add(8*time.Second), 3, beatEach, 1))
	assert.Equal(t, 5, h.hear(now.Add(9*time.Second), 5, beatEach, 1))
}

// A Redis that dies again and again between two heartbeats changes no size either.
func TestHeldSizeWhileRedisFlaps(t *testing.T) {
	var h heldSize
	now := time.Unix(1e9, 0)
	assert.Equal(t, 20, h.hear(now, 20, beatEach, 0))
	for lost := range uint64(100) {
		now = now.Add(beatEach)
		assert.Equal(t, 20, h.hear(now, 7, beatEach, lost+1))
	}
}
