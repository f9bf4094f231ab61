package get

import (
	"os"

	"golang.org/x/sys/windows"
)

// takesEscapes makes a console understand escape sequences, and reports whether it
// does.
func takesEscapes(f *os.File) bool {
	var mode uint32
	console := windows.Handle(f.Fd())
	return windows.GetConsoleMode(console, &mode) == nil &&
		windows.SetConsoleMode(console, mode|windows.ENABLE_VIRTUAL_TERMINAL_PROCESSING) == nil
}
