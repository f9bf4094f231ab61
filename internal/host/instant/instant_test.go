package instant

import (
	"context"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
)

func TestAfter(t *testing.T) {
	for name, tt := range map[string]struct {
		now  Instant
		d    time.Duration
		want Instant
	}{
		"the time is added":            {At(time.Second), time.Minute, At(61 * time.Second)},
		"the least is added":           {5, 1, 6},
		"nothing is added":             {At(time.Second), 0, At(time.Second)},
		"a negative time counts as 0":  {At(time.Second), -time.Minute, At(time.Second)},
		"the least time, too":          {0, math.MinInt64, 0},
		"a sum that just fits":         {1, Forever - 1, Never},
		"a sum that is too large":      {2, Forever - 1, Never},
		"nothing is later than never":  {Never, Forever, Never},
		"an instant before the epoch":  {At(-time.Hour), time.Hour, 0},
		"a long time from before then": {At(-time.Hour), Forever, Never - At(time.Hour)},
	} {
		assert.Equal(t, tt.want, After(tt.now, tt.d), name)
	}
}

func TestArithmetic(t *testing.T) {
	later := At(time.Second).Add(500 * time.Millisecond)
	assert.Equal(t, 500*time.Millisecond, later.Sub(At(time.Second)))
	assert.Equal(t, 1500*time.Millisecond, later.Since())
	assert.Equal(t, "1.5s", later.String())
	clock, now := NewClock(), time.Now()
	assert.WithinDuration(t, now, clock.TimeOf(clock.InstantOf(now)), 0, "there and back")
}

func TestBound(t *testing.T) {
	assert.Equal(t, [...]time.Duration{time.Minute, Forever, 5}, [...]time.Duration{Bound(0), Bound(-1), Bound(5)})
}

// A sleep ends when its time is over, when it is woken, or with its context.
func TestSleep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		ready := make(chan struct{}, 1)
		for _, row := range []struct {
			d, took time.Duration
			wake    time.Duration // 0: nobody does
			woken   bool
		}{
			{-1, 0, 0, false},
			{0, 0, 0, false},
			{time.Second, time.Second, 0, false},
			{time.Second, time.Second / 2, time.Second / 2, true},
			{2 * time.Hour, time.Hour, 0, false},
		} {
			var wake <-chan struct{}
			if row.wake > 0 {
				time.AfterFunc(row.wake, func() { ready <- struct{}{} })
				wake = ready
			}
			c, end := context.WithTimeout(ctx, time.Hour)
			began := time.Now()
			assert.Equal(t, row.woken, Sleep(c, row.d, wake), row)
			assert.LessOrEqual(t, time.Since(began), row.took, row)
			if row.took < time.Hour {
				assert.Equal(t, row.took, time.Since(began), row)
			}
			end()
		}
	})
}
