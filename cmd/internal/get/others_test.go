//go:build unix

package get

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/aplomb-go/aplomb/internal/testserver"
)

// TestMain lets the binary of the tests be aplomb get itself, so that it can be run
// and interrupted in the same way as other programs.
func TestMain(m *testing.M) {
	if os.Getenv("FETCH_AS_PROGRAM") != "" {
		ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
		code := Run(ctx, os.Args[1:], os.Stdout, os.Stderr)
		stop()
		os.Exit(code)
	}
	os.Exit(m.Run())
}

// A changingFile is a file of which a server first sends half, and falls silent. At
// last the server has another version of it. Both versions have a strong ETag and a
// Last-Modified.
type changingFile struct {
	versions [2][]byte
	now      atomic.Int32 // the version
	silent   chan struct{}
}

func (f *changingFile) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	now := f.now.Load()
	body := f.versions[now]
	w.Header().Set("ETag", fmt.Sprintf(`"v%d"`, now+1))
	modified := time.Date(2026, 1, 1+int(now), 0, 0, 0, 0, time.UTC)
	if now == 0 && r.Method == http.MethodGet {
		w = &halfWriter{ResponseWriter: w, r: r, left: len(body) / 2, silent: f.silent}
	}
	http.ServeContent(w, r, "", modified, bytes.NewReader(body))
}

// A halfWriter writes some bytes and then waits until the client has gone.
type halfWriter struct {
	http.ResponseWriter
	r      *http.Request
	left   int
	silent chan struct{}
}

func (w *halfWriter) Write(b []byte) (int, error) {
	n, err := w.ResponseWriter.Write(b[:min(len(b), w.left)])
	w.left -= n
	if w.left > 0 || err != nil {
		return n, err
	}
	err = http.NewResponseController(w.ResponseWriter).Flush()
	select {
	case w.silent <- struct{}{}:
	default:
	}
	<-w.r.Context().Done()
	return n, errors.Join(err, w.r.Context().Err())
}

// TestOthersSplice interrupts a download, changes the file on the server, and runs
// the same command again. It does so with aplomb get and with the downloaders that are
// installed, and prints the result of each:
//
//	go -C cmd test ./internal/get -count 1 -run OthersSplice -v
//
// Only aplomb get can make the test fail. The other downloaders are other people's, and
// may change.
func TestOthersSplice(t *testing.T) {
	if testing.Short() {
		t.Skip("this runs other programs")
	}
	self, err := os.Executable()
	require.NoError(t, err)
	first, second := testserver.Pattern(4<<20), testserver.Pattern(6 << 20)[1<<20:]
	for name, versions := range map[string][2][]byte{
		"same length": {first, second[:len(first)]},
		"longer":      {first, second},
	} {
		t.Run(name, func(t *testing.T) {
			for _, command := range []string{self, "curl -sS -C - --retry 5 -O", "wget -q -c", "aria2c -q"} {
				name := "aplomb get"
				if command != self {
					name = command
				}
				t.Run(name, func(t *testing.T) {
					words := strings.Fields(command)
					if _, err := exec.LookPath(words[0]); err != nil {
						t.Skipf("%s is not installed", words[0])
					}
					f := &changingFile{versions: versions, silent: make(chan struct{}, 1)}
					code, got := f.downloadTwice(t, words)
					what := "WHOLE: it is the new version"
					if !bytes.Equal(got, versions[1]) {
						what = f.describe(got)
						assert.NotEqual(t, self, command, "aplomb get has not the new version")
					}
					t.Logf("%-28s exit status %d; %s", name, code, what)
				})
			}
		})
	}
}

// downloadTwice interrupts the first run. It returns the exit status of the second
// run and the file then.
func (f *changingFile) downloadTwice(t *testing.T, command []string) (code int, content []byte) {
	t.Helper()
	server := httptest.NewServer(f)
	defer server.Close()
	dir := t.TempDir()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	start := func() *exec.Cmd {
		c := exec.CommandContext(ctx, command[0], append(command[1:len(command):len(command)], server.URL+"/file")...)
		c.Dir = dir
		c.Env = append(os.Environ(), "FETCH_AS_PROGRAM=1", "HOME="+dir, "no_proxy=127.0.0.1")
		require.NoError(t, c.Start())
		return c
	}
	run := start()
	<-f.silent
	// The file shows when a program has got the bytes that were sent. A program that
	// writes them only at its end gets some time.
	for range 100 {
		files, _ := filepath.Glob(filepath.Join(dir, "file*"))
		if len(files) > 0 && sizeOf(files[0]) >= int64(len(f.versions[0])/2) {
			break
		}
		time.Sleep(20 * time.Millisecond)
	}
	_ = run.Process.Signal(os.Interrupt)
	_ = run.Wait() // any status but success would do
	f.now.Store(1)
	run = start()
	err := run.Wait()
	if _, ok := errors.AsType[*exec.ExitError](err); err != nil && !ok {
		t.Fatal(err)
	}
	content, err = os.ReadFile(filepath.Join(dir, "file"))
	require.False(t, err != nil && !errors.Is(err, os.ErrNotExist), err)
	return run.ProcessState.ExitCode(), content
}

func sizeOf(name string) int64 {
	info, err := os.Stat(name)
	if err != nil {
		return 0
	}
	return info.Size()
}

// describe says what is wrong with a file.
func (f *changingFile) describe(got []byte) string {
	half := len(f.versions[0]) / 2
	old, other := f.versions[0], f.versions[1]
	switch {
	case len(got) == len(other) && bytes.Equal(got[:half/2], old[:half/2]) && bytes.Equal(got[half:], other[half:]):
		return "CORRUPT: it begins with the old version and ends with the new"
	case bytes.HasPrefix(old, got):
		return fmt.Sprintf("%d of %d bytes of the old version", len(got), len(old))
	}
	return fmt.Sprintf("CORRUPT in another way, %d bytes", len(got))
}
