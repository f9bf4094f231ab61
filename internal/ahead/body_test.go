package ahead_test

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/aplomb-go/aplomb/internal/ahead"
	"github.com/aplomb-go/aplomb/internal/flight"
	"github.com/aplomb-go/aplomb/internal/replay"
	"github.com/aplomb-go/aplomb/policy"
)

// slow is a body of two bytes that comes after a while.
type slow struct {
	after time.Duration
	then  func() // is called as it comes
	io.Reader
}

func (s slow) Read(p []byte) (int, error) {
	time.Sleep(s.after)
	s.then()
	return s.Reader.Read(p)
}

// fill returns what Fill does with a body that comes after a while.
func fill(ctx context.Context, t *flight.Timeouts, after time.Duration, then func()) (*ahead.Body, error) {
	resp := &http.Response{Body: io.NopCloser(slow{after, then, iotest.DataErrReader(strings.NewReader("ok"))}), ContentLength: 2}
	return ahead.Fill(ctx, t.Alarms, resp, 100, new(replay.Pool))
}

func nothing() {}

// isAwaited checks that the next body of the rule is awaited.
func isAwaited(t *testing.T, timeouts *flight.Timeouts) {
	b, err := fill(t.Context(), timeouts, 50*time.Millisecond, nothing)
	require.NoError(t, err)
	data, whole := b.Whole()
	require.True(t, whole, "another body has woken who waits for this one")
	assert.Equal(t, "ok", string(data))
}

// TestBodyEndsAsTheContextDoes lets a body end in the moment in which the context of its request
// does. What has no effect any more does not hand the next body over.
func TestBodyEndsAsTheContextDoes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		timeouts := flight.TimeoutsOf(&policy.Rule{}, flight.NewAlarms())
		for range 50 {
			ctx, cancel := context.WithCancel(t.Context())
			_, _ = fill(ctx, &timeouts, 25*time.Millisecond, cancel)
			synctest.Wait()
			isAwaited(t, &timeouts)
		}
	})
}

// TestBodyThatWasHandedOverEnds lets a body end while the next is awaited.
func TestBodyThatWasHandedOverEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		timeouts := flight.TimeoutsOf(&policy.Rule{}, flight.NewAlarms())
		for range 10 {
			b, err := fill(t.Context(), &timeouts, 125*time.Millisecond, nothing)
			require.NoError(t, err)
			_, whole := b.Whole()
			assert.False(t, whole, "it pauses for too long")
			isAwaited(t, &timeouts)
			data, err := io.ReadAll(b)
			assert.Equal(t, "ok", string(data))
			assert.NoError(t, err)
		}
	})
}

// TestBodyPausesInTheMomentOfItsEnd lets a body end in the moment in which it is handed over.
func TestBodyPausesInTheMomentOfItsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		timeouts := flight.TimeoutsOf(&policy.Rule{}, flight.NewAlarms())
		for range 50 {
			b, err := fill(t.Context(), &timeouts, 100*time.Millisecond, nothing)
			require.NoError(t, err)
			isAwaited(t, &timeouts)
			data, err := io.ReadAll(b)
			assert.Equal(t, "ok", string(data))
			assert.NoError(t, err)
		}
	})
}

// same is a body of two bytes that are there.
type same struct{}

func (same) Read(p []byte) (int, error) { return copy(p, "ok"), io.EOF }
func (same) Close() error               { return nil }

// TestFillAllocates holds what a body that is there costs: the Body itself, and what starts the
// goroutine. The alarm, its channel and the room for the bytes are used again.
func TestFillAllocates(t *testing.T) {
	timeouts, pool, resp := flight.TimeoutsOf(&policy.Rule{}, flight.NewAlarms()), new(replay.Pool), &http.Response{ContentLength: 2}
	room := make([]byte, 8)
	run := func() {
		resp.Body = same{}
		_, _ = ahead.Fill(t.Context(), timeouts.Alarms, resp, 100, pool)
		_, _ = resp.Body.Read(room)
		_, _ = resp.Body.Read(room)
	}
	assert.LessOrEqual(t, testing.AllocsPerRun(1000, run), 2.0)
}
