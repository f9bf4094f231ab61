package transport_test

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/aplomb-go/aplomb/internal/replay"
	"github.com/aplomb-go/aplomb/internal/testserver"
	"github.com/aplomb-go/aplomb/policy"
	"github.com/aplomb-go/aplomb/transport"
)

func put(t testing.TB, tr *transport.Transport, b io.ReadCloser) (*http.Response, error) {
	t.Helper()
	req := newRequest(t, http.MethodPut, "http://h.test/", nil)
	req.Body = b
	return tr.RoundTrip(req)
}

// Every resend carries the same bytes, whatever the body is and however much of
// it the failed attempts read.
func TestResendsAreWhole(t *testing.T) {
	text := strings.Repeat("0123456789abcdef", 3_000) // beyond several chunks
	all := bodies(t, text)
	all["seekable"] = func() io.Reader { return seekable(text) }
	all["a byte at a time"] = func() io.Reader { return &body{Reader: iotest.OneByteReader(strings.NewReader(text))} }
	for name, made := range all {
		for _, part := range []int{0, 1, 1000, len(text) - 1, len(text)} {
			inBubble(t, fmt.Sprint(name, "/", part), func(t *testing.T) {
				var got []string
				tr := over(t, transport.Config{Rule: quick}, numbered(func(req *http.Request, n int) (*http.Response, error) {
					defer func() { _ = req.Body.Close() }()
					if n < 4 { // reads a part, more at each attempt, and fails
						_, err := io.CopyN(io.Discard, req.Body, int64(min(part*n, len(text))))
						assert.NoError(t, err)
						return play(req, status(503))
					}
					all, err := io.ReadAll(req.Body)
					assert.NoError(t, err)
					got = append(got, string(all))
					return play(req, status(200))
				}))
				resp := mustRoundTrip(t, tr, newRequest(t, http.MethodPut, "http://h.test/", made()))
				assert.Equal(t, 200, resp.StatusCode)
				require.Len(t, got, 1)
				assert.True(t, text == got[0], "%d of %d bytes", len(got[0]), len(text))
				assert.Zero(t, tr.Kept().Memory.Load(), "the memory is given back")
			})
		}
	}
}

// What keeps an upload from being repeated is in the history and told to hooks, with the fields that would help.
func TestWhatCannotBeReplayed(t *testing.T) {
	broken := errors.New("disk on fire")
	noSeek := seekable("1")
	noSeek.seekErr = broken
	for _, row := range []struct {
		name   string
		rule   policy.Rule
		body   io.ReadCloser
		getErr error
		says   []string // why it is not repeated; none: it is
	}{
		{"more than the buffer", policy.Rule{ReplayBuffer: 3}, oneShot("1234"), nil, []string{"ReplayBuffer (3 bytes)", "GetBody"}},
		{"more than the buffer by default", policy.Rule{}, oneShot(string(noisy(1<<20 + 1))), nil, []string{"ReplayBuffer (1048576 bytes)", "GetBody"}},
		{"exactly the buffer", policy.Rule{ReplayBuffer: 4}, oneShot("1234"), nil, nil},
		{"no buffer", policy.Rule{ReplayBuffer: -1}, oneShot("1"), nil, []string{"ReplayBuffer", "off"}},
		{"no buffer, nothing in it", policy.Rule{ReplayBuffer: -1}, oneShot(""), nil, nil},
		{"no buffer, but seekable", policy.Rule{ReplayBuffer: -1}, seekable("1234"), nil, nil},
		{"GetBody fails", policy.Rule{}, io.NopCloser(strings.NewReader("1")), broken, []string{"disk on fire"}},
		{"Seek fails", policy.Rule{}, noSeek, nil, []string{"disk on fire"}},
	} {
		inBubble(t, row.name, func(t *testing.T) {
			var seen recorder
			base := script(status(503), status(200))
			req := newRequest(t, http.MethodPut, "http://h.test/", nil)
			req.Body = row.body
			if row.getErr != nil {
				req.GetBody = func() (io.ReadCloser, error) { return nil, row.getErr }
			}
			resp := mustRoundTrip(t, over(t, transport.Config{Rule: row.rule.Or(quick)}, base), req.WithContext(seen.on(req.Context())))
			if row.says == nil {
				assert.Equal(t, transport.ReasonRetry, seen.reasons()[0])
				return
			}
			assert.Equal(t, transport.ReasonNotReplayable, seen.reasons()[0])
			base.sent(t, 1)
			wantText(t, resp.Body, "body of Service Unavailable", "the response is whole")
			reason, attempts, _ := unretried(resp)
			assert.Equal(t, transport.ReasonNotReplayable, reason)
			for _, says := range row.says {
				assert.ErrorContains(t, attempts[0].Err, says)
				assert.ErrorContains(t, seen.all[0].Err, says)
			}
			assert.False(t, transport.Nested(req, resp, nil), "an outer rule may know better")
		})
	}
	inBubble(t, "a body that was never read needs nothing", func(t *testing.T) {
		n := 0
		tr := over(t, transport.Config{Rule: policy.Rule{ReplayBuffer: -1}.Or(quick)}, rt(func(req *http.Request) (*http.Response, error) {
			defer func() { _ = req.Body.Close() }()
			if n++; n == 1 {
				return play(req, status(503))
			}
			wantText(t, req.Body, "text")
			return play(req, status(200))
		}))
		b := oneShot("text")
		resp, err := put(t, tr, b)
		require.NoError(t, err)
		assert.Equal(t, 200, resp.StatusCode)
		count(t, 1, b.closed(), "body closed")
	})
}

