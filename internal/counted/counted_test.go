package counted

import (
	"io"
	"testing"

	"github.com/stretchr/testify/assert"
)

type reads int

func (n reads) Read([]byte) (int, error) { return int(n), io.EOF }

func TestRead(t *testing.T) {
	for n, want := range map[reads]error{-1: errCount, 0: io.EOF, 4: io.EOF, 5: errCount} {
		got, err := Read(n, make([]byte, 4))
		assert.Equal(t, want, err, n)
		assert.Equal(t, map[bool]int{true: int(n)}[want == io.EOF], got, n)
	}
}
