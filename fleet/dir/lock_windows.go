package dir

import (
	"os"

	"golang.org/x/sys/windows"
)

const dontBlock = 0 // nothing blocks there

// tryLock locks a file, until it is closed. It does not wait. It locks a byte behind the content.
func tryLock(file *os.File) bool {
	raw, err := file.SyscallConn()
	if err != nil {
		return false
	}
	failed := raw.Control(func(fd uintptr) {
		err = windows.LockFileEx(windows.Handle(fd), windows.LOCKFILE_EXCLUSIVE_LOCK|windows.LOCKFILE_FAIL_IMMEDIATELY, 0, 1, 0,
			&windows.Overlapped{Offset: 1 << 20})
	})
	return failed == nil && err == nil
}
