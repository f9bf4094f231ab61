package replay

import (
	"cmp"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A file is a body that can seek.
type file struct {
	*body
	seek  func(offset int64, whence int) (int64, error)
	seeks int
}

func (f *file) Seek(offset int64, whence int) (int64, error) {
	f.seeks++
	return f.seek(offset, whence)
}

func fileOf(r io.ReadSeeker) *file { return &file{body: &body{Reader: r}, seek: r.Seek} }

func mustRead(t *testing.T, r io.Reader) string {
	t.Helper()
	all, err := io.ReadAll(r)
	require.NoError(t, err)
	return string(all)
}

// A file is sought back to where it was handed over.
func TestStreamThatSeeks(t *testing.T) {
	r := strings.NewReader("a text")
	_, _ = r.Seek(2, io.SeekStart)
	f := fileOf(r)
	b := New(put(t, f), 0, new(Pool))
	assert.Equal(t, 1, f.seeks, "seeks")
	for range 2 {
		old := next(b)
		assert.Equal(t, "text", mustRead(t, old))
		assert.Equal(t, io.EOF, readErr(old))
		require.NoError(t, rewind(b))
		assert.Equal(t, ErrDetached, readErr(old))
	}
	assert.Equal(t, 3, f.seeks, "seeks")
	assert.False(t, b.Concurrent())
	b.Finish()
	b.Finish()
	assert.Equal(t, 1, f.closed(), "times closed")
}

// A file that cannot be sought back is lost, and one that has become shorter has no clean end.
func TestStreamThatFailsToSeek(t *testing.T) {
	failed := errors.New("failed")
	for want, seek := range map[string]func(int64, int) (int64, error){
		"its Seek failed: failed":                     func(int64, int) (int64, error) { return 0, failed },
		"its Seek failed: it returned another offset": func(int64, int) (int64, error) { return 1, nil },
	} {
		f := fileOf(strings.NewReader("text"))
		b := New(put(t, f), 0, new(Pool))
		attempt := next(b)
		mustRead(t, attempt)
		f.seek = seek
		assert.EqualError(t, rewind(b), want)
		assert.EqualError(t, b.Why(), want)
		assert.False(t, b.Broke(), "its Read did not fail")
	}
	r := strings.NewReader("text")
	f := fileOf(r)
	b := New(put(t, f), 0, new(Pool))
	mustRead(t, next(b))
	require.NoError(t, rewind(b))
	r.Reset("te")
	all, err := io.ReadAll(next(b))
	assert.Equal(t, "te", string(all))
	assert.EqualError(t, err, "transport: the request's body ends at byte 2, and an earlier attempt had sent 4")
	assert.True(t, b.Broke())

	f = fileOf(strings.NewReader("text"))
	f.seek = func(int64, int) (int64, error) { return 0, failed } // like a pipe
	b = New(put(t, f), 100, new(Pool))
	for range 2 {
		assert.Equal(t, "text", mustRead(t, next(b)), "it is kept")
		require.NoError(t, rewind(b))
	}
}

// An attempt reads what was kept, and then the body. Its end is not asked for twice.
func TestStreamThatIsKept(t *testing.T) {
	reads := 0
	src := &body{Reader: readerFunc(func(p []byte) (int, error) {
		if reads++; reads > 1 {
			return 0, errors.New("read behind the end")
		}
		return copy(p, "text"), io.EOF
	})}
	b := New(put(t, src), 100, new(Pool))
	for range 3 {
		attempt := next(b)
		n, err := attempt.Read(nil)
		assert.Zero(t, n)
		assert.NoError(t, err)
		assert.NoError(t, attempt.Close(), "and yet net/http may send it over another connection")
		assert.Equal(t, "text", mustRead(t, attempt))
		assert.NoError(t, attempt.Close())
		assert.Equal(t, ErrDetached, readErr(attempt))
		assert.Zero(t, src.closed(), "another attempt may follow")
		require.NoError(t, rewind(b))
	}
	unread := next(b)
	require.NoError(t, unread.Close())
	b.Finish()
	assert.Equal(t, 1, src.closed(), "times closed")
	assert.Equal(t, ErrDetached, readErr(unread), "no attempt may follow")
}

// A body that failed cannot be sent again, and is at fault.
func TestStreamThatBreaks(t *testing.T) {
	var pool Pool
	failed := errors.New("failed")
	b := New(put(t, &body{Reader: io.MultiReader(strings.NewReader(noisy(200_000)), readerFunc(func([]byte) (int, error) { return 0, failed }))}), 1<<20, &pool)
	attempt := next(b)
	_, err := io.ReadAll(attempt)
	assert.Equal(t, failed, err)
	assert.True(t, b.Broke())
	assert.EqualError(t, b.Why(), "its Read failed: failed")
	assert.ErrorIs(t, rewind(b), failed)
	assert.Zero(t, pool.Memory.Load(), "what was kept is of no use")
}

// An error says which limit a body has reached.
func TestStreamThatIsTooLarge(t *testing.T) {
	for want, row := range map[string]struct{ limit, others int64 }{
		"ReplayBuffer is off, and it has neither GetBody nor Seek":                                      {0, 0},
		"it is larger than ReplayBuffer (99999 bytes), and it has neither GetBody nor Seek":             {99_999, 0},
		"the 67108864 bytes that a Transport keeps of all its request bodies (ReplayBuffer) are in use": {1 << 20, MaxMemory},
	} {
		var pool Pool
		pool.Memory.Store(row.others)
		b := New(put(t, oneShot(noisy(100_000))), row.limit, &pool)
		attempt := next(b)
		assert.Len(t, mustRead(t, attempt), 100_000, "this attempt has all of it")
		assert.EqualError(t, b.Why(), want)
		assert.EqualError(t, rewind(b), want)
		assert.False(t, b.Broke())
		assert.Equal(t, row.others, pool.Memory.Load())
	}
}

// Bytes above the first 64 KiB count as long as an attempt may need them.
func TestMemoryOfAStream(t *testing.T) {
	for size, most := range map[int]int64{Small: 0, 200_000: 200_000} {
		var pool Pool
		b := New(put(t, oneShot(noisy(size))), 1<<20, &pool)
		mustRead(t, next(b))
		assert.LessOrEqual(t, pool.Memory.Load(), most, size)
		assert.Equal(t, size > Small, pool.Memory.Load() > 0, size)
		require.NoError(t, rewind(b))
		last := next(b)
		b.Finish()
		mustRead(t, last)
		assert.Zero(t, pool.Memory.Load(), "%d: the last attempt has read it all", size)
	}
	for _, make := range []func(*Pool) Body{
		func(pool *Pool) Body { return Once(put(t, oneShot(noisy(200_000))), pool) },
		func(pool *Pool) Body { b := New(put(t, oneShot(noisy(200_000))), 1<<20, pool); return b },
	} {
		var pool Pool
		b := make(&pool)
		attempt := next(b)
		b.Finish()
		mustRead(t, attempt)
		assert.Zero(t, pool.Memory.Load(), "nothing is kept for nobody")
	}
}

// A body that is sent once, or for the last time, is closed by its attempt.
func TestOnce(t *testing.T) {
	for _, made := range []bool{false, true} {
		src := oneShot("text")
		b := Once(put(t, src), new(Pool))
		if made {
			b = withGetBody(t, src, noBody)
		}
		attempt := next(b)
		if made {
			b.Finish()
			assert.Zero(t, src.closed(), "the attempt reads it")
			assert.Equal(t, "text", mustRead(t, attempt))
		}
		for range 2 {
			assert.NoError(t, attempt.Close())
			assert.Equal(t, 1, src.closed(), "times closed")
			b.Finish()
		}
		assert.Equal(t, 1, src.closed(), "times closed")
	}
	assert.True(t, Once(put(t, strings.NewReader("text")), new(Pool)).Concurrent(), "a body in memory is as always")
}

// Rewind waits for a Read under way, within its bound and the context. No Read begins meanwhile.
func TestRewindDuringARead(t *testing.T) {
	for name, row := range map[string]struct {
		takes, ends time.Duration // the Read, and the context; 0: it does not
		want        error
		after       time.Duration
	}{
		"a short Read": {MaxBusy / 2, 0, nil, MaxBusy / 2},
		"a long Read":  {2 * MaxBusy, 0, ErrBusy, MaxBusy},
		"no time":      {2 * MaxBusy, MaxBusy / 4, ErrEnded, MaxBusy / 4},
	} {
		for _, made := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				slow := &body{Reader: readerFunc(func(p []byte) (int, error) { time.Sleep(row.takes); return copy(p, "x"), nil })}
				b := New(put(t, slow), 100, new(Pool))
				if made {
					b = withGetBody(t, slow, func() (io.ReadCloser, error) { return oneShot("x"), nil })
				}
				ctx := within(t, cmp.Or(row.ends, time.Hour))
				attempt, read := next(b), make(chan error, 2)
				go func() {
					_, err := attempt.Read(make([]byte, 1))
					read <- err
					_, err = attempt.Read(make([]byte, 1))
					read <- err
				}()
				synctest.Wait()
				start := time.Now()
				assert.Equal(t, row.want, b.Rewind(ctx, MaxBusy), name)
				assert.Equal(t, row.after, time.Since(start), name)
				assert.NoError(t, <-read, "the Read under way has its bytes")
				if err := <-read; row.want == nil {
					assert.Equal(t, ErrDetached, err, name)
				} else {
					assert.NoError(t, err, "%s: the attempt still has the body", name)
				}
				b.Finish()
			})
		}
	}
}

