package get

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/aplomb-go/aplomb/internal/testserver"
)

// The limit of bytes per second holds for all downloads together.
func TestLimit(t *testing.T) {
	for _, c := range []struct {
		limit string
		want  time.Duration // for two files of 300,000 bytes
	}{
		{"60000", 10 * time.Second},
		{"100", 6_000 * time.Second},
	} {
		synctest.Test(t, func(t *testing.T) {
			b := newBench(t, testserver.Config{Net: testserver.NewNet()}, content(body, etag))
			b.args = append(b.args, "-limit", c.limit)
			start := time.Now() // time is virtual here
			if code, _, stderr := b.fetch(t.Context(), "a", "b"); code != exitFine {
				t.Errorf("exit status %d: %s", code, stderr)
			}
			// The burst at the beginning is a tenth of a second's bytes.
			if took := time.Since(start); took > c.want || took < c.want-c.want/20 {
				t.Errorf("-limit %s: %v, want %v", c.limit, took, c.want)
			}
			b.content("a", body)
			b.content("b", body)
		})
	}
}

// A rate limits the requests, and the number of attempts goes for each.
func TestRateAndAttempts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, testserver.Config{Net: testserver.NewNet()}, testserver.Status(404))
		b.args = append(b.args, "-rate", "0.1")
		start := time.Now()
		_, _, _ = b.fetch(t.Context(), "a", "b", "c")
		assert.Equal(t, 20*time.Second, time.Since(start), "three requests")
	})
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, testserver.Config{Net: testserver.NewNet()}, testserver.Status(503))
		b.args = append(b.args, "-attempts", "3")
		b.expect(exitFailed, "gave up after 3 requests")
	})
}

// The flag says after how much silence a connection counts as cut.
func TestStallFlag(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, testserver.Config{Net: testserver.NewNet()}, content(body, etag).CutAt(200_000, testserver.Stall))
		b.args = append(b.args, "-stall", "100s")
		start := time.Now()
		b.expect(exitFine, "1 resume,")
		if took := time.Since(start); took < 100*time.Second || took > 110*time.Second {
			t.Errorf("it took %v", took)
		}
	})
}
