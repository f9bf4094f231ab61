// Where is a request's body kept that is too large for memory?

package replay

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
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
	why   error // the writer's; why add returned false

	mu      sync.Mutex // guards all below; not held while the disk is at work
	file    *os.File   // nil: not open yet
	dropped bool
	pool    *Pool  // nil: no bound but limit
	held    *int64 // bytes counted in the pool
}

// defaultTempTotal is the least bound that a Transport has without a
// Config.TempTotal.
const defaultTempTotal = 1 << 30

// newSpool returns a spool for the body of s. If s is lost without being
// finished, the cleanup gives back the spool's share of the pool.
func newSpool(s *source, dir string, limit int64) *spool {
	pool, held := s.pool, new(int64)
	runtime.AddCleanup(s, func(held *int64) { pool.Disk.Add(-*held) }, held)
	return &spool{dir: dir, limit: limit, pool: pool, held: held}
}

// total returns the bound for all files together.
func (s *spool) total() int64 { return cmp.Or(s.pool.MaxDisk, max(defaultTempTotal, s.limit)) }

// add writes p behind the bytes that are there. If it returns false, nothing in
// the spool can be relied on, and the caller has to drop it.
func (s *spool) add(p []byte) bool {
	if s.limit-s.size < int64(len(p)) {
		s.why = errSpoolFull
		return false
	}
	if !s.claim(int64(len(p))) {
		return false
	}
	file, err := s.open()
	if err != nil {
		s.why = fmt.Errorf("the temporary file for Upload.Disk could not be made: %w", err)
		return false
	}
	n, err := file.WriteAt(p, s.size)
	if err != nil || n != len(p) {
		s.why = fmt.Errorf("the temporary file for Upload.Disk could not be written: %w", cmp.Or(err, io.ErrShortWrite))
		return false
	}
	s.size += int64(n)
	return true
}

var errSpoolFull = errors.New("a spool's limit is reached")

// cause says why add returned false. kept is the bound of the bytes in memory.
func (s *spool) cause(kept int64) error {
	if s.why != errSpoolFull {
		return s.why
	}
	return fmt.Errorf("it is larger than Upload.Memory (%d bytes) and Upload.Disk (%d bytes) together, and it has no GetBody", max(kept, 0), s.limit)
}

// claim takes n bytes of the bound for all files together.
func (s *spool) claim(n int64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.dropped:
		s.why = os.ErrClosed
		return false
	case s.pool == nil:
		return true
	case s.pool.Disk.Add(n) > s.total():
		s.pool.Disk.Add(-n)
		s.why = fmt.Errorf("the files of all request bodies (Upload.Disk) together have reached TempTotal (%d bytes)", s.total())
		return false
	}
	*s.held += n
	return true
}

// open returns the file, made at the first call.
func (s *spool) open() (*os.File, error) {
	s.mu.Lock()
	file, dropped := s.file, s.dropped
	s.mu.Unlock()
	switch {
	case dropped:
		return nil, os.ErrClosed
	case file != nil:
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
	if s.pool != nil {
		s.pool.Disk.Add(-*s.held)
		*s.held = 0
	}
	s.mu.Unlock()
	if file != nil {
		closeSpool(file)
	}
}

// spoolName is the pattern of the file's name, while it has one.
const spoolName = "aplomb-body-*"
