// The default base transport, the refusals of proxies, and the pools that are made of a base.

package route

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"reflect"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-cleanhttp"

	"github.com/aplomb-go/aplomb/classify"
	"github.com/aplomb-go/aplomb/internal/dial"
	"github.com/aplomb-go/aplomb/internal/exchange"
	"github.com/aplomb-go/aplomb/internal/host/pool"
	"github.com/aplomb-go/aplomb/internal/replay"
)

// The default base sends a PING over an HTTP/2 connection from which nothing came for
// PingAfter, and closes the connection if no answer comes within PingTimeout. Some servers
// count pings to a connection that is silent, and close it after the fourth (gRPC's
// enforcement policy), so a silent stream lives for two minutes there. Some answer no PING
// while they compute a response, and have PingAfter + PingTimeout for it.
const (
	PingAfter   = 30 * time.Second
	PingTimeout = time.Minute
)

// perHost is how many idle connections the default base keeps for a host. net/http keeps two. Each may be
// dead when it is taken, or hold a worker of the server. lab/figures.md has the experiment that chose four.
const perHost = 4

// NewBase returns a copy of http.DefaultTransport as it is now, so that the certificates, the proxy and the dialer
// that a program has set there stay in force, with the options of improved. If there is
// nothing that can be copied, it begins with go-cleanhttp's transport.
func NewBase() *http.Transport {
	t, _ := http.DefaultTransport.(*http.Transport)
	if t != nil {
		t = clone(t)
	}
	if t == nil {
		t = cleanhttp.DefaultPooledTransport()
		t.MaxIdleConnsPerHost = 0 // it depends on the machine
	}
	return improved(t)
}

// improved sets options that t leaves to net/http: the order of addresses, idle connections, pings, and
// the error of a proxy's refusal. If a proxy answers CONNECT with a passing failure, the error says so,
// because nothing of the request has left then.
func improved(t *http.Transport) *http.Transport {
	if d := dial.New(t); d != nil {
		t.DialContext = d
	}
	t.MaxIdleConnsPerHost = cmp.Or(t.MaxIdleConnsPerHost, perHost)
	if t.HTTP2 == nil {
		t.HTTP2 = new(http.HTTP2Config)
	}
	if t.HTTP2.SendPingTimeout == 0 {
		t.HTTP2.SendPingTimeout, t.HTTP2.PingTimeout = PingAfter, cmp.Or(t.HTTP2.PingTimeout, PingTimeout)
	}
	if t.OnProxyConnectResponse == nil {
		t.OnProxyConnectResponse = tellRefusal
	}
	return t
}

// tellRefusal is an OnProxyConnectResponse.
func tellRefusal(_ context.Context, _ *url.URL, req *http.Request, resp *http.Response) error {
	if v := classify.Default(classify.Outcome{Request: req, Response: resp}); v == classify.Refused || v == classify.Ambiguous {
		answer := *resp
		answer.Body = http.NoBody // the connection is closed
		return &net.OpError{Op: "proxyconnect", Net: "tcp", Err: &exchange.ProxyAnswer{Resp: &answer}}
	}
	return nil // net/http returns its own error
}

// RefusedByProxy reports whether a proxy refused to connect to the server, so that nothing
// of the request has left. net/http then returns the text of the proxy's status as an error
// that wraps nothing. Package classify knows the texts. A base transport around net/http may
// make such an error of a server's response, so only net/http itself is believed.
func RefusedByProxy(base http.RoundTripper, req *http.Request, err error) bool {
	t, ok := base.(*http.Transport)
	if !ok || t.Proxy == nil || req.URL.Scheme != "https" {
		return false
	}
	switch err.(type) {
	case interface{ Unwrap() error }, interface{ Unwrap() []error }:
		return false
	}
	return classify.ErrorTypeOf(err) == classify.ErrorDial
}

// A foreign base is an http.DefaultTransport that is no *http.Transport. It may be around the very
// Transport whose base it is. Then a request would go round for ever.
type foreign struct{ base http.RoundTripper }

