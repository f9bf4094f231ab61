// Package dice draws random choices that depend on a seed alone, never on the order in which
// goroutines run.
package dice

import (
	"math"
	"math/rand/v2"
	"time"
)

// A Dice draws the choices of one part of a story, such as a host, a caller or an attempt.
type Dice struct{ *rand.Rand }

// Roll returns the dice for the part of a story that path names. The same path always gives
// the same choices.
func Roll(path ...uint64) Dice {
	h := uint64(len(path))
	for _, p := range path {
		h = Mix(h ^ p)
	}
	return Dice{rand.New(rand.NewPCG(h, Mix(h)))}
}

// Mix is the finaliser of SplitMix64.
func Mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// Chance returns true with the given probability in percent.
func (d Dice) Chance(percent int) bool { return d.IntN(100) < percent }

// Among returns a number from lo to hi.
func (d Dice) Among(lo, hi int) int { return lo + d.IntN(hi-lo+1) }

// Between draws a duration from lo to hi. Each order of magnitude is equally likely.
func (d Dice) Between(lo, hi time.Duration) time.Duration {
	return time.Duration(float64(lo) * math.Pow(float64(hi)/float64(lo), d.Float64()))
}

// One returns a random value of those given.
func One[T any](d Dice, of ...T) T { return of[d.IntN(len(of))] }
