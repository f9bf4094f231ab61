// Each fault as a plain http.Client sees it.

package testserver_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/aplomb-go/aplomb/internal/testkit"
	ts "github.com/aplomb-go/aplomb/internal/testserver"
)

// patience limits every wait over TCP. No test takes that long.
const patience = 20 * time.Second

// A protocol is a version of HTTP, with or without TLS.
type protocol struct {
	name string
	cfg  ts.Config
}

var (
	http1 = []protocol{{"h1", ts.Config{}}, {"h1-tls", ts.Config{TLS: ts.Trusted}}}
	http2 = []protocol{{"h2c", ts.Config{HTTP2: true}}, {"h2-tls", ts.Config{HTTP2: true, TLS: ts.Trusted}}}
	both  = append(append([]protocol{}, http1...), http2...)
)

// at runs a test with each protocol, over TCP and in memory.
func at(t *testing.T, protocols []protocol, test func(*testing.T, ts.Config)) {
	t.Helper()
	for _, p := range protocols {
		t.Run(p.name+"/tcp", func(t *testing.T) { test(t, p.cfg) })
		t.Run(p.name+"/memory", func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cfg := p.cfg
				cfg.Net = ts.NewNet()
				test(t, cfg)
			})
		})
	}
}

// ctx returns a context with a timeout that ends with the test.
func ctx(t *testing.T) context.Context {
	c, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	return c
}

func request(t *testing.T, method, url string, body io.Reader) *http.Request {
	return testkit.Must(http.NewRequestWithContext(ctx(t), method, url, body))(t)
}

// An outcome is the result of a request.
type outcome struct {
	resp *http.Response // if nil, err comes from RoundTrip, otherwise from the body
	body string
	err  error
	mem  bool // the connection was in memory
}

