package replay

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// withGetBody returns the Body of a request with a GetBody of the caller's own.
func withGetBody(t testing.TB, first io.ReadCloser, getBody func() (io.ReadCloser, error)) Body {
	req := put(t, first)
	req.GetBody = getBody
	return New(req, 0, new(Pool))
}

// Given a base transport whose call of GetBody is under way, when the request ends,
// then the new body is closed and the base transport does not get it.
func TestGetBodyAfterTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		late, release := oneShot("text"), make(chan struct{})
		b := withGetBody(t, oneShot("text"), func() (io.ReadCloser, error) { <-release; return late, nil })
		result := make(chan error)
		_, forBase := b.Next(t.Context(), 1)
		go func() { _, err := forBase(); result <- err }()
		synctest.Wait()
		b.Finish()
		close(release)
		assert.Equal(t, ErrDetached, <-result)
		assert.Equal(t, 1, late.closed())
	})
}

// Given a GetBody that panics, then the panic reaches the loop, and the body is
// neither locked nor taken for good.
func TestGetBodyPanics(t *testing.T) {
	b := withGetBody(t, oneShot("text"), func() (io.ReadCloser, error) { panic("of the caller") })
	next(b)
	getBody, err := b.Rewind(t.Context(), MaxBusy)
	require.NoError(t, err)
	assert.True(t, getBody)
	assert.Panics(t, func() { _ = b.GetBody(t.Context()) })
	assert.ErrorContains(t, b.Why(), "panicked")
	getBody, _ = b.Rewind(t.Context(), MaxBusy)
	assert.True(t, getBody)
	b.Finish()
}

// slowToClose is a body whose Close takes a while.
type slowToClose struct {
	io.Reader
	takes  time.Duration
	closed bool
}

func (b *slowToClose) Close() error {
	time.Sleep(b.takes)
	b.closed = true
	return nil
}

// Given an attempt that is closing its body, when the body is rewound, then GetBody
// is called after the Close. If the Close takes too long, the attempt keeps the body.
func TestGetBodyDuringClose(t *testing.T) {
	for takes, want := range map[time.Duration]error{MaxBusy / 2: nil, 2 * MaxBusy: ErrBusy} {
		synctest.Test(t, func(t *testing.T) {
			old := &slowToClose{Reader: strings.NewReader("text"), takes: takes}
			b := withGetBody(t, old, func() (io.ReadCloser, error) {
				assert.True(t, old.closed)
				return oneShot("text"), nil
			})
			attempt := next(b)
			var base sync.WaitGroup
			base.Go(func() { _ = attempt.Close() })
			synctest.Wait()
			start := time.Now()
			getBody, err := b.Rewind(t.Context(), MaxBusy)
			assert.Equal(t, min(takes, MaxBusy), time.Since(start))
			assert.Equal(t, want, err)
			assert.Equal(t, want == nil, getBody)
			if getBody {
				assert.NoError(t, b.GetBody(t.Context()))
			}
			b.Finish()
			base.Wait()
		})
	}
}

// Given bodies of which some are in memory, when the loop and the base transports of
// old attempts ask for bodies at the same time, then no two results of GetBody are in
// use at once, and each attempt reads the body from its beginning.
func TestGetBodyUnderConcurrency(t *testing.T) {
	text := noisy(3000)
	for range 200 {
		var using sync.Mutex
		getBody := func() (io.ReadCloser, error) {
			if rand.IntN(2) == 0 {
				return io.NopCloser(strings.NewReader(text)), nil
			}
			if !using.TryLock() {
				return nil, errors.New("the previous body is still in use")
			}
			r := strings.NewReader(text)
			return &exclusive{Reader: readerFunc(func(p []byte) (int, error) { return r.Read(p[:min(len(p), 100)]) }), using: &using}, nil
		}
		first, _ := http.NewRequest(http.MethodPut, "http://h/", strings.NewReader(text))
		b := withGetBody(t, first.Body, getBody)
		var bases sync.WaitGroup
		for range 4 {
			attempt, getBody := b.Next(context.Background(), 1)
			bases.Go(func() {
				again, err := getBody()
				if err != nil {
					assert.Equal(t, ErrDetached, err)
					return
				}
				got, _ := io.ReadAll(again)
				assert.True(t, strings.HasPrefix(text, string(got)), "%d bytes", len(got))
				_ = again.Close()
			})
			_, _ = io.CopyN(io.Discard, attempt, rand.Int64N(3000))
			require.NoError(t, rewind(b))
			require.NoError(t, b.GetBody(t.Context()))
		}
		last := next(b)
		got, err := io.ReadAll(last)
		require.NoError(t, err)
		require.True(t, text == string(got), "%d bytes", len(got))
		b.Finish()
		require.NoError(t, last.Close())
		bases.Wait()
	}
}

// exclusive is a body that gives a lock back when it is closed.
type exclusive struct {
	io.Reader
	using *sync.Mutex
	once  sync.Once
}

func (e *exclusive) Close() error {
	e.once.Do(e.using.Unlock)
	return nil
}

func put(t testing.TB, body io.Reader) *http.Request {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPut, "http://h.test/", body)
	require.NoError(t, err)
	return req
}

// body is a request body that counts its closes.
type body struct {
	io.Reader
	closes atomic.Int32
}

func oneShot(text string) *body { return &body{Reader: strings.NewReader(text)} }

