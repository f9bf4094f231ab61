// Request bodies: what is sent again, and readers that are shared, that fail, or that are made again: shorter, late or never.

package transport_test

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"
	"weak"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/aplomb-go/aplomb/faults"
	"github.com/aplomb-go/aplomb/internal/replay"
	"github.com/aplomb-go/aplomb/internal/soak"
	ts "github.com/aplomb-go/aplomb/internal/testserver"
	"github.com/aplomb-go/aplomb/policy"
	"github.com/aplomb-go/aplomb/policy/backoff"
	"github.com/aplomb-go/aplomb/policy/profile"
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
		name string
		rule policy.Rule
		body io.ReadCloser
		says []string // why it is not repeated; none: it is
	}{
		{"more than the buffer", policy.Rule{ReplayBuffer: 3}, oneShot("1234"), []string{"ReplayBuffer (3 bytes)", "GetBody"}},
		{"more than the buffer by default", policy.Rule{}, oneShot(string(noisy(1<<20 + 1))), []string{"ReplayBuffer (1048576 bytes)", "GetBody"}},
		{"exactly the buffer", policy.Rule{ReplayBuffer: 4}, oneShot("1234"), nil},
		{"no buffer", policy.Rule{ReplayBuffer: -1}, oneShot("1"), []string{"ReplayBuffer", "off"}},
		{"no buffer, nothing in it", policy.Rule{ReplayBuffer: -1}, oneShot(""), nil},
		{"no buffer, but seekable", policy.Rule{ReplayBuffer: -1}, seekable("1234"), nil},
		{"Seek fails", policy.Rule{}, noSeek, []string{"disk on fire"}},
	} {
		inBubble(t, row.name, func(t *testing.T) {
			var seen recorder
			base := script(status(503), status(200))
			req := newRequest(t, http.MethodPut, "http://h.test/", nil)
			req.Body = row.body
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
	inMemory(t, http2[:1], func(t *testing.T, cfg ts.Config) {
		s := set(t, cfg, quick, ts.RSTStream(ts.InternalError).Early(0))
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
	for size, want := range map[int]int{10: 200, replay.Small + 10: 200, replay.Small + 11: 503} {
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

// seekCloser is a body such as azcore's, a reader with Seek and a Close that does
// nothing.
type seekCloser struct{ io.ReadSeeker }

func (seekCloser) Close() error { return nil }

// lockedPayload is a body such as connect's, a single object with a lock, WriteTo and
// a way back. Its Close does nothing.
type lockedPayload struct {
	mu sync.Mutex
	r  *strings.Reader
}

func (l *lockedPayload) Read(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.r.Read(p)
}

func (l *lockedPayload) WriteTo(w io.Writer) (int64, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.r.WriteTo(w)
}

func (*lockedPayload) Close() error { return nil }

func (l *lockedPayload) Seek(offset int64, whence int) (int64, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.r.Seek(offset, whence)
}

// seeksBack is a GetBody that seeks its one reader back.
func seeksBack(r io.Seeker, body io.ReadCloser) func() (io.ReadCloser, error) {
	return func() (io.ReadCloser, error) {
		_, err := r.Seek(0, io.SeekStart)
		return body, err
	}
}

// sharedBodies make a body, and a GetBody that returns the same reader. When azcore retries itself, the first body has another type
// than those of GetBody.
var sharedBodies = map[string]func(text string) (first io.ReadCloser, again func() (io.ReadCloser, error)){
	"azcore": func(text string) (io.ReadCloser, func() (io.ReadCloser, error)) {
		b := seekCloser{strings.NewReader(text)}
		return b, seeksBack(b, b)
	},
	"azcore with retries": func(text string) (io.ReadCloser, func() (io.ReadCloser, error)) {
		b := seekCloser{strings.NewReader(text)}
		return custom(b), seeksBack(b, b)
	},
	"connect": func(text string) (io.ReadCloser, func() (io.ReadCloser, error)) {
		b := &lockedPayload{r: strings.NewReader(text)}
		return b, seeksBack(b, b)
	},
	"in memory": func(text string) (io.ReadCloser, func() (io.ReadCloser, error)) {
		r := strings.NewReader(text)
		return io.NopCloser(r), seeksBack(r, io.NopCloser(r))
	},
}

// uploads is how often each kind of upload is tried; APLOMB_UPLOADS sets it.
func uploads() int {
	if n, err := strconv.Atoi(os.Getenv("APLOMB_UPLOADS")); err == nil {
		return n
	}
	return soak.Size(1, 20)
}

// A server responds early, while the body is on its way, and stores the body of a later
// attempt. The stored body is right, although GetBody returns the same reader each
// time.
func TestUploadsOfOneReader(t *testing.T) {
	text := string(noisy(8 << 20)) // more than the buffers of a connection hold
	sum := fmt.Sprintf("%x", sha256.Sum256([]byte(text)))
	n := uploads()
	var group sync.WaitGroup // an upload mostly waits for the rest of an early response
	defer group.Wait()
	for _, proto := range []string{"HTTP/1.1", "HTTP/2.0"} {
		for name, body := range sharedBodies {
			for _, hedge := range []policy.Hedge{policy.Hedge{Enabled: policy.Off}, {Delay: 2 * time.Millisecond}} {
				group.Go(func() {
					t.Run(fmt.Sprintf("%s/%s/hedge %v", proto, name, hedge.Enabled), func(t *testing.T) {
						server := storing(t, proto)
						tr := over(t, transport.Config{Rule: policy.Rule{Hedge: hedge}.Or(quick)}, server.Client().Transport)
						right := 0
						for i := range n {
							req := newRequest(t, http.MethodPut, fmt.Sprint(server.URL, "/", i), nil)
							req.Body, req.GetBody = body(text)
							req.ContentLength = int64(len(text))
							resp, err := tr.RoundTrip(req.WithContext(transport.WithIdempotent(req.Context())))
							if !assert.NoError(t, err) {
								continue
							}
							got, err := io.ReadAll(resp.Body)
							_ = resp.Body.Close()
							if assert.NoError(t, err) && assert.Equal(t, sum, string(got)) {
								right++
							}
						}
						t.Logf("%d of %d uploads right", right, n)
					})
				})
			}
		}
	}
}

// storing responds to the first two uploads to each path with an early 503, and to any
// other upload with the digest of the body that came.
func storing(t *testing.T, proto string) *httptest.Server {
	var mu sync.Mutex
	seen := map[string]int{}
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		assert.Equal(t, proto, req.Proto)
		mu.Lock()
		seen[req.URL.Path]++
		early := seen[req.URL.Path] <= 2
		mu.Unlock()
		if early {
			control := http.NewResponseController(w)
			_ = control.EnableFullDuplex()
			_, _ = io.CopyN(io.Discard, req.Body, 100<<10)
			w.WriteHeader(http.StatusServiceUnavailable)
			_, _ = io.WriteString(w, "busy")
			_ = control.Flush()
			_, _ = io.CopyN(io.Discard, req.Body, 1<<20)
			return
		}
		h := sha256.New()
		if n, err := io.Copy(h, req.Body); err != nil || n != req.ContentLength {
			return // cut: the client knows
		}
		_, _ = fmt.Fprintf(w, "%x", h.Sum(nil))
	}))
	server.EnableHTTP2 = proto == "HTTP/2.0"
	server.StartTLS()
	t.Cleanup(server.Close)
	return server
}

// strictBody is a body whose GetBody returns the same object each time. It
// notes a use of it that overlaps with the making of the next one.
type strictBody struct {
	t      *testing.T
	mu     sync.Mutex
	r      *strings.Reader
	closed bool
	made   []time.Time
	closes int
}

func (b *strictBody) Read(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return 0, errors.New("read after Close")
	}
	return b.r.Read(p[:min(len(p), 2)])
}

func (b *strictBody) Close() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed = true
	b.closes++
	return nil
}

func (b *strictBody) getBody() (io.ReadCloser, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.closed {
		b.t.Error("GetBody is called while the old body is open")
	}
	b.made, b.closed = append(b.made, time.Now()), false
	_, err := b.r.Seek(0, io.SeekStart)
	return b, err
}

func strictRequest(t *testing.T, text string) (*http.Request, *strictBody) {
	b := &strictBody{t: t, r: strings.NewReader(text)}
	req := newRequest(t, http.MethodPut, "http://h.test/", nil)
	req.Body, req.GetBody, req.ContentLength = b, b.getBody, int64(len(text))
	return req, b
}

// GetBody is called when the old body is closed, the old response discarded, and
// the wait over. This holds too for a base transport that never closes a body and
// goes on reading it: its late Read and Close do not reach the shared reader.
func TestGetBodyComesLast(t *testing.T) {
	const text = "0123456789"
	for name, closes := range map[string]bool{"the base closes": true, "the base forgets": false} {
		inBubble(t, name, func(t *testing.T) {
			req, b := strictRequest(t, text)
			var old []io.ReadCloser
			var responses []*body
			tr := over(t, transport.Config{Rule: policy.Rule{Backoff: backoff.Constant(time.Second)}.Or(quick)}, rt(func(req *http.Request) (*http.Response, error) {
				for _, late := range old { // while this attempt reads
					n, err := late.Read(make([]byte, 1))
					assert.Zero(t, n)
					assert.ErrorIs(t, err, replay.ErrDetached)
					assert.NoError(t, late.Close())
				}
				for _, a := range responses {
					count(t, 1, a.closed(), "body closed")
				}
				part := make([]byte, 3)
				_, err := io.ReadFull(req.Body, part)
				assert.NoError(t, err)
				assert.Equal(t, text[:3], string(part))
				if old = append(old, req.Body); len(old) < 4 {
					if closes {
						assert.NoError(t, req.Body.Close())
					}
					a := oneShot("busy")
					responses = append(responses, a)
					return newResponse(req, 503, a), nil
				}
				wantText(t, req.Body, text[3:])
				assert.NoError(t, req.Body.Close())
				return play(req, status(200))
			}))
			start := time.Now()
			resp := mustRoundTrip(t, tr, req)
			assert.Equal(t, 200, resp.StatusCode)
			assert.Equal(t, []time.Time{start.Add(time.Second), start.Add(2 * time.Second), start.Add(3 * time.Second)}, b.made)
			count(t, 4, b.closes, "body closed")
		})
	}
}

// The error of a GetBody that fails is in the history. The
// caller gets the last response if it was read whole when it was discarded, and
// otherwise an error that has the status, and the error of GetBody.
func TestGetBodyThatFails(t *testing.T) {
	broken := errors.New("disk on fire")
	endless := func(req *http.Request) (*http.Response, error) {
		return newResponse(req, 503, io.NopCloser(readFunc(func(p []byte) (int, error) { return len(p), nil }))), nil
	}
	for name, row := range map[string]struct {
		first answer
		body  io.ReadCloser
		text  string // of the response that the caller gets; "": it gets an error
		says  string
	}{
		"after a short response":    {status(503), oneShot("text"), "body of Service Unavailable", "disk on fire"},
		"after an endless response": {endless, oneShot("text"), "", "disk on fire"},
		"after an error":            {faults.Fail(io.ErrUnexpectedEOF), oneShot("text"), "", "unexpected EOF; the request's body cannot be sent again: Request.GetBody failed: disk on fire"},
	} {
		inBubble(t, name, func(t *testing.T) {
			var seen recorder
			base := script(row.first, status(200))
			var log journal
			tr := over(t, transport.Config{Rule: quick, Logger: log.logger()}, base)
			req := newRequest(t, http.MethodPut, "http://h.test/", nil)
			req.Body = row.body
			req.GetBody = func() (io.ReadCloser, error) { return nil, broken }
			resp, err := tr.RoundTrip(req.WithContext(seen.on(req.Context())))
			assert.Equal(t, transport.ReasonNotReplayable, seen.last())
			lines := log.lines()
			assert.Contains(t, lines[1], "the request's body cannot be sent again: Request.GetBody failed: disk on fire\" reason=not_replayable")
			assert.Contains(t, lines[1], "DEBUG retry not sent error=")
			var history []transport.Attempt
			if row.text != "" {
				require.NoError(t, err)
				var reason transport.Reason
				reason, history, _ = unretried(resp)
				assert.Equal(t, transport.ReasonNotReplayable, reason)
				text := make([]byte, 27)
				_, err := io.ReadFull(resp.Body, text)
				assert.NoError(t, err)
				assert.Equal(t, row.text, string(text), "the response is as it came")
				_ = resp.Body.Close()
			} else {
				e := errorAs[*transport.Error](t, err)
				assert.ErrorIs(t, err, broken)
				assert.ErrorContains(t, err, row.says)
				assert.Equal(t, transport.ReasonNotReplayable, e.Reason)
				assert.False(t, e.GaveUp(), "an outer rule may know better")
				history = e.Attempts
			}
			require.Len(t, history, 1)
			assert.ErrorIs(t, history[0].Err, broken)
			assert.ErrorContains(t, history[0].Err, row.says)
			assert.Equal(t, transport.ReasonNotReplayable, history[0].Reason)
			base.sent(t, 1)
		})
	}
}

// The bodies that net/http takes for its own resends are guarded like any other.
func TestGetBodyOfTheBase(t *testing.T) {
	const text = "0123456789"
	server := ts.Start(t, ts.Config{HTTP2: true, TLS: ts.Trusted},
		ts.RefuseStream(), ts.Status(503), ts.RefuseStream(), ts.OK("ok"))
	tr := over(t, transport.Config{Rule: quick}, server.Transport())
	t.Cleanup(tr.CloseIdleConnections)
	req, b := strictRequest(t, text)
	req.URL, _ = req.URL.Parse(server.URL)
	resp := mustRoundTrip(t, tr, req)
	_ = resp.Body.Close()
	assert.Len(t, b.made, 3, "two by net/http, one by us")
	log := server.Log()
	assert.Equal(t, text, string(log[len(log)-1].BodyPrefix))
}

// http.Client calls the caller's own GetBody for a redirect that came early. The
// upload that is still under way is cut off before.
func TestEarlyRedirectOfOneReader(t *testing.T) {
	bubble(t, func(t *testing.T) {
		const text = "0123456789"
		var old io.Reader
		req, b := strictRequest(t, text)
		client := &http.Client{Transport: over(t, transport.Config{Rule: quick}, rt(func(req *http.Request) (*http.Response, error) {
			if old == nil {
				old = req.Body
				_, _ = old.Read(make([]byte, 1))
				return play(req, status(307, "Location: /other"))
			}
			_, err := old.Read(make([]byte, 1))
			assert.ErrorIs(t, err, replay.ErrDetached)
			wantText(t, req.Body, text)
			_ = req.Body.Close()
			return play(req, status(200))
		}))}
		resp, err := client.Do(req)
		require.NoError(t, err)
		assert.Equal(t, 200, resp.StatusCode)
		_ = resp.Body.Close()
		assert.Len(t, b.made, 1)
	})
}

// A request whose own body fails is sent once, and its caller gets that error. The host, its
// limiter, its connections and its budget are not to blame, whatever the error looks like.
func TestSourceOfAnUploadFails(t *testing.T) {
	limited := policy.Concurrency{Max: 100}
	rules := map[string]policy.Rule{
		"default":     {Concurrency: limited},
		"API":         policy.Rule{Concurrency: limited}.Or(profile.API()),
		"Service":     policy.Rule{Concurrency: limited}.Or(profile.Service()),
		"one attempt": {Concurrency: limited, MaxAttempts: 1},
	}
	causes := map[string]error{
		"an error of its own": errors.New("disk error"),
		"unexpected EOF":      io.ErrUnexpectedEOF,
		"reset":               &net.OpError{Op: "read", Net: "tcp", Err: syscall.ECONNRESET},
		"refused":             &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED},
		"timeout":             os.ErrDeadlineExceeded,
	}
	for name, rule := range rules {
		runInMemory(t, name, slices.Concat(http1, http2), func(t *testing.T, cfg ts.Config) {
			for what, cause := range causes {
				cfg.Net = ts.NewNet()
				s := set(t, cfg, rule, ts.OK("hello"))
				source := func() (io.ReadCloser, error) {
					return io.NopCloser(io.MultiReader(strings.NewReader(strings.Repeat("x", 2000)), iotest.ErrReader(cause))), nil
				}
				for i := range 40 {
					method := []string{http.MethodPut, http.MethodPost}[i%2]
					body, _ := source()
					req := s.request(method, body)
					if req.ContentLength = 100_000; i%4 > 1 {
						req.GetBody = source
					}
					got := s.do(req)
					require.ErrorIs(t, got.err, cause, "%s: %s %d", what, method, i)
					assert.Equal(t, transport.ReasonFinal, s.seen.last(), "%s: %s %d", what, method, i)
					time.Sleep(75 * time.Millisecond)
				}
				state := s.tr.Snapshot().Hosts[0]
				assert.False(t, state.CircuitOpen, what)
				assert.Zero(t, state.Pool, what)
				assert.EqualValues(t, 40, state.Requests, "requests counted, %v", what)
				for _, e := range s.seen.events() {
					assert.Equal(t, 1, e.Attempt.Number, "%s: an attempt after the source had failed", what)
				}
			}
		})
	}
}

