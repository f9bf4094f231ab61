//go:build unix

package replay

import "os"

// openSpool makes a file in dir ("": os.TempDir) and removes its name at once:
// the system frees it when it is closed, or when the process ends, however that
// comes.
func openSpool(dir string) (*os.File, error) {
	file, err := os.CreateTemp(dir, spoolName)
	if err != nil {
		return nil, err
	}
	if err := os.Remove(file.Name()); err != nil {
		_ = file.Close()
		return nil, err // a directory that files cannot be removed from is not for this
	}
	return file, nil
}

func closeSpool(file *os.File) { _ = file.Close() }