func (b *body) Close() error {
	b.closes.Add(1)
	return nil
}

func (b *body) closed() int { return int(b.closes.Load()) }

// next returns the body for the next attempt.
func next(b Body) io.ReadCloser {
	attempt, _ := b.Next(context.Background(), 1)
	return attempt
}

func rewind(b Body) error {
	_, err := b.Rewind(context.Background(), MaxBusy)
	return err
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

func noisy(n int) string {
	text := make([]byte, n)
	_, _ = rand.NewChaCha8([32]byte{7}).Read(text)
	return string(text)
}

// Close never waits for a Read, and the last Close of a reader, during a Read,
// closes the body itself, which is what ends the Read.
func TestCloseDuringRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pr, pw := io.Pipe()
		b := New(put(t, pr), 100, new(Pool))
		v := next(b)
		ended := make(chan error, 1)
		go func() {
			_, err := v.Read(make([]byte, 10))
			ended <- err
		}()
		synctest.Wait()
		assert.NoError(t, v.Close(), "another attempt may follow")
		assert.Empty(t, ended, "the body is not closed while an attempt may follow")
		b.Finish()
		assert.ErrorIs(t, <-ended, io.ErrClosedPipe)
		_, err := pw.Write([]byte("x"))
		assert.ErrorIs(t, err, io.ErrClosedPipe)
		_, err = v.Read(make([]byte, 1))
		assert.Equal(t, ErrDetached, err)
		assert.NoError(t, v.Close())
	})
}

// A base transport may wait for its Read after it has closed the body. The Read ends in
// any case. If it ends in time, the body is kept for another attempt.
func TestCloseEndsABlockedRead(t *testing.T) {
	for takes, kept := range map[time.Duration]bool{MaxBusy / 2: true, time.Hour: false} {
		synctest.Test(t, func(t *testing.T) {
			pr, pw := io.Pipe()
			b := New(put(t, pr), 100, new(Pool))
			v := next(b)
			time.AfterFunc(takes, func() {
				_, _ = pw.Write([]byte("x"))
				_ = pw.Close()
			})
			go func() {
				synctest.Wait()
				assert.NoError(t, v.Close())
				assert.NoError(t, v.Close())
			}()
			start := time.Now()
			_, err := v.Read(make([]byte, 10))
			assert.Equal(t, min(takes, MaxBusy), time.Since(start))
			assert.Equal(t, kept, b.Replayable())
			if kept {
				assert.NoError(t, err)
				assert.NoError(t, rewind(b))
				time.Sleep(2 * MaxBusy) // the body is not closed by the Close of the old attempt
				text, err := io.ReadAll(next(b))
				assert.NoError(t, err)
				assert.Equal(t, "x", string(text))
			} else {
				assert.ErrorIs(t, err, io.ErrClosedPipe)
				assert.Equal(t, errBlocked, rewind(b))
			}
			b.Finish()
			time.Sleep(time.Hour)
		})
	}
}

// FuzzStreamBody drives a body the way base transports do: attempts that read
// some and stop, in pieces of any size, with errors alongside data. What an
// attempt reads is always the beginning of the one true body.
func FuzzStreamBody(f *testing.F) {
	f.Add(uint64(1), uint16(5000), uint16(3000), false)
	f.Add(uint64(2), uint16(5000), uint16(6000), false)
	f.Add(uint64(3), uint16(100), uint16(0), true)
	f.Fuzz(func(t *testing.T, seed uint64, size, limit uint16, seek bool) {
		r := rand.New(rand.NewPCG(seed, 1))
		truth := make([]byte, size)
		for i := range truth {
			truth[i] = byte(r.Uint32())
		}
		reader := bytes.NewReader(truth)
		src := &body{Reader: readerFunc(func(p []byte) (int, error) {
			n, err := reader.Read(p[:min(len(p), 1+r.IntN(700))])
			if reader.Len() == 0 && r.IntN(2) == 0 {
				err = io.EOF
			}
			return n, err
		})}
		var pool Pool
		req := put(t, src)
		if seek {
			req.Body = struct {
				io.ReadCloser
				io.Seeker
			}{src, reader}
		}
		b := New(req, int64(limit), &pool)
		for range 5 {
			v := next(b)
			want := r.IntN(int(size) + 2)
			got, err := io.ReadAll(io.LimitReader(v, int64(want)))
			require.True(t, err == nil && bytes.Equal(got, truth[:min(want, len(truth))]), "an attempt read %d bytes of %d, %v", len(got), size, err)
			if r.IntN(2) == 0 {
				_ = v.Close()
			}
			switch err := rewind(b); {
			case !b.Replayable():
				require.True(t, !seek && want > int(limit), "given up after %d bytes with room for %d", want, limit)
				b.Finish()
				_ = v.Close()
				return
			case err != nil:
				t.Fatal(err)
			}
			require.LessOrEqual(t, pool.Memory.Load(), int64(limit), "bytes kept, %d allowed", limit)
		}
		v := next(b)
		b.Finish()
		got, err := io.ReadAll(v)
		require.True(t, err == nil && sha256.Sum256(got) == sha256.Sum256(truth), "the last attempt read %d bytes of %d, %v", len(got), size, err)
		_ = v.Close()
		if src.closed() != 1 || pool.Memory.Load() != 0 {
			t.Fatalf("closed %d times, %d bytes kept at the end", src.closed(), pool.Memory.Load())
		}
	})
}
