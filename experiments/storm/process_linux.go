package main

import "syscall"

// endWithParent lets the system end the server at once when the thread that
// started it is gone, which is the main thread.
func endWithParent(a *syscall.SysProcAttr) { a.Pdeathsig = syscall.SIGKILL }
