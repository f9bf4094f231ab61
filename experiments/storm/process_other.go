//go:build !unix

// What the experiment wants of the system, where no process can be stopped.

package main

import (
	"errors"
	"os"
	"os/exec"
)

// howFrozen says how the server is frozen here.
const howFrozen = "the server's own hand: it accepts and answers nobody"

var errByHand = errors.New("no signals here")

// freeze reports that the server has to freeze itself.
func freeze(*os.Process) error { return errByHand }

func resume(*os.Process) error { return errByHand }

func detach(*exec.Cmd) {}

// raiseFiles: there is no such limit.
func raiseFiles(n uint64) uint64 { return n }
