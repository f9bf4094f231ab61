package replay

import (
	"errors"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// deleteOnClose is FILE_FLAG_DELETE_ON_CLOSE. os.OpenFile passes it to the system.
const deleteOnClose = 0x04000000

// openSpool makes a file in dir ("": os.TempDir). The system removes the file when it
// is closed, and when the process ends or crashes. os.CreateTemp cannot ask for that.
func openSpool(dir string) (file *os.File, err error) {
	if dir == "" {
		dir = os.TempDir()
	}
	for range 100 { // tries, in case a name is taken
		name := strings.Replace(spoolName, "*", strconv.FormatUint(rand.Uint64(), 36), 1)
		file, err = os.OpenFile(filepath.Join(dir, name), os.O_RDWR|os.O_CREATE|os.O_EXCL|deleteOnClose, 0o600)
		if err == nil || !errors.Is(err, fs.ErrExist) {
			break
		}
	}
	return file, err
}

func closeSpool(file *os.File) { _ = file.Close() }
