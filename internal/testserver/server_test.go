// The log, routes and Close.

package testserver_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	ts "github.com/aplomb-go/aplomb/internal/testserver"
)

// net/http's client logs some faults. The tests discard that.
func TestMain(m *testing.M) {
	log.SetOutput(io.Discard)
	m.Run()
}

// onlyReader hides the other methods of a reader, so that net/http neither knows
// its length nor can read it again.
type onlyReader struct{ io.Reader }

func TestLogOfBodies(t *testing.T) {
	at(t, both, func(t *testing.T, cfg ts.Config) {
		s := ts.Start(t, cfg, ts.OK(""))
		body := ts.Pattern(200_000)
		for _, r := range []io.Reader{nil, bytes.NewReader(body), onlyReader{bytes.NewReader(body)}} {
			req := request(t, "PUT", s.URL+"/a?b=c", r)
			req.Header.Set("X-Name", "v")
			require.NoError(t, do(s, req).err)
		}
		log := s.Log()
		require.Len(t, log, 3)
		for i, a := range log {
			assert.Equal(t, i+1, a.N)
			assert.Equal(t, "PUT", a.Method)
			assert.Equal(t, "/a?b=c", a.Target)
			assert.Equal(t, strings.TrimPrefix(strings.TrimPrefix(s.URL, "http://"), "https://"), a.Host)
			assert.Equal(t, []string{"v"}, a.Header["X-Name"])
			assert.True(t, a.BodyWhole)
			assert.False(t, a.BodyEnd.Before(a.Time))
			assert.Equal(t, map[bool]string{true: "HTTP/2.0", false: "HTTP/1.1"}[cfg.HTTP2], a.Proto)
		}
		assert.Zero(t, log[0].BodyLength)
		assert.Equal(t, ts.Hash(nil), log[0].BodySHA256)
		for _, a := range log[1:] {
			assert.EqualValues(t, len(body), a.BodyLength)
			assert.Equal(t, ts.Hash(body), a.BodySHA256)
			assert.Equal(t, body[:4096], a.BodyPrefix)
		}
	})
}

func TestCutOffUploadIsLogged(t *testing.T) {
	at(t, both, func(t *testing.T, cfg ts.Config) {
		s := ts.Start(t, cfg, ts.OK(""))
		pr, pw := io.Pipe()
		c, leave := context.WithCancel(ctx(t))
		go func() {
			_, _ = io.WriteString(pw, "hello")
			_ = s.WaitUntil(c, func() bool { return s.Arrivals() > 0 && s.Log()[0].BodyLength == 5 })
			leave()
			pw.CloseWithError(io.ErrClosedPipe) // over HTTP/1.1 net/http waits for the body's Read
		}()
		_, err := s.Client().Do(request(t, "POST", s.URL, pr).WithContext(c))
		require.Error(t, err)
		require.NoError(t, s.WaitUntil(ctx(t), func() bool { return !s.Log()[0].Done.IsZero() }))
		a := s.Log()[0]
		assert.False(t, a.BodyWhole)
		assert.False(t, a.BodyEnd.IsZero())
		assert.True(t, a.Left)
		assert.Equal(t, "hello", string(a.BodyPrefix))
	})
}

// Over HTTP/2 a long header section takes several frames in both directions.
func TestLongHeaders(t *testing.T) {
	at(t, both, func(t *testing.T, cfg ts.Config) {
		long := strings.Repeat(string(ts.Pattern(36)), 2000)
		s := ts.Start(t, cfg, ts.OK("hello").Header("X-Long", long).Info(103, "X-Long", long))
		r := request(t, "GET", s.URL, nil)
		r.Header.Set("X-Long", long)
		o := do(s, r)
		responded(200, "hello")(t, o)
		assert.Equal(t, long, o.resp.Header.Get("X-Long"))
		assert.Equal(t, long, s.Log()[0].Header.Get("X-Long"))
	})
}

