package replay

import (
	"io"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/aplomb-go/aplomb/internal/testkit"
)

func TestSpool(t *testing.T) {
	dir := t.TempDir()
	s := &spool{dir: dir, limit: 10, pool: new(Pool), held: new(int64)}
	assert.Zero(t, testkit.Files(t, dir))
	assert.NoError(t, s.add([]byte("01234")))
	assert.Equal(t, 1, testkit.Files(t, dir))
	assert.NoError(t, s.add([]byte("56789")))
	assert.Equal(t, errSpoolFull, s.add([]byte("x")))
	p := make([]byte, 4)
	n, err := s.readAt(p, 3)
	require.NoError(t, err)
	assert.Equal(t, "3456", string(p[:n]))
	s.drop()
	s.drop()
	assert.Zero(t, testkit.Files(t, dir))
	_, err = s.readAt(p, 0)
	assert.Error(t, err)
	assert.Error(t, s.add([]byte("")), "dropped")
	(*spool)(nil).drop()
}

func TestSpoolWithoutADirectory(t *testing.T) {
	s := &spool{dir: filepath.Join(t.TempDir(), "missing"), limit: 10, pool: new(Pool), held: new(int64)}
	assert.Error(t, s.add([]byte("x")))
	s.drop()
}

// A file that somebody shortened is an error, never fewer bytes.
func TestSpoolThatIsShort(t *testing.T) {
	dir := t.TempDir()
	s := &spool{dir: dir, limit: 10, pool: new(Pool), held: new(int64)}
	defer s.drop()
	require.NoError(t, s.add([]byte("01234")))
	require.NoError(t, s.file.Truncate(3))
	_, err := s.readAt(make([]byte, 5), 0)
	assert.Error(t, err)
}

// Without a TempTotal the bound is a GiB, and never less than one body may take.
func TestDefaultTempTotal(t *testing.T) {
	var pool Pool
	assert.EqualValues(t, 1<<30, pool.maxDisk(8<<20))
	assert.Equal(t, int64(1<<40), pool.maxDisk(1<<40))
}

// A Read of the file by an attempt that is over takes nothing from the attempt
// under way.
func TestSpoolLateRead(t *testing.T) {
	want := noisy(10_000)
	b := New(put(t, oneShot(want)), Limits{Disk: 1 << 20, Dir: t.TempDir()}, new(Pool))
	first := next(b)
	_, err := io.Copy(io.Discard, first)
	require.NoError(t, err)
	require.NoError(t, takeBack(b))
	second := next(b)
	b.Finish()
	_, err = first.Read(make([]byte, 10))
	require.Equal(t, ErrLent, err)
	assert.NoError(t, first.Close())
	got, err := io.ReadAll(second)
	require.NoError(t, err)
	assert.True(t, string(got) == want)
	assert.NoError(t, second.Close())
}

// Given a disk that fails while the body is kept, then the attempt under way
// sends the body whole and is the last.
func TestSpoolThatCannotBeWritten(t *testing.T) {
	want := noisy(100_000)
	var b Body
	pos := 0
	src := &body{Reader: readerFunc(func(p []byte) (int, error) {
		if pos >= 50_000 {
			_ = b.(*original).spool.file.Close()
		}
		n := copy(p[:min(len(p), 10_000)], want[pos:])
		if pos += n; n == 0 {
			return 0, io.EOF
		}
		return n, nil
	})}
	b = New(put(t, src), Limits{Memory: 1 << 10, Disk: 1 << 20, Dir: t.TempDir()}, new(Pool))
	attempt := next(b)
	got, err := io.ReadAll(attempt)
	require.NoError(t, err)
	assert.True(t, want == string(got))
	assert.False(t, replayable(b))
	assert.ErrorContains(t, takeBack(b), "could not be written")
	b.Finish()
	assert.NoError(t, attempt.Close())
	assert.Equal(t, 1, src.closed())
}

// Given a disk that fails while the body is sent again, then the attempt gets the
// beginning of the body and an error, and never other bytes or a clean end.
func TestSpoolThatCannotBeRead(t *testing.T) {
	want := noisy(100_000)
	dir := t.TempDir()
	var pool Pool
	b := New(put(t, oneShot(want)), Limits{Memory: 1 << 10, Disk: 1 << 20, Dir: dir}, &pool)
	_, err := io.Copy(io.Discard, next(b))
	require.NoError(t, err)
	require.NoError(t, takeBack(b))
	require.NoError(t, b.(*original).spool.file.Truncate(50_000))
	attempt := next(b)
	got, err := io.ReadAll(attempt)
	assert.ErrorIs(t, err, io.ErrUnexpectedEOF)
	assert.ErrorContains(t, err, "spooled request body")
	assert.True(t, strings.HasPrefix(want, string(got)))
	_, again := attempt.Read(make([]byte, 1))
	assert.Equal(t, err, again, "not a clean end")
	assert.False(t, replayable(b))
	b.Finish()
	assert.NoError(t, attempt.Close())
	assert.Zero(t, testkit.Files(t, dir))
	assert.Zero(t, pool.Memory.Load())
	assert.Zero(t, pool.Disk.Load())
}
