package policy

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
)

// The figures that "Exponential Backoff In Go" gives with each setting.
func TestPresets(t *testing.T) {
	for name, test := range map[string]struct {
		rule      Rule
		answer    time.Duration
		retries   int           // at most
		longest   time.Duration // in all
		intervals []time.Duration
	}{
		"30 ms": {For30ms(), 30 * ms, 4, 380 * ms,
			[]time.Duration{50, 100, 150, 150}},
		"100 ms": {For100ms(), 100 * ms, 5, 1500 * ms,
			[]time.Duration{100, 150, 225, 337, 500, 500}},
		"300 ms": {For300ms(), 300 * ms, 9, 14 * sec,
			[]time.Duration{100, 200, 400, 800, 1600, 3000, 3000}},
	} {
		b := test.rule.Backoff.(Randomized)
		for n, want := range test.intervals {
			assert.Equal(t, want*ms, b.at(n, 0, 0.5).Truncate(ms), name)
		}
		assert.NoError(t, test.rule.Validate(), name)
		for range 50 {
			synctest.Test(t, func(t *testing.T) {
				d := newDiary()
				err := Do(t.Context(), test.rule, nil, func(context.Context) error {
					d.note()
					time.Sleep(test.answer)
					return errBusy
				})
				assert.ErrorIs(t, err, errBusy, name)
				assert.GreaterOrEqual(t, len(d.waits()), 1, name)
				assert.LessOrEqual(t, len(d.waits()), test.retries, name)
				assert.LessOrEqual(t, d.at[len(d.at)-1], test.rule.Elapsed, name)
				assert.LessOrEqual(t, time.Since(d.start), test.longest, name)
			})
		}
	}
}
