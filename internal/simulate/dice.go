// Random choices that depend on the seed alone, never on the order in which
// goroutines run.

package simulate

import (
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
// looks like another part of it or like a part of another text.
type text uint64

// fill writes the bytes of the text from off on into p.
func (t text) fill(p []byte, off int64) {
	for i := range p {
		p[i] = t.at(off + int64(i))
	}
}

func (t text) at(off int64) byte {
	return byte(mix(uint64(t)+uint64(off>>3)) >> (8 * (off & 7)))
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
	for i, b := range p {
		if b != t.at(off+int64(i)) {
			return off + int64(i)
		}
	}
	return -1
}
