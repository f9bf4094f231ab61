//go:build !linux && !darwin

package testkit

import "time"

// CPU returns 0, because the time that a process has used is told in another way here.
func CPU() time.Duration { return 0 }
