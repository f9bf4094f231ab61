// coder/websocket: the upgraded connection is handed over.

package e2e

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/aplomb-go/aplomb/policy"
)

func websocketClient() client {
	const size = 256 << 10
	return client{
		name:     "coder/websocket",
		off:      hasNone,
		needs:    "none, because the handshake is a GET",
		size:     size,
		upgrades: true,
		serve:    func(testing.TB, string) http.Handler { return fakeSockets(size) },
		open: func(_ testing.TB, s setup) session {
			return session{
				download: func(ctx context.Context) error {
					return exchange(ctx, s, "/get", nil, content(size))
				},
				upload: func(ctx context.Context, b []byte) error {
					return exchange(ctx, s, "/put", b, sum(b))
				},
				// It has no type of its own.
				own: func(err error) bool {
					return strings.HasPrefix(err.Error(), "failed to WebSocket dial: expected handshake response status code 101 but got 503")
				},
			}
		},
	}
}

// dial opens a WebSocket. Its handshake has the client's time.
func dial(ctx context.Context, s setup, path string) (*websocket.Conn, error) {
	c, _, err := websocket.Dial(ctx, s.url+path, &websocket.DialOptions{HTTPClient: s.http})
	if err == nil {
		c.SetReadLimit(-1)
	}
	return c, err
}

// exchange sends a message, unless it is nil, and expects a message. The message
// has some time, because aplomb leaves an upgraded connection alone.
func exchange(ctx context.Context, s setup, path string, message, want []byte) error {
	c, err := dial(ctx, s, path)
	if err != nil {
		return err
	}
	defer func() { _ = c.CloseNow() }()
	ctx, cancel := context.WithTimeout(ctx, 2*patient)
	defer cancel()
	if message != nil {
		if err := c.Write(ctx, websocket.MessageBinary, message); err != nil {
			return err
		}
	}
	_, got, err := c.Read(ctx)
	return are(want)(got, err)
}

// fakeSockets has a socket that sends content, a socket that answers a message with
// its hash, and a socket that repeats all messages.
func fakeSockets(size int) *http.ServeMux {
	mux := http.NewServeMux()
	handle := func(path string, serve func(context.Context, *websocket.Conn) error) {
		mux.HandleFunc(path, func(w http.ResponseWriter, req *http.Request) {
			c, err := websocket.Accept(w, req, nil)
			if err != nil {
				return // Accept has answered
			}
			defer func() { _ = c.CloseNow() }()
			c.SetReadLimit(-1)
			ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
			defer cancel()
			if serve(ctx, c) == nil {
				_, _, _ = c.Read(ctx) // until the client closes
			}
		})
	}
	handle("/get", func(ctx context.Context, c *websocket.Conn) error {
		return c.Write(ctx, websocket.MessageBinary, content(size))
	})
	handle("/put", func(ctx context.Context, c *websocket.Conn) error {
		_, b, err := c.Read(ctx)
		if err != nil {
			return err
		}
		return c.Write(ctx, websocket.MessageBinary, sum(b))
	})
	handle("/echo", func(ctx context.Context, c *websocket.Conn) error {
		for {
			kind, b, err := c.Read(ctx)
			if err != nil {
				return err
			}
			if err := c.Write(ctx, kind, b); err != nil {
				return err
			}
		}
	})
	return mux
}

// The timers of an attempt and of a body leave an upgraded connection alone, and
// both directions work.
func TestWebSocketIsHandedOver(t *testing.T) {
	t.Parallel()
	b := newBench(t, websocketClient())
	b.answer(busyUntil(2))
	hc, r := under(t, base(t, b.network, false), policy.Rule{AttemptTimeout: patient, StallTimeout: patient}, nil)
	c, err := dial(bounded(t), setup{http: hc, url: b.url}, "/echo")
	require.NoError(t, err)
	defer func() { _ = c.CloseNow() }()
	assert.Len(t, r.told(), 1, "attempts told")
	for i := range 100 {
		if i == 50 {
			time.Sleep(patient + impatient) // longer than either timer
		}
		want := fmt.Sprint("message ", i)
		require.NoError(t, c.Write(bounded(t), websocket.MessageText, []byte(want)))
		_, got, err := c.Read(bounded(t))
		require.NoError(t, err)
		require.Equal(t, want, string(got))
	}
	require.NoError(t, c.Close(websocket.StatusNormalClosure, ""))
	assert.Equal(t, 2, b.seen(), "requests that arrived")
	assert.Len(t, r.told(), 1, "attempts told")
}
