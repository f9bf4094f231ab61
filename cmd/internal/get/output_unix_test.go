//go:build unix

package get

import (
	"bytes"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/aplomb-go/aplomb/internal/testserver"
)

// Nothing but a regular file is replaced, and nothing is sent before that is
// clear.
func TestOtherFilesAreRefused(t *testing.T) {
	dir := t.TempDir()
	in := func(name string) string { return filepath.Join(dir, name) }
	ok := func(err error) {
		t.Helper()
		require.NoError(t, err)
	}
	ok(syscall.Mkfifo(in("fifo"), 0o600))
	ok(os.Symlink("fifo", in("link-to-fifo")))
	ok(os.Symlink("loop", in("loop")))
	ok(os.Symlink(filepath.Join("none", "file"), in("link-into-nothing")))
	ok(os.Symlink("/dev/null", in("link-to-null")))
	ok(os.Mkdir(in("directory"), 0o700))
	ok(os.Symlink("directory", in("link-to-directory")))
	ok(os.WriteFile(in("file"), nil, 0o600))
	// The path of a socket may have about 100 bytes only.
	short, err := os.MkdirTemp("", "f")
	ok(err)
	defer func() { _ = os.RemoveAll(short) }()
	socket := filepath.Join(short, "s")
	l, err := net.Listen("unix", socket)
	ok(err)
	defer l.Close()

	const url = "http://host/"
	for _, c := range []struct {
		name string
		args []string
		says string
	}{
		{"device", []string{"-o", "/dev/null", url}, "aplomb get: /dev/null: this is a device; only regular files are written, and stdout with -o -\n"},
		{"link to a device", []string{"-o", in("link-to-null"), url}, "this is a device"},
		{"pipe", []string{"-o", in("fifo"), url}, "this is a pipe"},
		{"link to a pipe", []string{"-o", in("link-to-fifo"), url}, "this is a pipe"},
		{"socket", []string{"-o", socket, url}, "this is a socket"},
		{"loop", []string{"-o", in("loop"), url}, "too many levels of symbolic links"},
		{"link into no directory", []string{"-o", in("link-into-nothing"), url}, "no such file or directory"},
		{"file as a directory", []string{"-o", in("file/x"), url}, "not a directory"},
		{"long name", []string{"-o", in(strings.Repeat("x", 300)), url}, "file name too long"},
		{"pipe of the name in the URL", []string{"-o", dir, url + "fifo"}, "this is a pipe"},
		{"link of the name in the URL", []string{"-o", dir, url + "link-to-null"}, "this is a device"},
		{"directory of the name in the URL", []string{"-o", dir, url + "directory"}, "this is a directory and not a regular file; name one with -o"},
		{"link to a directory", []string{"-o", dir, url + "link-to-directory"}, "this is a directory"},
		{"long name in the URL", []string{"-o", dir, url + strings.Repeat("x", 300)}, "file name too long; name one with -o"},
		{"the second URL", []string{"-o", dir, url + "a", url + "fifo"}, "this is a pipe"},
	} {
		t.Run(c.name, func(t *testing.T) {
			before := tree(t, dir)
			var out, errs bytes.Buffer
			assert.Equal(t, exitUsage, run(t.Context(), c.args, world{stdout: &out, stderr: &errs, base: refuseAll{t}}), "exit status")
			assert.True(t, strings.Contains(errs.String(), c.says) && out.Len() == 0, "stderr lacks %q:\n%s%s", c.says, errs.String(), out.String())
			assert.Equal(t, before, tree(t, dir), "the directory has changed")
		})
	}
	if info, err := os.Stat("/dev/null"); err != nil || info.Mode()&os.ModeCharDevice == 0 {
		t.Error("/dev/null is no device any more")
	}
}

// tree lists the files of a directory with their types.
func tree(t *testing.T, dir string) string {
	files, err := os.ReadDir(dir)
	require.NoError(t, err)
	text := ""
	for _, f := range files {
		text += f.Name() + " " + f.Type().String() + "\n"
	}
	return text
}

// A pipe that appears during the download is not replaced either.
func TestPipeAppears(t *testing.T) {
	var fifo string
	b := newBench(t, testserver.Config{Handler: func(*testserver.Received) testserver.Step {
		assert.NoError(t, syscall.Mkfifo(fifo, 0o600))
		return content(body, etag)
	}})
	fifo = filepath.Join(b.dir, "a.bin")
	b.expect(exitFailed, "this is a pipe; only regular files", "kept, the same command goes on from there")
	b.holds("a.bin", b.part(), b.part()+".json")
}

// A link stays, and the file to which it leads is replaced or made.
func TestLinksAreFollowed(t *testing.T) {
	for _, c := range []struct{ name, link, to, file string }{
		{"relative", "link", "old", "old"},
		{"to another directory", "link", "sub/old", "sub/old"},
		{"to a link", "link", "second", "old"},
		{"through a link to a directory", "link", "deep/../old", "sub/old"},
		{"in a directory behind a link", "deep/link", "../old", "sub/old"},
		{"to no file yet", "link", "sub/new", "sub/new"},
		{"to a link to no file yet", "link", "third", "sub/new"},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := newBench(t, testserver.Config{}, content(body, etag))
			b.must(os.MkdirAll(filepath.Join(b.dir, "sub", "deep"), 0o700))
			b.write("old", []byte("an older one"))
			b.write("sub/old", []byte("an older one"))
			for from, to := range map[string]string{"second": "old", "third": "sub/new", "deep": "sub/deep"} {
				b.must(os.Symlink(to, filepath.Join(b.dir, from)))
			}
			link := filepath.Join(b.dir, c.link)
			b.must(os.Symlink(c.to, link))
			b.args = []string{"-o", link}
			b.expect(exitFine, "done")
			if to, err := os.Readlink(link); to != c.to {
				t.Errorf("the link leads to %q (%v), not to %q", to, err, c.to)
			}
			b.content(c.file, body)
			if files, _ := filepath.Glob(filepath.Join(b.dir, "*", "*.part*")); len(files) > 0 {
				t.Errorf("%q are left", files)
			}
		})
	}
}

// The new file has the permissions of the old file, and so has its part.
func TestPermissionsStay(t *testing.T) {
	b := newBench(t, testserver.Config{}, content(body, etag).CutAt(1000, testserver.Close), content(body, etag)).noRetries()
	b.write("a.bin", nil)
	mode := func(name string, want os.FileMode) {
		t.Helper()
		info, err := os.Stat(filepath.Join(b.dir, name))
		b.must(err)
		assert.Equal(t, want, info.Mode().Perm(), "%s has mode", name)
	}
	b.must(os.Chmod(filepath.Join(b.dir, "a.bin"), 0o666))
	b.expect(exitFailed, "kept")
	mode(b.part(), 0o666&^umask())
	b.expect(exitFine)
	mode("a.bin", 0o666)
}

func umask() os.FileMode {
	mask := syscall.Umask(0)
	syscall.Umask(mask)
	return os.FileMode(mask)
}

// A file that the user must not write is not replaced by way of its directory.
func TestReadOnly(t *testing.T) {
	if os.Getuid() == 0 {
		t.Skip("root may write everything")
	}
	dir := t.TempDir()
	file := filepath.Join(dir, "a.bin")
	require.NoError(t, os.WriteFile(file, nil, 0o400))
	var errs bytes.Buffer
	code := run(t.Context(), []string{"-o", dir, "http://host/a.bin"}, world{stdout: &errs, stderr: &errs, base: refuseAll{t}})
	assert.True(t, code == exitUsage && strings.Contains(errs.String(), "permission denied"), "exit status %d: %s", code, errs.String())
}
