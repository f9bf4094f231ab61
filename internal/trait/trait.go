// Package trait asks errors about themselves. An error has a trait if the first error in its tree
// that has the method says so.
package trait

import (
	"errors"
	"iter"
	"slices"
)

// GaveUp reports whether a layer below has retried and given up. A layer above that retried such
// an error would multiply the retries.
func GaveUp(err error) bool {
	e, ok := errors.AsType[interface {
		error
		GaveUp() bool
	}](err)
	return ok && e.GaveUp()
}

// Timeout reports whether an error is a timeout.
func Timeout(err error) bool {
	var e interface{ Timeout() bool }
	return errors.As(err, &e) && e.Timeout()
}

// Temporary reports whether an error is temporary.
func Temporary(err error) bool {
	var e interface{ Temporary() bool }
	return errors.As(err, &e) && e.Temporary()
}

// Wraps reports whether f returns true for err or for any error that it wraps.
func Wraps(err error, f func(error) bool) bool {
	if err == nil {
		return false
	}
	if f(err) {
		return true
	}
	switch e := err.(type) {
	case interface{ Unwrap() error }:
		return Wraps(e.Unwrap(), f)
	case interface{ Unwrap() []error }:
		return slices.ContainsFunc(e.Unwrap(), func(e error) bool { return Wraps(e, f) })
	}
	return false
}

// Tree returns err and all errors that it wraps. err may be nil.
func Tree(err error) iter.Seq[error] {
	return func(yield func(error) bool) { Wraps(err, func(e error) bool { return !yield(e) }) }
}
