package dir

import (
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"time"

	"github.com/aplomb-go/aplomb/fleet/internal/keyed"
	"github.com/aplomb-go/aplomb/internal/ledger"
)

// folderName is the folder of the files, in the directory that the user named. Nothing outside it
// is written or removed.
const folderName = "aplomb-fleet"

// files are the files of the folder. It is an *os.Root, so that whoever swaps a part of the path
// changes nothing.
type files interface {
	Open(name string) (*os.File, error)
	OpenFile(name string, flag int, perm fs.FileMode) (*os.File, error)
	Lstat(name string) (fs.FileInfo, error)
	Rename(from, to string) error
	Remove(name string) error
	Close() error
}

// openFolder makes the directory and its folder, and checks that nobody else can write them. It
// looks at what it has opened, which nobody can swap any more.
func openFolder(path string) (files, fs.FileInfo, error) {
	if err := os.MkdirAll(path, 0o700); err != nil {
		return nil, nil, fmt.Errorf("dir: %w", err)
	}
	above, err := os.OpenRoot(path)
	if err != nil {
		return nil, nil, fmt.Errorf("dir: %w", err)
	}
	defer func() { _ = above.Close() }()
	if _, err = private(above); err != nil {
		return nil, nil, err
	}
	if err = above.Mkdir(folderName, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, nil, fmt.Errorf("dir: %w", err)
	}
	if info, err := above.Lstat(folderName); err != nil || !info.IsDir() {
		return nil, nil, fmt.Errorf("dir: %s is not a directory", filepath.Join(path, folderName))
	}
	root, err := above.OpenRoot(folderName)
	if err != nil {
		return nil, nil, fmt.Errorf("dir: %w", err)
	}
	home, err := private(root)
	if err != nil {
		_ = root.Close() // nothing was written
		return nil, nil, err
	}
	return root, home, nil
}

// private checks that nobody else can write an open directory.
func private(root *os.Root) (fs.FileInfo, error) {
	info, err := root.Stat(".")
	switch {
	case err != nil:
		return nil, fmt.Errorf("dir: %w", err)
	case runtime.GOOS != "windows" && info.Mode().Perm()&0o022 != 0:
		return nil, fmt.Errorf("dir: others can write %s, which has the mode %#o; use 0700", root.Name(), info.Mode().Perm())
	case !owned(info):
		return nil, fmt.Errorf("dir: %s belongs to another user", root.Name())
	}
	return info, nil
}

// owned reports whether a file belongs to the user of this process, or to one of the others. If
// the system has no users with numbers, every file does.
func owned(info fs.FileInfo, or ...int) bool {
	uid := reflect.Indirect(reflect.ValueOf(info.Sys())).FieldByName("Uid")
	if !uid.IsValid() || !uid.CanUint() {
		return true
	}
	for _, user := range append(or, os.Geteuid()) {
		if int(uid.Uint()) == user {
			return true
		}
	}
	return false
}

// loose returns the directories above a path in which others can put something else in the place
// of the next part of the path.
func loose(path string) (parts []string) {
	if runtime.GOOS == "windows" { // modes say nothing there
		return nil
	}
	seen := map[string]bool{}
	real, err := filepath.EvalSymlinks(path)
	if err != nil {
		real = path
	}
	for _, part := range []string{path, real} {
		for part != filepath.Dir(part) {
			part = filepath.Dir(part)
			info, err := os.Stat(part)
			if err != nil || seen[part] {
				continue
			}
			seen[part] = true
			if info.Mode().Perm()&0o022 != 0 && info.Mode()&fs.ModeSticky == 0 || !owned(info, 0) {
				parts = append(parts, part)
			}
		}
	}
	return parts
}

// look finds out whether the folder and the key are still there. What is gone is made anew.
func (f *Fleet) look() {
	f.looked = time.Now()
	f.touched.Add(1)
	if info, err := os.Lstat(filepath.Join(f.path, folderName)); err != nil || !os.SameFile(info, f.home) {
		files, home, err := openFolder(f.path)
		if err != nil {
			f.say("fleet: the folder was removed or swapped, and cannot be made anew", "path", f.path, "error", err)
			return
		}
		_ = f.files.Close() // nothing of it is open
		f.files, f.home, f.keyFile = files, home, nil
		f.say("fleet: the folder was removed or swapped, so this member makes it anew", "path", f.path)
	}
	f.lookAtKey()
}

const keyName, keySize = "key.json", 32

// lookAtKey takes the key of the folder, and writes the own one if there is none.
func (f *Fleet) lookAtKey() {
	if f.keyFile != nil && same(f.keyFile, f.stat(keyName)) {
		return
	}
	key, file := load[[]byte](f, keyName)
	if len(key) == keySize {
		if f.keyFile != nil && !bytes.Equal(key, f.key()) {
			f.say("fleet: the folder has another key, so this member takes it", "path", f.path)
		}
		f.setKey(key)
		f.keyFile = file
		return
	}
	if !f.acquire() {
		return
	}
	defer f.release()
	if key, _ := load[[]byte](f, keyName); len(key) == keySize { // another member was faster
		return
	}
	if f.write(keyName, f.key()) {
		if f.keyFile != nil {
			f.say("fleet: the key of the folder was gone, so this member writes it again", "path", f.path)
		}
		f.keyFile = f.stat(keyName)
	}
}

