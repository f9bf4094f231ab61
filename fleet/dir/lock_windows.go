package dir

import "golang.org/x/sys/windows"

const dontBlock = 0 // nothing blocks there

// lock locks a file, until it is closed. It does not wait. It locks a byte behind the content.
func lock(fd uintptr) error {
	return windows.LockFileEx(windows.Handle(fd), windows.LOCKFILE_EXCLUSIVE_LOCK|windows.LOCKFILE_FAIL_IMMEDIATELY, 0, 1, 0,
		&windows.Overlapped{Offset: 1 << 20})
}