// RFC 9110 §10.1.1: a request that gets a 417 is repeated once without its expectation,
// whatever its method.
func TestExpectationFailed(t *testing.T) {
	bodies := map[string]func() io.Reader{
		"in memory": func() io.Reader { return strings.NewReader("text") },
		"one-shot":  func() io.Reader { return oneShot("text") },
	}
	for name, body := range bodies {
		for _, rule := range []policy.Rule{{}, profile.Service()} {
			inBubble(t, name, func(t *testing.T) {
				base := script(status(417), status(503), status(200))
				req := newRequest(t, http.MethodPost, "http://h.test/", body())
				req.Header["Expect"] = []string{"100-continue"}
				var seen recorder
				resp := mustRoundTrip(t, over(t, transport.Config{Rule: rule}, base), req.WithContext(transport.WithIdempotent(seen.on(t.Context()))))
				_ = resp.Body.Close()
				assert.Equal(t, 200, resp.StatusCode)
				require.Equal(t, 3, base.attempts(), "requests sent")
				assert.Equal(t, []string{"100-continue"}, base.reqs[0].Header["Expect"])
				assert.NotContains(t, base.reqs[1].Header, "Expect")
				assert.NotContains(t, base.reqs[2].Header, "Expect", "and it stays away")
				assert.Equal(t, []string{"text", "text", "text"}, base.bodies)
				assert.Equal(t, []string{"100-continue"}, req.Header["Expect"], "the caller's own header is left alone")
			})
		}
	}
	inBubble(t, "a POST, twice refused", func(t *testing.T) {
		base := script(status(417))
		req := newRequest(t, http.MethodPost, "http://h.test/", strings.NewReader("text"))
		req.Header.Set("Expect", "100-continue")
		resp := mustRoundTrip(t, over(t, transport.Config{Rule: quick}, base), req)
		_ = resp.Body.Close()
		assert.Equal(t, 417, resp.StatusCode)
		base.sent(t, 2, "without the expectation a 417 is final")
	})
	inBubble(t, "without an expectation", func(t *testing.T) {
		base := script(status(417), status(200))
		resp := mustGet(t, over(t, transport.Config{Rule: quick}, base))
		_ = resp.Body.Close()
		assert.Equal(t, 417, resp.StatusCode)
		base.sent(t, 1)
	})
}

