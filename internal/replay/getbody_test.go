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
		assert.Equal(t, 1, late.closed(), "times closed")
	})
}

// Given a GetBody that panics, then the panic reaches the loop, and the body is
// neither locked nor taken for good.
func TestGetBodyPanics(t *testing.T) {
	b := withGetBody(t, oneShot("text"), func() (io.ReadCloser, error) { panic("of the caller") })
	next(b)
	require.NoError(t, rewind(b))
	for range 2 {
		assert.Panics(t, func() { _ = b.GetBody(t.Context()) })
		assert.ErrorContains(t, b.Why(), "panicked")
		require.NoError(t, rewind(b))
	}
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
			assert.Equal(t, want, rewind(b))
			assert.Equal(t, min(takes, MaxBusy), time.Since(start))
			if want == nil {
				assert.NoError(t, b.GetBody(t.Context()))
			}
			b.Finish()
			base.Wait()
		})
	}
}

// Given GetBodies of which some are in memory, when the loop and the base transports of
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
		b := withGetBody(t, oneShot(text), getBody)
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
		got := mustRead(t, last)
		require.True(t, text == got, "%d bytes", len(got))
		b.Finish()
		require.NoError(t, last.Close())
		bases.Wait()
	}
}

// Each attempt has the result of a GetBody of its own, after the last body was closed.
func TestGetBodyForEachAttempt(t *testing.T) {
	bodies := []*body{oneShot("text")}
	b := withGetBody(t, bodies[0], func() (io.ReadCloser, error) {
		assert.Equal(t, 1, bodies[len(bodies)-1].closed(), "times closed")
		bodies = append(bodies, oneShot("text"))
		return bodies[len(bodies)-1], nil
	})
	for n := range 3 {
		attempt := next(b)
		_, err := attempt.Read(nil)
		assert.NoError(t, err)
		assert.Equal(t, "text", mustRead(t, attempt))
		assert.False(t, b.Concurrent())
		assert.NoError(t, rewind(b))
		assert.Equal(t, ErrDetached, readErr(attempt))
		assert.NoError(t, attempt.Close())
		assert.Len(t, bodies, n+1, "the body is made when it is needed")
		require.NoError(t, b.GetBody(t.Context()))
		require.NoError(t, b.GetBody(t.Context()))
		assert.Len(t, bodies, n+2, "and once")
	}
	assert.NoError(t, rewind(b))
	made := len(bodies)
	require.NoError(t, b.GetBody(t.Context()))
	assert.Len(t, bodies, made, "no attempt has had the last body")
	b.Finish()
	b.Finish()
	for i, made := range bodies {
		assert.Equal(t, 1, made.closed(), "body %d", i)
	}
}

func noBody() (io.ReadCloser, error) { return nil, nil }

// The end of a body is not asked for twice.
func TestGetBodyEndsOnce(t *testing.T) {
	reads := 0
	b := withGetBody(t, &body{Reader: readerFunc(func(p []byte) (int, error) {
		if reads++; reads > 1 {
			return 0, errors.New("read behind the end")
		}
		return copy(p, "text"), io.EOF
	})}, noBody)
	attempt := next(b)
	for _, want := range []string{"text", ""} {
		assert.Equal(t, want, mustRead(t, attempt))
	}
	assert.False(t, b.Broke())
	assert.NoError(t, b.Why())
}

// A body that fails to be read or closed is at fault, and not replayable.
func TestGetBodyThatBreaks(t *testing.T) {
	failed := errors.New("failed")
	for why, call := range map[string]func(io.ReadCloser) error{
		"its Read failed: failed":  func(r io.ReadCloser) error { return readErr(r) },
		"its Close failed: failed": io.ReadCloser.Close,
	} {
		b := withGetBody(t, failing{failed}, noBody)
		attempt := next(b)
		assert.False(t, b.Broke())
		assert.NoError(t, b.Why())
		assert.Equal(t, failed, call(attempt))
		assert.True(t, b.Broke())
		assert.EqualError(t, b.Why(), why)
	}
}

// A failing body fails in its methods.
type failing struct{ err error }

func (b failing) Read([]byte) (int, error) { return 0, b.err }
func (b failing) Close() error             { return b.err }

// A body that is shorter than the last one has no clean end, whatever its type is.
func TestGetBodyThatIsShorter(t *testing.T) {
	for name, second := range map[string]io.ReadCloser{
		"a stream":  oneShot("te"),
		"in memory": io.NopCloser(strings.NewReader("te")),
		"no body":   http.NoBody,
	} {
		b := withGetBody(t, oneShot("text"), func() (io.ReadCloser, error) { return second, nil })
		assert.Equal(t, "text", mustRead(t, next(b)))
		require.NoError(t, rewind(b))
		require.NoError(t, b.GetBody(t.Context()))
		_, err := io.ReadAll(next(b))
		assert.ErrorContains(t, err, "and an earlier attempt had sent 4", name)
		assert.True(t, b.Broke(), name)
	}
}

