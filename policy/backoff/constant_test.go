package backoff

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

func TestConstant(t *testing.T) {
	for _, wait := range []time.Duration{lowest, -1, 0, 1, sec, forever} {
		for _, n := range []int{-1, 0, 1, math.MaxInt64} {
			assert.Equal(t, wait, Constant(wait).Delay(n, sec))
		}
	}
	assert.Empty(t, Bounds(Constant(-1), 3))
	assert.Equal(t, []Bound{{}, {}}, Bounds(Constant(0), 2))
}
