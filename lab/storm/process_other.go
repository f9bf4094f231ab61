//go:build !unix

// The system calls of the experiment, for systems that cannot stop a process.

package main

import (
	"errors"
	"os"
	"os/exec"
)

// howFrozen names the way in which the server is frozen on this system.
const howFrozen = "the server's own hand: it accepts and answers nobody"

var errByHand = errors.New("no signals here")

// freeze fails, so that the server freezes itself.
func freeze(*os.Process) error { return errByHand }

func resume(*os.Process) error { return errByHand }

func detach(*exec.Cmd) {}

// raiseFiles does nothing, because there is no such limit.
func raiseFiles(n uint64) uint64 { return n }
