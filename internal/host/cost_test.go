package host_test

import (
	"hash/maphash"
	"net/http"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/aplomb-go/aplomb/internal/host/pacing"
	"github.com/aplomb-go/aplomb/internal/host/throttle"
	"github.com/aplomb-go/aplomb/internal/scope"
)

// What a first try asks allocates nothing.
func TestFirstTryCosts(t *testing.T) {
	var (
		c    throttle.Throttle
		p    pacing.Pacing
		seed = maphash.MakeSeed()
		h    = http.Header{"Authorization": {"Bearer abc"}}
	)
	if n := testing.AllocsPerRun(100, func() {
		assert.True(t, c.Quiet() && p.Quiet(), "not quiet")
		scope.Key(seed, h)
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
