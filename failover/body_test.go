package failover_test

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/aplomb-go/aplomb/failover"
	"github.com/aplomb-go/aplomb/policy"
	"github.com/aplomb-go/aplomb/policy/backoff"
	"github.com/aplomb-go/aplomb/transport"
)

// shared is a body like those of some SDKs: each GetBody seeks one reader back and returns it.
type shared struct {
	t *testing.T
	*bytes.Reader
	mu      sync.Mutex
	open    int // bodies that are not closed
	reading int
	most    int // open or read at the same time
}

func (s *shared) get() (io.ReadCloser, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	assert.Zero(s.t, s.open, "GetBody is called after the body was closed")
	assert.Zero(s.t, s.reading)
	s.open++
	s.most = max(s.most, s.open)
	_, err := s.Seek(0, io.SeekStart)
	return &sharedBody{shared: s}, err
}

type sharedBody struct {
	*shared
	once sync.Once
}

func (b *sharedBody) Read(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.Reader.Read(p)
}

func (b *sharedBody) Close() error {
	b.once.Do(func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.open--
	})
	return nil
}

func sharedRequest(t *testing.T, method string) (*http.Request, *shared) {
	s := &shared{t: t, Reader: bytes.NewReader([]byte("body"))}
	req := newRequest(t, method, "http://a.test/", nil)
	req.Body, _ = s.get()
	req.GetBody, req.ContentLength = s.get, 4
	return req, s
}

// GetBody is called when the endpoint has closed its body, which may be after its outcome. An endpoint
// that keeps its body for more than a second keeps the request.
func TestBodyIsClosedBeforeTheNext(t *testing.T) {
	for _, row := range []struct {
		closes time.Duration // after the outcome
		want   string
	}{
		{0, "200 b.test"},
		{time.Millisecond, "200 b.test"},
		{900 * time.Millisecond, "200 b.test"},
		{3 * time.Second, "503 a.test"},
	} {
		synctest.Test(t, func(t *testing.T) {
			r := newRegions()
			base := rt(func(req *http.Request) (*http.Response, error) {
				if req.URL.Host == "b.test" {
					return r.RoundTrip(req)
				}
				body := req.Body
				go func() {
					time.Sleep(row.closes / 2)
					_, _ = body.Read(make([]byte, 1))
					time.Sleep(row.closes - row.closes/2)
					_ = body.Close()
					_ = body.Close()
					_, err := body.Read(make([]byte, 1))
					assert.Error(t, err)
				}()
				return status(503).RoundTrip(req)
			})
			req, s := sharedRequest(t, http.MethodPut)
			assert.Equal(t, row.want, ask(pair(t, base, base), req))
			time.Sleep(5 * time.Second)
			synctest.Wait()
			assert.Equal(t, []int{1, 0}, []int{s.most, s.open})
			for _, a := range r.at("b.test", 0) {
				assert.Equal(t, "body", a.body)
			}
		})
	}
}

// A Transport of ours calls GetBody by itself, and another one may call it too late.
func TestBodyOfAttempts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRegions()
		r.set("a.test", status(503))
		ours := transport.MustNew(transport.Config{Base: r, Rule: policy.Rule{MaxAttempts: 3, Backoff: backoff.Constant(time.Millisecond)}})
		req, s := sharedRequest(t, http.MethodPut)
		assert.Equal(t, "200 b.test", ask(pair(t, ours, ours), req))
		for _, a := range append(r.at("a.test", 0), r.at("b.test", 0)...) {
			assert.Equal(t, "body", a.body)
		}
		assert.Len(t, r.at("a.test", 0), 3)
		assert.Equal(t, []int{1, 0}, []int{s.most, s.open})
	})
	synctest.Test(t, func(t *testing.T) {
		r := newRegions()
		var late func() (io.ReadCloser, error)
		r.set("a.test", rt(func(req *http.Request) (*http.Response, error) {
			late = req.GetBody
			return nil, syscall.ECONNREFUSED
		}))
		req, s := sharedRequest(t, http.MethodPut)
		_, err := do(r.transport(t, "a.test", "b.test"), req)
		require.NoError(t, err)
		_, err = late()
		assert.Error(t, err, "the request went on")
		assert.Equal(t, []int{1, 0}, []int{s.most, s.open})
	})
}

// An endpoint may keep a body that it made by GetBody, too.
func TestBodyOfGetBodyIsClosedBeforeTheNext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRegions()
		base := rt(func(req *http.Request) (*http.Response, error) {
			if req.URL.Host == "b.test" {
				return r.RoundTrip(req)
			}
			_ = req.Body.Close()
			again, err := req.GetBody()
			assert.NoError(t, err)
			time.AfterFunc(500*time.Millisecond, func() { _ = again.Close() })
			return nil, syscall.ECONNREFUSED
		})
		req, _ := sharedRequest(t, http.MethodPut) // which checks it
		assert.Equal(t, "200 b.test", ask(pair(t, base, base), req))
		assert.GreaterOrEqual(t, r.at("b.test", 0)[0].at, 500*time.Millisecond)
	})
}

// A body that can't be made again stays, unless the first endpoint is down before it is sent. A file can
// still be sought by its Transport.
func TestBodyWithoutGetBody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, tr := two(t, refuses, nil)
		put := func(body io.ReadCloser) string {
			req := newRequest(t, http.MethodPut, "http://a.test/", nil)
			req.Body, req.ContentLength = body, -1
			result, err := do(tr, req)
			if err != nil {
				return "error"
			}
			return result
		}
		pipe := func() io.ReadCloser { return io.NopCloser(io.MultiReader(strings.NewReader("body"))) }
		assert.Equal(t, "error", put(pipe()))
		for range 4 {
			get(t, tr, "http://a.test/")
		}
		assert.Equal(t, "200 b.test", put(pipe()), "the first is down")
		for _, a := range r.at("b.test", 0) {
			assert.Contains(t, []string{"", "body"}, a.body)
		}

		ours := transport.MustNew(transport.Config{Base: r, Rule: policy.Rule{MaxAttempts: 2, ReplayBuffer: policy.Off}})
		tr = pair(t, ours, ours)
		r.set("a.test", sequence(status(503), status(200)))
		assert.Equal(t, "200 a.test", put(file{strings.NewReader("body")}))
	})
}