var errSelf = errors.New("transport: http.DefaultTransport leads back to this Transport, so Config.Base has to be set")

func (f *foreign) RoundTrip(req *http.Request) (*http.Response, error) {
	if under, _ := req.Context().Value(f).(*atomic.Bool); under != nil && under.Load() {
		if req.Body != nil {
			_ = req.Body.Close()
		}
		return nil, errSelf
	}
	var under atomic.Bool // the base may keep the context, and put it into the response
	under.Store(true)
	defer under.Store(false)
	sent := req.WithContext(context.WithValue(req.Context(), f, &under))
	resp, err := f.base.RoundTrip(sent)
	if resp != nil && resp.Request == sent {
		resp.Request = req
	}
	return resp, err
}

func (f *foreign) CloseIdleConnections() { closeIdle(f.base) }

// A Maker makes further pools, and closes the connections of pools that nobody needs. Before anything
// else, each request calls Resolve.
type Maker struct {
	first  http.RoundTripper                   // the first pool of all hosts
	each   func(func(*pool.Pools))             // calls a function for the pools of each host
	make   func(host string) http.RoundTripper // Config.NewPool; nil: base is copied
	base   *http.Transport                     // is copied for a pool; nil: it cannot be
	copies func() bool                         // reports whether base can be copied, as far as is known
	Own    func() dial.Func                    // of the copies; nil: they dial names like the base
	Log    *slog.Logger                        // nil: none

	resolved sync.Once   // finds the first pool
	known    atomic.Bool // it is found
	told     sync.Once   // the log knows that a host has one pool only
}

// idle is how long a pool keeps idle connections, if the base keeps them for ever.
const idle = 90 * time.Second

// NewMaker returns the Maker of a base transport. If base is nil, it is found at the first request.
// make is Config.NewPool.
func NewMaker(base http.RoundTripper, make func(host string) http.RoundTripper, each func(func(*pool.Pools))) *Maker {
	m := &Maker{make: make, each: each}
	if base != nil {
		m.resolved.Do(func() { m.take(base) })
	}
	return m
}

// Resolve returns the base of the Transport. The first request finds it, when a program has set
// up http.DefaultTransport.
func (m *Maker) Resolve() http.RoundTripper {
	m.resolved.Do(m.resolve)
	return m.first
}

func (m *Maker) resolve() {
	base, others := http.DefaultTransport, false
	t, known := base.(*http.Transport)
	if t != nil {
		_, others = registered(t)
	}
	switch {
	case t != nil && (others || clone(t) == nil):
		m.take(base) // as it is, because a copy would not be like it
	case known, base == nil:
		m.take(NewBase())
	default:
		m.take(&foreign{base: base})
	}
}

// take makes base the first pool. A copy of a base with MaxConnsPerHost could pass that, so there is
// none.
func (m *Maker) take(base http.RoundTripper) {
	m.first = base
	defer m.known.Store(true)
	if t, _ := base.(*http.Transport); t != nil && m.make == nil && t.MaxConnsPerHost <= 0 {
		m.base = t
		m.copies = sync.OnceValue(func() bool { return clone(t) != nil })
		m.Own = sync.OnceValue(func() dial.Func { return dial.New(t) })
	}
}

// can reports whether the host of a request may have further pools. A copy of the base knows no
// schemes that may be registered with the base. net/http decides about HTTP/2 when the base is first
// copied, so can is not asked before there is a reason. In a browser there are none, because it chooses the connections.
func (m *Maker) can(req *http.Request) bool {
	plain := req.URL.Scheme == "http" || req.URL.Scheme == "https"
	return runtime.GOOS != "js" && (m.make != nil || m.base != nil && plain && m.copies())
}

// clone returns a copy of a transport that speaks the same protocols. It returns nil if there
// can be none: if the user has set TLSNextProto, the copy would share the connections of HTTP/2,
// and a copy has no protocol that was registered.
//
// net/http decides about HTTP/2 when a transport is first used, and fills in its
// TLSClientConfig and its TLSNextProto then. Clone copies the first and not the second, so
// the copy would take the TLSClientConfig for the user's, and leave HTTP/2 off.
func clone(t *http.Transport) *http.Transport {
	c := t.Clone() // now t has decided
	if replaced, _ := registered(t); replaced || len(c.TLSNextProto) > 0 {
		return nil
	}
	if t.TLSNextProto["h2"] != nil && c.Protocols == nil {
		c.ForceAttemptHTTP2 = true
	}
	return c
}

