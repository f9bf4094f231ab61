package replay

import "sync/atomic"

// A Pool counts the bytes that all bodies of a Transport keep. In memory, the first
// [Small] bytes of each body do not count and are always kept. So large uploads cannot
// take the retries from small requests. The zero Pool is ready for use, and
// safe for concurrent use.
type Pool struct {
	Memory  atomic.Int64 // bytes in memory, beyond the first Small of each body
	Disk    atomic.Int64 // bytes in files
	MaxDisk int64        // the most bytes in files; if 0, 1 GiB or the limit of the body, whichever is more
}

// MaxMemory is how many bytes of all bodies a Pool lets be kept in memory.
const MaxMemory = 64 << 20

// defaultMaxDisk is the least bound for files if MaxDisk is 0.
const defaultMaxDisk = 1 << 30

// beyondSmall returns how many of the n bytes that a body holds count in the pool.
func beyondSmall(n int64) int64 { return max(n-Small, 0) }

// takeMemory lets a body that holds held bytes hold n more, if there is room.
func (p *Pool) takeMemory(held, n int64) bool {
	n = beyondSmall(held+n) - beyondSmall(held)
	if p.Memory.Add(n) <= MaxMemory {
		return true
	}
	p.Memory.Add(-n)
	return false
}

// leaveMemory takes the bytes back that a body held.
func (p *Pool) leaveMemory(held int64) { p.Memory.Add(-beyondSmall(held)) }

// maxDisk returns the bound for all files. limit is that of the body that asks.
func (p *Pool) maxDisk(limit int64) int64 {
	if p.MaxDisk > 0 {
		return p.MaxDisk
	}
	return max(defaultMaxDisk, limit)
}

// takeDisk lets a body with this limit write n bytes more, if there is room.
func (p *Pool) takeDisk(n, limit int64) bool {
	if p.Disk.Add(n) <= p.maxDisk(limit) {
		return true
	}
	p.Disk.Add(-n)
	return false
}

// leaveDisk takes the bytes back that a body held.
func (p *Pool) leaveDisk(held int64) { p.Disk.Add(-held) }

// A buffer keeps bytes in chunks that grow from 1 KiB to 64 KiB. No byte is copied
// twice, and a small body takes little. The lock of its original guards it.
type buffer struct {
	chunks [][]byte
	size   int64
	held   *int64 // capacity of the chunks, which the pool counts; made before the first chunk
}

const minChunk, maxChunk = 1 << 10, 64 << 10

// append keeps as many bytes of p as limit and the pool allow.
func (b *buffer) append(p []byte, limit int64, pool *Pool) {
	for len(p) > 0 {
		last := len(b.chunks) - 1
		if last < 0 || len(b.chunks[last]) == cap(b.chunks[last]) {
			n := min(max(minChunk, b.size), maxChunk, limit-*b.held)
			if n <= 0 || !pool.takeMemory(*b.held, n) {
				return
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
}

// readAt copies bytes of one chunk, from offset at, which is below size.
func (b *buffer) readAt(p []byte, at int64) int {
	for _, c := range b.chunks {
		if at < int64(len(c)) {
			return copy(p, c[at:])
		}
		at -= int64(len(c))
	}
	return 0
}

// drop forgets all bytes and gives their memory back.
func (b *buffer) drop(pool *Pool) {
	if b.held != nil {
		pool.leaveMemory(*b.held)
		*b.held = 0
	}
	*b = buffer{}
}
