package transport_test

import (
	"context"
	"net/http"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/aplomb-go/aplomb/faults"
	"github.com/aplomb-go/aplomb/policy"
	"github.com/aplomb-go/aplomb/transport"
)

// TestWaitAfterSilence: after a timeout the retry comes at a random time up to the wait before the
// fourth retry. After anything else it comes as soon as the back-off says.
func TestWaitAfterSilence(t *testing.T) {
	rule := policy.Rule{AttemptTimeout: 2 * time.Second}.Or(exact) // 1 s before the second attempt
	for _, row := range []struct {
		name   string
		step   faults.Step
		took   time.Duration // by the first attempt
		longer bool
	}{
		{"no answer", faults.Hang(), 2 * time.Second, true},
		{"the base's own timeout", faults.Fail(os.ErrDeadlineExceeded), 0, true},
		{"503", faults.Status(503), 0, false},
		{"a late 504", faults.Status(504).Delay(time.Second), time.Second, false},
		{"a reset", faults.Reset(), 0, false},
		{"refused", faults.Fail(syscall.ECONNREFUSED), 0, false},
	} {
		inBubble(t, row.name, func(t *testing.T) {
			var least, most time.Duration = time.Hour, 0
			for range 50 {
				server := script(row.step, faults.Status(200))
				resp, err := get(t, over(t, transport.Config{Rule: rule}, server), t.Context())
				require.NoError(t, err)
				assert.Equal(t, http.StatusOK, resp.StatusCode)
				at := server.arrivals()
				require.Len(t, at, 2)
				wait := at[1] - at[0] - row.took
				least, most = min(least, wait), max(most, wait)
			}
			assert.GreaterOrEqual(t, least, time.Second)
			assert.LessOrEqual(t, most, 8*time.Second)
			if row.longer {
				assert.Less(t, least, 3*time.Second, "the times are spread")
				assert.Greater(t, most, 6*time.Second, "the times are spread")
			} else {
				assert.Equal(t, time.Second, most)
			}
		})
	}
}

// TestSilenceAndTheDeadline: the time that is added after silence costs no attempt, and leaves each
// half of the time.
func TestSilenceAndTheDeadline(t *testing.T) {
	bubble(t, func(t *testing.T) {
		for range 50 {
			server := script(faults.Hang(), faults.Status(200).Delay(1400*time.Millisecond))
			ctx, cancel := context.WithTimeout(t.Context(), 6*time.Second)
			rule := policy.Rule{AttemptTimeout: 2 * time.Second}.Or(exact)
			_, err := get(t, over(t, transport.Config{Rule: rule}, server), ctx)
			assert.NoError(t, err) // after 2 s and the back-off of 1 s, 3 s are left
			cancel()
		}
	})
}
