// The errors of Validate.

package policy

import (
	"errors"
	"fmt"
	"reflect"
)

// A FieldError is one fault of a field of a [Rule] or a [backoff.Backoff].
type FieldError struct {
	// Field is the name of the field. If the field is part of something larger, a
	// path comes first, as in "Backoff.Max" or `Hosts["*.example.com"].MaxAttempts`.
	Field string
	// Value is the value of the field. It is nil if the fault has no single value.
	Value any
	// Reason continues the sentence after the value, as in "is more than 1000
	// attempts".
	Reason string
	// Err is the error of a Backoff's own Validate, if that error has another type.
	// Reason is then its text. Otherwise Err is nil.
	Err error
}

// Error returns "Field: value reason". It leaves the value out if Value is nil or
// Err is set.
func (e *FieldError) Error() string {
	if e.Value == nil || e.Err != nil {
		return e.Field + ": " + e.Reason
	}
	return e.Field + ": " + show(reflect.ValueOf(e.Value)) + " " + e.Reason
}

// Unwrap returns Err.
func (e *FieldError) Unwrap() error { return e.Err }

// Errors holds all faults of a rule in the order of its fields.
type Errors []*FieldError

// Error returns one line per fault.
func (e Errors) Error() string { return fmt.Sprint(errors.Join(e.Unwrap()...)) }

// Unwrap returns the faults for errors.Is and errors.As.
func (e Errors) Unwrap() []error {
	list := make([]error, len(e))
	for i, fault := range e {
		list[i] = fault
	}
	return list
}

// At returns a copy of e with a prefix before the Field of each fault. A prefix such
// as `Hosts["*.example.com"].` tells the rules of several hosts apart.
func (e Errors) At(prefix string) Errors {
	moved := make(Errors, len(e))
	for i, fault := range e {
		at := *fault
		at.Field = prefix + at.Field
		moved[i] = &at
	}
	return moved
}

// add appends a fault.
func (e *Errors) add(field string, value any, reason string, args ...any) {
	*e = append(*e, &FieldError{Field: field, Value: value, Reason: fmt.Sprintf(reason, args...)})
}
