// Random choices that depend on the seed alone, never on the order in which
// goroutines run.

package simulate

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"time"
)

// A dice draws the choices of one part of a story, such as a host, a caller or
// an attempt.
type dice struct{ *rand.Rand }

// roll returns the dice for the part of a story that path names. The same path
// always gives the same choices.
func roll(path ...uint64) dice {
	h := uint64(len(path))
	for _, p := range path {
		h = mix(h ^ p)
	}
	return dice{rand.New(rand.NewPCG(h, mix(h)))}
}

// mix is the finaliser of SplitMix64.
func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// chance returns true with the given probability in percent.
func (d dice) chance(percent int) bool { return d.IntN(100) < percent }

// between draws a duration from lo to hi. Each order of magnitude is equally
// likely.
func (d dice) between(lo, hi time.Duration) time.Duration {
	return time.Duration(float64(lo) * math.Pow(float64(hi)/float64(lo), d.Float64()))
}

// one returns a random value of those given.
func one[T any](d dice, of ...T) T { return of[d.IntN(len(of))] }

// A text is a sequence of bytes that depends on its key. No part of a text
// looks like another part of it or like a part of a text with another key.
type text struct {
	key uint64
}

// other returns a text that nowhere looks like this one.
func (t text) other() text { return text{key: t.key + 1} }

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
	binary.LittleEndian.PutUint64(word[:], mix(t.key+uint64(off>>3)))
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
