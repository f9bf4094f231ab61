//go:build unix

// The system calls of the experiment. Only a Unix can stop a process.

package main

import (
	"context"
	"io"
	"os"
	"os/exec"
	"syscall"
)

// These stop a server process, and let it go on. The system accepts connections and
// bytes for it meanwhile.
const (
	freeze = syscall.SIGSTOP
	resume = syscall.SIGCONT
)

// A process is this program, started again in another role.
type process struct {
	cmd    *exec.Cmd
	stdin  io.WriteCloser
	stdout io.Reader
}

// startSelf starts this program again. The process is in a group of its own, so that Ctrl-C
// only reaches the parent, which ends it. It ends when its stdin does. When the parent is
// gone, the group is an orphan, and the system wakes and ends a stopped member (SIGCONT, SIGHUP).
func startSelf(ctx context.Context, role string, env ...string) (p process, err error) {
	self, err := os.Executable()
	if err != nil {
		return p, err
	}
	p.cmd = exec.CommandContext(ctx, self, role)
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	p.cmd.Stderr, p.cmd.Env = os.Stderr, append(os.Environ(), env...)
	if p.stdin, err = p.cmd.StdinPipe(); err != nil {
		return p, err
	}
	if p.stdout, err = p.cmd.StdoutPipe(); err != nil {
		return p, err
	}
	return p, p.cmd.Start()
}

// kill ends the process, whether or not it is frozen or has ended, and waits for it.
func (p process) kill() {
	_ = p.cmd.Process.Kill()
	_ = p.cmd.Wait() // the error only says that the process was killed
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
