//go:build unix && !linux

package main

import "syscall"

// endWithParent: the end of its stdin has to do.
func endWithParent(*syscall.SysProcAttr) {}
