package main

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestQuartiles(t *testing.T) {
	for _, row := range []struct {
		values            []float64
		low, median, high float64
	}{
		{[]float64{7}, 7, 7, 7},
		{[]float64{3, 1}, 1.5, 2, 2.5},
		{[]float64{5, 1, 4, 2, 3}, 2, 3, 4},
	} {
		low, median, high := quartiles(row.values)
		assert.True(t, low == row.low && median == row.median && high == row.high, "%v: %v, %v, %v", row.values, low, median, high)
	}
}

// TestDifferencesArePaired: a machine that is slow in one round slows both, and
// the difference stays.
func TestDifferencesArePaired(t *testing.T) {
	floor, call := []float64{100, 900, 110}, []float64{130, 930, 140}
	if d := differences(call, floor); d[0] != 30 || d[1] != 30 || d[2] != 30 {
		t.Errorf("differences %v", d)
	}
}

func TestWhole(t *testing.T) {
	for f, want := range map[float64]string{
		0: "0", 999.4: "999", 999.5: "1,000", 67108864: "67,108,864", -1234: "−1,234", -0.3: "0",
	} {
		assert.Equal(t, want, whole(f), "%v", f)
	}
}

// TestTimedCountsEverything: each contender has a time for each round, and its
// allocations. A call that fails ends the run.
func TestTimedCountsEverything(t *testing.T) {
	allocates := func() error { sink = new([64]byte); return nil }
	idle := func() error { return nil }
	cs := []*contender{{call: idle}, {call: allocates}}
	require.NoError(t, timed(cs, quick))
	for i, c := range cs {
		assert.True(t, len(c.times) == quick.rounds && len(c.used) == quick.rounds && c.alloc == float64(i), "contender %d: %v, %v allocations", i, c.times, c.alloc)
	}
	failed := errors.New("refused")
	assert.ErrorIs(t, timed([]*contender{{call: func() error { return failed }}}, quick), failed, "error")
}

var sink *[64]byte