func do(s *ts.Server, r *http.Request) outcome {
	mem := !strings.HasPrefix(s.Addr, "127.")
	resp, err := s.Client().Do(r)
	if err != nil {
		return outcome{err: err, mem: mem}
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	return outcome{resp, string(b), err, mem}
}

// post sends a POST. net/http itself repeats it only if the server refused it.
func post(t *testing.T, s *ts.Server) outcome {
	return do(s, request(t, "POST", s.URL+"/x", strings.NewReader("body")))
}

// oneConn expects that all requests used the same connection. net/http offers a new
// HTTP/2 connection to other requests a little later than to the first request,
// so there a second request can come too early and dial.
func oneConn(t *testing.T, cfg ts.Config, s *ts.Server) {
	most := 1
	if cfg.HTTP2 {
		most = 2
	}
	assert.LessOrEqual(t, s.Conns(), most, "connections")
}

func responded(status int, body string) func(*testing.T, outcome) {
	return func(t *testing.T, o outcome) {
		require.NoError(t, o.err)
		assert.Equal(t, status, o.resp.StatusCode)
		assert.Equal(t, body, o.body)
	}
}

// failed expects an error before the headers.
func failed(target error) func(*testing.T, outcome) {
	return func(t *testing.T, o outcome) {
		require.Error(t, o.err)
		assert.Nil(t, o.resp)
		if target != nil {
			assert.ErrorIs(t, o.err, target)
		}
	}
}

// broken expects the given start of the body, then an error.
func broken(body string, target error) func(*testing.T, outcome) {
	return func(t *testing.T, o outcome) {
		require.Error(t, o.err)
		require.NotNil(t, o.resp)
		assert.Equal(t, body, o.body)
		if target != nil {
			assert.ErrorIs(t, o.err, target)
		}
	}
}

// wasReset expects ECONNRESET. Linux reports it only once per connection. If a
// goroutine or buffer of net/http takes that report, the caller sees EOF or
// EPIPE. In memory every Read and Write reports ECONNRESET.
func wasReset(t *testing.T, o outcome) {
	require.Error(t, o.err)
	if o.mem {
		assert.ErrorIs(t, o.err, syscall.ECONNRESET)
		return
	}
	lost := false
	for _, e := range []error{syscall.ECONNRESET, syscall.EPIPE, io.EOF, io.ErrUnexpectedEOF} {
		lost = lost || errors.Is(o.err, e)
	}
	assert.True(t, lost, "%v", o.err)
}

// garbled expects an error that is neither a reset nor an EOF nor a timeout.
func garbled(t *testing.T, o outcome) {
	require.Error(t, o.err)
	for _, e := range []error{syscall.ECONNRESET, io.EOF, io.ErrUnexpectedEOF, context.DeadlineExceeded} {
		assert.NotErrorIs(t, o.err, e)
	}
}

// A played is a step, and what a POST gets from it.
type played struct {
	name string
	step ts.Step
	want func(*testing.T, outcome)
}

func playAll(t *testing.T, protocols []protocol, all []played) {
	for _, f := range all {
		t.Run(f.name, func(t *testing.T) {
			at(t, protocols, func(t *testing.T, cfg ts.Config) { f.want(t, post(t, ts.Start(t, cfg, f.step))) })
		})
	}
}

func TestFaultsOverBoth(t *testing.T) {
	hello := ts.OK("hello")
	playAll(t, both, []played{
		{"zero", ts.Step{}, responded(200, "")},
		{"status", ts.Status(503).Body("busy"), responded(503, "busy")},
		{"no content", ts.Status(204), responded(204, "")},
		{"not modified", ts.Status(304), responded(304, "")},
		{"chunked", hello.Chunked(), responded(200, "hello")},
		{"until close", hello.UntilClose(), responded(200, "hello")},
		{"gzip", hello.Gzip(), responded(200, "hello")},
		{"delay", hello.Delay(time.Millisecond), responded(200, "hello")},
		{"drip", hello.Drip(2, time.Millisecond), responded(200, "hello")},
		{"bytes", ts.Bytes(300_000), responded(200, string(ts.Pattern(300_000)))},
		{"then close", hello.Then(ts.Close), responded(200, "hello")},
		{"then half close", hello.Then(ts.HalfClose), responded(200, "hello")},
		{"reset before headers", ts.ResetBeforeHeaders(), wasReset},
		{"reset in headers", ts.ResetInHeaders(), wasReset},
		{"close before headers", ts.CloseBeforeHeaders(), failed(nil)},
		{"close in headers", ts.CloseInHeaders(), failed(io.ErrUnexpectedEOF)},
		{"reset in body", hello.CutAt(2, ts.Reset), wasReset},
		{"close in body", hello.CutAt(2, ts.Close), broken("he", io.ErrUnexpectedEOF)},
		{"cut keeps nothing", hello.CutAt(2, ts.Keep), broken("he", io.ErrUnexpectedEOF)},
		{"half close in body", hello.CutAt(2, ts.HalfClose), broken("he", io.ErrUnexpectedEOF)},
		{"close in chunks", hello.Chunked().CutAt(5, ts.Close), broken("hello", io.ErrUnexpectedEOF)},
		{"length too long", hello.Length(7), broken("hello", io.ErrUnexpectedEOF)},
		{"raw garbage", ts.Raw("\x00\x00\x04\x01\x04\x00\x00\x00\x01abcd"), garbled},
		{"bad status line", ts.BadStatusLine(), garbled},
	})
}

func TestFaultsOverHTTP1(t *testing.T) {
	playAll(t, http1, []played{
		{"close before headers", ts.CloseBeforeHeaders(), failed(io.EOF)},
		{"bad chunk", ts.BadChunk(), broken("hello", nil)},
		{"raw", ts.Raw("HTTP/1.1 299 Fine\r\nContent-Length: 2\r\n\r\nok"), responded(299, "ok")},
		{"length too short", ts.OK("hello").Length(2), responded(200, "he")},
		{"reset before headers", ts.ResetBeforeHeaders(), failed(syscall.ECONNRESET)},
		{"reset in body", ts.OK("hello").CutAt(2, ts.Reset), broken("he", syscall.ECONNRESET)},
		{"http2 only", ts.RefuseStream(), responded(500, "testserver: this step needs HTTP/2")},
	})
}

func TestStatusIsSentAsScripted(t *testing.T) {
	at(t, both, func(t *testing.T, cfg ts.Config) {
		s := ts.Start(t, cfg, ts.Status(429).Header("Retry-After", "1").Header("Retry-After", "2").Header("Date", ""))
		o := post(t, s)
		require.NoError(t, o.err)
		assert.Equal(t, []string{"1", "2"}, o.resp.Header["Retry-After"])
		assert.NotContains(t, o.resp.Header, "Date")

		o = do(s, request(t, "HEAD", s.URL, nil))
		require.NoError(t, o.err)
		assert.Equal(t, 429, o.resp.StatusCode)
	})
}

func TestHeadHasNoBody(t *testing.T) {
	at(t, both, func(t *testing.T, cfg ts.Config) {
		s := ts.Start(t, cfg, ts.OK("hello"))
		for range 2 {
			o := do(s, request(t, "HEAD", s.URL, nil))
			require.NoError(t, o.err)
			assert.EqualValues(t, 5, o.resp.ContentLength)
		}
		oneConn(t, cfg, s)
	})
}

// Steps without an end do end when the client leaves, and the log shows that.
func TestClientLeaves(t *testing.T) {
	for _, f := range []struct {
		name string
		step ts.Step
		head bool // the client gets headers
	}{
		{"hang", ts.Hang(), false},
		{"delay", ts.OK("").Delay(time.Hour), false},
		{"stalled body", ts.OK("hello").CutAt(2, ts.Stall), true},
		{"stalled at once", ts.OK("hello").CutAt(0, ts.Stall), true},
		{"stalled in headers", ts.Status(200).CutHeaders(ts.Stall), false},
		{"drip", ts.Endless().Drip(1, time.Hour), true},
		{"endless", ts.Endless(), true},
	} {
		t.Run(f.name, func(t *testing.T) {
			at(t, both, func(t *testing.T, cfg ts.Config) {
				s := ts.Start(t, cfg, f.step)
				c, leave := context.WithCancel(ctx(t))
				r := request(t, "GET", s.URL, nil).WithContext(c)
				if f.head {
					resp := testkit.Must(s.Client().Do(r))(t)
					defer resp.Body.Close()
				} else {
					go func() {
						if s.Wait(c, 1) == nil {
							leave()
						}
					}()
					_, err := s.Client().Do(r)
					require.ErrorIs(t, err, context.Canceled)
				}
				leave()
				require.NoError(t, s.WaitUntil(ctx(t), func() bool { return s.Log()[0].Left }))
				if !cfg.HTTP2 { // over HTTP/2 the connection outlives its streams
					require.NoError(t, s.WaitUntil(ctx(t), func() bool { return s.Open() == 0 }))
				}
			})
		})
	}
}

func TestEndlessIsThePattern(t *testing.T) {
	want := ts.Pattern(300_000)
	at(t, both, func(t *testing.T, cfg ts.Config) {
		s := ts.Start(t, cfg, ts.Endless())
		resp := testkit.Must(s.Client().Do(request(t, "GET", s.URL, nil)))(t)
		b := make([]byte, len(want))
		testkit.Must(io.ReadFull(resp.Body, b))(t)
		assert.Equal(t, ts.Hash(want), ts.Hash(b))
		require.NoError(t, resp.Body.Close())
	})
}

func TestTimesAreKept(t *testing.T) {
	for _, p := range both {
		synctest.Test(t, func(t *testing.T) {
			cfg := p.cfg
			cfg.Net = ts.NewNet()
			s := ts.Start(t, cfg, ts.OK("hello").Delay(time.Minute).Drip(2, time.Hour))
			begin := time.Now()
			r := request(t, "GET", s.URL, nil).WithContext(context.Background())
			resp := testkit.Must(s.Client().Do(r))(t)
			assert.Equal(t, time.Minute, time.Since(begin))
			b := testkit.Must(io.ReadAll(resp.Body))(t)
			assert.Equal(t, "hello", string(b))
			assert.Equal(t, time.Minute+3*time.Hour, time.Since(begin))
			synctest.Wait()
			a := s.Log()[0]
			assert.Equal(t, begin, a.Time)
			assert.Equal(t, time.Now(), a.Done)
		})
	}
}

func TestThenCloseIsNotAnnounced(t *testing.T) {
	at(t, both, func(t *testing.T, cfg ts.Config) {
		s := ts.Start(t, cfg, ts.OK("hello").Then(ts.Close))
		o := do(s, request(t, "GET", s.URL, nil))
		require.NoError(t, o.err)
		assert.False(t, o.resp.Close)
		require.NoError(t, s.WaitUntil(ctx(t), func() bool { return s.Open() == 0 }))
		require.NoError(t, do(s, request(t, "GET", s.URL, nil)).err)
		assert.GreaterOrEqual(t, s.Conns(), 2) // net/http may dial once more than it needs
	})
}

func TestInformational(t *testing.T) {
	at(t, both, func(t *testing.T, cfg ts.Config) {
		s := ts.Start(t, cfg, ts.OK("hello").Info(103, "Link", "</a>").Info(102))
		var got []string
		r := request(t, "GET", s.URL, nil)
		r = r.WithContext(httptrace.WithClientTrace(r.Context(), &httptrace.ClientTrace{
			Got1xxResponse: func(code int, h textproto.MIMEHeader) error {
				got = append(got, http.StatusText(code)+h.Get("Link"))
				return nil
			},
		}))
		responded(200, "hello")(t, do(s, r))
		assert.Equal(t, []string{"Early Hints</a>", "Processing"}, got)
	})
}
