// The default base transport.

package transport_test

import (
	"context"
	"io"
	"net"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/aplomb-go/aplomb/internal/testserver"
	"github.com/aplomb-go/aplomb/transport"
)

// A deadWire is a connection that dies without a word: bytes go out, and none come in.
type deadWire struct {
	net.Conn
	dead   *atomic.Bool
	closed *atomic.Int32
}

func (w deadWire) Read(p []byte) (int, error) {
	for {
		n, err := w.Conn.Read(p)
		if err != nil || !w.dead.Load() {
			return n, err
		}
	}
}

func (w deadWire) Close() error {
	w.closed.Add(1)
	return w.Conn.Close()
}

// A deafWire is a connection to a server that gets no PING of HTTP/2.
type deafWire struct{ net.Conn }

func (w deafWire) Write(p []byte) (int, error) {
	if len(p) == 17 && p[2] == 8 && p[3] == 6 { // a frame of 8 bytes of type 6
		return len(p), nil
	}
	return w.Conn.Write(p)
}

// A server that computes for a minute, and answers no PING meanwhile, answers a POST.
func TestASlowServerThatAnswersNoPing(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := testserver.NewNet()
		s := testserver.Start(t, testserver.Config{Net: n, HTTP2: true}, testserver.OK("made").Delay(time.Minute))
		base := transport.DefaultBase()
		base.DialContext = func(ctx context.Context, network, addr string) (net.Conn, error) {
			conn, err := n.DialContext(ctx, network, addr)
			return deafWire{conn}, err
		}
		base.Protocols = new(http.Protocols)
		base.Protocols.SetUnencryptedHTTP2(true)
		defer base.CloseIdleConnections()
		resp, err := over(t, transport.Config{}, base).RoundTrip(newRequest(t, http.MethodPost, s.URL, nil))
		require.NoError(t, err)
		assert.Equal(t, "made", mustRead(t, resp))
	})
}

// A stream that waits on an HTTP/2 connection that died ends when the health check of the
// default base has failed. Without the check it waits for ever. A connection that is only
// silent stays.
func TestDefaultBaseChecksTheHealthOfConnections(t *testing.T) {
	for _, row := range []struct {
		name  string
		check bool
		dies  bool
		ended time.Duration // 0: not within an hour
	}{
		{"the connection dies", true, true, transport.PingAfter + transport.PingTimeout},
		{"the connection dies, and nobody checks", false, true, 0},
		{"the connection is silent", true, false, 0},
	} {
		inBubble(t, row.name, func(t *testing.T) {
			n := testserver.NewNet()
			s := testserver.Start(t, testserver.Config{Net: n, HTTP2: true}, testserver.OK("well"), testserver.Hang())
			var dead atomic.Bool
			var closed atomic.Int32
			base := transport.DefaultBase()
			if !row.check {
				base.HTTP2 = nil
			}
			base.DialContext = func(ctx context.Context, network, addr string) (net.Conn, error) {
				conn, err := n.DialContext(ctx, network, addr)
				if err != nil {
					return nil, err
				}
				return deadWire{conn, &dead, &closed}, nil
			}
			base.Protocols = new(http.Protocols)
			base.Protocols.SetUnencryptedHTTP2(true)
			defer base.CloseIdleConnections()

			resp := mustRoundTrip(t, base, newRequest(t, http.MethodGet, s.URL, nil))
			_, err := io.Copy(io.Discard, resp.Body)
			require.NoError(t, err)
			dead.Store(row.dies)

			ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
			defer cancel()
			start := time.Now()
			_, err = base.RoundTrip(newRequest(t, http.MethodGet, s.URL, nil).WithContext(ctx))
			require.Error(t, err)
			if row.ended == 0 {
				require.ErrorIs(t, err, context.DeadlineExceeded)
				return
			}
			assert.Equal(t, row.ended, time.Since(start))
			assert.NotErrorIs(t, err, context.DeadlineExceeded)
			assert.Positive(t, closed.Load(), "the connection is given up")
		})
	}
}
