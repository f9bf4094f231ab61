// Plan 9 has no error numbers for connections. Its errors are strings.

package classify

func isResetErrno(error) bool { return false }

func isRefusal(error) bool { return false }
