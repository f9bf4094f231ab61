//go:build unix

package get

import (
	"bytes"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/aplomb-go/aplomb/internal/testserver"
)

// In a directory that others may write to, files of others may have the names of the part
// and of its state.
func TestFilesOfOthers(t *testing.T) {
	const size = 100_000
	setUp := func(t *testing.T) *bench {
		b := newBench(t, testserver.Config{}, content(body, etag))
		b.write(b.part(), bytes.Repeat([]byte("x"), size))
		b.state(func(*state) {})
		return b
	}
	path := func(b *bench, suffix string) string { return filepath.Join(b.dir, b.part()+suffix) }

	t.Run("part of another user", func(t *testing.T) {
		b := setUp(t)
		if err := os.Chown(path(b, ""), 12345, -1); err != nil {
			t.Skip("only root can give a file away: ", err)
		}
		b.expect(exitFailed, b.part()+": it belongs to another user\n")
		b.content(b.part(), bytes.Repeat([]byte("x"), size))
		b.holds(b.part(), b.part()+".json")
	})
	t.Run("part with a second name", func(t *testing.T) {
		b := setUp(t)
		other := filepath.Join(b.TempDir(), "other")
		b.must(os.Link(path(b, ""), other))
		b.expect(exitFailed, b.part()+": it has another name as well (a hard link)\n")
		got, err := os.ReadFile(other)
		b.must(err)
		assert.Len(t, got, size, "the other file")
	})
	t.Run("part is a link", func(t *testing.T) {
		b := setUp(t)
		b.must(os.Rename(path(b, ""), path(b, ".old")))
		b.must(os.Symlink(b.part()+".old", path(b, "")))
		b.expect(exitFailed, b.part()+": it is not a regular file\n")
		b.content(b.part()+".old", bytes.Repeat([]byte("x"), size))
	})
	t.Run("part is a pipe", func(t *testing.T) {
		b := setUp(t)
		b.must(os.Remove(path(b, "")))
		b.must(syscall.Mkfifo(path(b, ""), 0o600))
		b.expect(exitFailed, b.part()+": it is not a regular file\n")
	})
	t.Run("state of another user", func(t *testing.T) {
		b := setUp(t)
		if err := os.Chown(path(b, ".json"), 12345, -1); err != nil {
			t.Skip("only root can give a file away: ", err)
		}
		b.expect(exitFine, "done")
		b.content("a.bin", body)
		b.holds("a.bin")
	})
	// An open of a pipe would wait for a writer, and no signal would end the wait.
	t.Run("state is a pipe", func(t *testing.T) {
		b := setUp(t)
		b.must(os.Remove(path(b, ".json")))
		b.must(syscall.Mkfifo(path(b, ".json"), 0o600))
		b.expect(exitFine, "done")
		b.content("a.bin", body)
		b.holds("a.bin")
	})
	t.Run("state appears while it is written", func(t *testing.T) {
		b := setUp(t)
		targets, err := targetsOf([][]string{{b.server.URL + "/a.bin"}}, b.dir, "", nil)
		b.must(err)
		defer closeAll(targets)
		p, err := openPart(targets[0])
		b.must(err)
		defer p.close()
		if err := p.writeState([]byte("{}")); !os.IsExist(err) {
			t.Errorf("a state that was there was written: %v", err)
		}
	})
}
