// Errors like those of net/http. Each is marked with its attempt.

package simulate

import (
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"reflect"
	"syscall"
)

// A fault is the error of one attempt.
type fault struct {
	attempt *attempt
	err     error
}

func (f *fault) Error() string { return f.err.Error() }
func (f *fault) Unwrap() error { return f.err }

// A scripted is a panic that the story planned.
type scripted struct{ where string }

func (p *scripted) String() string { return "a scripted panic in " + p.where }

// A streamError is an HTTP/2 stream error. net/http does not export its own
// type.
type streamError struct {
	StreamID uint32
	Code     uint32
	Cause    error
}

func (e streamError) Error() string {
	return fmt.Sprintf("stream error: stream ID %d; code %d", e.StreamID, e.Code)
}

// As fills any struct with the same fields, as the As method of net/http's type
// does.
func (e streamError) As(target any) bool {
	from, to := reflect.ValueOf(e), reflect.ValueOf(target).Elem()
	if to.Kind() != reflect.Struct || to.NumField() != from.NumField() {
		return false
	}
	for i := range from.NumField() {
		if to.Type().Field(i).Name != from.Type().Field(i).Name {
			return false
		}
	}
	for i := range from.NumField() {
		to.Field(i).Set(from.Field(i).Convert(to.Field(i).Type()))
	}
	return true
}

// errorOf returns the error of an attempt that fails.
func errorOf(o outcome) error {
	switch o {
	case cannotDial:
		return &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}
	case refuses:
		return streamError{StreamID: 5, Code: 7}
	case resets:
		return &net.OpError{Op: "read", Net: "tcp", Err: syscall.ECONNRESET}
	case talksNonsense:
		return errors.New(`net/http: HTTP/1.x transport connection broken: malformed HTTP response "x"`)
	case distrusts:
		return x509.UnknownAuthorityError{}
	}
	return errors.New("simulate: an error that nobody knows")
}
