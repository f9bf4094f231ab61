package trait

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
)

// A said error has all traits, or denies all of them.
type said bool

func (said) Error() string     { return "said" }
func (s said) GaveUp() bool    { return bool(s) }
func (s said) Timeout() bool   { return bool(s) }
func (s said) Temporary() bool { return bool(s) }

func TestTraits(t *testing.T) {
	silent := errors.New("silent")
	for name, row := range map[string]struct {
		err  error
		want bool
	}{
		"no error":                 {nil, false},
		"an error without methods": {silent, false},
		"yes":                      {said(true), true},
		"no":                       {said(false), false},
		"yes, within another":      {fmt.Errorf("reading: %w", said(true)), true},
		"yes, beside another":      {errors.Join(silent, said(true)), true},
		"the first has the word":   {errors.Join(said(false), said(true)), false},
	} {
		assert.Equal(t, row.want, GaveUp(row.err), name)
		assert.Equal(t, row.want, Timeout(row.err), name)
		assert.Equal(t, row.want, Temporary(row.err), name)
	}
}

func TestTree(t *testing.T) {
	a, b, c := errors.New("a"), errors.New("b"), errors.New("c")
	joined := errors.Join(fmt.Errorf("x: %w", a), b)
	whole := fmt.Errorf("y: %w", errors.Join(joined, c))
	var leaves []error
	for err := range Tree(whole) {
		if errors.Unwrap(err) == nil && err != joined {
			leaves = append(leaves, err)
		}
		if err == b {
			break
		}
	}
	assert.Equal(t, []error{errors.Unwrap(whole), a, b}, leaves)
	assert.Empty(t, slices.Collect(Tree(nil)))
	assert.True(t, Wraps(whole, func(err error) bool { return err == c }))
	assert.False(t, Wraps(whole, func(err error) bool { return err == nil }))
	assert.False(t, Wraps(nil, func(error) bool { return true }))
}
