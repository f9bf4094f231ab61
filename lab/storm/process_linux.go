package main

import "syscall"

// endWithParent makes the system end the server as soon as the thread that started
// it is gone. That is the main thread.
func endWithParent(a *syscall.SysProcAttr) { a.Pdeathsig = syscall.SIGKILL }