// A Read after the Close of another attempt is not ended by the timer of that Close, and neither is a
// body that nobody reads.
func TestTimerOfABlockedRead(t *testing.T) {
	for name, rewinds := range map[string]time.Duration{"before the timer": MaxBusy / 2, "after the timer": 2 * MaxBusy, "across the timer": MaxBusy / 4} {
		synctest.Test(t, func(t *testing.T) {
			takes := MaxBusy / 2
			if name == "across the timer" {
				takes = MaxBusy * 9 / 8
			}
			src := &body{Reader: readerFunc(func(p []byte) (int, error) { time.Sleep(takes); return copy(p, "x"), nil })}
			b := New(put(t, src), 100, new(Pool))
			old := next(b)
			go func() { _, _ = old.Read(make([]byte, 1)) }()
			synctest.Wait()
			assert.NoError(t, old.Close())
			time.Sleep(rewinds)
			require.NoError(t, rewind(b), name)
			attempt := next(b)
			got := make([]byte, 4)
			_, err := io.ReadFull(attempt, got)
			assert.NoError(t, err, name)
			assert.Equal(t, "xxxx", string(got), name)
			assert.Zero(t, src.closed(), "times closed, %v", name)
			b.Finish()
			assert.NoError(t, attempt.Close())
			assert.Equal(t, 1, src.closed(), "times closed, %v", name)
			assert.False(t, b.Broke(), name)
		})
	}
}

