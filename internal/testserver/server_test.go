// Listening, the log, routes, certificates and Close.

package testserver_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
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

// large is the size of an upload that fills all buffers on its way.
const large = 64 << 20

func TestEarlyResponse(t *testing.T) {
	upload := func(t *testing.T, s *ts.Server) (*http.Response, error) {
		return s.Client().Do(request(t, "POST", s.URL, onlyReader{io.LimitReader(zeros{}, large)}))
	}
	at(t, both, func(t *testing.T, cfg ts.Config) {
		s := ts.Start(t, cfg, ts.Status(503).Body("busy").Early(10).Then(ts.Stall))
		resp, err := upload(t, s)
		require.NoError(t, err)
		assert.Equal(t, 503, resp.StatusCode)
		b, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		assert.Equal(t, "busy", string(b))
		assert.EqualValues(t, 10, s.Log()[0].BodyLength)
		resp.Body.Close()
	})
	at(t, both, func(t *testing.T, cfg ts.Config) {
		s := ts.Start(t, cfg, ts.Status(503).Early(0).Then(ts.Close))
		resp, err := upload(t, s)
		if err == nil { // the response or the reset may come first
			assert.Equal(t, 503, resp.StatusCode)
			resp.Body.Close()
		}
		require.NoError(t, s.WaitUntil(ctx(t), func() bool { return !s.Log()[0].BodyEnd.IsZero() }))
		assert.False(t, s.Log()[0].BodyWhole)
	})
	at(t, http2, func(t *testing.T, cfg ts.Config) {
		s := ts.Start(t, cfg, ts.Status(503).Early(0).ThenRST(ts.NoError), ts.OK("next"))
		resp, err := upload(t, s)
		require.NoError(t, err)
		assert.Equal(t, 503, resp.StatusCode)
		_, err = io.Copy(io.Discard, resp.Body)
		require.NoError(t, err)
		resp.Body.Close()
		responded(200, "next")(t, post(t, s))
		oneConn(t, cfg, s)
	})
}

// By default the step reads the rest after an early response. net/http would close
// such a connection, so this test writes the requests itself.
func TestEarlyResponseReadsOn(t *testing.T) {
	at(t, http1[:1], func(t *testing.T, cfg ts.Config) {
		s := ts.Start(t, cfg, ts.Status(503).Early(2))
		c := dial(t, cfg, s)
		for range 2 {
			_, err := io.WriteString(c, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhe")
			require.NoError(t, err)
			readHead(t, c, "HTTP/1.1 503")
			_, err = io.WriteString(c, "llo")
			require.NoError(t, err)
		}
		require.NoError(t, s.WaitUntil(ctx(t), func() bool { return s.Log()[1].BodyWhole }))
		assert.Equal(t, ts.Hash([]byte("hello")), s.Log()[0].BodySHA256)
	})
}

// readHead reads a header section and no byte beyond it.
func readHead(t *testing.T, r io.Reader, prefix string) {
	var head []byte
	for b := make([]byte, 1); !bytes.HasSuffix(head, []byte("\r\n\r\n")); {
		_, err := io.ReadFull(r, b)
		require.NoError(t, err)
		head = append(head, b...)
	}
	assert.True(t, strings.HasPrefix(string(head), prefix), "%s", head)
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

func TestContentRanges(t *testing.T) {
	content, etag := []byte("0123456789"), `"v1"`
	for _, c := range []struct {
		etag, rng, ifRange string
		status             int
		body, contentRange string
	}{
		{etag, "", "", 200, "0123456789", ""},
		{etag, "bytes=3-", "", 206, "3456789", "bytes 3-9/10"},
		{etag, "bytes=3-", etag, 206, "3456789", "bytes 3-9/10"},
		{etag, "bytes=3-", `"v2"`, 200, "0123456789", ""},
		{`W/"v1"`, "bytes=3-", `W/"v1"`, 200, "0123456789", ""},
		{"", "bytes=3-4", "", 206, "34", "bytes 3-4/10"},
		{etag, "bytes=3-99", "", 206, "3456789", "bytes 3-9/10"},
		{etag, "bytes=-2", "", 206, "89", "bytes 8-9/10"},
		{etag, "bytes=10-", "", 416, "", "bytes */10"},
		{etag, "bytes=1-2,4-5", "", 200, "0123456789", ""},
		{etag, "lines=1-2", "", 200, "0123456789", ""},
		{etag, "bytes=5-2", "", 200, "0123456789", ""},
	} {
		t.Run(c.rng+c.ifRange, func(t *testing.T) {
			s := ts.Start(t, ts.Config{}, ts.Content(content, c.etag))
			r := request(t, "GET", s.URL, nil)
			r.Header.Set("Range", c.rng)
			r.Header.Set("If-Range", c.ifRange)
			o := do(s, r)
			responded(c.status, c.body)(t, o)
			assert.Equal(t, c.contentRange, o.resp.Header.Get("Content-Range"))
			assert.Equal(t, c.etag, o.resp.Header.Get("ETag"))
		})
	}
}

func TestRefusedAtFirst(t *testing.T) {
	at(t, both, func(t *testing.T, cfg ts.Config) {
		cfg.Refusing = true
		s := ts.Start(t, cfg, ts.OK("up"))
		failed(syscall.ECONNREFUSED)(t, post(t, s))
		require.NoError(t, s.Listen())
		require.NoError(t, s.Listen(), "twice is fine")
		// Over HTTP/2 a request may still get the error of the dial before it, and net/http offers a new
		// connection to others a little later than to the request that dialled it.
		reaches := func() {
			up := post(t, s)
			for n := 0; n < 10 && errors.Is(up.err, syscall.ECONNREFUSED); n++ {
				time.Sleep(time.Millisecond)
				up = post(t, s)
			}
			responded(200, "up")(t, up)
		}
		reaches()
		require.NoError(t, s.Refuse())
		require.NoError(t, s.Refuse())
		reaches() // over the open connection
		s.ResetAll()
		require.NoError(t, s.WaitUntil(ctx(t), func() bool { return s.Open() == 0 }))
		s.Client().CloseIdleConnections()
		failed(syscall.ECONNREFUSED)(t, post(t, s))
		require.NoError(t, s.Listen())
		reaches()
		s.Close()
		assert.ErrorIs(t, s.Listen(), net.ErrClosed)
	})
}

func TestListenAfter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := ts.Start(t, ts.Config{Net: ts.NewNet(), ListenAfter: time.Minute}, ts.OK("up"))
		failed(syscall.ECONNREFUSED)(t, post(t, s))
		time.Sleep(time.Minute)
		synctest.Wait()
		responded(200, "up")(t, post(t, s))
	})
}

