//go:build darwin || dragonfly || freebsd || illumos || linux || netbsd || openbsd

package dir

import (
	"os"
	"syscall"
)

// dontBlock makes opening a file return at once, whatever it is.
const dontBlock = syscall.O_NONBLOCK

// tryLock locks a file, until it is closed. It does not wait.
func tryLock(file *os.File) bool {
	raw, err := file.SyscallConn()
	if err != nil {
		return false
	}
	failed := raw.Control(func(fd uintptr) { err = syscall.Flock(int(fd), syscall.LOCK_EX|syscall.LOCK_NB) })
	return failed == nil && err == nil
}
