//go:build unix

package replay

import "os"

// openSpool makes a file in dir ("": os.TempDir) and removes its name at once. The
// system frees the file when it is closed, and when the process ends or crashes.
func openSpool(dir string) (*os.File, error) {
	file, err := os.CreateTemp(dir, spoolName)
	if err != nil {
		return nil, err
	}
	if err := os.Remove(file.Name()); err != nil {
		_ = file.Close()
		return nil, err // the file would stay behind
	}
	return file, nil
}

func closeSpool(file *os.File) { _ = file.Close() }