func TestTrailersEndTheUpload(t *testing.T) {
	at(t, both, func(t *testing.T, cfg ts.Config) {
		s := ts.Start(t, cfg, ts.OK("hello"))
		r := request(t, "POST", s.URL, onlyReader{strings.NewReader("body")})
		r.Trailer = http.Header{"X-Sum": {"1"}}
		responded(200, "hello")(t, do(s, r))
		assert.True(t, s.Log()[0].BodyWhole)
		assert.EqualValues(t, 4, s.Log()[0].BodyLength)
	})
}

func TestExpectContinue(t *testing.T) {
	at(t, both, func(t *testing.T, cfg ts.Config) {
		s := ts.Start(t, cfg, ts.OK("hello"), ts.Status(417).Early(0).Then(ts.Close))
		tr := s.Transport()
		tr.ExpectContinueTimeout = time.Hour
		for _, want := range []int{200, 417} {
			r := request(t, "POST", s.URL, strings.NewReader("body"))
			r.Header.Set("Expect", "100-continue")
			resp, err := tr.RoundTrip(r)
			require.NoError(t, err)
			assert.Equal(t, want, resp.StatusCode)
			_, err = io.Copy(io.Discard, resp.Body)
			require.NoError(t, err)
			resp.Body.Close()
		}
		assert.EqualValues(t, 4, s.Log()[0].BodyLength)
		require.NoError(t, s.WaitUntil(ctx(t), func() bool { return !s.Log()[1].BodyEnd.IsZero() }))
		assert.Zero(t, s.Log()[1].BodyLength)
	})
}

func TestRoutes(t *testing.T) {
	at(t, both, func(t *testing.T, cfg ts.Config) {
		cfg.Routes = map[string]ts.Script{
			"/a":           {ts.OK("a1"), ts.OK("a2")},
			"b.test/a":     {ts.OK("b1")},
			"fault.test/z": {ts.OK("z")},
			"c.test":       {ts.OK("c")},
			"/none":        nil,
		}
		s := ts.Start(t, cfg, ts.OK("rest1"), ts.OK("rest2"))
		get := func(host, path string) string {
			r := request(t, "GET", s.URL+path, nil)
			r.Host = host
			o := do(s, r)
			require.NoError(t, o.err)
			return o.body
		}
		assert.Equal(t, "a1", get("", "/a?q"))
		assert.Equal(t, "rest1", get("", "/other"))
		assert.Equal(t, "a2", get("", "/a"))
		assert.Equal(t, "a2", get("", "/a"))
		assert.Equal(t, "b1", get("b.test:81", "/a"))
		assert.Equal(t, "z", get("fault.test", "/z"))
		assert.Equal(t, "c", get("c.test", "/x"))
		assert.Equal(t, "", get("", "/none"))
		assert.Equal(t, "rest2", get("", "/"))
	})
}

func TestHandler(t *testing.T) {
	at(t, both, func(t *testing.T, cfg ts.Config) {
		cfg.Handler = func(r *ts.Received) ts.Step {
			if r.N == 1 {
				return ts.Status(503)
			}
			return ts.OK(r.Method + " " + r.Path + " " + r.Header.Get("X-A"))
		}
		s := ts.Start(t, cfg)
		responded(503, "")(t, post(t, s))
		r := request(t, "GET", s.URL+"/p", nil)
		r.Header.Set("X-A", "v")
		responded(200, "GET /p v")(t, do(s, r))
	})
}

func TestNewErrors(t *testing.T) {
	_, err := ts.New(ts.Config{Handler: func(*ts.Received) ts.Step { return ts.OK("") }}, ts.OK(""))
	assert.Error(t, err)
	n := ts.NewNet()
	ts.Start(t, ts.Config{Net: n})
	_, err = ts.New(ts.Config{Net: n})
	assert.ErrorIs(t, err, syscall.EADDRINUSE)
}

func TestWaitEndsWithItsContext(t *testing.T) {
	s := ts.Start(t, ts.Config{})
	c, cancel := context.WithCancelCause(context.Background())
	why := errors.New("why")
	cancel(why)
	assert.Equal(t, why, s.Wait(c, 1))
}

