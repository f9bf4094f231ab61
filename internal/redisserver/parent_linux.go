package redisserver

import (
	"os/exec"
	"syscall"
)

// endWithParent makes the kernel kill the server when the thread that starts it ends. Go
// keeps its threads until the process ends.
func endWithParent(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}
