package dir

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"time"

	"github.com/aplomb-go/aplomb/internal/ledger"
)

// prepare makes the directory, and checks that nobody else can write it.
func prepare(path string) (string, error) {
	if path == "" {
		return "", errors.New("dir: Path is empty")
	}
	path, err := filepath.Abs(path)
	err = cmp.Or(err, os.MkdirAll(path, 0o700))
	info, missing := os.Stat(path)
	switch {
	case err != nil || missing != nil:
		return "", fmt.Errorf("dir: %w", cmp.Or(err, missing))
	case runtime.GOOS != "windows" && info.Mode().Perm()&0o022 != 0:
		return "", fmt.Errorf("dir: others can write %s, which has the mode %#o; use 0700", path, info.Mode().Perm())
	case !owned(info):
		return "", fmt.Errorf("dir: %s belongs to another user", path)
	}
	return path, nil
}

// owned reports whether a file belongs to the user of this process, as far as the system has
// users with numbers.
func owned(info fs.FileInfo) bool {
	uid := reflect.Indirect(reflect.ValueOf(info.Sys())).FieldByName("Uid")
	return !uid.IsValid() || !uid.CanUint() || int(uid.Uint()) == os.Geteuid()
}

// acquire takes the lock of the directory. It gives up after lockWait. For a while after that
// nobody of this process waits for it.
func (f *Fleet) acquire() bool {
	f.touched.Add(1)
	ctx, cancel := context.WithTimeout(context.Background(), lockWait)
	defer cancel()
	select {
	case <-ctx.Done():
		return false
	case f.turn <- struct{}{}:
	}
	if time.Now().After(f.blocked) {
		if ok, err := f.lock.TryLockContext(ctx, lockEach); ok && err == nil {
			return true
		}
		f.blocked = time.Now().Add(lockPause)
	}
	<-f.turn
	return false
}

func (f *Fleet) release() {
	// An error leaves the file locked until the process ends. The others go on without it.
	_ = f.lock.Unlock()
	<-f.turn
}

// nameOf returns the name of the file of a host.
func nameOf(host string) string {
	sum := sha256.Sum256([]byte(host))
	return fmt.Sprintf("%x.json", sum[:12])
}

// stat returns what the system says of a file, or nil.
func (f *Fleet) stat(name string) fs.FileInfo {
	f.touched.Add(1)
	info, _ := os.Stat(filepath.Join(f.path, name))
	return info
}

// same reports whether a file has not changed.
func same(a, b fs.FileInfo) bool {
	return a == b || a != nil && b != nil && os.SameFile(a, b) && a.ModTime().Equal(b.ModTime()) && a.Size() == b.Size()
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
	b, err := os.ReadFile(filepath.Join(f.path, name)) // it may be newer than info, and is read again then
	if err != nil || json.Unmarshal(b, &v) != nil {
		v = *new(T) // without the half of it that could be read
	}
	return v, info
}

// write replaces a file. The caller has the lock, so nobody else writes the temporary file.
func (f *Fleet) write(name string, v any) bool {
	b, err := json.Marshal(v)
	if err != nil || len(b) > maxBytes {
		return false
	}
	temporary := filepath.Join(f.path, "new")
	if os.WriteFile(temporary, b, 0o600) != nil || os.Rename(temporary, filepath.Join(f.path, name)) != nil {
		_ = os.Remove(temporary) // the disk may be full
		return false
	}
	return true
}

// key returns the key of the directory, and makes one if there is none. A process that can
// neither read nor write it has a key of its own, so it shares nothing about credentials.
func (f *Fleet) key() []byte {
	const name, size = "key.json", 32
	own := make([]byte, size)
	_, _ = rand.Read(own) // it never fails
	for range 50 {        // another process may be making one
		if key, _ := load[[]byte](f, name); len(key) == size {
			return key
		}
		if f.acquire() {
			if key, _ := load[[]byte](f, name); len(key) != size {
				f.write(name, own)
			}
			f.release()
		}
		time.Sleep(lockWait)
	}
	return own
}
