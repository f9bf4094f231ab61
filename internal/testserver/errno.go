//go:build !plan9

// The system errors that a network in memory reports.

package testserver

import "syscall"

const (
	errnoInUse   = syscall.EADDRINUSE
	errnoRefused = syscall.ECONNREFUSED
	errnoReset   = syscall.ECONNRESET
	errnoPipe    = syscall.EPIPE
)
