//go:build unix

// What the experiment wants of the system, where that is a Unix.

package main

import (
	"os"
	"os/exec"
	"syscall"
)

// howFrozen says how the server is frozen here.
const howFrozen = "SIGSTOP"

// freeze stops the server as it stands; the system goes on taking connections
// and bytes for it.
func freeze(p *os.Process) error { return p.Signal(syscall.SIGSTOP) }

func resume(p *os.Process) error { return p.Signal(syscall.SIGCONT) }

// detach puts the server into a process group of its own: Ctrl-C is for the
// parent, which ends it. When the parent is gone the group is an orphan, and
// the system wakes and ends a member that is stopped (SIGCONT, SIGHUP).
func detach(c *exec.Cmd) {
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	endWithParent(c.SysProcAttr)
}

// raiseFiles raises the limit of open files to n, or as far as it may, and
// returns what it is then.
func raiseFiles(n uint64) uint64 {
	var l syscall.Rlimit
	if syscall.Getrlimit(syscall.RLIMIT_NOFILE, &l) != nil {
		return 0
	}
	hard := uint64(l.Max)
	for _, want := range []uint64{n, min(n, hard)} { // beyond the hard limit only root may go
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

// set is for a field that is signed on some systems.
func set[T int64 | uint64](to *T, n uint64) { *to = T(n) }