// Close ends steps that wait, in every phase. In memory the test fails if a
// goroutine of the server is left, because its bubble then does not end.
func TestCloseEndsEverything(t *testing.T) {
	steps := []ts.Step{
		ts.Hang(), ts.Endless(), ts.Endless().Drip(1, time.Hour), ts.OK("").Delay(time.Hour),
		ts.OK("hello").CutAt(1, ts.Stall), ts.OK("").Early(0).Then(ts.Stall), ts.Raw("x").Then(ts.Stall),
		ts.OK("hello"), ts.OK("hello").Then(ts.HalfClose),
	}
	at(t, both, func(t *testing.T, cfg ts.Config) {
		var clients sync.WaitGroup
		s := ts.Start(t, cfg, steps...)
		for range steps {
			r := request(t, "POST", s.URL, strings.NewReader("body"))
			tr := s.Transport() // each request has its own connection
			clients.Go(func() {
				resp, err := tr.RoundTrip(r)
				if err == nil {
					_, _ = io.Copy(io.Discard, resp.Body)
					resp.Body.Close()
				}
			})
		}
		require.NoError(t, s.Wait(ctx(t), len(steps)))
		s.Close()
		s.Close()
		clients.Wait()
		assert.Zero(t, s.Open(), "open connections")
		if cfg.Net == nil {
			noServerGoroutine(t)
		}
	})
}

// noServerGoroutine fails the test if a goroutine runs code of this package.
func noServerGoroutine(t *testing.T) {
	b := make([]byte, 1<<20)
	b = b[:runtime.Stack(b, true)]
	for g := range strings.SplitSeq(string(b), "\n\n") {
		assert.NotContains(t, g, "internal/testserver.(", g)
	}
}

func TestConcurrentUse(t *testing.T) {
	content := ts.Pattern(100_000)
	hash := ts.Hash(content)
	at(t, both, func(t *testing.T, cfg ts.Config) {
		s := ts.Start(t, cfg, ts.Bytes(100_000))
		var clients sync.WaitGroup
		for range 20 {
			r := request(t, "POST", s.URL, bytes.NewReader(content))
			clients.Go(func() {
				o := do(s, r)
				assert.NoError(t, o.err)
				assert.Len(t, o.body, 100_000)
				_ = s.Log()
			})
		}
		clients.Wait()
		assert.Equal(t, 20, s.Arrivals(), "requests that arrived")
		for _, a := range s.Log() {
			assert.Equal(t, hash, a.BodySHA256)
		}
	})
}

// zeros is an endless reader of zeros.
type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}

// TestAfter plays a step that is chosen while the request waits.
func TestAfter(t *testing.T) {
	at(t, both, func(t *testing.T, cfg ts.Config) {
		left, more := make(chan struct{}), make(chan struct{})
		cfg.Handler = func(r *ts.Received) ts.Step {
			return ts.After(func(ctx context.Context) ts.Step {
				if r.Path == "/content" {
					<-more
					return ts.Content([]byte("hello"), `"v1"`)
				}
				<-ctx.Done()
				close(left)
				return ts.OK("too late")
			})
		}
		s := ts.Start(t, cfg)
		c, cancel := context.WithCancel(ctx(t))
		wait := request(t, "GET", s.URL+"/wait", nil).WithContext(c)
		go func() { _ = s.Wait(c, 1); cancel() }()
		require.ErrorIs(t, do(s, wait).err, context.Canceled)
		<-left
		go close(more)
		req := request(t, "PUT", s.URL+"/content", strings.NewReader("body"))
		req.Header.Set("Range", "bytes=1-2")
		o := do(s, req)
		require.NoError(t, o.err)
		assert.Equal(t, 206, o.resp.StatusCode)
		assert.Equal(t, "el", o.body)
		require.NoError(t, s.WaitUntil(ctx(t), func() bool { return !s.Log()[0].Done.IsZero() }))
		assert.True(t, s.Log()[0].Left)
	})
}
