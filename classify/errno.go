//go:build !plan9

// Error numbers of the operating system.

package classify

import (
	"errors"
	"syscall"
)

// isResetErrno reports whether the other side ended the connection. Some
// transports return such a number without a net.OpError around it.
func isResetErrno(err error) bool {
	return errors.Is(err, syscall.ECONNRESET) ||
		errors.Is(err, syscall.ECONNABORTED) ||
		errors.Is(err, syscall.EPIPE)
}

// isRefusal reports whether the other side did not accept the connection.
func isRefusal(err error) bool {
	return errors.Is(err, syscall.ECONNREFUSED)
}
