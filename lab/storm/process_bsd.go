//go:build unix && !linux

package main

import "syscall"

// endWithParent does nothing. The server ends when its stdin ends.
func endWithParent(*syscall.SysProcAttr) {}
