// Plan 9 has no error numbers for connections: its errors are strings.

package classify

func isResetErrno(error) bool { return false }

func isRefusal(error) bool { return false }