// registered reports whether somebody other than net/http has registered a protocol for http
// or https with a transport, and whether another scheme has a protocol. Only reflection can see that.
func registered(t *http.Transport) (replaced, others bool) {
	all := reflect.ValueOf(t).Elem().FieldByName("altProto") // an atomic.Value with a map
	if all.Kind() != reflect.Struct {
		return false, false
	}
	if all = all.FieldByName("v"); all.Kind() != reflect.Interface || all.Elem().Kind() != reflect.Map {
		return false, false
	}
	for each := all.Elem().MapRange(); each.Next(); {
		if scheme := each.Key().String(); scheme != "http" && scheme != "https" {
			others = true
		} else if by := each.Value().Elem().Type(); !strings.HasPrefix(by.PkgPath()+"."+by.Name(), "net/http.http2") && !strings.HasPrefix(by.PkgPath(), "net/http/") {
			replaced = true
		}
	}
	return replaced, others
}

// canHTTP1 reports whether the host of a request may have a pool without HTTP/2.
func (m *Maker) canHTTP1(req *http.Request) bool {
	//lint:ignore SA1019 old transports still set DialTLS
	return m.make == nil && m.can(req) && m.base.DialTLS == nil && m.base.DialTLSContext == nil && (m.base.Protocols == nil || m.base.Protocols.HTTP1())
}

// open makes the transport of a pool for the host of a request, or returns nil. Its first dial goes elsewhere
// than to the address bad, see dial.Elsewhere.
func (m *Maker) open(req *http.Request, bad netip.Addr, http1 bool) http.RoundTripper {
	if m.make != nil {
		if base := m.make(req.URL.Host); base != nil && !replay.IsNil(base) {
			return base
		}
		return nil
	}
	c := clone(m.base)
	if c == nil { // it was changed meanwhile
		return nil
	}
	c.IdleConnTimeout = cmp.Or(c.IdleConnTimeout, idle)
	if http1 {
		c.Protocols, c.ForceAttemptHTTP2 = new(http.Protocols), false
		c.Protocols.SetHTTP1(true)
		if c.TLSClientConfig != nil {
			c.TLSClientConfig.NextProtos = []string{"http/1.1"} // a copy
		}
	}
	if d := m.Own(); d != nil {
		var dials atomic.Bool
		c.DialContext = func(ctx context.Context, network, addr string) (net.Conn, error) {
			if !dials.Swap(true) {
				ctx = dial.Elsewhere(ctx, bad)
			}
			return d(ctx, network, addr)
		}
	}
	return c
}

// afterwards calls f a moment later, and when most attempts under way have ended.
func afterwards(f func()) {
	for _, d := range [...]time.Duration{workerTime, time.Second, idle} {
		time.AfterFunc(d, f)
	}
}

// CloseAll closes the idle connections of all pools.
func (m *Maker) CloseAll() {
	if !m.known.Load() {
		return // no request has begun, and the program may still set up http.DefaultTransport
	}
	closeIdle(m.first)
	m.each(func(pools *pool.Pools) {
		for _, p := range pools.All() {
			closeIdle(p.Base())
		}
	})
}

// LeaveAll leaves the pools of a host that was evicted.
func (m *Maker) LeaveAll(pools *pool.Pools) {
	if pools != nil {
		for _, p := range pools.All() {
			afterwards(func() { closeIdle(p.Base()) })
		}
	}
}

// closeIdle closes the idle connections of a base transport, if it can. A timer may call it, where
// a panic would end the process.
func closeIdle(base http.RoundTripper) {
	defer func() { _ = recover() }()
	if c, ok := base.(interface{ CloseIdleConnections() }); ok {
		c.CloseIdleConnections()
	}
}
