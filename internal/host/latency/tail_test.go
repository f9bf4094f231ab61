package latency_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/aplomb-go/aplomb/internal/host/instant"
	"github.com/aplomb-go/aplomb/internal/host/latency"
)

// record adds n samples of a time, one every so often, and returns the time of the last.
func record(tail *latency.Tail, now instant.Instant, n int, every, took time.Duration) instant.Instant {
	for range n {
		now = now.Add(every)
		tail.Record(now, took)
	}
	return now
}

func TestTailNeedsSamples(t *testing.T) {
	var tail latency.Tail
	now := record(&tail, 0, 99, time.Second, 100*time.Millisecond)
	assert.Zero(t, tail.Hangs())
	record(&tail, now, 1, time.Second, 100*time.Millisecond)
	assert.Equal(t, 300*time.Millisecond, tail.Hangs())
}

func TestTailHasALeastTime(t *testing.T) {
	var tail latency.Tail
	record(&tail, 0, 100, time.Second, time.Millisecond)
	assert.Equal(t, 250*time.Millisecond, tail.Hangs())
}

// The longest counts while there are few samples. Later two of 2,000 may be longer.
func TestTailRanks(t *testing.T) {
	for longer, want := range map[int]time.Duration{0: 300, 1: 300, 2: 300, 3: 3000} {
		var tail latency.Tail
		now := record(&tail, 0, longer, time.Millisecond, time.Second)
		now = record(&tail, now, 1999-longer, time.Millisecond, 100*time.Millisecond)
		if longer > 0 {
			assert.Equal(t, 3*time.Second, tail.Hangs())
		}
		now = record(&tail, now, 1, time.Millisecond, 100*time.Millisecond)
		assert.Equal(t, want*time.Millisecond, tail.Hangs(), longer)
		record(&tail, now, 900, time.Millisecond, 100*time.Millisecond)
		assert.Equal(t, want*time.Millisecond, tail.Hangs(), longer)
	}
}

// A time that is no longer seen is forgotten after two generations.
func TestTailForgets(t *testing.T) {
	for perSecond, within := range map[int]time.Duration{5: 41 * time.Second, 100: 41 * time.Second, 1000: 5 * time.Second} {
		var tail latency.Tail
		every := time.Second / time.Duration(perSecond)
		now := record(&tail, 0, 30*perSecond, every, 10*time.Second)
		assert.Equal(t, 30*time.Second, tail.Hangs())
		record(&tail, now, int(within/every), every, 100*time.Millisecond)
		assert.Equal(t, 300*time.Millisecond, tail.Hangs(), perSecond)
	}
}
