package trait

import (
	"errors"
	"fmt"
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
