// Random choices that depend on the seed alone.

package paired

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"time"
)

// A dice draws the choices of one part of a story.
type dice struct{ *rand.Rand }

// roll returns the dice for the part of a story that path names. The same path always
// gives the same choices, in whatever order goroutines run.
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

// among returns a number from lo to hi.
func (d dice) among(lo, hi int) int { return lo + d.IntN(hi-lo+1) }

// between draws a duration from lo to hi. Each order of magnitude is equally likely.
func (d dice) between(lo, hi time.Duration) time.Duration {
	return time.Duration(float64(lo) * math.Pow(float64(hi)/float64(lo), d.Float64()))
}

// one returns a random value of those given.
func one[T any](d dice, of ...T) T { return of[d.IntN(len(of))] }

// some returns a random selection of those given, at least one.
func some[T any](d dice, of ...T) (chosen []T) {
	for chosen == nil {
		for _, x := range of {
			if d.chance(40) {
				chosen = append(chosen, x)
			}
		}
	}
	return chosen
}

// The parts of a story that have dice of their own.
const (
	ofPlan uint64 = iota
	ofFate
	ofTime
	ofText
	ofMove
)

// text returns n bytes that look like no other text.
func text(n int, key ...uint64) []byte {
	d := roll(append(key, ofText)...)
	p := make([]byte, n+8)
	for i := 0; i < n; i += 8 {
		binary.LittleEndian.PutUint64(p[i:], d.Uint64())
	}
	for i := range p {
		p[i] = ' ' + p[i]%94 // what can be printed
	}
	return p[:n]
}
