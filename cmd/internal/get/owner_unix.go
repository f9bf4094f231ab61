//go:build unix

package get

import (
	"errors"
	"os"
	"syscall"
)

// noWait keeps an open of a pipe from waiting for the other end.
const noWait = syscall.O_NONBLOCK

// foreign returns an error if another user owns a file, or if the file has other names. It
// may then be read or changed where nobody expects it.
func foreign(info os.FileInfo) error {
	stat, ok := info.Sys().(*syscall.Stat_t)
	switch {
	case !ok:
		return nil
	case int(stat.Uid) != os.Geteuid():
		return errors.New("it belongs to another user")
	case stat.Nlink > 1:
		return errors.New("it has another name as well (a hard link)")
	}
	return nil
}
