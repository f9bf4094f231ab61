package transport_test

import (
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/aplomb-go/aplomb/faults"
	"github.com/aplomb-go/aplomb/policy"
	"github.com/aplomb-go/aplomb/transport"
)

// A response that came after several attempts has their history, whatever it is.
func TestHistoryOfALateSuccess(t *testing.T) {
	for _, code := range []int{200, 404, 501} {
		bubble(t, func(t *testing.T) {
			base := script(status(503), faults.Fail(syscall.ECONNRESET), status(code))
			resp, err := get(t, over(t, transport.Config{Rule: quick}, base), t.Context())
			require.NoError(t, err)
			defer resp.Body.Close()
			h := transport.HistoryOf(resp)
			assert.Equal(t, transport.ReasonFinal, h.Reason)
			require.Len(t, h.Attempts, 3)
			for i, want := range []int{503, 0, code} {
				assert.Equal(t, i+1, h.Attempts[i].Number)
				assert.Equal(t, want, h.Attempts[i].Status)
			}
			assert.ErrorIs(t, h.Attempts[1].Err, syscall.ECONNRESET)
		})
	}
}

// An attempt that is timed knows when it began and how long it took, although nobody observes it.
func TestHistoryKnowsTheTimeOfATimedAttempt(t *testing.T) {
	bubble(t, func(t *testing.T) {
		start := time.Now()
		_, err := get(t, over(t, transport.Config{Rule: policy.Rule{Attempts: 2, AttemptTimeout: 10 * time.Second}}, script(faults.Hang())), t.Context())
		first := errorAs[*transport.Error](t, err).Attempts[0]
		assert.Equal(t, start, first.Start)
		assert.Equal(t, 10*time.Second, first.Duration)
	})
}

// A response of a single attempt has none, and keeps the caller's request.
func TestNoHistoryOfAFirstSuccess(t *testing.T) {
	req := newRequest(t, http.MethodGet, "http://h.test/", nil)
	resp, err := over(t, transport.Config{Rule: quick}, script(status(200))).RoundTrip(req)
	require.NoError(t, err)
	defer resp.Body.Close()
	assert.Empty(t, transport.HistoryOf(resp).Attempts)
	assert.Same(t, req, resp.Request)
}

// A response that won against a hedge has both attempts.
func TestHistoryWithAHedge(t *testing.T) {
	bubble(t, func(t *testing.T) {
		base := script(status(200).Delay(time.Minute), status(200).Delay(time.Second))
		resp, err := get(t, over(t, transport.Config{Rule: policy.Rule{Hedge: policy.Hedge{After: time.Second}}}, base), t.Context())
		require.NoError(t, err)
		defer resp.Body.Close()
		assert.Len(t, transport.HistoryOf(resp).Attempts, 2)
	})
}

// If a Transport below gave up, its history stays, and so does its reason, which keeps
// further Transports from starting again.
func TestHistoryOfATransportBelow(t *testing.T) {
	bubble(t, func(t *testing.T) {
		below := over(t, transport.Config{Rule: policy.Rule{Attempts: 2}.Or(quick)}, script(faults.Fail(syscall.ECONNRESET), status(503)))
		resp, err := get(t, over(t, transport.Config{Rule: quick}, below), t.Context())
		require.NoError(t, err)
		defer resp.Body.Close()
		assert.Equal(t, transport.ReasonAttempts, transport.HistoryOf(resp).Reason)
		assert.Len(t, transport.HistoryOf(resp).Attempts, 2)
	})
}

// A late success is resumed like any other.
func TestLateSuccessIsResumed(t *testing.T) {
	bubble(t, func(t *testing.T) {
		text := strings.Repeat("0123456789", 10)
		served := cutter(text, 50)
		base := script(status(503), served.RoundTrip, served.RoundTrip)
		resp, err := get(t, over(t, transport.Config{Rule: quick}, base), t.Context())
		require.NoError(t, err)
		defer resp.Body.Close()
		assert.Len(t, transport.HistoryOf(resp).Attempts, 2)
		assert.Equal(t, text, mustRead(t, resp))
	})
}