// Given a body whose Read does not return, when less time is left than the usual
// wait for such a body, then the caller has the response in time.
func TestBodyBusyLeavesTime(t *testing.T) {
	for name, row := range map[string]struct {
		rule    policy.Rule
		timeout time.Duration
		within  time.Duration
	}{
		"the deadline leaves less time":   {policy.Rule{}, 100 * time.Millisecond, 25 * time.Millisecond},
		"MaxElapsedTime leaves less time": {policy.Rule{MaxElapsedTime: 50 * time.Millisecond}, time.Hour, 50 * time.Millisecond},
		"there is time enough":            {policy.Rule{}, time.Hour, replay.MaxBusy},
	} {
		inBubble(t, name, func(t *testing.T) {
			pr, pw := io.Pipe()
			early := rt(func(req *http.Request) (*http.Response, error) { // it still reads the request's body
				go func() { _, _ = readAndClose(req.Body) }()
				synctest.Wait()
				return play(req, status(503))
			})
			got := do(over(t, transport.Config{Rule: row.rule.Or(quick)}, early), newRequest(t, http.MethodPut, "http://h.test/", pr).WithContext(expires(t, row.timeout)))
			assert.NoError(t, got.err)
			assert.Equal(t, 503, got.status)
			assert.Equal(t, row.within, got.elapsed)
			_, _ = pr.Close(), pw.Close()
		})
	}
}

// The body of a request may fail to connect to its own source. The error is then an
// error of a dial although the request has left, and the host is not to blame, so it is not sent twice.
func TestBodyThatCannotConnect(t *testing.T) {
	refused := errRefused
	for name, row := range map[string]struct {
		method   string
		wrap     func(io.Reader) io.ReadCloser
		body     error // of the first body, nil: it ends well
		attempts int
		closed   bool // the base closes the body before it fails
	}{
		"POST":                       {method: http.MethodPost, wrap: custom, body: refused, attempts: 1},
		"POST, in a NopCloser":       {method: http.MethodPost, wrap: io.NopCloser, body: refused, attempts: 1},
		"POST, with WriteTo":         {method: http.MethodPost, wrap: buffered, body: refused, attempts: 1},
		"PUT":                        {method: http.MethodPut, wrap: custom, body: refused, attempts: 1},
		"POST that never left":       {method: http.MethodPost, wrap: custom, attempts: 2},
		"POST, closed before a Read": {method: http.MethodPost, wrap: custom, body: refused, attempts: 2, closed: true},
	} {
		t.Run(name, func(t *testing.T) {
			attempts := 0
			tr := over(t, transport.Config{Rule: quick}, rt(func(req *http.Request) (*http.Response, error) {
				attempts++
				if attempts > 1 {
					_, _ = io.Copy(io.Discard, req.Body)
					_ = req.Body.Close()
					return play(req, status(200))
				}
				if row.closed {
					_ = req.Body.Close()
				}
				_, err := io.Copy(io.Discard, req.Body)
				_ = req.Body.Close()
				if err == nil {
					err = refused
				}
				return nil, err // as net/http returns what the body returned
			}))
			req := newRequest(t, row.method, "http://h.test/", nil)
			made := 0
			req.GetBody = func() (io.ReadCloser, error) {
				made++
				if text := strings.NewReader("text"); made > 1 || row.body == nil {
					return row.wrap(text), nil
				}
				return row.wrap(io.MultiReader(strings.NewReader("te"), iotest.ErrReader(row.body))), nil
			}
			req.Body, _ = req.GetBody()
			req.ContentLength = -1
			resp, err := tr.RoundTrip(req)
			count(t, row.attempts, attempts, "request sent")
			if row.attempts == 1 {
				assert.ErrorIs(t, err, syscall.ECONNREFUSED)
				return
			}
			require.NoError(t, err)
			assert.Equal(t, 200, resp.StatusCode)
		})
	}
}

