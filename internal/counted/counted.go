// Package counted reads bodies whose Read may return a wrong count, as that of a base
// transport or of a caller may.
package counted

import (
	"errors"
	"io"
)

var errCount = errors.New("aplomb: a body's Read returned an invalid count")

// Read is r.Read. It returns no bytes and an error if the count is invalid.
func Read(r io.Reader, p []byte) (int, error) {
	n, err := r.Read(p)
	if n < 0 || n > len(p) {
		return 0, errCount
	}
	return n, err
}
