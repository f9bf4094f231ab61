// Hashes of the bytes that a body has delivered, to find them again in a second
// response.

package resume

import (
	"hash/maphash"
	"io"

	"github.com/aplomb-go/aplomb/internal/counted"
)

const (
	// firstMark is the first offset at which a second response is compared on the way. Each
	// further mark is eight times as far, so that a difference shows early.
	firstMark = 512
	numMarks  = 4 // up to 256 KiB

	// matchBuffer bounds the memory for comparing.
	matchBuffer = 32 << 10
)

// seed is the key of all hashes here. Only a server that knows it could make another body or
// another header with the same 64 or 32 bits.
var seed = maphash.MakeSeed()

// A prefixHash has hashes of the bytes that were delivered. The whole hash decides in the end.
type prefixHash struct {
	first uint64           // of the bytes of the first Read, if there were more to come
	marks [numMarks]uint16 // bits of the hash at some offsets
}

// A laterHash is that of the bytes after the first Read.
type laterHash struct {
	hash maphash.Hash
	from int64 // how many bytes the first Read brought
}

// keep hashes bytes that were delivered with err. Those of the first Read have a hash of their own,
// of which only the sum is kept. So a body that a single Read brings needs no memory for a hash.
func (b *Body) keep(p []byte, err error) {
	size := b.pos - b.begin
	at := size - int64(len(p))
	switch {
	case err == io.EOF && b.end == unknown, size > int64(b.left): // nothing follows, or they are never compared
		return
	case at > 0 && b.later == nil:
		b.later = &laterHash{from: at}
		b.later.hash.SetSeed(seed)
	}
	var first maphash.Hash
	h := &first
	if at == 0 {
		first.SetSeed(seed)
	} else {
		h = &b.later.hash
	}
	for i := range b.prefix.marks {
		if n := firstMark<<(3*i) - at; 0 < n && n <= int64(len(p)) {
			_, _ = h.Write(p[:n]) // a hash takes everything
			b.prefix.marks[i] = uint16(h.Sum64())
			p, at = p[n:], at+n
		}
	}
	_, _ = h.Write(p)
	if h == &first {
		b.prefix.first = h.Sum64()
	}
}

// size returns the size of the prefix.
func (p *Plan) size() int64 { return p.pos - p.begin }

// unmatched returns why no second response can be compared with the prefix, or nil.
func (b *Body) unmatched() error {
	switch {
	case b.end == unknown && b.total == unknown && (b.paused || b.size() < firstMark):
		return ErrMayStream // a heartbeat is often the same
	case !b.keeps || b.size() > int64(b.left):
		return ErrAgain
	}
	return nil
}

// match reads the prefix from a second response, and compares it on the way. It returns
// how many bytes it has read, errDiffers if they are others, and otherwise the error of
// the response.
func (b *Body) match(r io.Reader) (read int64, err error) {
	size := b.size()
	if b.later == nil {
		return b.matchPart(r, 0, size, b.prefix.first)
	}
	from := b.later.from
	if read, err = b.matchPart(r, 0, from, b.prefix.first); err != nil {
		return read, err
	}
	more, err := b.matchPart(r, from, size, b.later.hash.Sum64())
	return read + more, err
}

// matchPart is match for the bytes between two offsets, which have a hash of their own.
func (b *Body) matchPart(r io.Reader, at, to int64, sum uint64) (read int64, err error) {
	var h maphash.Hash
	h.SetSeed(seed)
	buf := make([]byte, min(to-at, matchBuffer))
	for i := 0; at < to; {
		for i < numMarks && firstMark<<(3*i) <= at {
			i++
		}
		next := to
		if i < numMarks {
			next = min(to, firstMark<<(3*i))
		}
		n, err := counted.Read(r, buf[:min(int64(len(buf)), next-at)])
		_, _ = h.Write(buf[:n])
		read, at = read+int64(n), at+int64(n)
		switch {
		case i < numMarks && at == firstMark<<(3*i) && uint16(h.Sum64()) != b.prefix.marks[i], err == io.EOF && at < to:
			return read, errDiffers
		case err != nil && at < to:
			return read, err
		}
	}
	if h.Sum64() != sum {
		return read, errDiffers
	}
	return read, nil
}
