//go:build !js

package main

import (
	"os"
	"os/signal"
	"syscall"
)

// notifyHangup sends SIGHUP to the channel. Windows sends it when the console is
// closed, and the rules are then read once more before the end.
func notifyHangup(c chan<- os.Signal) { signal.Notify(c, syscall.SIGHUP) }
