// The errors of Validate.

package policy

import (
	"fmt"
	"reflect"
	"strings"
)

// A FieldError says what is wrong with one field of a [Rule] or a [Backoff].
type FieldError struct {
	// Field is the field's name, with a path in front where it is part of
	// something larger: "Backoff.Max", `Hosts["*.example.com"].Rate`.
	Field string
	// Value is what stands there.
	Value any
	// Reason goes on after the value: "is more than 1000 sends".
	Reason string
	// Err is the error of a Backoff's own Validate where that is of another
	// type; Reason is its text. Otherwise nil.
	Err error
}

// Error returns "Field: value reason", or "Field: reason" where there is no
// value or Err speaks for itself.
func (e *FieldError) Error() string {
	if e.Value == nil || e.Err != nil {
		return e.Field + ": " + e.Reason
	}
	return e.Field + ": " + show(reflect.ValueOf(e.Value)) + " " + e.Reason
}

// Unwrap returns Err.
func (e *FieldError) Unwrap() error { return e.Err }

// Errors is everything that is wrong with a rule, in the order of its fields.
type Errors []*FieldError

// Error returns one line per fault.
func (e Errors) Error() string {
	lines := make([]string, len(e))
	for i, fault := range e {
		lines[i] = fault.Error()
	}
	return strings.Join(lines, "\n")
}

// Unwrap returns the faults for errors.Is and errors.As.
func (e Errors) Unwrap() []error {
	list := make([]error, len(e))
	for i, fault := range e {
		list[i] = fault
	}
	return list
}

// At returns a copy with prefix put in front of each fault's Field:
// `Hosts["*.example.com"].` tells where the rule stands.
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