func TestCertificates(t *testing.T) {
	at(t, []protocol{{"h1", ts.Config{}}, {"h2", ts.Config{HTTP2: true}}}, func(t *testing.T, cfg ts.Config) {
		try := func(mode ts.TLS) error {
			cfg.TLS = mode
			cfg.Host = "tls.test"
			s := ts.Start(t, cfg, ts.OK("hello"))
			defer s.Close()
			return post(t, s).err
		}
		require.NoError(t, try(ts.Trusted))
		assert.ErrorAs(t, try(ts.Untrusted), new(x509.UnknownAuthorityError))
		var invalid x509.CertificateInvalidError
		if assert.ErrorAs(t, try(ts.Expired), &invalid) {
			assert.Equal(t, x509.Expired, invalid.Reason)
		}
		assert.ErrorAs(t, try(ts.WrongHost), new(x509.HostnameError))
		assert.Error(t, try(ts.ClientCertificate))
		assert.ErrorContains(t, try(ts.PlainAnswer), "server gave HTTP response to HTTPS client")
	})
}

// The client reads the alert. net/http could see its own failed write first, so
// this test does not use it.
func TestClientCertificateAlert(t *testing.T) {
	n := ts.NewNet()
	s := ts.Start(t, ts.Config{Net: n, TLS: ts.ClientCertificate})
	raw, err := n.DialContext(ctx(t), "tcp", s.Addr)
	require.NoError(t, err)
	c := tls.Client(raw, &tls.Config{RootCAs: s.Transport().TLSClientConfig.RootCAs, ServerName: "fault.test"})
	defer func() { _ = c.Close() }()
	require.NoError(t, c.Handshake())
	_, err = c.Read(make([]byte, 1))
	var op *net.OpError
	require.ErrorAs(t, err, &op)
	assert.Equal(t, "remote error", op.Op)
	assert.ErrorContains(t, err, "certificate required")
}

func TestHangingHandshake(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := ts.Start(t, ts.Config{Net: ts.NewNet(), TLS: ts.HangingHandshake})
		tr := s.Transport()
		tr.TLSHandshakeTimeout = time.Minute
		begin := time.Now()
		_, err := tr.RoundTrip(request(t, "GET", s.URL, nil).WithContext(context.Background()))
		var ne net.Error
		require.ErrorAs(t, err, &ne)
		assert.True(t, ne.Timeout())
		assert.Equal(t, time.Minute, time.Since(begin))
		synctest.Wait()
		assert.Zero(t, s.Open())
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
		assert.Zero(t, s.Open())
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
		assert.Equal(t, 20, s.Arrivals())
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
