// A check for goroutines that are left when all tests are done.

package e2e

import (
	"fmt"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"
)

func TestMain(m *testing.M) {
	code := m.Run()
	if left := goroutines(); code == 0 && left != "" {
		fmt.Fprintf(os.Stderr, "goroutines of aplomb are left:\n%s\n", left)
		code = 1
	}
	os.Exit(code)
}

// goroutines returns the stacks of the goroutines that run aplomb's code. It gives
// them a minute to end.
func goroutines() (left string) {
	for range 600 {
		buf := make([]byte, 64<<20)
		buf = buf[:runtime.Stack(buf, true)]
		left = ""
		for _, stack := range strings.Split(string(buf), "\n\n") {
			if strings.Contains(stack, "aplomb/transport.") || strings.Contains(stack, "aplomb/internal/") {
				left += stack + "\n\n"
			}
		}
		if left == "" {
			return ""
		}
		time.Sleep(100 * time.Millisecond)
	}
	return left
}
