// Random choices that depend on the seed alone, never on the order in which
// goroutines happen to run.

package simulate

import (
	"math"
	"math/rand/v2"
	"time"
)

// A dice draws the choices of one place in a story: a host, a caller, a send.
type dice struct{ *rand.Rand }

// roll returns the dice for the place that path names. The same path gives the
// same draws.
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

// chance is true in so many percent of the cases.
func (d dice) chance(percent int) bool { return d.IntN(100) < percent }

// between draws from lo to hi; each order of magnitude is equally likely.
func (d dice) between(lo, hi time.Duration) time.Duration {
	return time.Duration(float64(lo) * math.Pow(float64(hi)/float64(lo), d.Float64()))
}

// one returns one of several values.
func one[T any](d dice, of ...T) T { return of[d.IntN(len(of))] }

// A text is bytes that can be told apart by their key: no part of one text
// looks like a part of another, or like another part of itself.
type text uint64

// fill writes the bytes from off on into p.
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

// differs returns the first offset at which p, which should be the bytes from
// off on, is something else; -1 if it is not.
func (t text) differs(p []byte, off int64) int64 {
	for i, b := range p {
		if b != t.at(off+int64(i)) {
			return off + int64(i)
		}
	}
	return -1
}
