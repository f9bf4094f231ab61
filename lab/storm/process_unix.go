//go:build unix

// The system calls of the experiment. Only a Unix can stop a process.

package main

import (
	"os"
	"os/exec"
	"syscall"
)

// freeze stops the server process. The system goes on accepting connections and
// bytes for it.
func freeze(p *os.Process) error { return p.Signal(syscall.SIGSTOP) }

func resume(p *os.Process) error { return p.Signal(syscall.SIGCONT) }

// detach puts the server into a process group of its own, so that Ctrl-C only
// reaches the parent, which ends the server. When the parent is gone, the group is
// an orphan, and the system wakes and ends a stopped member (SIGCONT, SIGHUP).
func detach(c *exec.Cmd) {
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	endWithParent(c.SysProcAttr)
}

// raiseFiles raises the limit of open files to n, or as far as allowed. It returns
// the resulting limit.
func raiseFiles(n uint64) uint64 {
	var l syscall.Rlimit
	if syscall.Getrlimit(syscall.RLIMIT_NOFILE, &l) != nil {
		return 0
	}
	hard := uint64(l.Max)
	for _, want := range []uint64{n, min(n, hard)} { // only root may go beyond the hard limit
		if want <= uint64(l.Cur) {
			break
		}
		to := l
		set(&to.Cur, want)
		set(&to.Max, max(want, hard))
		if syscall.Setrlimit(syscall.RLIMIT_NOFILE, &to) == nil {
			return want
		}
	}
	return uint64(l.Cur)
}

// set assigns to a field that is signed on some systems.
func set[T int64 | uint64](to *T, n uint64) { *to = T(n) }
