//go:build !plan9

// Which error numbers of the operating system tell something?

package classify

import (
	"errors"
	"syscall"
)

// isResetErrno knows the numbers of a connection that the other side ended, for
// transports that hand them out without a net.OpError around.
func isResetErrno(err error) bool {
	return errors.Is(err, syscall.ECONNRESET) ||
		errors.Is(err, syscall.ECONNABORTED) ||
		errors.Is(err, syscall.EPIPE)
}

// isRefusal knows the number of a connection that nobody accepted.
func isRefusal(err error) bool {
	return errors.Is(err, syscall.ECONNREFUSED)
}
