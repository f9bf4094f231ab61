package transport_test

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/aplomb-go/aplomb/faults"
	"github.com/aplomb-go/aplomb/internal/replay"
	"github.com/aplomb-go/aplomb/internal/soak"
	"github.com/aplomb-go/aplomb/internal/testserver"
	"github.com/aplomb-go/aplomb/policy"
	"github.com/aplomb-go/aplomb/policy/backoff"
	"github.com/aplomb-go/aplomb/transport"
)

// seekCloser is a body such as azcore's, a reader with Seek and a Close that does
// nothing.
type seekCloser struct{ io.ReadSeeker }

func (seekCloser) Close() error { return nil }

// quietCloser stands around such a body when azcore retries itself. Then the first
// body has another type than those of GetBody, over the same reader.
type quietCloser struct{ r io.Reader }

func (q *quietCloser) Read(p []byte) (int, error) { return q.r.Read(p) }
func (*quietCloser) Close() error                 { return nil }

// lockedPayload is a body such as connect's, a single object with a lock, WriteTo and
// a Rewind. Its Close does nothing.
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

func (l *lockedPayload) rewind() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	_, err := l.r.Seek(0, io.SeekStart)
	return err
}

// sharedBodies set a body whose GetBody seeks one reader back and returns it.
var sharedBodies = map[string]func(req *http.Request, text string){
	"azcore": func(req *http.Request, text string) {
		body := seekCloser{strings.NewReader(text)}
		req.Body, req.ContentLength = body, int64(len(text))
		req.GetBody = func() (io.ReadCloser, error) {
			_, err := body.Seek(0, io.SeekStart)
			return body, err
		}
	},
	"azcore with retries": func(req *http.Request, text string) {
		body := seekCloser{strings.NewReader(text)}
		req.Body, req.ContentLength = &quietCloser{body}, int64(len(text))
		req.GetBody = func() (io.ReadCloser, error) {
			_, err := body.Seek(0, io.SeekStart)
			return body, err
		}
	},
	"connect": func(req *http.Request, text string) {
		body := &lockedPayload{r: strings.NewReader(text)}
		req.Body, req.ContentLength = body, int64(len(text))
		req.GetBody = func() (io.ReadCloser, error) { return body, body.rewind() }
	},
	"in memory": func(req *http.Request, text string) {
		body := strings.NewReader(text)
		req.Body, req.ContentLength = io.NopCloser(body), int64(len(text))
		req.GetBody = func() (io.ReadCloser, error) {
			_, err := body.Seek(0, io.SeekStart)
			return io.NopCloser(body), err
		}
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
	for _, proto := range []string{"HTTP/1.1", "HTTP/2.0"} {
		for name, body := range sharedBodies {
			for _, hedge := range []policy.Hedge{policy.Hedge{After: policy.Off}, {After: 2 * time.Millisecond}} {
				t.Run(fmt.Sprintf("%s/%s/hedge %v", proto, name, hedge.Enabled()), func(t *testing.T) {
					server := storing(t, proto)
					tr := over(t, transport.Config{Rule: policy.Rule{Hedge: hedge}.Or(quick)}, server.Client().Transport)
					right := 0
					for i := range n {
						req := newRequest(t, http.MethodPut, fmt.Sprint(server.URL, "/", i), nil)
						body(req, text)
						resp, err := tr.RoundTrip(req.WithContext(transport.Repeatable(req.Context())))
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
					assert.ErrorIs(t, err, replay.ErrLent)
					assert.NoError(t, late.Close())
				}
				for _, a := range responses {
					assert.Equal(t, 1, a.closed(), "the old response is closed")
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
				rest, err := io.ReadAll(req.Body)
				assert.NoError(t, err)
				assert.Equal(t, text[3:], string(rest))
				assert.NoError(t, req.Body.Close())
				return play(req, status(200))
			}))
			start := time.Now()
			resp := mustRoundTrip(t, tr, req)
			assert.Equal(t, 200, resp.StatusCode)
			assert.Equal(t, []time.Time{start.Add(time.Second), start.Add(2 * time.Second), start.Add(3 * time.Second)}, b.made)
			assert.Equal(t, 4, b.closes)
		})
	}
}

// The loop waits for a Read under way, within a bound. After that the caller gets the
// response, and the attempt under way keeps its body.
func TestGetBodyWaitsForARead(t *testing.T) {
	for name, row := range map[string]struct {
		takes  time.Duration
		reason []transport.Reason
	}{
		"ends in time": {replay.MaxBusy / 2, []transport.Reason{transport.ReasonRetry, transport.ReasonFinal}},
		"does not end": {2 * replay.MaxBusy, []transport.Reason{transport.ReasonBodyBusy}},
	} {
		inBubble(t, name, func(t *testing.T) {
			var seen recorder
			reads := make(chan error, 1)
			tr := over(t, transport.Config{Rule: quick}, numbered(func(req *http.Request, n int) (*http.Response, error) {
				if n > 1 {
					_, _ = io.ReadAll(req.Body)
					_ = req.Body.Close()
					return play(req, status(200))
				}
				go func() {
					_, err := req.Body.Read(make([]byte, 10))
					_ = req.Body.Close()
					reads <- err
				}()
				synctest.Wait()
				return play(req, status(503))
			}))
			req := newRequest(t, http.MethodPut, "http://h.test/", nil)
			first, n := true, 0
			slow := func() *body {
				b := oneShot("text")
				b.onRead = func() {
					if first {
						first = false
						time.Sleep(row.takes)
					}
				}
				return b
			}
			req.Body = slow()
			req.GetBody = func() (io.ReadCloser, error) { n++; return slow(), nil }
			resp := mustRoundTrip(t, tr, req.WithContext(seen.on(req.Context())))
			assert.Equal(t, row.reason, seen.reasons())
			assert.Equal(t, len(row.reason)-1, n)
			text, err := io.ReadAll(resp.Body)
			assert.NoError(t, err)
			assert.Equal(t, "body of "+http.StatusText(resp.StatusCode), string(text))
			assert.NoError(t, <-reads, "the Read under way is left alone")
		})
	}
}

// The error of a GetBody that fails is in the event and the history. The
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
		"after an endless response": {endless, oneShot("text"), "", "disk on fire; the last response had status 503"},
		"after an error":            {faults.Fail(io.ErrUnexpectedEOF), oneShot("text"), "", "disk on fire; the attempt failed: unexpected EOF"},
		"in memory, after an endless response": {
			endless, io.NopCloser(strings.NewReader("text")), strings.Repeat("\x00", 27), "disk on fire",
		},
	} {
		inBubble(t, name, func(t *testing.T) {
			var seen recorder
			base := script(row.first, status(200))
			tr := over(t, transport.Config{Rule: quick}, base)
			req := newRequest(t, http.MethodPut, "http://h.test/", nil)
			req.Body = row.body
			req.GetBody = func() (io.ReadCloser, error) { return nil, broken }
			resp, err := tr.RoundTrip(req.WithContext(seen.on(req.Context())))
			last := seen.all[len(seen.all)-1]
			assert.ErrorContains(t, last.Err, row.says)
			assert.Equal(t, transport.ReasonNotReplayable, last.Reason)
			assert.ErrorIs(t, last.Err, broken)
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
			assert.Equal(t, 1, base.attempts())
		})
	}
}