func (f *Fleet) setKey(key []byte) {
	f.key = func() []byte { return key }
	f.scope.Store(new(keyed.New(key)))
}

// firstKey takes the key of the folder, and makes one if there is none. A process that can
// neither read nor write it has a key of its own, so it shares nothing about credentials.
func (f *Fleet) firstKey() {
	own := make([]byte, keySize)
	_, _ = rand.Read(own) // it never fails
	f.setKey(own)
	for range 50 { // another process may be making one
		if f.lookAtKey(); f.keyFile != nil {
			return
		}
		time.Sleep(lockWait)
	}
}

// acquire takes the lock of the directory. It gives up after lockWait. For a while after that
// nobody of this process waits for it.
func (f *Fleet) acquire() bool {
	f.touched.Add(1)
	if time.Now().Before(f.blocked) {
		return false
	}
	file, err := f.openFile("lock", os.O_RDWR|os.O_CREATE)
	if err == nil {
		for end := time.Now().Add(lockWait); ; time.Sleep(lockEach) {
			if tryLock(file) {
				f.lock = file
				return true
			}
			if time.Now().After(end) {
				break
			}
		}
		_ = file.Close() // it was not changed
	}
	f.blocked = time.Now().Add(lockPause)
	return false
}

// tryLock locks a file, until it is closed. It does not wait.
func tryLock(file *os.File) (locked bool) {
	raw, err := file.SyscallConn()
	return err == nil && raw.Control(func(fd uintptr) { locked = lock(fd) == nil }) == nil && locked
}

func (f *Fleet) release() {
	// The system releases the lock when the file is closed. An error leaves it locked until the
	// process ends. The others go on without it.
	_ = f.lock.Close()
	f.lock = nil
}

// nameOf returns the name of the file of a host.
func nameOf(host string) string {
	sum := sha256.Sum256([]byte(host))
	return fmt.Sprintf("%x.json", sum[:12])
}

// stat returns what the system says of a file, or nil. It follows no link.
func (f *Fleet) stat(name string) fs.FileInfo {
	f.touched.Add(1)
	info, err := f.files.Lstat(name)
	if err != nil {
		return nil
	}
	return info
}

// same reports whether a file has not changed.
func same(a, b fs.FileInfo) bool {
	return a == b || a != nil && b != nil && os.SameFile(a, b) && a.ModTime().Equal(b.ModTime()) && a.Size() == b.Size()
}

var errNoFile = errors.New("dir: not a regular file")

// openFile opens a regular file. It does not wait for what it opens, and follows no link.
func (f *Fleet) openFile(name string, flag int) (*os.File, error) {
	if info, err := f.files.Lstat(name); err == nil && !info.Mode().IsRegular() {
		return nil, errNoFile
	}
	file, err := f.files.OpenFile(name, flag|dontBlock, 0o600)
	if err != nil {
		return nil, err
	}
	if info, err := file.Stat(); err != nil || !info.Mode().IsRegular() { // it was swapped just now
		_ = file.Close() // nothing was read
		return nil, errNoFile
	}
	return file, nil
}

// read returns the record of a host, which is empty if the file cannot be believed. A file is
// replaced as a whole, so no lock is needed.
func (f *Fleet) read(host string) (ledger.Record, fs.FileInfo) {
	r, info := load[ledger.Record](f, nameOf(host))
	if r.Host != host || !r.Sane(now(), slack) {
		r = ledger.Record{Host: host}
	}
	return r, info
}

// load reads a file. If it cannot, or if the file is malformed, it returns the zero value.
func load[T any](f *Fleet, name string) (v T, info fs.FileInfo) {
	if info = f.stat(name); info == nil || info.Size() > maxBytes {
		return v, info
	}
	file, err := f.openFile(name, os.O_RDONLY) // it may be newer than info, and is read again then
	if err != nil {
		return v, info
	}
	defer file.Close()
	b, err := io.ReadAll(io.LimitReader(file, maxBytes+1))
	if err != nil || len(b) > maxBytes || json.Unmarshal(b, &v) != nil {
		v = *new(T) // without the half of it that could be read
	}
	return v, info
}

// write replaces a file. The caller has the lock, so nobody else writes the temporary file.
func (f *Fleet) write(name string, v any) bool {
	const temporary = "new"
	b, err := json.Marshal(v)
	if err != nil || len(b) > maxBytes {
		return false
	}
	if info := f.stat(name); info != nil && !info.Mode().IsRegular() {
		return false // it is not ours
	}
	file, err := f.files.OpenFile(temporary, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if info := f.stat(temporary); err != nil && info != nil && info.Mode().IsRegular() { // a process died
		_ = f.files.Remove(temporary)
		file, err = f.files.OpenFile(temporary, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	}
	if err != nil {
		return false
	}
	_, err = file.Write(b)
	if err = errors.Join(err, file.Close()); err == nil {
		err = f.files.Rename(temporary, name)
	}
	if err != nil {
		_ = f.files.Remove(temporary) // the disk may be full
	}
	return err == nil
}
