package policy

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/aplomb-go/aplomb/policy/backoff"
)

// article returns a rule with the settings of "Exponential Backoff In Go". Its
// MaxElapsedTime is Elapsed, which bounds the start of the last retry.
func article(attempts int, interval time.Duration, multiplier float64, longest, elapsed time.Duration) Rule {
	return Rule{
		Attempts: attempts,
		Backoff: backoff.Randomized{
			Interval: interval, RandomizationFactor: 0.5, Multiplier: multiplier, MaxInterval: longest, Literal: true,
		},
		MaxElapsed: elapsed,
	}
}

// The figures that "Exponential Backoff In Go" gives with each setting.
func TestArticlePresets(t *testing.T) {
	for name, test := range map[string]struct {
		rule      Rule
		response  time.Duration
		retries   int           // at most
		longest   time.Duration // in all
		intervals []time.Duration
	}{
		"30 ms": {article(5, 50*ms, 2, 150*ms, 250*ms), 30 * ms, 4, 380 * ms,
			[]time.Duration{50, 100, 150, 150}},
		"100 ms": {article(6, 100*ms, 1.5, 500*ms, sec), 100 * ms, 5, 1500 * ms,
			[]time.Duration{100, 150, 225, 337, 500, 500}},
		"300 ms": {article(10, 100*ms, 2, 3*sec, 10*sec), 300 * ms, 9, 14 * sec,
			[]time.Duration{100, 200, 400, 800, 1600, 3000, 3000}},
	} {
		b := test.rule.Backoff.(backoff.Randomized)
		b.RandomizationFactor = -1
		for n, want := range test.intervals {
			assert.Equal(t, want*ms, b.Delay(n, 0).Truncate(ms), name)
		}
		assert.NoError(t, test.rule.Validate(), name)
		for range 50 {
			synctest.Test(t, func(t *testing.T) {
				d := newDiary()
				err := Do(t.Context(), test.rule, nil, func(context.Context) error {
					d.note()
					time.Sleep(test.response)
					return errBusy
				})
				assert.ErrorIs(t, err, errBusy, name)
				assert.GreaterOrEqual(t, len(d.waits()), 1, name)
				assert.LessOrEqual(t, len(d.waits()), test.retries, name)
				assert.LessOrEqual(t, d.at[len(d.at)-1], test.rule.MaxElapsed, name)
				assert.LessOrEqual(t, time.Since(d.start), test.longest, name)
			})
		}
	}
}
