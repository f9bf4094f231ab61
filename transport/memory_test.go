package transport

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/aplomb-go/aplomb/internal/replay"
	"github.com/aplomb-go/aplomb/policy"
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
			t.Run(rule+"/"+name, func(t *testing.T) {
				bubble(t, func(t *testing.T) {
					tr := over(t, Config{Rule: r.Or(quick)}, rt(func(req *http.Request) (*http.Response, error) {
						attempts := AttemptNumber(req.Context())
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
							return status(503)(req)
						}
						return status(200)(req)
					}))
					_, _ = shared.Seek(0, io.SeekStart)
					req := newRequest(t, http.MethodGet, "http://h.test/", bytes.NewReader([]byte(text)))
					change(req)
					resp, err := tr.RoundTrip(req)
					require.NoError(t, err)
					assert.Equal(t, 200, resp.StatusCode)
					time.Sleep(time.Minute)
				})
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
		tr := over(t, Config{Rule: policy.Rule{AttemptTimeout: time.Minute, Stall: policy.Stall{Timeout: time.Minute}}}, base)
		resp, err := tr.RoundTrip(newRequest(t, http.MethodPut, "http://h.test/", strings.NewReader("text")))
		require.NoError(t, err)
		assert.Equal(t, 200, resp.StatusCode)
		_ = resp.Body.Close()
		assert.EqualValues(t, 1, writes.Load())
	})
}
