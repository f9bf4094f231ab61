//go:build !windows

package get

import "os"

// takesEscapes returns true, because all other terminals understand escape
// sequences unless TERM says that they do not.
func takesEscapes(*os.File) bool { return true }
