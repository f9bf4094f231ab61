package faults

import "syscall"

// Plan 9 has texts instead of numbers.
const errRefused, errReset = syscall.ErrorString("connection refused"), syscall.ErrorString("connection reset")
