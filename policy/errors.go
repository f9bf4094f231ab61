// The errors of Validate.

package policy

import (
	"errors"
	"fmt"
	"reflect"
)

// A FieldError is one fault of a configuration. Several are joined ([errors.Join]), so
// errors.As finds the first, and a method Unwrap() []error lists all.
type FieldError struct {
	// Field is the name of the field. If the field is part of something larger, a
	// path comes first, as in "Backoff.Max" or `Hosts["*.example.com"].MaxAttempts`.
	Field string
	// Err says what is wrong, with the value if there is a single one, as in "5000 is
	// more than 1000 attempts". It is the error of a Backoff's own Validate, if that
	// found the fault.
	Err error
}

// Error returns "Field: " and the text of Err.
func (e *FieldError) Error() string { return e.Field + ": " + e.Err.Error() }

// Unwrap returns Err.
func (e *FieldError) Unwrap() error { return e.Err }

// faults are the faults of a rule, in the order of its fields.
type faults []error

// add appends a fault. A value that is nil is left out of its text.
func (f *faults) add(field string, value any, reason string, args ...any) {
	text := fmt.Sprintf(reason, args...)
	if value != nil {
		text = show(reflect.ValueOf(value)) + " " + text
	}
	*f = append(*f, &FieldError{field, errors.New(text)})
}
