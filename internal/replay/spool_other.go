//go:build !unix && !windows

package replay

import "os"

// openSpool makes a file in dir ("": os.TempDir). The file keeps its name until it
// is closed, because an open file cannot be removed here. A process that crashes
// leaves the file behind.
func openSpool(dir string) (*os.File, error) {
	return os.CreateTemp(dir, spoolName)
}

func closeSpool(file *os.File) {
	_ = file.Close()
	_ = os.Remove(file.Name())
}
