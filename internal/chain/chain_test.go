package chain

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/aplomb-go/aplomb/classify"
)

func TestFirstRetryAfter(t *testing.T) {
	none := func(classify.Outcome) (time.Duration, bool) { return 0, false }
	is := func(d time.Duration) classify.RetryAfterFunc {
		return func(classify.Outcome) (time.Duration, bool) { return d, true }
	}
	for name, tt := range map[string]struct {
		h    classify.RetryAfterFunc
		want time.Duration
		ok   bool
	}{
		"no function is asked": {FirstRetryAfter(), 0, false},
		"nil":                  {FirstRetryAfter(nil), 0, false},
		"no response":          {FirstRetryAfter(none, nil), 0, false},
		"the first":            {FirstRetryAfter(nil, none, is(2), is(1)), 2, true},
		"at once counts":       {FirstRetryAfter(is(0), is(1)), 0, true},
	} {
		wait, ok := tt.h(classify.Outcome{})
		assert.Equal(t, tt.ok, ok, name)
		assert.Equal(t, tt.want, wait, name)
	}
}
