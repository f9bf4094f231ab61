// Uploads whose bodies are made again, but shorter, or late.

package transport_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/aplomb-go/aplomb/policy"
	"github.com/aplomb-go/aplomb/transport"
)

// Given an upload without a length, when the body of the retry ends before a byte that an
// earlier attempt had sent, then the server cannot know that it is not whole. So the attempt
// fails, and no other follows.
func TestRetriedUploadThatEndsEarly(t *testing.T) {
	text := "twelve bytes"
	for name, second := range map[string]func(n int) io.ReadCloser{
		"a reader":  func(n int) io.ReadCloser { return reader(strings.NewReader(text[:n])) },
		"in memory": func(n int) io.ReadCloser { return io.NopCloser(strings.NewReader(text[:n])) },
		"a file":    nil,
	} {
		for _, n := range []int{0, 5, len(text)} {
			t.Run(name, func(t *testing.T) {
				path := filepath.Join(t.TempDir(), "body")
				require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
				file, err := os.Open(path)
				require.NoError(t, err)
				req := newRequest(t, http.MethodPut, "http://h.test/", file)
				if second != nil {
					req.GetBody = func() (io.ReadCloser, error) { return second(n), nil }
					req.Body = reader(strings.NewReader(text))
				}
				base := script(func(req *http.Request) (*http.Response, error) {
					return play(req, status(503))
				}, status(200))
				base.serve = shortens(t, base.serve, path, n)
				resp, err := over(t, transport.Config{Rule: quick}, base).RoundTrip(req)
				assert.Equal(t, 2, len(base.bodies))
				if n == len(text) {
					require.NoError(t, closing(resp, err))
					assert.Equal(t, []string{text, text}, base.bodies)
					return
				}
				require.Error(t, closing(resp, err))
				assert.ErrorContains(t, err, "and an earlier attempt had sent 12")
			})
		}
	}
}

// shortens is an answer that makes a file n bytes long at the first request.
func shortens(t *testing.T, serve answer, path string, n int) answer {
	return func(req *http.Request) (*http.Response, error) {
		assert.NoError(t, os.Truncate(path, int64(n)))
		return play(req, serve)
	}
}

// A GetBody that blocks ends with the context. It is not called again meanwhile, also if the
// base transport of an earlier attempt asks for it, and the body that it makes late is closed.
func TestGetBodyThatBlocks(t *testing.T) {
	cause := errors.New("the job is over")
	for name, end := range map[string]func(*http.Request) (*http.Request, error, error){
		"deadline": func(req *http.Request) (*http.Request, error, error) {
			ctx, cancel := context.WithTimeout(req.Context(), 5*time.Second)
			t.Cleanup(cancel)
			return req.WithContext(ctx), context.DeadlineExceeded, context.DeadlineExceeded
		},
		"cause": func(req *http.Request) (*http.Request, error, error) {
			ctx, cancel := context.WithCancelCause(req.Context())
			time.AfterFunc(5*time.Second, func() { cancel(cause) })
			return req.WithContext(ctx), context.Canceled, cause
		},
	} {
		inBubble(t, name, func(t *testing.T) {
			late := oneShot("text")
			req := newRequest(t, http.MethodPut, "http://h.test/", nil)
			req.Body = oneShot("text")
			req, wantErr, wantCause := end(req)
			var calls atomic.Int32
			req.GetBody = func() (io.ReadCloser, error) {
				calls.Add(1)
				time.Sleep(10 * time.Minute)
				return late, nil
			}
			var getBody func() (io.ReadCloser, error)
			base := script(func(req *http.Request) (*http.Response, error) {
				getBody = req.GetBody
				return play(req, status(503))
			})
			start := time.Now()
			_, err := over(t, transport.Config{Rule: quick}, base).RoundTrip(req)
			assert.Equal(t, 5*time.Second, time.Since(start))
			assert.ErrorIs(t, err, wantErr)
			assert.ErrorIs(t, err, wantCause)
			_, err = getBody()
			assert.Error(t, err)
			time.Sleep(time.Hour)
			assert.Equal(t, 1, base.attempts())
			assert.EqualValues(t, 1, calls.Load())
			assert.Equal(t, 1, late.closed())
		})
	}
}

// The GetBody of a base transport that sends again by itself ends with the context, too.
func TestGetBodyOfTheBaseThatBlocks(t *testing.T) {
	bubble(t, func(t *testing.T) {
		late := oneShot("text")
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		req := newRequest(t, http.MethodPut, "http://h.test/", nil).WithContext(ctx)
		req.Body = oneShot("text")
		req.GetBody = func() (io.ReadCloser, error) {
			time.Sleep(10 * time.Minute)
			return late, nil
		}
		start := time.Now()
		_, err := over(t, transport.Config{Rule: policy.Rule{}}, rt(func(req *http.Request) (*http.Response, error) {
			_, err := req.GetBody()
			return nil, err
		})).RoundTrip(req)
		assert.ErrorIs(t, err, context.DeadlineExceeded)
		assert.Equal(t, 5*time.Second, time.Since(start))
		time.Sleep(time.Hour)
		assert.Equal(t, 1, late.closed())
	})
}

// A panic of GetBody reaches the caller of RoundTrip. If it comes when nobody waits any more,
// the process goes on.
func TestGetBodyThatPanics(t *testing.T) {
	for name, takes := range map[string]time.Duration{"at once": 0, "late": time.Hour} {
		inBubble(t, name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
			defer cancel()
			req := newRequest(t, http.MethodPut, "http://h.test/", nil).WithContext(ctx)
			req.Body = oneShot("text")
			req.GetBody = func() (io.ReadCloser, error) {
				time.Sleep(takes)
				panic("of the caller")
			}
			tr := over(t, transport.Config{Rule: quick}, script(status(503)))
			send := func() { _, _ = tr.RoundTrip(req) }
			if takes == 0 {
				assert.PanicsWithValue(t, "of the caller", send)
			} else {
				assert.NotPanics(t, send)
			}
			time.Sleep(2 * time.Hour)
		})
	}
}
