// Package trait asks errors about themselves. An error has a trait if the first error in its tree
// that has the method says so.
package trait

import "errors"

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
