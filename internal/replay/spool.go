package replay

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
)

// A spool keeps the bytes of a body that do not fit in memory, in a temporary file.
// If the system allows it, the file loses its name as soon as it is open. Then
// nothing is left of it when the process dies. It holds the
// caller's data in plain. Only the owner may read it (mode 0600).
//
// The lease of the body lets a single goroutine at a time call add and readAt. Only
// drop may come meanwhile, when the attempt closes its reader.
type spool struct {
	dir   string
	limit int64 // the most bytes of the file
	size  int64 // how many bytes are written, used by add alone
	pool  *Pool

	mu      sync.Mutex // guards all below, and is not held while the disk is at work
	file    *os.File   // nil if not open yet, or dropped
	dropped bool
	held    *int64 // bytes counted in the pool
}

// errSpoolFull is the error of add if the body is larger than the spool's limit.
var errSpoolFull = errors.New("the limit of a temporary file is reached")

// add writes p after the bytes that are there. After an error the content of the
// file is not known, and the caller must drop the spool.
func (s *spool) add(p []byte) error {
	if s.limit-s.size < int64(len(p)) {
		return errSpoolFull
	}
	if err := s.claim(int64(len(p))); err != nil {
		return err
	}
	file, err := s.open()
	if err != nil {
		return fmt.Errorf("the temporary file for Upload.Disk could not be made: %w", err)
	}
	n, err := file.WriteAt(p, s.size)
	if err != nil || n != len(p) {
		return fmt.Errorf("the temporary file for Upload.Disk could not be written: %w", cmp.Or(err, io.ErrShortWrite))
	}
	s.size += int64(n)
	return nil
}

// claim takes n bytes of the pool.
func (s *spool) claim(n int64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.dropped:
		return os.ErrClosed
	case !s.pool.takeDisk(n, s.limit):
		return fmt.Errorf("the files of all request bodies (Upload.Disk) together have reached TempTotal (%d bytes)", s.pool.maxDisk(s.limit))
	}
	*s.held += n
	return nil
}

// open returns the file. The first call makes it.
func (s *spool) open() (*os.File, error) {
	s.mu.Lock()
	file := s.file
	s.mu.Unlock()
	if file != nil {
		return file, nil
	}
	file, err := openSpool(s.dir)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.dropped {
		closeSpool(file)
		return nil, os.ErrClosed
	}
	s.file = file
	return file, nil
}

// readAt fills p with bytes that were written. If there are fewer, it returns an
// error.
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
		err = io.ErrUnexpectedEOF // somebody has shortened the file
	}
	return 0, err
}

// drop removes the file and gives its bytes back. A read or write under way fails.
func (s *spool) drop() {
	if s == nil {
		return
	}
	s.mu.Lock()
	file := s.file
	s.file, s.dropped = nil, true
	s.pool.leaveDisk(*s.held)
	*s.held = 0
	s.mu.Unlock()
	if file != nil {
		closeSpool(file)
	}
}

// spoolName is the pattern of the file's name, as long as it has a name.
const spoolName = "aplomb-body-*"
