package replay

import (
	"bytes"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
)

// Each attempt has all of a body in memory, whatever the others have read of theirs.
func TestMemoryBody(t *testing.T) {
	for name, body := range map[string]io.Reader{
		"bytes.Buffer":   bytes.NewBufferString("text"),
		"bytes.Reader":   bytes.NewReader([]byte("text")),
		"strings.Reader": strings.NewReader("text"),
	} {
		for _, own := range []bool{false, true} {
			req := put(t, body)
			if !own {
				req = put(t, io.NopCloser(body)) // without a GetBody
			}
			b := New(req, 0, new(Pool))
			first, getBody := b.Next(t.Context(), 1)
			assert.Nil(t, first, "%s: the caller's own goes as it is", name)
			assert.Nil(t, getBody, name)
			assert.NoError(t, rewind(b), name)
			assert.NoError(t, b.GetBody(t.Context()), name)
			assert.True(t, b.Concurrent() && b.Replayable() && !b.Broke() && b.Why() == nil, name)
			second, _ := b.Next(t.Context(), 2)
			third, _ := b.Next(t.Context(), 3)
			for _, attempt := range []io.ReadCloser{second, third} {
				all, err := io.ReadAll(attempt)
				assert.NoError(t, err, name)
				assert.Equal(t, "text", string(all), name)
				assert.NoError(t, attempt.Close(), name)
			}
		}
	}
}

// A body of 64 KiB is still small.
func TestSmallInMemory(t *testing.T) {
	for size, want := range map[int]bool{0: true, Small: true, Small + 1: false} {
		assert.Equal(t, want, SmallInMemory(strings.NewReader(noisy(size))), size)
		assert.Equal(t, want, SmallInMemory(io.NopCloser(bytes.NewReader(make([]byte, size)))), size)
	}
	assert.False(t, SmallInMemory(oneShot("text")))
	assert.False(t, SmallInMemory(http.NoBody))
}

// A nil pointer in an interface is nil as well. A nil interface is for the caller to see.
func TestIsNil(t *testing.T) {
	for _, v := range []any{(*body)(nil), (func())(nil), (map[int]int)(nil), ([]int)(nil), (chan int)(nil)} {
		assert.True(t, IsNil(v), "%T", v)
	}
	for _, v := range []any{nil, 0, "", struct{}{}, new(body), []int{}} {
		assert.False(t, IsNil(v), "%T", v)
	}
}
