//go:build !unix && !windows

package replay

import "os"

// openSpool makes a file in dir ("": os.TempDir). It keeps its name until it is
// closed, since an open file cannot be removed here: a process that crashes
// leaves it behind, for whatever clears the directory.
func openSpool(dir string) (*os.File, error) {
	return os.CreateTemp(dir, spoolName)
}

func closeSpool(file *os.File) {
	_ = file.Close()
	_ = os.Remove(file.Name())
}