// The bodies that net/http takes for its own resends are guarded like any other. An
// attempt that is over gets none, and its old body does not touch the reader.
func TestGetBodyOfTheBase(t *testing.T) {
	const text = "0123456789"
	t.Run("net/http's resend", func(t *testing.T) {
		server := testserver.Start(t, testserver.Config{HTTP2: true, TLS: testserver.Trusted},
			testserver.RefuseStream(), testserver.Status(503), testserver.RefuseStream(), testserver.OK("ok"))
		tr := over(t, transport.Config{Rule: quick}, server.Transport())
		t.Cleanup(tr.CloseIdleConnections)
		req, b := strictRequest(t, text)
		req.URL, _ = req.URL.Parse(server.URL)
		resp := mustRoundTrip(t, tr, req)
		_ = resp.Body.Close()
		assert.Len(t, b.made, 3, "two by net/http, one by us")
		log := server.Log()
		assert.Equal(t, text, string(log[len(log)-1].BodyPrefix))
	})
	t.Run("a late call", func(t *testing.T) {
		var late []func() (io.ReadCloser, error)
		req, b := strictRequest(t, text)
		tr := over(t, transport.Config{Rule: quick}, rt(func(req *http.Request) (*http.Response, error) {
			for _, getBody := range late {
				_, err := getBody()
				assert.ErrorIs(t, err, replay.ErrLent)
			}
			late = append(late, req.GetBody)
			first := req.Body
			second, err := req.GetBody()
			require.NoError(t, err)
			_, err = first.Read(make([]byte, 1))
			assert.ErrorIs(t, err, replay.ErrLent)
			assert.NoError(t, first.Close())
			got, err := io.ReadAll(second)
			assert.NoError(t, err)
			assert.Equal(t, text, string(got))
			_ = second.Close()
			if len(late) < 3 {
				return play(req, status(503))
			}
			return play(req, status(200))
		}))
		resp := mustRoundTrip(t, tr, req)
		assert.Equal(t, 200, resp.StatusCode)
		assert.Len(t, b.made, 5)
		_, err := late[2]()
		assert.ErrorIs(t, err, replay.ErrLent, "the request is over")
		assert.True(t, b.closed)
	})
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
			assert.ErrorIs(t, err, replay.ErrLent)
			got, err := io.ReadAll(req.Body)
			assert.NoError(t, err)
			assert.Equal(t, text, string(got))
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

// Given bases that read, close and ask for the body anew from goroutines of their
// own, long after their attempt is over, when GetBody returns the same reader each
// time, then nobody uses the reader beside anybody else, and all bytes arrive.
func TestOneReaderUnderConcurrency(t *testing.T) {
	text := string(noisy(5000))
	together(100, func(_ int) {
		var using sync.Mutex
		use := func() {
			if !using.TryLock() {
				t.Error("two at once")
				return
			}
			runtime.Gosched()
			using.Unlock()
		}
		shared := strings.NewReader(text)
		b := &body{Reader: shared, onRead: use}
		var late sync.WaitGroup
		tr := over(t, transport.Config{Rule: quick}, numbered(func(req *http.Request, n int) (*http.Response, error) {
			if n < 5 {
				late.Go(func() { _, _ = io.CopyBuffer(io.Discard, struct{ io.Reader }{req.Body}, make([]byte, 100)) })
				late.Go(func() { _ = req.Body.Close() })
				late.Go(func() {
					if again, err := req.GetBody(); err == nil {
						_, _ = io.CopyBuffer(io.Discard, struct{ io.Reader }{again}, make([]byte, 100))
					}
				})
				runtime.Gosched()
				return play(req, status(503))
			}
			got, err := io.ReadAll(req.Body)
			assert.NoError(t, err)
			assert.True(t, text == string(got), "%d bytes", len(got))
			_ = req.Body.Close()
			return play(req, status(200))
		}))
		req := newRequest(t, http.MethodPut, "http://h.test/", b)
		req.GetBody = func() (io.ReadCloser, error) {
			use()
			_, err := shared.Seek(0, io.SeekStart)
			return b, err
		}
		resp, err := tr.RoundTrip(req)
		if assert.NoError(t, err) {
			assert.Equal(t, 200, resp.StatusCode)
		}
		late.Wait()
	})
}
