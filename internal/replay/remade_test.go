package replay

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// remadeBy returns the Body of a request with a GetBody of the caller's own.
func remadeBy(t testing.TB, first io.ReadCloser, getBody func() (io.ReadCloser, error)) Body {
	req := put(t, first)
	req.GetBody = getBody
	return New(req, 0, new(Pool))
}

// Given a base transport whose call of GetBody is under way, when the request ends,
// then the new body is closed and the base transport does not get it.
func TestRemadeAfterTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		late, release := oneShot("text"), make(chan struct{})
		b := remadeBy(t, oneShot("text"), func() (io.ReadCloser, error) { <-release; return late, nil })
		result := make(chan error)
		_, forBase := b.Next(t.Context(), 1)
		go func() { _, err := forBase(); result <- err }()
		synctest.Wait()
		b.Finish()
		close(release)
		assert.Equal(t, ErrLent, <-result)
		assert.Equal(t, 1, late.closed())
	})
}

// Given a GetBody that panics, then the panic reaches the loop, and the body is
// neither locked nor taken for good.
func TestRemadePanics(t *testing.T) {
	b := remadeBy(t, oneShot("text"), func() (io.ReadCloser, error) { panic("of the caller") })
	next(b)
	renew, err := b.TakeBack(t.Context(), MaxBusy)
	require.NoError(t, err)
	assert.True(t, renew)
	assert.Panics(t, func() { _ = b.Renew(t.Context()) })
	assert.ErrorContains(t, b.Why(), "panicked")
	renew, _ = b.TakeBack(t.Context(), MaxBusy)
	assert.True(t, renew)
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

// Given an attempt that is closing its body, when the body is taken back, then GetBody
// is called after the Close. If the Close takes too long, the attempt keeps the body.
func TestRemadeDuringClose(t *testing.T) {
	for takes, want := range map[time.Duration]error{MaxBusy / 2: nil, 2 * MaxBusy: ErrBusy} {
		synctest.Test(t, func(t *testing.T) {
			old := &slowToClose{Reader: strings.NewReader("text"), takes: takes}
			b := remadeBy(t, old, func() (io.ReadCloser, error) {
				assert.True(t, old.closed)
				return oneShot("text"), nil
			})
			attempt := next(b)
			var base sync.WaitGroup
			base.Go(func() { _ = attempt.Close() })
			synctest.Wait()
			start := time.Now()
			renew, err := b.TakeBack(t.Context(), MaxBusy)
			assert.Equal(t, min(takes, MaxBusy), time.Since(start))
			assert.Equal(t, want, err)
			assert.Equal(t, want == nil, renew)
			if renew {
				assert.NoError(t, b.Renew(t.Context()))
			}
			b.Finish()
			base.Wait()
		})
	}
}

// Given bodies of which some are in memory, when the loop and the base transports of
// old attempts ask for bodies at the same time, then no two results of GetBody are in
// use at once, and each attempt reads the body from its beginning.
func TestRemadeUnderConcurrency(t *testing.T) {
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
		b := remadeBy(t, first.Body, getBody)
		var bases sync.WaitGroup
		for range 4 {
			attempt, getBody := b.Next(context.Background(), 1)
			bases.Go(func() {
				again, err := getBody()
				if err != nil {
					assert.Equal(t, ErrLent, err)
					return
				}
				got, _ := io.ReadAll(again)
				assert.True(t, strings.HasPrefix(text, string(got)), "%d bytes", len(got))
				_ = again.Close()
			})
			_, _ = io.CopyN(io.Discard, attempt, rand.Int64N(3000))
			require.NoError(t, takeBack(b))
			require.NoError(t, b.Renew(t.Context()))
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
