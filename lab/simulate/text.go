// Bytes that depend on a key.

package simulate

import (
	"encoding/binary"

	"github.com/aplomb-go/aplomb/lab/internal/dice"
)

// A text is a sequence of bytes that depends on its key. No part of a text
// looks like another part of it or like a part of a text with another key.
type text struct {
	key uint64
}

// fill writes the bytes of the text from off on into p.
func (t text) fill(p []byte, off int64) {
	for len(p) > 0 {
		word := t.word(off)
		n := copy(p, word[off&7:])
		p, off = p[n:], off+int64(n)
	}
}

// word returns the eight bytes of the text around an offset. The first of them has an
// offset that eight divides.
func (t text) word(off int64) (word [8]byte) {
	binary.LittleEndian.PutUint64(word[:], dice.Mix(t.key+uint64(off>>3)))
	return word
}

// bytes returns the text's first n bytes.
func (t text) bytes(n int64) []byte {
	p := make([]byte, n)
	t.fill(p, 0)
	return p
}

// differs compares p with the bytes of the text from off on. It returns the
// first offset that differs, or -1.
func (t text) differs(p []byte, off int64) int64 {
	for len(p) > 0 {
		word := t.word(off)
		for _, b := range word[off&7:] {
			if len(p) == 0 {
				return -1
			}
			if p[0] != b {
				return off
			}
			p, off = p[1:], off+1
		}
	}
	return -1
}
