// Checksums of the bytes that a body has delivered, to find them again in a second
// response.

package resume

import (
	"hash/crc32"
	"io"

	"github.com/aplomb-go/aplomb/internal/counted"
)

const (
	// minCompared is the size from which on a body without a length may be fetched again. A
	// heartbeat is shorter, and often the same. So many bytes are compared first, so that
	// another stream shows early.
	minCompared = 512

	// matchBuffer bounds the memory for comparing.
	matchBuffer = 32 << 10
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// A checksum has two checksums of the same bytes, by polynomials without a common factor. So together they
// are one of 64 bits. Most processors have instructions for both.
type checksum struct{ ieee, castagnoli uint32 }

// add adds bytes to those that the checksum is of.
func (c *checksum) add(p []byte) {
	c.ieee = crc32.Update(c.ieee, crc32.IEEETable, p)
	c.castagnoli = crc32.Update(c.castagnoli, castagnoli, p)
}

// keep keeps what is needed of bytes that were delivered with err.
func (b *Body) keep(p []byte, err error) {
	if err == io.EOF && b.end == unknown || b.size() > int64(b.left) {
		return // nothing follows, or they are never compared
	}
	if early := minCompared - (b.size() - int64(len(p))); 0 < early && early <= int64(len(p)) {
		b.prefix.add(p[:early])
		b.early, p = b.prefix.ieee, p[early:]
	}
	b.prefix.add(p)
}

// size returns the size of the prefix.
func (p *Plan) size() int64 { return p.pos - p.begin }

// unmatched returns why no second response can be compared with the prefix, or nil.
func (b *Body) unmatched() error {
	switch {
	case b.end == unknown && b.total == unknown && (b.paused || b.size() < minCompared):
		return ErrMayStream
	case !b.keeps || b.size() > int64(b.left):
		return ErrAgain
	}
	return nil
}

// match reads the prefix from a second response. It returns errDiffers if that has other bytes, ErrLate if
// the Read took too long, and otherwise the error of the response.
func (b *Body) match(r io.Reader) (err error) {
	var sum checksum
	at, size, differs := int64(0), b.size(), false
	for buf := make([]byte, min(size, matchBuffer)); at < size && err == nil && !differs; {
		next := size
		if at < minCompared {
			next = min(size, minCompared)
		}
		var n int
		n, err = counted.Read(r, buf[:min(int64(len(buf)), next-at)])
		sum.add(buf[:n])
		at += int64(n)
		b.left -= int32(n)
		differs = at == minCompared && sum.ieee != b.early
	}
	switch {
	case b.isLate(): // and the part is closed, even if the bytes came at the last moment
		return ErrLate
	case differs, at < size && err == io.EOF, at == size && sum != b.prefix:
		return errDiffers
	case at < size:
		return err
	}
	return nil
}
