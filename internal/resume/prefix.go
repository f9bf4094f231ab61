// What a body keeps of the bytes that it has delivered, to find them again in a second
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

// Marks are bits of the hash of a prefix at some offsets. The whole hash decides in the end.
type marks [numMarks]uint16

// add hashes bytes from offset at on, and sets the marks that they pass.
func (m *marks) add(h *maphash.Hash, p []byte, at int64) {
	for i := range m {
		if n := firstMark<<(3*i) - at; 0 < n && n <= int64(len(p)) {
			_, _ = h.Write(p[:n]) // a hash takes everything
			m[i] = uint16(h.Sum64())
			p, at = p[n:], at+n
		}
	}
	_, _ = h.Write(p)
}

// keep hashes bytes that were delivered. Those of the first Read have a hash of their own, of
// which only the sum is kept. So a body that a single Read brings needs no memory for a hash.
func (b *Body) keep(p []byte) {
	size := b.size()
	at := size - int64(len(p))
	switch {
	case size > int64(b.left): // so it is never compared
	case at == 0:
		var h maphash.Hash
		h.SetSeed(seed)
		b.marks.add(&h, p, 0)
		b.sum = h.Sum64()
	default:
		x := b.makeExtra()
		if x.from == 0 {
			x.from = at
			x.hash.SetSeed(seed)
		}
		b.marks.add(&x.hash, p, at)
	}
}

// size returns the size of the prefix.
func (b *Body) size() int64 {
	if b.compares() {
		return b.pos - b.first // which stays that of the whole body
	}
	return b.pos
}

// unmatched returns why no second response can be compared with the prefix, or nil.
func (b *Body) unmatched() error {
	switch {
	case b.lacksLength() && (b.paused || b.size() < firstMark):
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
	size, from := b.size(), b.size()
	if x := b.extra; x != nil && x.from > 0 {
		from = x.from
	}
	read, err = b.matchPart(r, 0, from, b.sum)
	if err == nil && from < size {
		var more int64
		more, err = b.matchPart(r, from, size, b.extra.hash.Sum64())
		read += more
	}
	return read, err
}

// matchPart is match for a part of the prefix that has a hash of its own.
func (b *Body) matchPart(r io.Reader, from, to int64, sum uint64) (read int64, err error) {
	var h maphash.Hash
	h.SetSeed(seed)
	same, buf := b.marks, make([]byte, min(to-from, matchBuffer))
	for read < to-from {
		n, err := counted.Read(r, buf[:min(int64(len(buf)), to-from-read)])
		same.add(&h, buf[:n], from+read)
		read += int64(n)
		switch {
		case same != b.marks, err == io.EOF && read < to-from:
			return read, errDiffers
		case err != nil && read < to-from:
			return read, err
		}
	}
	if h.Sum64() != sum {
		return read, errDiffers
	}
	return read, nil
}
