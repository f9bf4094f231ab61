//go:build !(darwin || dragonfly || freebsd || linux || netbsd || openbsd)

package main

import "os"

// lockFile does nothing on this system. The user has to avoid two runs for the
// same file.
func lockFile(*os.File) error { return nil }
