//go:build !plan9

package faults

import "syscall"

const errRefused, errReset = syscall.ECONNREFUSED, syscall.ECONNRESET
