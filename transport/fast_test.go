package transport_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/iotest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/aplomb-go/aplomb/internal/replay"
	"github.com/aplomb-go/aplomb/policy"
	"github.com/aplomb-go/aplomb/transport"
)

// noop responds at once with the same response, so that what is measured is
// ours.
type noop struct{ resp *http.Response }

func (n noop) RoundTrip(*http.Request) (*http.Response, error) { return n.resp, nil }

func newNoop() noop {
	return noop{&http.Response{StatusCode: 200, Header: http.Header{}, Body: http.NoBody}}
}

func getRequest(t testing.TB, url string) *http.Request {
	req, err := http.NewRequestWithContext(context.Background(), http.MethodGet, url, nil)
	require.NoError(t, err)
	return req
}

func postRequest(t testing.TB, url string) *http.Request {
	req, err := http.NewRequestWithContext(context.Background(), http.MethodPost, url, strings.NewReader("body"))
	require.NoError(t, err)
	return req
}

func TestFirstTryOfManyHostsAllocatesNothing(t *testing.T) {
	tr := mustNew(t, transport.Config{Base: newNoop()})
	reqs := manyRequests(1000)
	for _, req := range reqs {
		_, _ = tr.RoundTrip(req)
	}
	i := 0
	assert.Zero(t, testing.AllocsPerRun(len(reqs), func() {
		_, _ = tr.RoundTrip(reqs[i%len(reqs)])
		i++
	}))
}

func manyRequests(n int) []*http.Request {
	reqs := make([]*http.Request, n)
	for i := range reqs {
		reqs[i] = &http.Request{
			Method: http.MethodGet,
			URL:    &url.URL{Scheme: "https", Host: fmt.Sprintf("host-%d.example.com", i)},
			Header: http.Header{},
		}
	}
	return reqs
}

// TestUploadStreams: the first byte is with the base before the second is read.
func TestUploadStreams(t *testing.T) {
	sent := make(chan struct{})
	first := true
	src := oneShot("ab")
	src.Reader = iotest.OneByteReader(strings.NewReader("ab"))
	src.onRead = func() {
		if !first {
			select {
			case <-sent:
			default:
				t.Error("the second byte is read before the first is sent")
			}
		}
		first = false
	}
	base := rt(func(req *http.Request) (*http.Response, error) {
		p := make([]byte, 1)
		n, err := req.Body.Read(p)
		assert.NoError(t, err)
		assert.Equal(t, "a", string(p[:n]))
		close(sent)
		wantText(t, req.Body, "b")
		_ = req.Body.Close()
		return play(req, status(200))
	})
	resp := mustRoundTrip(t, mustNew(t, transport.Config{Base: base}), newRequest(t, http.MethodPut, "http://h", src))
	assert.Equal(t, 200, resp.StatusCode)
	count(t, 1, src.closed(), "body closed")
}

func BenchmarkParallel(b *testing.B) {
	tr := mustNew(b, transport.Config{Base: newNoop()})
	b.Run("serial", func(b *testing.B) {
		req := getRequest(b, "https://api.example.com/v1/things")
		b.ReportAllocs()
		for b.Loop() {
			_, _ = tr.RoundTrip(req)
		}
	})
	b.Run(fmt.Sprintf("parallel=%d", runtime.GOMAXPROCS(0)), func(b *testing.B) {
		b.ReportAllocs()
		b.RunParallel(func(pb *testing.PB) {
			req := getRequest(b, "https://api.example.com/v1/things")
			for pb.Next() {
				_, _ = tr.RoundTrip(req)
			}
		})
	})
}

// BenchmarkManyHosts compares with a bare sync.Map lookup of the same keys in
// the same order. One request is used for all hosts: a real one has just been
// made, and is not what is cold.
func BenchmarkManyHosts(b *testing.B) {
	reqs := manyRequests(100_000)
	keys := make([]string, len(reqs))
	var bare sync.Map
	tr := mustNew(b, transport.Config{Base: newNoop()})
	for i, req := range reqs {
		keys[i] = req.URL.Host
		bare.Store(keys[i], new(int))
		_, _ = tr.RoundTrip(req)
	}
	b.Run("syncmap", func(b *testing.B) {
		b.ReportAllocs()
		for i := 0; b.Loop(); i++ {
			v, _ := bare.Load(keys[i%len(keys)])
			_ = v.(*int)
		}
	})
	b.Run("aplomb", func(b *testing.B) {
		b.ReportAllocs()
		req := reqs[0]
		for i := 0; b.Loop(); i++ {
			req.URL.Host = keys[i%len(keys)]
			_, _ = tr.RoundTrip(req)
		}
	})
}

