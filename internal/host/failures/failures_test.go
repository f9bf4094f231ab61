package failures

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/aplomb-go/aplomb/internal/host/instant"
)

// Five failures without a success between them mean that the host is down.
func TestRun(t *testing.T) {
	var r Run
	r.Succeeded()
	for i := range instant.Instant(4) {
		r.Failed(10 + i)
	}
	_, down := r.Down()
	assert.False(t, down, "after four")
	r.Succeeded()
	for i := range instant.Instant(5) {
		_, down = r.Down()
		assert.False(t, down, "after %d", i)
		r.Failed(20 + i)
	}
	since, down := r.Down()
	assert.True(t, down, "after five")
	assert.EqualValues(t, 20, since, "when the first of them began")
	r.Succeeded()
	_, down = r.Down()
	assert.False(t, down, "after a success")
}

// After 20 retries that failed without a success between them retries do not help.
func TestHelpless(t *testing.T) {
	var r Run
	fail := func(n int) {
		for range n {
			r.RetryFailed()
		}
	}
	fail(19)
	assert.False(t, r.Helpless())
	r.Succeeded()
	fail(19)
	assert.False(t, r.Helpless(), "a success begins the count anew")
	fail(1)
	assert.True(t, r.Helpless())
	_, down := r.Down()
	assert.False(t, down, "the owner tells both")
	r.Succeeded()
	assert.False(t, r.Helpless())
}
