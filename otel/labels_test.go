package aplombotel

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/metric"

	"github.com/aplomb-go/aplomb/internal/testkit"
	"github.com/aplomb-go/aplomb/policy"
	"github.com/aplomb-go/aplomb/transport"
)

// TestPeersAreBounded: a program that calls any number of servers does not fill the memory.
func TestPeersAreBounded(t *testing.T) {
	p := &peers{known: map[peerKey]*peer{}}
	for i := range mostUnnamed + 10 {
		req := httptest.NewRequest(http.MethodGet, fmt.Sprintf("http://h%d.test/", i), nil)
		p.of(req).set(labels{of: attempts}).count.Add(1)
		p.of(req).set(labels{of: attempts, status: 200}).count.Add(1)
	}
	assert.Len(t, p.known, mostUnnamed)
	assert.Len(t, p.kept[attempts], mostUnnamed)
	total := int64(0)
	p.observe(func(_ measure, count int64, _ metric.MeasurementOption) { total += count })
	assert.EqualValues(t, 2*(mostUnnamed+10), total)
	assert.EqualValues(t, mostUnnamed+2*10, p.overflow[attempts].Load())
}

// TestNamedHostsHaveAPlace: a site that redirects a client to any number of hosts does not hide
// the hosts that the rules name.
func TestNamedHostsHaveAPlace(t *testing.T) {
	tr, err := transport.New(transport.Config{Hosts: map[string]policy.Rule{"api.example.com": {}, "*.example.org": {}}})
	require.NoError(t, err)
	tel := testkit.Must(New(Config{}))(t)
	stop := testkit.Must(tel.Observe(tr))(t)
	p := &tel.peers
	visit := func(host string) *peer {
		peer := p.of(httptest.NewRequest(http.MethodGet, "http://"+host+"/", nil))
		peer.set(labels{of: attempts}).count.Add(1)
		return peer
	}
	for i := range most + 10 {
		visit(fmt.Sprintf("h%d.test", i))
	}
	for _, host := range []string{"api.example.com", "a.example.org", "b.example.org"} {
		assert.True(t, visit(host).kept, host)
	}
	assert.False(t, visit("another.test").kept)
	assert.Len(t, p.kept[attempts], mostUnnamed+3)
	require.NoError(t, stop())
	assert.False(t, visit("c.example.org").kept, "nobody names it any more")
}

// TestPeersAreSmall: a peer is kept for good. A server can redirect a client to hosts with
// long names, and a short name may be a part of a long URL.
func TestPeersAreSmall(t *testing.T) {
	const n, long = 64, 1 << 18
	for _, format := range []string{"http://h%d.%s.test/", "http://h%d.test/%s", "http://h%d.test/?%s"} {
		p := &peers{known: map[peerKey]*peer{}}
		before := testkit.Heap()
		for i := range n {
			u, err := url.Parse(fmt.Sprintf(format, i, strings.Repeat("x", long)))
			assert.NoError(t, err)
			p.of(&http.Request{Method: http.MethodGet, URL: u}).set(labels{of: attempts}).count.Add(1)
		}
		assert.Less(t, testkit.Heap()-before, int64(n*long/4), format)
		assert.Len(t, p.known, n)
	}
}

// TestPeersAreThoseOfTheTransport: a host that is written in several ways is one peer.
func TestPeersAreThoseOfTheTransport(t *testing.T) {
	p := &peers{known: map[peerKey]*peer{}}
	for _, name := range []string{"h.test", "H.Test", "h.test:80", "h.test.", "h.test:080", "u:p@h.test", "h.test/path"} {
		p.of(&http.Request{URL: &url.URL{Scheme: "http", Host: name}})
	}
	assert.Len(t, p.known, 1)
	for name, want := range map[string]string{
		"h.test": "[{server.address h.test} {server.port 80}]", "h.test:8080": "[{server.address h.test} {server.port 8080}]",
		"[::1]:90": "[{server.address ::1} {server.port 90}]", "[::1]": "[{server.address ::1} {server.port 80}]",
	} {
		var got []string
		for _, kv := range server(nil, keyOf(&url.URL{Scheme: "http", Host: name})) {
			got = append(got, fmt.Sprintf("{%s %v}", kv.Key, kv.Value.AsInterface()))
		}
		assert.Equal(t, want, fmt.Sprint(got), name)
	}
}
