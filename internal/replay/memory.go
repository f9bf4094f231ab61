// Bodies in memory, and the memory of bodies that are kept.

package replay

import (
	"bytes"
	"context"
	"io"
	"math/bits"
	"net/http"
	"reflect"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Small is the size in bytes up to which a body takes no room in a Pool.
const Small = 64 << 10

// nopCloser is the type that io.NopCloser returns for a reader with WriteTo, as all
// readers in memory have it.
var nopCloser = reflect.TypeOf(io.NopCloser((*strings.Reader)(nil)))

// netHTTPGetBody holds the code of the functions that net/http sets as GetBody.
// Each call of such a function returns a new reader.
var netHTTPGetBody = func() (code [3]uintptr) {
	for i, r := range []io.Reader{bytes.NewBufferString("x"), bytes.NewReader([]byte("x")), strings.NewReader("x")} {
		if req, err := http.NewRequest(http.MethodPost, "http://h/", r); err == nil {
			code[i] = reflect.ValueOf(req.GetBody).Pointer()
		}
	}
	return code
}()

// memoryReader returns the reader behind a body, also inside io.NopCloser, if
// net/http makes a GetBody for the reader's type. It returns nil for other types.
// net/http looks at the same types to decide how a body is written.
func memoryReader(body any) any {
	if reflect.TypeOf(body) == nopCloser {
		body = reflect.ValueOf(body).Field(0).Interface()
	}
	switch body.(type) {
	case *strings.Reader, *bytes.Reader, *bytes.Buffer:
		return body
	}
	return nil
}

// SmallInMemory reports whether a body is in memory and has at most [Small] bytes.
// Sending such a body takes next to no time.
func SmallInMemory(body any) bool {
	r, ok := memoryReader(body).(interface{ Len() int })
	return ok && r.Len() <= Small
}

// Independent reports whether the request's body shares no state with any result
// of its GetBody, and whether its Close does nothing. That is known only of net/http's own
// GetBody, which copies the reader that the request was made with, and of a body like those
// that net/http makes. Any other GetBody may seek one reader back and return the same reader
// each time. Nearly every request with a body asks this, so it does not look for the reader
// within the body.
func Independent(req *http.Request) bool {
	if req.GetBody == nil || reflect.TypeOf(req.Body) != nopCloser {
		return false
	}
	code := reflect.ValueOf(req.GetBody).Pointer()
	return code == netHTTPGetBody[0] || code == netHTTPGetBody[1] || code == netHTTPGetBody[2]
}

// copyOf returns a copy of a body in memory. The copy delivers the bytes that are
// left in the body, and shares nothing else with it. If the body is not in memory,
// copyOf returns nil.
func copyOf(body io.ReadCloser) io.ReadCloser {
	switch r := memoryReader(body).(type) {
	case *strings.Reader:
		own := *r
		return io.NopCloser(&own)
	case *bytes.Reader:
		own := *r
		return io.NopCloser(&own)
	case *bytes.Buffer:
		return io.NopCloser(bytes.NewReader(r.Bytes()))
	}
	return nil
}

// A memoryBody is a Body in memory. The function makes a copy of it that shares no state with
// other copies, and does not fail. The first attempt has the caller's body itself. The
// Close of a body in memory does nothing, so nothing need be closed in the end.
type memoryBody func() (io.ReadCloser, error)

func (make memoryBody) Next(_ context.Context, n int) (io.ReadCloser, func() (io.ReadCloser, error)) {
	if n == 1 {
		return nil, nil
	}
	body, _ := make()
	return body, nil
}

func (memoryBody) Broke() bool                                 { return false }
func (memoryBody) Why() error                                  { return nil }
func (memoryBody) Concurrent() bool                            { return true }
func (memoryBody) Rewind(context.Context, time.Duration) error { return nil }
func (memoryBody) GetBody(context.Context) error               { return nil }
func (memoryBody) Detach(context.Context)                      {}
func (memoryBody) Finish()                                     {}

// A Pool counts the bytes that all requests' bodies of a Transport keep. The first [Small]
// bytes of a body do not count. So large uploads cannot take the retries from small
// requests. A Pool also hands the memory of finished bodies to new bodies. The zero Pool
// is ready for use, and safe for concurrent use.
type Pool struct {
	Memory atomic.Int64 // bytes in memory that count

	chunks [chunkSizes]sync.Pool // of *chunk, by capacity
}

// MaxMemory is how many bytes of all bodies a Pool lets be kept in memory.
const MaxMemory = 64 << 20

// room returns how many of n bytes that a body keeps count in the pool.
func room(n int64) int64 { return max(n-Small, 0) }

// hold lets a body hold n bytes more that count, if there is room.
func (p *Pool) hold(n int64) bool {
	if p.Memory.Add(n) <= MaxMemory {
		return true
	}
	p.Memory.Add(-n)
	return false
}

// Chunks have the capacities from minChunk to maxChunk that are powers of two.
const (
	minChunk, maxChunk = 4 << 10, 64 << 10
	chunkSizes         = 5
)

// A chunk is a piece of a buffer. It has a single owner, a buffer or the pool.
type chunk struct {
	data []byte
	next *chunk
}

// of returns the pool of chunks with capacity n.
func (p *Pool) of(n int) *sync.Pool { return &p.chunks[bits.TrailingZeros(uint(n/minChunk))] }

// chunk returns an empty chunk of capacity n. It may have been used before.
func (p *Pool) chunk(n int) *chunk {
	if c, ok := p.of(n).Get().(*chunk); ok {
		return c
	}
	return &chunk{data: make([]byte, 0, n)}
}

// recycle takes a chunk that nobody uses any more. The garbage collector frees the
// chunks that are not used again soon.
func (p *Pool) recycle(c *chunk) {
	c.data, c.next = c.data[:0], nil
	p.of(cap(c.data)).Put(c)
}

// A buffer keeps bytes in a list of chunks. Each chunk is as large as all chunks before
// it together, within the bounds of a chunk. No byte is copied twice, and a small body
// takes little.
//
// The lock of its streamBody guards a buffer. Nobody gets a slice of a chunk: readAt
// copies the bytes while the lock is held. So when drop gives the chunks to the pool, no
// reader of an old attempt can still have one of them.
type buffer struct {
	first, last *chunk
	size        int64 // bytes in the chunks, which the pool counts
}

// append keeps p if the pool has room for it.
func (b *buffer) append(p []byte, pool *Pool) bool {
	if !pool.hold(room(b.size+int64(len(p))) - room(b.size)) {
		return false
	}
	for len(p) > 0 {
		c := b.last
		if c == nil || len(c.data) == cap(c.data) {
			c = pool.chunk(int(min(max(minChunk, b.size), maxChunk)))
			if b.last == nil {
				b.first = c
			} else {
				b.last.next = c
			}
			b.last = c
		}
		n := min(len(p), cap(c.data)-len(c.data))
		c.data = append(c.data, p[:n]...)
		p, b.size = p[n:], b.size+int64(n)
	}
	return true
}

// readAt copies bytes of one chunk, from offset at, which is below size.
func (b *buffer) readAt(p []byte, at int64) int {
	c := b.first
	for ; at >= int64(len(c.data)); c = c.next {
		at -= int64(len(c.data))
	}
	return copy(p, c.data[at:])
}

// drop forgets all bytes and gives their memory to the pool.
func (b *buffer) drop(pool *Pool) {
	pool.Memory.Add(-room(b.size))
	for c := b.first; c != nil; {
		next := c.next
		pool.recycle(c)
		c = next
	}
	*b = buffer{}
}
