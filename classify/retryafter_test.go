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

func TestFirstRetryAfter(t *testing.T) {
	none := func(Outcome) (time.Duration, bool) { return 0, false }
	is := func(d time.Duration) RetryAfterFunc { return func(Outcome) (time.Duration, bool) { return d, true } }
	for name, tt := range map[string]struct {
		h    RetryAfterFunc
		want time.Duration
		ok   bool
	}{
		"no function is asked": {FirstRetryAfter(), 0, false},
		"nil":                  {FirstRetryAfter(nil), 0, false},
		"no response":          {FirstRetryAfter(none, nil), 0, false},
		"the first":            {FirstRetryAfter(nil, none, is(2), is(1)), 2, true},
		"at once counts":       {FirstRetryAfter(is(0), is(1)), 0, true},
	} {
		wait, ok := tt.h(Outcome{})
		assert.Equal(t, tt.ok, ok, name)
		assert.Equal(t, tt.want, wait, name)
	}
}
