//go:build linux || darwin

package testkit

import (
	"syscall"
	"time"
)

// CPU returns how long the process has used a processor.
func CPU() time.Duration {
	var r syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &r) != nil {
		return 0
	}
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}
