// Package testkit has the helpers that the tests of several packages share.
package testkit

import (
	"bytes"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
)

// A Text keeps all bytes written to it, and can be read meanwhile.
type Text struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (t *Text) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.text.Write(b)
}

func (t *Text) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.text.String()
}

// A CutBody delivers Data in pieces of random length, and then Err, sometimes together with
// the last piece.
type CutBody struct {
	Data []byte
	Err  error
	Rand *rand.Rand
}

// CutAt returns a body that ends after its data with an error.
func CutAt(data string, err error) io.ReadCloser {
	return &CutBody{[]byte(data), err, rand.New(rand.NewPCG(1, 1))}
}

func (b *CutBody) Read(p []byte) (int, error) {
	n := min(len(p), len(b.Data))
	if n > 1 {
		n = 1 + b.Rand.IntN(n)
	}
	n = copy(p, b.Data[:n])
	b.Data = b.Data[n:]
	if len(b.Data) == 0 && (n == 0 || b.Rand.IntN(2) == 0) {
		return n, b.Err
	}
	return n, nil
}

// Close does nothing.
func (b *CutBody) Close() error { return nil }

// Heap returns how many bytes are in use that are not garbage.
func Heap() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// T is a part of testing.TB, so that programs can use this package without package testing.
type T interface {
	Helper()
	Errorf(format string, args ...any)
}

// Count asserts how often something happened. what names the event, such as "POST sent". The rest says
// in which case, as the last parameters of package assert do.
func Count(t T, want, got int, what string, about ...any) {
	t.Helper()
	if got == want {
		return
	}
	in := ""
	if len(about) > 0 {
		in = fmt.Sprintf(fmt.Sprint(about[0])+": ", about[1:]...)
	}
	t.Errorf("%s%s %d times, want %d", in, what, got, want)
}

// Files reads the files below a directory that a function wants, and calls f for each. It leaves
// out .git, bin and testdata.
func Files(root string, wants func(path string) bool, f func(path, text string)) error {
	return filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && slices.Contains([]string{".git", "bin", "testdata"}, entry.Name()):
			return fs.SkipDir
		case entry.IsDir() || !wants(path):
			return nil
		}
		text, err := os.ReadFile(path)
		if err == nil {
			f(path, string(text))
		}
		return err
	})
}

// Together calls f n times at once, and waits for all.
func Together(n int, f func(i int)) {
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() { f(i) })
	}
	all.Wait()
}

// Must takes what a call returned, and returns its value if there is no error. An error ends the test.
func Must[V any](v V, err error) func(t Ender) V {
	return func(t Ender) V {
		t.Helper()
		if err != nil {
			t.Fatalf("unexpected error: %+v", err)
		}
		return v
	}
}

// An Ender is a part of testing.TB.
type Ender interface {
	Helper()
	Fatalf(format string, args ...any)
}
