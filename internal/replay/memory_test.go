package replay

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
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
			assert.True(t, b.Concurrent() && !b.Broke() && b.Why() == nil, name)
			second, _ := b.Next(t.Context(), 2)
			third, _ := b.Next(t.Context(), 3)
			for _, attempt := range []io.ReadCloser{second, third} {
				assert.Equal(t, "text", mustRead(t, attempt), name)
				assert.NoError(t, attempt.Close(), name)
			}
		}
	}
}

// A body in memory is made by the GetBody of the caller, if that has one of its own. An attempt has a copy, of a type that
// net/http knows.
func TestGetBodyOfABodyInMemory(t *testing.T) {
	req, made := put(t, strings.NewReader("text")), 0
	req.GetBody = func() (io.ReadCloser, error) {
		made++
		return io.NopCloser(strings.NewReader("more")), nil
	}
	b := New(req, 0, new(Pool))
	assert.True(t, b.Concurrent())
	first, getBody := b.Next(t.Context(), 1)
	again, err := getBody()
	assert.NoError(t, err)
	assert.NoError(t, rewind(b))
	assert.Equal(t, 1, made)
	assert.NoError(t, b.GetBody(t.Context()))
	second, _ := b.Next(t.Context(), 2)
	assert.Equal(t, 2, made)
	for body, want := range map[io.ReadCloser]string{first: "text", again: "more", second: "more"} {
		assert.NotNil(t, memoryReader(body))
		all, _ := io.ReadAll(body)
		assert.Equal(t, want, string(all))
	}
	_, err = getBody()
	assert.ErrorIs(t, err, ErrDetached)
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

// poison overwrites the chunks that the pool has for new bodies, as new bodies would.
func poison(pool *Pool) {
	for n := minChunk; n <= maxChunk; n *= 2 {
		var taken []*chunk
		for range 3 {
			c := pool.chunk(n)
			for i := range c.data[:n] {
				c.data[:n][i] = 0xdb
			}
			taken = append(taken, c)
		}
		for _, c := range taken {
			pool.recycle(c)
		}
	}
}

// Given an attempt that has read some of the kept bytes, when the request ends, the
// attempt reads the rest of its body, and then the memory goes to other bodies. After its Close it gets none of it.
func TestChunksOfAnAttemptUnderWay(t *testing.T) {
	for _, size := range []int{100, minChunk, 50_000, 200_000} {
		for i, read := range []int{0, 0, 1, size / 2, size - 1} {
			t.Run(fmt.Sprintf("%d of %d, %d", read, size, i), func(t *testing.T) {
				var pool Pool
				want := noisy(size)
				b := New(put(t, oneShot(want)), 1<<20, &pool)
				old := next(b)
				_, err := io.Copy(io.Discard, old)
				require.NoError(t, err)
				require.NoError(t, rewind(b))

				last := next(b)
				got := make([]byte, read, size)
				_, err = io.ReadFull(last, got)
				require.NoError(t, err)
				b.Finish()
				closed := i == 0 // before it has read anything
				if closed {
					assert.NoError(t, last.Close())
					assert.Zero(t, pool.Memory.Load())
				}
				poison(&pool)
				assert.Equal(t, ErrDetached, readErr(old))
				if closed {
					n, err := last.Read(make([]byte, 10))
					assert.Zero(t, n)
					assert.Equal(t, ErrDetached, err)
					return
				}
				rest, err := io.ReadAll(last)
				assert.NoError(t, err)
				assert.True(t, want == string(append(got, rest...)))

				poison(&pool)
				assert.Equal(t, io.EOF, readErr(last))
				assert.NoError(t, last.Close())
				assert.Zero(t, pool.Memory.Load())
			})
		}
	}
}

// Given many requests at once that share a pool, whose base transports read on after
// an early response and close late, then no attempt reads a byte of another body.
func TestChunksUnderConcurrency(t *testing.T) {
	var pool Pool
	var requests sync.WaitGroup
	for id := range 8 {
		requests.Go(func() {
			r := rand.New(rand.NewPCG(uint64(id), 7))
			for range 15 {
				size := r.IntN(150_000)
				want := bytes.Repeat([]byte{byte('a' + id)}, size)
				b := New(&http.Request{Body: io.NopCloser(io.MultiReader(bytes.NewReader(want)))}, 1<<20, &pool)
				var late sync.WaitGroup
				read := func(attempt io.ReadCloser, n int) {
					got, _ := io.ReadAll(io.LimitReader(attempt, int64(n)))
					assert.True(t, bytes.HasPrefix(want, got), "request %d", id)
				}
				for range 3 {
					attempt := next(b)
					read(attempt, r.IntN(size+1))
					late.Go(func() { read(attempt, size) })
					if r.IntN(2) == 0 {
						late.Go(func() { _ = attempt.Close() })
					}
					assert.NoError(t, rewind(b))
				}
				last := next(b)
				late.Go(func() { read(last, size) })
				late.Go(func() { _ = last.Close() })
				b.Finish()
				late.Wait()
			}
		})
	}
	requests.Wait()
	assert.Zero(t, pool.Memory.Load())
}

// A buffer has all bytes that were given to it, from any offset on.
func TestBuffer(t *testing.T) {
	for _, size := range []int{1, minChunk - 1, minChunk, minChunk + 1, 100_000, maxChunk * 3} {
		var pool Pool
		var b buffer
		text := []byte(noisy(size))
		for rest := text; len(rest) > 0; {
			n := min(len(rest), 5000)
			require.True(t, b.append(rest[:n], &pool))
			rest = rest[n:]
		}
		assert.EqualValues(t, size, b.size)
		var got []byte
		for len(got) < size {
			p := make([]byte, 3000)
			got = append(got, p[:b.readAt(p, int64(len(got)))]...)
		}
		assert.True(t, bytes.Equal(got, text))
		p := make([]byte, 1)
		assert.Equal(t, 1, b.readAt(p, 0), "back to the beginning")
		assert.Equal(t, text[0], p[0])
		assert.EqualValues(t, max(size-Small, 0), pool.Memory.Load())
		b.drop(&pool)
		assert.Zero(t, pool.Memory.Load())
	}
}

// zeros is an endless reader that takes no time.
type zeros struct{}

func (zeros) Read(p []byte) (int, error) { return len(p), nil }

// upload makes one attempt that reads a body without GetBody whole, in pieces.
func upload(pool *Pool, size int64, piece []byte) {
	b := New(&http.Request{Body: io.NopCloser(io.LimitReader(zeros{}, size))}, max(size, 1<<20), pool)
	attempt := next(b)
	for {
		if _, err := attempt.Read(piece); err != nil {
			break
		}
	}
	b.Finish()
	_ = attempt.Close()
}

// The number of allocations hardly grows with the body, because no Read allocates and
// the chunks come from the pool. Under the race detector a sync.Pool loses a quarter of
// them on purpose.
func TestKeepingAllocates(t *testing.T) {
	var pool Pool
	piece := make([]byte, 8<<10)
	for size, most := range map[int64]float64{1 << 10: 7, Small: 10, 1 << 20: 25} {
		assert.LessOrEqual(t, testing.AllocsPerRun(100, func() { upload(&pool, size, piece) }), most, "%d bytes", size)
	}
}

// BenchmarkKeep shows the cost of keeping a body without GetBody in memory.
func BenchmarkKeep(b *testing.B) {
	for _, size := range []int64{1 << 10, 10 << 10, 1 << 20, 64 << 20} {
		b.Run(fmt.Sprintf("%dKiB", size>>10), func(b *testing.B) {
			var pool Pool
			piece := make([]byte, 8<<10)
			b.ReportAllocs()
			b.SetBytes(size)
			for b.Loop() {
				upload(&pool, size, piece)
			}
		})
	}
}

// Only a GetBody of net/http itself is known to make bodies that share nothing. Only the
// Close of a NopCloser is known to do nothing.
func TestIndependent(t *testing.T) {
	of := func(body io.Reader) *http.Request { return put(t, body) }
	own := func(req *http.Request) *http.Request {
		made := req.GetBody
		req.GetBody = func() (io.ReadCloser, error) { return made() }
		return req
	}
	replaced := func(body io.ReadCloser) *http.Request {
		req := of(strings.NewReader("text"))
		req.Body = body
		return req
	}
	for name, row := range map[string]struct {
		req  *http.Request
		want bool
	}{
		"bytes.Buffer":               {of(bytes.NewBufferString("text")), true},
		"bytes.Reader":               {of(bytes.NewReader([]byte("text"))), true},
		"strings.Reader":             {of(strings.NewReader("text")), true},
		"replaced in memory":         {replaced(io.NopCloser(bytes.NewReader([]byte("text")))), true},
		"replaced by another reader": {replaced(io.NopCloser(bufio.NewReader(strings.NewReader("text")))), true},
		"replaced by another type":   {replaced(oneShot("text")), false},
		"another GetBody":            {own(of(strings.NewReader("text"))), false},
		"no GetBody":                 {of(struct{ io.Reader }{strings.NewReader("text")}), false},
		"in a NopCloser, no GetBody": {of(io.NopCloser(strings.NewReader("text"))), false},
	} {
		assert.Equal(t, row.want, Independent(row.req), name)
	}
}

// A body in memory costs nothing before the first retry. A retry then costs a reader
// and its NopCloser, which net/http's own GetBody allocates as well.
func TestCopiesAllocate(t *testing.T) {
	var pool Pool
	for name, row := range map[string]struct {
		req   *http.Request
		first float64 // allocations up to the first attempt
	}{
		"GetBody":    {put(t, strings.NewReader("text")), 0},
		"no GetBody": {put(t, io.NopCloser(bytes.NewReader([]byte("text")))), 3},
	} {
		for attempts := 1; attempts <= 3; attempts++ {
			want := row.first + 2*float64(attempts-1)
			assert.Equal(t, want, testing.AllocsPerRun(100, func() {
				b := New(row.req, 1<<20, &pool)
				for n := 1; n <= attempts; n++ {
					if n > 1 {
						_ = b.Rewind(context.Background(), MaxBusy)
					}
					b.Next(context.Background(), n)
				}
			}), "%s, %d attempts", name, attempts)
		}
	}
}
