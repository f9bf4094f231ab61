package host

import (
	"testing"
	"unsafe"

	"github.com/stretchr/testify/assert"
)

func TestStateFillsOneCacheLine(t *testing.T) {
	assert.EqualValues(t, 64, unsafe.Sizeof(State[int]{}))
}

func TestStateKnowsItsKey(t *testing.T) {
	table := NewTable[int](0)
	for _, u := range []string{"http://a.test:81", "https://a.test", "ftp://a.test", "x://[::1]:5"} {
		key := table.Acquire(urlOf(u)).Key()
		assert.Equal(t, u, key.Scheme+"://"+key.Host)
	}
}
