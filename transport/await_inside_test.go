package transport_test

import (
	"context"
	"io"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/aplomb-go/aplomb/internal/replay"
	"github.com/aplomb-go/aplomb/policy"
	"github.com/aplomb-go/aplomb/transport"
)

// The memory of all bodies is bounded, but for 4 KiB of each. It is given back at the end of a
// body, at Close, or when the caller forgets the body.
func TestMemoryOfAwaitedBodies(t *testing.T) {
	const size = 1 << 20
	for length, full := range map[int64]int64{size: size + 1, -1: 2 * size} { // with room to see the end
		tr := mustNew(t, transport.Config{Rule: policy.Rule{Download: policy.Download{Memory: 2 * size}}, Base: rt(func(req *http.Request) (*http.Response, error) {
			resp := newResponse(req, 200, io.NopCloser(struct{ io.Reader }{strings.NewReader(strings.Repeat("x", size))}))
			resp.ContentLength = length
			return resp, nil
		})})
		send := func() *http.Response {
			return mustGet(t, tr)
		}
		held := func() int64 { return tr.Kept().Memory.Load() }

		resp := send()
		assert.Equal(t, full, held())
		_, _ = io.Copy(io.Discard, resp.Body)
		assert.Zero(t, held(), "read to the end")
		require.NoError(t, resp.Body.Close())
		assert.Zero(t, held())

		require.NoError(t, send().Body.Close())
		assert.Zero(t, held(), "closed")

		_ = send()
		for range 5000 {
			runtime.GC()
			if held() == 0 {
				break
			}
			time.Sleep(time.Millisecond)
		}
		assert.Zero(t, held(), "forgotten")

		tr.Kept().Memory.Store(replay.MaxMemory)
		resp = send()
		assert.Len(t, mustRead(t, resp), size, "nothing is awaited, and nothing is lost")
		require.NoError(t, resp.Body.Close())
		assert.EqualValues(t, replay.MaxMemory, held())
	}
}

// A base transport whose Read panics does so in the caller's goroutine.
func TestAwaitedBodyThatPanics(t *testing.T) {
	for _, length := range []int64{100, -1} {
		bubble(t, func(t *testing.T) {
			tr := over(t, transport.Config{Rule: policy.Rule{Download: policy.Download{Memory: 1000}}}, rt(func(req *http.Request) (*http.Response, error) {
				resp := newResponse(req, 200, badBody{func([]byte) (int, error) { panic("bad read") }, func() {}})
				resp.ContentLength = length
				return resp, nil
			}))
			assert.PanicsWithValue(t, "bad read", func() { _, _ = get(t, tr, t.Context()) })
			assert.Zero(t, tr.Kept().Memory.Load())
		})
	}
}

// Bodies that are open at the same time share no memory, whether others were read to their end,
// closed before, or cut.
func TestAwaitedBodiesShareNoMemory(t *testing.T) {
	const size = 1000
	sent := 0
	tr := mustNew(t, transport.Config{Rule: policy.Rule{Attempts: 2, Download: policy.Download{Memory: 1 << 20}}, Base: rt(func(req *http.Request) (*http.Response, error) {
		sent++
		text := strings.NewReader(strings.Repeat(string(rune('a'+sent%26)), size))
		resp := newResponse(req, 200, io.NopCloser(struct{ io.Reader }{text}))
		resp.ContentLength = size
		return resp, nil
	})})
	var open []*http.Response
	for i := range 200 {
		resp := mustGet(t, tr)
		want := strings.Repeat(string(rune('a'+sent%26)), size)
		switch half := make([]byte, size/2); i % 4 {
		case 0:
			require.NoError(t, resp.Body.Close())
		case 1:
			require.Equal(t, want, string(mustRead(t, resp)))
		default:
			_, err := io.ReadFull(resp.Body, half)
			require.NoError(t, err)
			open = append(open, resp)
			resp.Header = http.Header{"Rest": {want[size/2:]}}
		}
		if i%5 == 4 {
			resp, open = open[0], open[1:]
			require.Equal(t, resp.Header.Get("Rest"), string(mustRead(t, resp)))
			require.NoError(t, resp.Body.Close())
			_, err := resp.Body.Read(make([]byte, 1))
			require.ErrorIs(t, err, http.ErrBodyReadAfterClose)
		}
	}
}

// A base transport may go on reading although the caller has left and the body was closed.
// Nothing counts as held then.
func TestMemoryAfterTheCallerHasLeft(t *testing.T) {
	const size = 1 << 20
	bubble(t, func(t *testing.T) {
		reads := 0
		tr := over(t, transport.Config{Rule: policy.Rule{Download: policy.Download{Memory: size}}}, rt(func(req *http.Request) (*http.Response, error) {
			resp := newResponse(req, 200, badBody{func(p []byte) (int, error) {
				if reads++; reads == 1 {
					time.Sleep(2 * time.Second)
				}
				return min(len(p), 100_000), nil
			}, func() {}})
			resp.ContentLength = size
			return resp, nil
		}))
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		_, err := get(t, tr, ctx)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		time.Sleep(2 * time.Second)
		synctest.Wait()
		assert.Zero(t, tr.Kept().Memory.Load())
		assert.Equal(t, 1, reads, "nobody needs more")
	})
}

// The body of a CONNECT is the connection, whatever the caller allows.
func TestAConnectionIsNotAwaited(t *testing.T) {
	conn := oneShot("the first bytes of a connection")
	tr := mustNew(t, transport.Config{Rule: policy.Rule{Download: policy.Download{Memory: 1 << 10}}, Base: rt(func(req *http.Request) (*http.Response, error) {
		return newResponse(req, 200, conn), nil
	})})
	req := newRequest(t, http.MethodConnect, "http://h.test/", nil)
	resp := mustRoundTrip(t, tr, req.WithContext(transport.Repeatable(t.Context())))
	assert.Same(t, conn, resp.Body)
}

// TestAwaitedBodyOfAnotherTransport: a body that pauses is handed over in time, also if it is one of a
// Transport below, whose rules were made later.
func TestAwaitedBodyOfAnotherTransport(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var below http.RoundTripper
		tr := over(t, transport.Config{Rule: policy.Rule{Download: policy.Download{Memory: 1 << 20}}},
			rt(func(req *http.Request) (*http.Response, error) { return below.RoundTrip(req) }))
		time.Sleep(3 * time.Second)
		pauses, w := io.Pipe()
		below = over(t, transport.Config{Rule: policy.Rule{AttemptTimeout: time.Hour, Resume: policy.Resume{Max: policy.Off}}},
			rt(func(req *http.Request) (*http.Response, error) { return newResponse(req, 200, pauses), nil }))
		start := time.Now()
		resp := mustGet(t, tr)
		assert.Equal(t, 100*time.Millisecond, time.Since(start))
		_ = w.Close()
		assert.Empty(t, mustRead(t, resp))
	})
}
