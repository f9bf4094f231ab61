// The network between a client and its server, with faults that are switched
// during a run.

package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"

	"github.com/Shopify/toxiproxy/v2"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"
)

// A toxic is a fault of a direction of a connection, as toxiproxy names it.
type toxic struct {
	Name       string         `json:"name"`
	Type       string         `json:"type"`
	Stream     string         `json:"stream"` // upstream or downstream
	Toxicity   float32        `json:"toxicity"`
	Attributes map[string]int `json:"attributes"`
}

const up, down = "upstream", "downstream"

func newToxic(kind, stream, attribute string, value int) toxic {
	return toxic{Name: kind + " " + stream, Type: kind, Stream: stream, Toxicity: 1, Attributes: map[string]int{attribute: value}}
}

// cutAfter ends each connection cleanly after a number of bytes in a direction.
func cutAfter(stream string, bytes int) []toxic {
	return []toxic{newToxic("limit_data", stream, "bytes", bytes)}
}

// resetAfter resets each connection after a number of bytes in a direction.
// toxiproxy makes the connections of a link with a reset_peer send a reset when
// they are closed, whatever its toxicity. With a toxicity of 0 the data passes.
func resetAfter(stream string, bytes int) []toxic {
	reset := newToxic("reset_peer", stream, "timeout", 0)
	reset.Toxicity = 0
	return append(cutAfter(stream, bytes), reset)
}

// A network leads from clients to a server. It has a proxy of toxiproxy for its
// present faults. A change of the faults replaces the proxy and closes its
// connections. toxiproxy can also change the faults of a running link, but that
// can block for as long as a reader of the link does not read. So only silence does
// that, because its links are idle.
type network struct {
	target string // host and port of the server
	api    *toxiproxy.ApiServer

	mu    sync.Mutex
	count int // of proxies so far
	dials int
	proxy *toxiproxy.Proxy
	mute  []*toxiproxy.Proxy // those of silence
}

// newNetwork returns a network without faults.
func newNetwork(t testing.TB, serverURL string) *network {
	t.Helper()
	n := &network{
		target: strings.TrimPrefix(strings.TrimPrefix(serverURL, "https://"), "http://"),
		api:    toxiproxy.NewServer(toxiproxy.NewMetricsContainer(nil), zerolog.Nop()),
	}
	require.NoError(t, n.set())
	t.Cleanup(func() {
		n.close()
		for _, p := range n.mute {
			p.Stop()
		}
	})
	return n
}

// set puts the faults in force instead of those before. Without any, the network
// is well.
func (n *network) set(faults ...toxic) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	old, err := n.replace(faults...)
	if old != nil {
		old.Stop()
	}
	return err
}

// silence swallows the bytes of the open connections in both directions and closes none.
// New connections are well. There must be no bytes under way.
func (n *network) silence() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	old, err := n.replace()
	if err != nil {
		return err
	}
	n.mute = append(n.mute, old)
	return add(old, newToxic("timeout", up, "timeout", 0), newToxic("timeout", down, "timeout", 0))
}

// replace makes a new proxy for later connections. It returns the proxy before; n.mu is
// held.
func (n *network) replace(faults ...toxic) (old *toxiproxy.Proxy, err error) {
	n.count++
	proxy := toxiproxy.NewProxy(n.api, fmt.Sprint("network ", n.count), "127.0.0.1:0", n.target)
	if err := add(proxy, faults...); err != nil {
		return nil, err
	}
	if err := proxy.Start(); err != nil {
		return nil, err
	}
	old, n.proxy = n.proxy, proxy
	return old, nil
}

func add(proxy *toxiproxy.Proxy, faults ...toxic) error {
	for _, f := range faults {
		text, err := json.Marshal(f)
		if err != nil {
			return err
		}
		if _, err := proxy.Toxics.AddToxicJson(bytes.NewReader(text)); err != nil {
			return fmt.Errorf("toxic %s: %w", text, err)
		}
	}
	return nil
}

// close refuses all connections from now on.
func (n *network) close() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.proxy.Stop()
}

// dial connects to the server through the network, whatever the address.
func (n *network) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	n.mu.Lock()
	n.dials++
	address := n.proxy.Listen
	n.mu.Unlock()
	var d net.Dialer
	return d.DialContext(ctx, "tcp", address)
}

// dialled returns how often clients have connected so far.
func (n *network) dialled() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.dials
}
