// Which fields have values that a formula cannot use?

package formula

import (
	"errors"
	"fmt"
	"math"
	"time"
)

// A Fault is a field with an invalid value.
type Fault struct {
	Field  string // its name
	Value  any
	Reason string // continues the sentence after the value, as in "is negative"
}

// Error returns "Field: value reason".
func (f *Fault) Error() string { return fmt.Sprintf("%s: %v %s", f.Field, f.Value, f.Reason) }

// The checks below refuse exactly the values that their namesakes in formula.go replace
// by a default. They return nil for every other value.

func checkDuration(field string, d time.Duration) error {
	if d < 0 {
		return &Fault{field, d, "is negative"}
	}
	return nil
}

// checkOrder takes the values with their defaults filled in, because a cap can be
// too low for a default as well as for a given value.
func checkOrder(small string, low time.Duration, large string, high time.Duration) error {
	if low > high {
		return &Fault{large, high, fmt.Sprintf("is less than %s (%v)", small, low)}
	}
	return nil
}

func checkGrowth(field string, f float64) error {
	if f != 0 && growth(f, 0) == 0 {
		return &Fault{field, f, "is not a finite number of at least 1"}
	}
	return nil
}

func checkShare(field string, f, most float64) error {
	switch {
	case f == 0 || share(f, most, 0) != 0:
		return nil
	case most == math.MaxFloat64:
		return &Fault{field, f, "is not a finite number above zero"}
	default:
		return &Fault{field, f, fmt.Sprintf("is not a number from 0 to %.4g", most)}
	}
}

// curve checks the fields that most formulas have: the first wait, the factor between the waits
// and the cap. low and high are the first wait and the cap with their defaults filled in.
func curve(first string, d, low time.Duration, factor string, f float64, last string, top, high time.Duration) error {
	return errors.Join(checkDuration(first, d), checkGrowth(factor, f), checkDuration(last, top), checkOrder(first, low, last, high))
}
