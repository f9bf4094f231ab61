// MCP, whose GET streams of events are resumable. Its protocol of 2026-07-28 has no such
// streams any more, so the SDK is one that speaks the version before.

package e2e

import (
	"context"
	"net/http"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/aplomb-go/aplomb/policy"
	"github.com/aplomb-go/aplomb/policy/backoff"
)

// gets lets one GET run at a time, because the SDK's server refuses a second stream until
// it has noticed that the first is lost. It counts those that continue a stream.
type gets struct {
	mu sync.Mutex // held by the GET under way

	count    sync.Mutex // guards the field below
	resuming int
}

func (g *gets) serve(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if req.Method == http.MethodGet {
			g.mu.Lock()
			defer g.mu.Unlock()
			if req.Header.Get("Last-Event-ID") != "" {
				g.count.Lock()
				g.resuming++
				g.count.Unlock()
			}
		}
		next.ServeHTTP(w, req)
	})
}

func (g *gets) resumed() int {
	g.count.Lock()
	defer g.count.Unlock()
	return g.resuming
}

// A client of MCP reconnects its stream by itself. It gets each message of its server once,
// although the connection of the stream is cut again and again.
func TestMCPStreamReconnects(t *testing.T) {
	const rounds = 3
	server := mcp.NewServer(&mcp.Implementation{Name: "server"}, nil)
	g := new(gets)
	s := newServer(t, func(string) http.Handler {
		return g.serve(mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server },
			&mcp.StreamableHTTPOptions{EventStore: mcp.NewMemoryEventStore(nil)}))
	})
	n := newNetwork(t, s.url)
	rule := policy.Rule{Backoff: backoff.Constant(50 * time.Millisecond)}
	hc, _ := under(t, base(t, n, false), rule, nil)
	ctx := bounded(t)
	got := make(chan float64, 100)
	client := mcp.NewClient(&mcp.Implementation{Name: "client"}, &mcp.ClientOptions{
		ProgressNotificationHandler: func(_ context.Context, req *mcp.ProgressNotificationClientRequest) { got <- req.Params.Progress },
	})
	session, err := client.Connect(ctx, &mcp.StreamableClientTransport{Endpoint: s.url, HTTPClient: hc}, nil)
	require.NoError(t, err)
	var peer *mcp.ServerSession
	for ss := range server.Sessions() {
		peer = ss
	}
	require.NotNil(t, peer)
	tell := func(i int) {
		require.NoError(t, peer.NotifyProgress(ctx, &mcp.ProgressNotificationParams{ProgressToken: strconv.Itoa(i), Progress: float64(i)}))
	}
	hears := func(want int) {
		select {
		case i := <-got:
			require.Equal(t, want, int(i))
		case <-ctx.Done():
			require.NoError(t, ctx.Err(), "message %d did not come", want)
		}
	}
	for i := range rounds {
		tell(2 * i)
		hears(2 * i) // so the stream has an ID
		require.NoError(t, n.set(), "cuts all connections")
		tell(2*i + 1)
		hears(2*i + 1)
	}
	assert.Empty(t, got, "each message came once")
	assert.GreaterOrEqual(t, g.resumed(), rounds)
	require.NoError(t, session.Close())
}