// net/http may call GetBody during an attempt, as often as it likes, and never after it.
func TestGetBodyByTheBase(t *testing.T) {
	bodies := []*body{oneShot("text")}
	b := withGetBody(t, bodies[0], func() (io.ReadCloser, error) {
		bodies = append(bodies, oneShot("text"))
		return bodies[len(bodies)-1], nil
	})
	first, getBody := b.Next(t.Context(), 1)
	for range 2 {
		again, err := getBody()
		require.NoError(t, err)
		assert.Equal(t, "text", mustRead(t, again))
		assert.Equal(t, ErrDetached, readErr(first))
		first = again
	}
	require.NoError(t, rewind(b))
	_, err := getBody()
	assert.Equal(t, ErrDetached, err, "the attempt is over")
	require.NoError(t, b.GetBody(t.Context()))
	_, err = getBody()
	assert.Equal(t, ErrDetached, err, "this body is for the next attempt")
	_, getBody = b.Next(t.Context(), 2)
	b.Finish()
	_, err = getBody()
	assert.Equal(t, ErrDetached, err, "the request is over")
	assert.Len(t, bodies, 4)

	b = withGetBody(t, oneShot("text"), noBody)
	_, getBody = b.Next(t.Context(), 1)
	_, err = getBody()
	assert.EqualError(t, err, "Request.GetBody returned no body")
}

// A GetBody that fails says why, until another one has succeeded.
func TestGetBodyThatFails(t *testing.T) {
	failed := errors.New("failed")
	var results []any
	b := withGetBody(t, oneShot("text"), func() (io.ReadCloser, error) {
		r := results[0]
		results = results[1:]
		if err, ok := r.(error); ok {
			return nil, err
		}
		return r.(*body), nil
	})
	next(b)
	require.NoError(t, rewind(b))
	results = []any{failed, (*body)(nil), oneShot("text")}
	for _, want := range []string{"Request.GetBody failed: failed", "Request.GetBody returned no body"} {
		assert.EqualError(t, b.GetBody(t.Context()), want)
		assert.EqualError(t, b.Why(), want)
	}
	require.NoError(t, b.GetBody(t.Context()))
	assert.NoError(t, b.Why())
	assert.Equal(t, "text", mustRead(t, next(b)))
	b.Finish()
}

// A GetBody that blocks ends with the context. Its late result is closed, a panic of it is lost, and
// no other GetBody is called beside it.
func TestGetBodyThatBlocks(t *testing.T) {
	for name, closes := range map[string]io.ReadCloser{"a body": oneShot("text"), "a panic": nil, "a panic of Close": panicsAtClose{}} {
		synctest.Test(t, func(t *testing.T) {
			calls := 0
			b := withGetBody(t, oneShot("text"), func() (io.ReadCloser, error) {
				if calls++; calls > 1 {
					return oneShot("text"), nil
				}
				time.Sleep(time.Minute)
				if closes == nil {
					panic("of the caller")
				}
				return closes, nil
			})
			_, forBase := b.Next(t.Context(), 1)
			require.NoError(t, rewind(b))
			assert.Equal(t, ErrEnded, b.GetBody(within(t, 0)), name)
			assert.Zero(t, calls, "calls, %v", name)
			start := time.Now()
			assert.Equal(t, ErrEnded, b.GetBody(within(t, time.Second)), name)
			assert.Equal(t, time.Second, time.Since(start), name)
			assert.Equal(t, ErrEnded, b.Why(), name)
			assert.Equal(t, ErrBusy, rewind(b), name)
			_, err := forBase()
			assert.Equal(t, ErrDetached, err, name)
			require.NoError(t, b.GetBody(t.Context()), name)
			assert.Equal(t, time.Minute, time.Since(start), "%s: the second call waits for the first", name)
			assert.Equal(t, 2, calls, "calls, %v", name)
			if late, ok := closes.(*body); ok {
				assert.Equal(t, 1, late.closed(), "times closed, %v", name)
			}
			b.Finish()
		})
	}
	synctest.Test(t, func(t *testing.T) {
		slow := &body{Reader: readerFunc(func([]byte) (int, error) { time.Sleep(time.Minute); return 0, io.EOF })}
		b := withGetBody(t, slow, noBody)
		attempt, forBase := b.Next(within(t, MaxBusy/2), 1)
		go func() { _, _ = attempt.Read(make([]byte, 1)) }()
		synctest.Wait()
		_, err := forBase()
		assert.Equal(t, ErrEnded, err, "while it waits for a Read")
		b.Detach(t.Context())
		assert.Equal(t, io.EOF, readErr(attempt), "a Read that takes too long leaves the body to its attempt")
		b.Detach(t.Context())
		assert.Equal(t, ErrDetached, readErr(attempt))
		assert.Equal(t, 1, slow.closed(), "times closed")
	})
}

type panicsAtClose struct{ io.Reader }

func (panicsAtClose) Close() error { panic("of the caller") }

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

func rewind(b Body) error { return b.Rewind(context.Background(), MaxBusy) }

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

// within returns a context that ends after a time.
func within(t *testing.T, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

// readErr returns the error of a Read.
func readErr(r io.Reader) error {
	_, err := r.Read(make([]byte, 1))
	return err
}

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
		assert.Equal(t, ErrDetached, readErr(v))
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
			assert.Equal(t, kept, b.Why() == nil)
			if kept {
				assert.NoError(t, err)
				assert.NoError(t, rewind(b))
				time.Sleep(2 * MaxBusy) // the body is not closed by the Close of the old attempt
				assert.Equal(t, "x", mustRead(t, next(b)))
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
			case b.Why() != nil:
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
		require.Equal(t, 1, src.closed(), "times closed")
		require.Zero(t, pool.Memory.Load(), "bytes kept at the end")
	})
}
