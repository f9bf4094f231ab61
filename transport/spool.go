// Where is a request's body kept that is too large for memory?

package transport

import (
	"io"
	"os"
	"sync"
)

// A spool keeps the part of a request's body that does not fit in memory, in a
// temporary file. The file has no name as soon as it is open, where the system
// allows that, so that nothing is left of it when the process dies (see
// openSpool). What it holds is the caller's data in plain; only the owner may
// read it (mode 0600).
//
// It has one writer at a time, the one that reads the source. Reads of what was
// written, and drop, may come from other goroutines meanwhile.
type spool struct {
	dir   string
	limit int64 // bytes
	size  int64 // the writer's; how many are written

	mu      sync.Mutex // guards all below; not held while the disk is at work
	file    *os.File   // nil: not open yet
	dropped bool
}

// add writes p behind what is there. After false, be it for want of room on the
// disk, nothing in the spool can be relied on, and it is to be dropped.
func (s *spool) add(p []byte) bool {
	if s.limit-s.size < int64(len(p)) {
		return false
	}
	file := s.open()
	if file == nil {
		return false
	}
	n, err := file.WriteAt(p, s.size)
	if err != nil || n != len(p) {
		return false
	}
	s.size += int64(n)
	return true
}

// open returns the file, made at the first call; nil where that fails.
func (s *spool) open() *os.File {
	s.mu.Lock()
	file, dropped := s.file, s.dropped
	s.mu.Unlock()
	if file != nil || dropped {
		return file
	}
	file, err := openSpool(s.dir)
	if err != nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.dropped {
		closeSpool(file)
		return nil
	}
	s.file = file
	return file
}

// readAt reads what was written; p must lie within that.
func (s *spool) readAt(p []byte, at int64) (int, error) {
	s.mu.Lock()
	file := s.file
	s.mu.Unlock()
	if file == nil {
		return 0, os.ErrClosed
	}
	n, err := file.ReadAt(p, at)
	switch {
	case n == len(p):
		return n, nil
	case err == io.EOF:
		err = io.ErrUnexpectedEOF // somebody shortened the file
	}
	return 0, err
}

// drop removes the file. A read or write under way fails.
func (s *spool) drop() {
	if s == nil {
		return
	}
	s.mu.Lock()
	file := s.file
	s.file, s.dropped = nil, true
	s.mu.Unlock()
	if file != nil {
		closeSpool(file)
	}
}

// spoolName is the pattern of the file's name, while it has one.
const spoolName = "aplomb-body-*"