// net/http sees a small body in memory as its own type at every attempt: under
// timeouts, at retries, in hedges, and with any GetBody.
func TestSmallBodiesInMemoryAreNotWrapped(t *testing.T) {
	text := strings.Repeat("x", replay.Small)
	shared := strings.NewReader(text)
	requests := map[string]func(*http.Request){
		"net/http's GetBody": func(*http.Request) {},
		"another GetBody": func(req *http.Request) {
			req.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(strings.NewReader(text)), nil }
		},
		"one reader, sought back": func(req *http.Request) {
			req.Body = io.NopCloser(shared)
			req.GetBody = seeksBack(shared, io.NopCloser(shared))
		},
		"no GetBody": func(req *http.Request) { req.GetBody = nil },
	}
	for rule, r := range map[string]policy.Rule{
		"no timeout":      {},
		"attempt timeout": {AttemptTimeout: time.Hour},
		"stall timeout":   {StallTimeout: time.Hour},
		"hedge":           {AttemptTimeout: time.Hour, Hedge: policy.Hedge{Delay: time.Second}},
	} {
		for name, change := range requests {
			inBubble(t, rule+"/"+name, func(t *testing.T) {
				tr := over(t, transport.Config{Rule: r.Or(quick)}, numbered(func(req *http.Request, attempts int) (*http.Response, error) {
					assert.True(t, replay.SmallInMemory(req.Body), "attempt %d has a %T", attempts, req.Body)
					if req.GetBody != nil {
						again, err := req.GetBody()
						if assert.NoError(t, err) {
							assert.True(t, replay.SmallInMemory(again), "net/http's own resend has a %T", again)
						}
					}
					wantText(t, req.Body, text)
					time.Sleep(2 * time.Second)
					if attempts < 3 {
						return play(req, status(503))
					}
					return play(req, status(200))
				}))
				_, _ = shared.Seek(0, io.SeekStart)
				req := newRequest(t, http.MethodGet, "http://h.test/", bytes.NewReader([]byte(text)))
				change(req)
				resp := mustRoundTrip(t, tr, req)
				assert.Equal(t, 200, resp.StatusCode)
				time.Sleep(time.Minute)
			})
		}
	}
}

// writesCounted counts the writes to a connection.
type writesCounted struct {
	net.Conn
	n *atomic.Int32
}

func (c writesCounted) Write(p []byte) (int, error) {
	c.n.Add(1)
	return c.Conn.Write(p)
}

// A small request leaves in one write, also under timeouts.
func TestSmallUploadIsOneWrite(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var writes atomic.Int32
		base := &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) {
			client, server := net.Pipe()
			go func() {
				req, err := http.ReadRequest(bufio.NewReader(server))
				if err != nil {
					return
				}
				_, _ = io.Copy(io.Discard, req.Body)
				_, _ = io.WriteString(server, "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n")
				_ = server.Close()
			}()
			return writesCounted{client, &writes}, nil
		}}
		tr := over(t, transport.Config{Rule: policy.Rule{AttemptTimeout: time.Minute, StallTimeout: time.Minute}}, base)
		resp := mustRoundTrip(t, tr, newRequest(t, http.MethodPut, "http://h.test/", strings.NewReader("text")))
		assert.Equal(t, 200, resp.StatusCode)
		_ = resp.Body.Close()
		count(t, 1, writes.Load(), "connection written")
	})
}

// A file goes to the connection by ReadFrom, which can copy it within the kernel. A small
// buffer goes out together with the headers. Timeouts change neither.
func TestTimeoutsKeepThePathOfABody(t *testing.T) {
	name := filepath.Join(t.TempDir(), "body")
	require.NoError(t, os.WriteFile(name, []byte("text"), 0o600))
	file, err := os.Open(name) // closed with the request
	require.NoError(t, err)
	for name, row := range map[string]struct {
		body io.Reader
		want bool
	}{
		"file":   {file, true},
		"buffer": {bytes.NewBufferString("text"), false},
	} {
		t.Run(name, func(t *testing.T) {
			srv := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { _, _ = io.Copy(io.Discard, r.Body) }))
			defer srv.Close()
			var called atomic.Bool
			base := &http.Transport{DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
				conn, err := new(net.Dialer).DialContext(ctx, network, addr)
				if err != nil {
					return nil, err
				}
				return readFromNoted{conn.(*net.TCPConn), &called}, nil
			}}
			defer base.CloseIdleConnections()
			req := newRequest(t, http.MethodPut, srv.URL, row.body)
			req.ContentLength = 4
			resp := mustRoundTrip(t, over(t, transport.Config{Rule: timedOnce()}, base), req)
			_ = resp.Body.Close()
			assert.Equal(t, row.want, called.Load())
		})
	}
}

type readFromNoted struct {
	*net.TCPConn
	called *atomic.Bool
}

func (c readFromNoted) ReadFrom(r io.Reader) (int64, error) {
	c.called.Store(true)
	return c.TCPConn.ReadFrom(r)
}

// timedOnce is a rule with timeouts and without retries.
func timedOnce() policy.Rule {
	return policy.Rule{MaxAttempts: 1, AttemptTimeout: time.Minute, StallTimeout: time.Minute}
}

// net/http resends a POST by itself if nothing of it was written. It has to see that the
// body can be made again, and that nobody has read it. Timeouts leave both as they are.
func TestTimeoutsKeepTheResendOfTheBase(t *testing.T) {
	srv := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { _, _ = io.Copy(io.Discard, r.Body) }))
	defer srv.Close()
	var writes, dials atomic.Int32
	base := &http.Transport{DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
		dials.Add(1)
		conn, err := new(net.Dialer).DialContext(ctx, network, addr)
		return secondWriteFails{conn, &writes}, err
	}}
	defer base.CloseIdleConnections()
	tr := over(t, transport.Config{Rule: timedOnce()}, base)
	for range 2 { // the second finds a connection that cannot be written to
		resp := mustRoundTrip(t, tr, newRequest(t, http.MethodPost, srv.URL, strings.NewReader("text")))
		_, _ = io.Copy(io.Discard, resp.Body)
		_ = resp.Body.Close()
	}
	count(t, 2, dials.Load(), "connection made")
}

type secondWriteFails struct {
	net.Conn
	writes *atomic.Int32
}

func (c secondWriteFails) Write(p []byte) (int, error) {
	if c.writes.Add(1) == 2 {
		return 0, errors.New("nothing is written")
	}
	return c.Conn.Write(p)
}
