package transport

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// files counts the files that spools have open, with a name or without.
func files(t *testing.T, dir string) (n int) {
	t.Helper()
	named, err := filepath.Glob(filepath.Join(dir, spoolName))
	require.NoError(t, err)
	if runtime.GOOS != "linux" {
		return len(named)
	}
	require.Empty(t, named, "a file has its name still")
	fds, err := os.ReadDir("/proc/self/fd")
	require.NoError(t, err)
	for _, fd := range fds {
		to, err := os.Readlink("/proc/self/fd/" + fd.Name())
		if err == nil && strings.HasPrefix(to, filepath.Join(dir, strings.TrimSuffix(spoolName, "*"))) {
			n++
		}
	}
	return n
}

func TestSpool(t *testing.T) {
	dir := t.TempDir()
	s := &spool{dir: dir, limit: 10}
	assert.Zero(t, files(t, dir))
	assert.True(t, s.add([]byte("01234")))
	assert.Equal(t, 1, files(t, dir))
	assert.True(t, s.add([]byte("56789")))
	assert.False(t, s.add([]byte("x")), "over the limit")
	p := make([]byte, 4)
	n, err := s.readAt(p, 3)
	require.NoError(t, err)
	assert.Equal(t, "3456", string(p[:n]))
	s.drop()
	s.drop()
	assert.Zero(t, files(t, dir))
	_, err = s.readAt(p, 0)
	assert.Error(t, err)
	assert.False(t, s.add([]byte("")), "dropped")
	(*spool)(nil).drop()
}

func TestSpoolWithoutADirectory(t *testing.T) {
	s := &spool{dir: filepath.Join(t.TempDir(), "missing"), limit: 10}
	assert.False(t, s.add([]byte("x")))
	s.drop()
}

// A file that somebody shortened is an error, never fewer bytes.
func TestSpoolThatIsShort(t *testing.T) {
	dir := t.TempDir()
	s := &spool{dir: dir, limit: 10}
	defer s.drop()
	require.True(t, s.add([]byte("01234")))
	require.NoError(t, s.file.Truncate(3))
	_, err := s.readAt(make([]byte, 5), 0)
	assert.Error(t, err)
}
