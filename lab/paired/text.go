// Random selections and texts.

package paired

import (
	"encoding/binary"

	"github.com/aplomb-go/aplomb/lab/internal/dice"
)

// some returns a random selection of those given, at least one.
func some[T any](d dice.Dice, of ...T) (chosen []T) {
	for chosen == nil {
		for _, x := range of {
			if d.Chance(40) {
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
	d := dice.Roll(append(key, ofText)...)
	p := make([]byte, n+8)
	for i := 0; i < n; i += 8 {
		binary.LittleEndian.PutUint64(p[i:], d.Uint64())
	}
	for i := range p {
		p[i] = ' ' + p[i]%94 // what can be printed
	}
	return p[:n]
}