type file struct{ *strings.Reader }

func (file) Close() error { return nil }

// If GetBody fails, the caller gets the outcome of the first endpoint. A probe that was due then is free for
// the next request, also after a panic.
func TestGetBodyFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, tr := two(t, nil, refuses)
		for range 5 { // B is down, and A is not
			r.set("a.test", status(503))
			get(t, tr, "http://a.test/")
			r.set("a.test", nil)
			get(t, tr, "http://a.test/")
		}
		time.Sleep(2 * time.Second)
		r.set("a.test", status(503))
		r.set("b.test", nil)
		req := newRequest(t, http.MethodPut, "http://a.test/", strings.NewReader("body"))
		req.GetBody = func() (io.ReadCloser, error) { return nil, errors.New("no body") }
		assert.Equal(t, "503 a.test", ask(tr, req))

		for _, none := range []io.ReadCloser{nil, http.NoBody, (*os.File)(nil)} {
			req.Body, req.GetBody = io.NopCloser(strings.NewReader("body")), func() (io.ReadCloser, error) { return none, nil }
			assert.Equal(t, "503 a.test", ask(tr, req), "%T", none)
		}

		page := &closer{Reader: strings.NewReader("page")}
		r.set("a.test", with(503, page))
		req = newRequest(t, http.MethodPut, "http://a.test/", strings.NewReader("body"))
		req.GetBody = func() (io.ReadCloser, error) { panic("GetBody") }
		assert.PanicsWithValue(t, "GetBody", func() { _, _ = do(tr, req) })
		assert.True(t, page.closed.Load(), "the response of the first")
		assert.Equal(t, "200 b.test", get(t, tr, "http://a.test/"))
	})
}

// If the source of an upload fails, its caller gets that, and it says nothing about the endpoint.
func TestBrokenSource(t *testing.T) {
	errSource := errors.New("disk failure")
	for name, again := range map[string]bool{"with GetBody": true, "without": false, "that seeks": false} {
		bubble(t, name, func(t *testing.T) {
			r, tr := two(t, nil, nil)
			for range 5 {
				broken := func() (io.ReadCloser, error) {
					return io.NopCloser(io.MultiReader(strings.NewReader("bo"), readerFunc(func([]byte) (int, error) { return 0, errSource }))), nil
				}
				req := newRequest(t, http.MethodPut, "http://a.test/", nil)
				if req.Body, _ = broken(); again {
					req.GetBody = broken
				}
				if name == "that seeks" {
					req.Body = struct {
						io.ReadCloser
						io.Seeker
					}{req.Body, strings.NewReader("")}
				}
				_, err := do(tr, req)
				assert.ErrorIs(t, err, errSource)
			}
			assert.Empty(t, r.at("b.test", 0))
			assert.Equal(t, "200 a.test", get(t, tr, "http://a.test/"), "it is not down")
		})
	}
	// A Close of the endpoint may end a Read with an error. That is the endpoint's fault.
	bubble(t, "closed", func(t *testing.T) {
		r := newRegions()
		base := rt(func(req *http.Request) (*http.Response, error) {
			if req.URL.Host == "b.test" {
				return r.RoundTrip(req)
			}
			read := make(chan struct{})
			go func() {
				defer close(read)
				_, _ = req.Body.Read(make([]byte, 1))
			}()
			synctest.Wait()
			_ = req.Body.Close()
			<-read
			return nil, syscall.ECONNRESET
		})
		req := newRequest(t, http.MethodPut, "http://a.test/", nil)
		req.Body = newStalled()
		req.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(strings.NewReader("body")), nil }
		assert.Equal(t, "200 b.test", ask(pair(t, base, base), req))
	})
}

// The body of the caller is closed, whatever becomes of the request, and the request is not changed.
func TestContract(t *testing.T) {
	for name, a := range map[string]http.RoundTripper{"200": nil, "503": status(503), "refused": refuses, "silent": hangs} {
		for _, url := range []string{"http://a.test/", "http://c.test/", "http://a.test/?token=x"} {
			bubble(t, name+" "+url, func(t *testing.T) {
				r, _ := two(t, a, nil)
				body := &closer{Reader: strings.NewReader("body")}
				req := newRequest(t, http.MethodPut, url, nil)
				req.Body, req.ContentLength = body, 4
				req.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(strings.NewReader("body")), nil }
				req.Header.Set("Accept", "x")
				before := *req
				header := req.Header.Clone()
				done := time.AfterFunc(time.Minute, func() { r.set("a.test", nil) })
				defer done.Stop()
				if a != nil && strings.Contains(url, "token") && name == "silent" {
					return // nobody would end it
				}
				_, _ = do(r.transport(t, "a.test", "b.test"), req)
				assert.True(t, body.closed.Load())
				assert.Equal(t, header, req.Header)
				assert.Same(t, before.URL, req.URL)
				assert.Same(t, before.Body, req.Body)
				assert.Equal(t, before.Context(), req.Context())
			})
		}
	}
	body := &closer{Reader: strings.NewReader("body")}
	req := newRequest(t, http.MethodPut, "http://a.test/", body)
	_, err := (&failover.Transport{}).RoundTrip(req)
	assert.Error(t, err)
	assert.True(t, body.closed.Load())
}
