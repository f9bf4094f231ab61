package classify

import (
	"io"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

// TestRetryAfter: internal/field tests each field.
func TestRetryAfter(t *testing.T) {
	for name, tt := range map[string]struct {
		o    Outcome
		want time.Duration
		ok   bool
	}{
		"Retry-After":                {response(503, "Retry-After", "1"), time.Second, true},
		"no failure":                 {response(200, "Retry-After", "1"), 0, false},
		"an error":                   {Outcome{Err: io.EOF}, 0, false},
		"neither response nor error": {Outcome{}, 0, false},
	} {
		wait, ok := RetryAfter(tt.o)
		assert.Equal(t, tt.ok, ok, name)
		assert.Equal(t, tt.want, wait, name)
	}
}
