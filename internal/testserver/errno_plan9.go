// Plan 9 has no numbers for these errors.

package testserver

import "syscall"

var (
	errnoInUse   = syscall.NewError("address in use")
	errnoRefused = syscall.NewError("connection refused")
	errnoReset   = syscall.NewError("connection reset")
	errnoPipe    = syscall.NewError("broken pipe")
)