// Given many uploads at once whose bytes are kept, when the server responds before it
// has the whole body, and so net/http reads on during the retry, then no request brings
// a byte of another request.
func TestKeptBodiesAreNotMixed(t *testing.T) {
	for _, p := range []protocol{http1[0], http2[1]} {
		t.Run(p.name, func(t *testing.T) {
			var mu sync.Mutex
			attempts := map[string]int{}
			cfg := p.cfg
			cfg.Handler = func(r *ts.Received) ts.Step {
				mu.Lock()
				defer mu.Unlock()
				attempts[r.Target]++
				if n := attempts[r.Target]; n < 3 {
					return ts.Status(503).Early(int64(n * 30_000))
				}
				return ts.OK("ok")
			}
			server := ts.Start(t, cfg)
			tr := mustNew(t, transport.Config{Base: server.Transport(), Rule: quick})
			t.Cleanup(tr.CloseIdleConnections)
			text := func(id int) []byte { return bytes.Repeat([]byte{byte('a' + id)}, 100_000+id) }
			var uploads sync.WaitGroup
			var whole atomic.Int32
			for id := range 8 {
				uploads.Go(func() {
					for i := range 3 {
						req := newRequest(t, http.MethodPut, fmt.Sprintf("%s/%d/%d", server.URL, id, i), reader(bytes.NewReader(text(id))))
						resp, err := tr.RoundTrip(req)
						if !assert.NoError(t, err) {
							return
						}
						if _ = resp.Body.Close(); resp.StatusCode == http.StatusOK {
							whole.Add(1)
						}
					}
				})
			}
			uploads.Wait()
			assert.NotZero(t, whole.Load())
			for _, a := range server.Log() {
				var id, i int
				_, err := fmt.Sscanf(strings.TrimPrefix(a.Target, "/"), "%d/%d", &id, &i)
				assert.NoError(t, err)
				want := text(id)[:a.BodyLength]
				assert.Equal(t, ts.Hash(want), a.BodySHA256, a.Target)
			}
		})
	}
}

// A hoarder is a base transport that refers to all requests, and to what the caller gets.
type hoarder struct {
	sent []*http.Request
	got  []*http.Response // what the caller gets
}

func (h *hoarder) RoundTrip(req *http.Request) (*http.Response, error) {
	h.sent = append(h.sent, req)
	_, _ = io.CopyN(io.Discard, req.Body, 2*replay.Small)
	return newResponse(req, 200, http.NoBody), nil
}

// A forgotten Transport is garbage, also if its base refers to bodies whose memory was
// counted.
func TestForgottenTransportIsGarbage(t *testing.T) {
	const size = 1 << 20
	left := func() weak.Pointer[hoarder] {
		base := new(hoarder)
		tr := mustNew(t, transport.Config{Base: base})
		body := io.NopCloser(struct{ io.Reader }{strings.NewReader(strings.Repeat("x", size))})
		req := newRequest(t, http.MethodPut, "http://h.test/", body)
		req.ContentLength = size
		base.got = append(base.got, mustRoundTrip(t, tr, req))
		return weak.Make(base)
	}()
	for range 1000 {
		if runtime.GC(); left.Value() == nil {
			return
		}
		time.Sleep(time.Millisecond)
	}
	t.Error("the Transport is still there")
}
