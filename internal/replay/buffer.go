// What is kept of a body in memory?

package replay

import "sync/atomic"

// A Pool counts the bytes that all bodies of a Transport keep. In memory
// the first Small bytes of each body do not count and are always kept, so
// that large uploads cannot take the retries from small requests.
type Pool struct {
	Memory  atomic.Int64 // bytes in memory
	Disk    atomic.Int64 // bytes in files
	MaxDisk int64        // the bound for files, Config.TempTotal; 0: the default
}

// MaxMemory is the bound for all kept bodies of a Transport together.
const MaxMemory = 64 << 20

// beyondSmall returns how many of n bytes that a body holds count in the pool.
func beyondSmall(n int64) int64 { return max(n-Small, 0) }

func (p *Pool) take(n int64) bool {
	if p.Memory.Add(n) <= MaxMemory {
		return true
	}
	p.Memory.Add(-n)
	return false
}

// A buffer keeps what was read of a body, in chunks that grow from 1 KiB to
// 64 KiB: nothing is copied twice, and a small body takes little.
type buffer struct {
	chunks [][]byte
	size   int64
	held   *int64 // capacity of the chunks, which the pool counts; made before the first
}

const minChunk, maxChunk = 1 << 10, 64 << 10

// append keeps p. It reports false, with nothing lost but room, where the
// pool has none.
func (b *buffer) append(p []byte, limit int64, pool *Pool) bool {
	for len(p) > 0 {
		last := len(b.chunks) - 1
		if last < 0 || len(b.chunks[last]) == cap(b.chunks[last]) {
			n := min(max(minChunk, b.size), maxChunk, limit-*b.held)
			if n <= 0 || !pool.take(beyondSmall(*b.held+n)-beyondSmall(*b.held)) {
				return false
			}
			*b.held += n
			b.chunks = append(b.chunks, make([]byte, 0, n))
			last++
		}
		c := b.chunks[last]
		n := min(len(p), cap(c)-len(c))
		b.chunks[last] = append(c, p[:n]...)
		b.size += int64(n)
		p = p[n:]
	}
	return true
}

// readAt copies from offset at, which is below size, within one chunk.
func (b *buffer) readAt(p []byte, at int64) int {
	for _, c := range b.chunks {
		if at < int64(len(c)) {
			return copy(p, c[at:])
		}
		at -= int64(len(c))
	}
	return 0
}

func (b *buffer) drop(pool *Pool) {
	if b.held != nil {
		pool.Memory.Add(-beyondSmall(*b.held))
		*b.held = 0
	}
	*b = buffer{}
}
