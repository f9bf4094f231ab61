// The faults of rules.

package rules

import (
	"errors"

	"github.com/aplomb-go/aplomb/policy"
)

// FaultsOf returns the faults that an error joins, such as that of policy.Rule.Validate, with path in front of
// the field of each.
func FaultsOf(err error, path string) (all []*policy.FieldError) {
	joined, ok := errors.AsType[interface {
		error
		Unwrap() []error
	}](err)
	if !ok {
		return nil
	}
	for _, e := range joined.Unwrap() {
		if fault, ok := errors.AsType[*policy.FieldError](e); ok {
			all = append(all, &policy.FieldError{Field: path + fault.Field, Err: fault.Err})
		}
	}
	return all
}

// Join returns an error that joins the faults, or nil if there are none.
func Join(faults []*policy.FieldError) error {
	list := make([]error, len(faults))
	for i, fault := range faults {
		list[i] = fault
	}
	return errors.Join(list...)
}
