// The context of an attempt, and the connections that a response hands over.

package transport_test

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/aplomb-go/aplomb/faults"
	"github.com/aplomb-go/aplomb/internal/replay"
	"github.com/aplomb-go/aplomb/policy"
	"github.com/aplomb-go/aplomb/transport"
)

// The caller's deadline ends a request for an upgrade with context.DeadlineExceeded.
func TestDeadlineOfAnUpgrade(t *testing.T) {
	for name, rule := range map[string]policy.Rule{
		"plain":           {},
		"attempt timeout": {AttemptTimeout: time.Hour},
		"hedge":           {Hedge: policy.Hedge{Delay: time.Hour}},
	} {
		inBubble(t, name, func(t *testing.T) {
			ctx := expires(t, time.Second)
			tr := over(t, transport.Config{Rule: rule}, script(faults.Hang()))
			_, err := tr.RoundTrip(headed(t, http.MethodGet, "http://h.test/", "Upgrade: websocket").WithContext(ctx))
			assert.ErrorIs(t, err, context.DeadlineExceeded)
		})
	}
}

// Over HTTP/2 the response may end before the upload. The attempt's context lives
// until the upload has ended, and no longer.
func TestUploadOutlivesTheResponse(t *testing.T) {
	var ctx context.Context
	var body io.ReadCloser
	tr := over(t, transport.Config{Rule: policy.Rule{AttemptTimeout: time.Hour}}, rt(func(req *http.Request) (*http.Response, error) {
		ctx, body = req.Context(), req.Body
		_, _ = body.Read(make([]byte, 1))
		return play(req, faults.Status(200))
	}))
	mustRoundTrip(t, tr, newRequest(t, http.MethodPut, "http://h.test/", strings.NewReader(strings.Repeat("x", replay.Small+1))))
	require.NoError(t, ctx.Err())
	_, _ = io.Copy(io.Discard, body)
	_ = body.Close()
	assert.Error(t, ctx.Err())
}

// A tunnel ends with the context of its request, whatever timeouts the rule has.
func TestTunnelEndsWithItsContext(t *testing.T) {
	for name, d := range map[string]time.Duration{"no timeout": -1, "a timeout": time.Minute} {
		t.Run(name, func(t *testing.T) {
			ln, err := net.Listen("tcp", "127.0.0.1:0")
			require.NoError(t, err)
			defer func() { _ = ln.Close() }()
			go func() {
				c, err := ln.Accept()
				if err != nil {
					return
				}
				defer func() { _ = c.Close() }()
				in := bufio.NewReader(c)
				if _, err := http.ReadRequest(in); err == nil {
					_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\n\r\nhello")
					_, _ = io.Copy(io.Discard, in)
				}
			}()
			base := &http.Transport{}
			defer base.CloseIdleConnections()
			tr := over(t, transport.Config{Rule: policy.Rule{AttemptTimeout: d}.Or(quick)}, base)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			in, out := io.Pipe()
			defer func() { _ = out.Close() }()
			resp := mustRoundTrip(t, tr, newRequest(t, http.MethodConnect, "http://"+ln.Addr().String(), in).WithContext(ctx))
			defer func() { _ = resp.Body.Close() }()
			_, err = io.ReadFull(resp.Body, make([]byte, 5))
			require.NoError(t, err)
			ended := make(chan error, 1)
			go func() { _, err := resp.Body.Read(make([]byte, 1)); ended <- err }()
			cancel()
			select {
			case err := <-ended:
				assert.Error(t, err)
			case <-time.After(30 * time.Second):
				t.Error("the tunnel outlives its context")
			}
		})
	}
}

// A countingCtx counts the functions that wait for its end.
type countingCtx struct {
	context.Context
	n    atomic.Int32
	done chan struct{}
}

func (c *countingCtx) Done() <-chan struct{} { return c.done }
func (c *countingCtx) AfterFunc(func()) func() bool {
	c.n.Add(1)
	var once sync.Once
	return func() bool { once.Do(func() { c.n.Add(-1) }); return true }
}
