package transport_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/aplomb-go/aplomb/internal/replay"
	"github.com/aplomb-go/aplomb/policy"
	"github.com/aplomb-go/aplomb/transport"
)

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
			req.GetBody = func() (io.ReadCloser, error) {
				_, err := shared.Seek(0, io.SeekStart)
				return io.NopCloser(shared), err
			}
		},
		"no GetBody": func(req *http.Request) { req.GetBody = nil },
	}
	for rule, r := range map[string]policy.Rule{
		"no timeout":      {},
		"attempt timeout": {AttemptTimeout: time.Hour},
		"stall timeout":   {Stall: policy.Stall{Timeout: time.Hour}},
		"hedge":           {AttemptTimeout: time.Hour, Hedge: policy.Hedge{After: time.Second}},
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
					got, err := io.ReadAll(req.Body)
					assert.NoError(t, err)
					assert.Equal(t, text, string(got))
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
		tr := over(t, transport.Config{Rule: policy.Rule{AttemptTimeout: time.Minute, Stall: policy.Stall{Timeout: time.Minute}}}, base)
		resp := mustRoundTrip(t, tr, newRequest(t, http.MethodPut, "http://h.test/", strings.NewReader("text")))
		assert.Equal(t, 200, resp.StatusCode)
		_ = resp.Body.Close()
		assert.EqualValues(t, 1, writes.Load())
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
			resp, err := over(t, transport.Config{Rule: timedOnce()}, base).RoundTrip(req)
			require.NoError(t, err)
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
	return policy.Rule{Attempts: 1, AttemptTimeout: time.Minute, Stall: policy.Stall{Timeout: time.Minute}}
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
	assert.EqualValues(t, 2, dials.Load())
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