// The error of a Read that a Close has ended says nothing of the body.
func TestReadThatACloseEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, made := range []bool{false, true} {
			pr, _ := io.Pipe()
			b := New(put(t, pr), 100, new(Pool))
			if made {
				b = withGetBody(t, pr, func() (io.ReadCloser, error) { return oneShot("x"), nil })
			}
			attempt, read := next(b), make(chan error, 1)
			go func() { _, err := attempt.Read(make([]byte, 1)); read <- err }()
			synctest.Wait()
			b.Finish()
			assert.NoError(t, attempt.Close())
			assert.ErrorIs(t, <-read, io.ErrClosedPipe)
			assert.False(t, b.Broke(), "made: %v", made)
		}
	})
}

// Two Reads of one attempt do not meet in the body.
func TestReadsBesideEachOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, made := range []bool{false, true} {
			reading := false
			src := &body{Reader: readerFunc(func(p []byte) (int, error) {
				assert.False(t, reading)
				reading = true
				time.Sleep(time.Second)
				reading = false
				return copy(p, "x"), nil
			})}
			b := New(put(t, src), 100, new(Pool))
			if made {
				b = withGetBody(t, src, func() (io.ReadCloser, error) { return oneShot("x"), nil })
			}
			attempt, start := next(b), time.Now()
			done := make(chan struct{})
			for range 2 {
				go func() { _, _ = attempt.Read(make([]byte, 1)); done <- struct{}{} }()
			}
			<-done
			<-done
			assert.Equal(t, 2*time.Second, time.Since(start))
			b.Finish()
		}
	})
}

// A pool that is full keeps the bytes that it has.
func TestPoolThatIsFull(t *testing.T) {
	var pool Pool
	assert.True(t, pool.hold(MaxMemory))
	assert.False(t, pool.hold(1))
	assert.EqualValues(t, MaxMemory, pool.Memory.Load())
	var b buffer
	assert.False(t, b.append(make([]byte, Small+1), &pool))
	assert.True(t, b.append(make([]byte, Small), &pool), "which do not count")
}