// A POST that never left is sent again, even if its body was not watched during the
// first attempt.
func TestBodyOfManyReaders(t *testing.T) {
	text := func() io.Reader { return io.MultiReader(strings.NewReader("head"), strings.NewReader("tail")) }
	for name, c := range map[string]transport.Config{"default": {Rule: quick}, "with a trace": {Rule: quick, Traces: []*transport.Trace{{}}}} {
		t.Run(name, func(t *testing.T) {
			base := script(func(req *http.Request) (*http.Response, error) {
				return nil, errRefused
			}, status(200))
			req := newRequest(t, http.MethodPost, "http://h.test/", text())
			req.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(text()), nil }
			resp, err := over(t, c, rt(func(req *http.Request) (*http.Response, error) {
				if base.attempts() == 0 {
					_ = req.Body.Close() // never read
					req = req.Clone(req.Context())
					req.Body = nil
				}
				return base.RoundTrip(req)
			})).RoundTrip(req)
			require.NoError(t, err)
			assert.Equal(t, 200, resp.StatusCode)
			assert.Equal(t, "headtail", base.bodies[len(base.bodies)-1])
		})
	}
}

type closeFails struct{ io.Reader }

// net/http returns the error of a body's Close, after all of it was sent.
func TestBodyThatCannotBeClosed(t *testing.T) {
	var posts atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) {
		if got, _ := io.ReadAll(req.Body); string(got) == "text" {
			posts.Add(1)
		}
		<-req.Context().Done() // otherwise the response comes before the error
	}))
	base := &http.Transport{}
	req := newRequest(t, http.MethodPost, server.URL, nil)
	req.ContentLength = 4
	req.GetBody = func() (io.ReadCloser, error) { return closeFails{strings.NewReader("text")}, nil }
	req.Body, _ = req.GetBody()
	_, err := over(t, transport.Config{Rule: quick}, base).RoundTrip(req)
	// net/http closes the connection, and may notice that before it returns the error of Close.
	assert.True(t, errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, net.ErrClosed), "%v", err)
	base.CloseIdleConnections()
	server.Close() // waits for the handlers
	assert.LessOrEqual(t, posts.Load(), int32(1), "POSTs")
}

// When a stream of HTTP/2 is reset, net/http waits until its Read of the body has ended. A
// body whose writer waits for a response does not keep the caller from its error.
func TestBlockedBodyOfALostStream(t *testing.T) {
	inMemory(t, http2[:1], func(t *testing.T, cfg testserver.Config) {
		s := set(t, cfg, quick, testserver.RSTStream(testserver.InternalError).Early(0))
		pr, pw := io.Pipe()
		rescue := time.AfterFunc(time.Hour, func() { _ = pw.Close() })
		defer rescue.Stop()
		got := s.send(http.MethodPut, pr)
		assert.ErrorContains(t, got.err, "INTERNAL_ERROR")
		assert.Equal(t, replay.MaxBusy, got.elapsed)
		_, err := pw.Write([]byte("x"))
		assert.ErrorIs(t, err, io.ErrClosedPipe)
		s.tr.CloseIdleConnections()
	})
}

func (closeFails) Close() error { return errRefused }

func noisy(n int) []byte {
	p := make([]byte, n)
	_, _ = rand.NewChaCha8([32]byte{7, byte(n), byte(n >> 8), byte(n >> 16)}).Read(p)
	return p
}

// The bytes in all buffers are counted, and bounded for a whole Transport.
func TestKeptBytesAreBounded(t *testing.T) {
	for size, want := range map[int]int{10: 200, replay.Small: 200, replay.Small + 1: 503} {
		base := script(status(503), status(200))
		tr := over(t, transport.Config{Rule: quick}, base)
		tr.Kept().Memory.Store(replay.MaxMemory - 10) // by large uploads of others
		var seen recorder
		req := newRequest(t, http.MethodPut, "http://h.test/", nil)
		req.Body = oneShot(strings.Repeat("x", size))
		resp := mustRoundTrip(t, tr, req.WithContext(seen.on(req.Context())))
		assert.Equal(t, want, resp.StatusCode, size)
		if want == 503 {
			assert.Equal(t, transport.ReasonNotReplayable, seen.last())
			assert.ErrorContains(t, seen.all[0].Err, "67108864 bytes that a Transport keeps")
			assert.ErrorContains(t, seen.all[0].Err, "ReplayBuffer")
		}
		assert.EqualValues(t, replay.MaxMemory-10, tr.Kept().Memory.Load())
	}
}

// An upload that cannot be rewound costs no more memory than the buffer.
func TestUploadMemoryIsBounded(t *testing.T) {
	const size = 64 << 20
	var before, after runtime.MemStats
	tr := over(t, transport.Config{}, rt(func(req *http.Request) (*http.Response, error) {
		n, err := io.Copy(io.Discard, req.Body)
		assert.NoError(t, err)
		assert.EqualValues(t, size, n)
		_ = req.Body.Close()
		return play(req, status(200))
	}))
	runtime.ReadMemStats(&before)
	_, err := put(t, tr, io.NopCloser(io.LimitReader(readFunc(func(p []byte) (int, error) { return len(p), nil }), size)))
	require.NoError(t, err)
	runtime.ReadMemStats(&after)
	assert.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(3<<20), "all that was ever allocated")
	assert.Zero(t, tr.Kept().Memory.Load())
}
