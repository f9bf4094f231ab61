package host

import (
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/assert"

	"github.com/aplomb-go/aplomb/internal/host/instant"
)

// Over a lane something was heard when a response or a piece of a body came.
func TestStateKnowsItsLane(t *testing.T) {
	var s State[int]
	l, heard := s.Lane()
	assert.Nil(t, l)
	assert.Zero(t, heard)
	s.Machines().Lanes().Answered(instant.At(time.Second), nil, false, false)
	l, heard = s.Lane()
	assert.NotNil(t, l)
	assert.Equal(t, instant.At(time.Second), heard)
	l.Hear(instant.At(time.Minute))
	assert.Equal(t, instant.At(time.Minute), l.Heard())
}

func TestStateFillsOneCacheLine(t *testing.T) {
	assert.EqualValues(t, 64, unsafe.Sizeof(State[int]{}))
}

func TestStateKnowsItsKey(t *testing.T) {
	table := NewTable[int](0)
	for _, u := range []string{"http://a.test:81", "https://a.test", "ftp://a.test", "x://[::1]:5"} {
		assert.Equal(t, u, table.Acquire(urlOf(u)).Key().String())
	}
}
