//go:build darwin || dragonfly || freebsd || illumos || linux || netbsd || openbsd

package dir

import "syscall"

// dontBlock makes opening a file return at once, whatever it is.
const dontBlock = syscall.O_NONBLOCK

// lock locks a file, until it is closed. It does not wait.
func lock(fd uintptr) error { return syscall.Flock(int(fd), syscall.LOCK_EX|syscall.LOCK_NB) }
