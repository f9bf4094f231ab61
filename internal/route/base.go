// The default base transport, and what net/http tells of proxies.

package route

import (
	"cmp"
	"context"
	"errors"
	"net"
	"net/http"
	"net/url"
	"time"

	"github.com/hashicorp/go-cleanhttp"

	"github.com/aplomb-go/aplomb/classify"
	"github.com/aplomb-go/aplomb/internal/dial"
	"github.com/aplomb-go/aplomb/internal/limit"
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

// perHost is how many idle connections the default base keeps for a host. net/http keeps two, so a
// busy client would make connections time and again.
const perHost = 100

// NewBase returns a copy of http.DefaultTransport as it is now, with what it leaves to net/http set.
// If there is nothing that can be copied, it begins with go-cleanhttp's transport.
func NewBase() *http.Transport {
	if t := defaultBase(); t != nil {
		return t
	}
	return improved(cleanhttp.DefaultPooledTransport())
}

// defaultBase returns a copy of http.DefaultTransport for the default base, so that the certificates,
// the proxy and the dialer that a program has set there stay in force. If there is none, it begins with
// go-cleanhttp's. It returns nil if http.DefaultTransport cannot be copied.
func defaultBase() *http.Transport {
	switch t, ok := http.DefaultTransport.(*http.Transport); {
	case http.DefaultTransport == nil, ok && t == nil:
		return improved(cleanhttp.DefaultPooledTransport())
	case ok:
		if c := clone(t); c != nil {
			return improved(c)
		}
	}
	return nil
}

// improved sets what t leaves to net/http: the order of addresses, idle connections, pings, and what
// is known of a proxy's refusal. If a proxy answers CONNECT with a passing failure, the error says so,
// because nothing of the request has left then.
func improved(t *http.Transport) *http.Transport {
	if d := dial.New(t); d != nil {
		t.DialContext = d.DialContext
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
		return &net.OpError{Op: "proxyconnect", Net: "tcp", Err: &limit.ProxyAnswer{Resp: &answer}}
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
	if req.Context().Value(f) != nil {
		if req.Body != nil {
			_ = req.Body.Close()
		}
		return nil, errSelf
	}
	sent := req.WithContext(context.WithValue(req.Context(), f, true))
	resp, err := f.base.RoundTrip(sent)
	if resp != nil && resp.Request == sent {
		resp.Request = req
	}
	return resp, err
}

func (f *foreign) CloseIdleConnections() { closeIdle(f.base) }
