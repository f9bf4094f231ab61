// Package soak says how much work a test does. make test runs every test, but the long
// ones with few seeds, rounds or bytes. make soak runs the same tests in full length.
package soak

import "os"

// Size returns the short size in make test, and the long size in make soak, which sets
// APLOMB_SOAK.
func Size[T any](short, long T) T {
	if os.Getenv("APLOMB_SOAK") == "" {
		return short
	}
	return long
}
