package transport

import (
	"io"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/aplomb-go/aplomb/internal/replay"
	"github.com/aplomb-go/aplomb/policy"
)

// The memory of all bodies is bounded, and is given back at the end of a body, at Close,
// or when the caller forgets the body.
func TestMemoryOfAwaitedBodies(t *testing.T) {
	const size = 1 << 20
	for _, length := range []int64{size, -1} {
		tr := mustNew(t, Config{Rule: policy.Rule{Download: policy.Download{Memory: 2 * size}}, Base: rt(func(req *http.Request) (*http.Response, error) {
			resp := newResponse(req, 200, io.NopCloser(struct{ io.Reader }{strings.NewReader(strings.Repeat("x", size))}))
			resp.ContentLength = length
			return resp, nil
		})})
		send := func() *http.Response {
			resp, err := get(t, tr, t.Context())
			require.NoError(t, err)
			return resp
		}
		held := func() int64 { return tr.kept.Memory.Load() }

		resp := send()
		assert.EqualValues(t, size-replay.Small, held())
		_, _ = io.Copy(io.Discard, resp.Body)
		assert.Zero(t, held(), "read to the end")
		require.NoError(t, resp.Body.Close())
		assert.Zero(t, held())

		require.NoError(t, send().Body.Close())
		assert.Zero(t, held(), "closed")

		_ = send()
		for range 100 {
			runtime.GC()
			if held() == 0 {
				break
			}
			time.Sleep(time.Millisecond)
		}
		assert.Zero(t, held(), "forgotten")

		tr.kept.Memory.Store(replay.MaxMemory)
		resp = send()
		text, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		assert.Len(t, text, size, "nothing is awaited, and nothing is lost")
		require.NoError(t, resp.Body.Close())
		assert.EqualValues(t, replay.MaxMemory, held())
	}
}

// A base transport whose Read panics does so in the caller's goroutine.
func TestAwaitedBodyThatPanics(t *testing.T) {
	for _, length := range []int64{100, -1} {
		bubble(t, func(t *testing.T) {
			tr := over(t, Config{Rule: policy.Rule{Download: policy.Download{Memory: 1000}}}, rt(func(req *http.Request) (*http.Response, error) {
				resp := newResponse(req, 200, badBody{func([]byte) (int, error) { panic("bad read") }, func() {}})
				resp.ContentLength = length
				return resp, nil
			}))
			assert.PanicsWithValue(t, "bad read", func() { _, _ = get(t, tr, t.Context()) })
			assert.Zero(t, tr.kept.Memory.Load())
		})
	}
}
