// The default base transport, and what net/http tells of proxies.

package lanes

import (
	"context"
	"net"
	"net/http"
	"net/url"
	"time"

	"github.com/hashicorp/go-cleanhttp"

	"github.com/aplomb-go/aplomb/classify"
	"github.com/aplomb-go/aplomb/internal/visit"
)

// The default base sends a PING over an HTTP/2 connection from which nothing came for
// PingAfter, and closes the connection if no answer comes within PingTimeout. Some servers
// count pings to a connection that is silent, and close it after the fourth (gRPC's
// enforcement policy), so a silent stream lives for two minutes there.
const (
	PingAfter   = 30 * time.Second
	PingTimeout = 15 * time.Second
)

// DefaultBase returns the default base transport. If a proxy answers CONNECT with a
// passing failure, the error says so, because nothing of the request has left then.
func DefaultBase() *http.Transport {
	base := cleanhttp.DefaultPooledTransport()
	base.HTTP2 = &http.HTTP2Config{SendPingTimeout: PingAfter, PingTimeout: PingTimeout}
	base.OnProxyConnectResponse = func(_ context.Context, _ *url.URL, req *http.Request, resp *http.Response) error {
		if v := classify.Default(classify.Outcome{Request: req, Response: resp}); v == classify.Refused || v == classify.Ambiguous {
			answer := *resp
			answer.Body = http.NoBody // the connection is closed
			return &net.OpError{Op: "proxyconnect", Net: "tcp", Err: &visit.ProxyAnswer{Resp: &answer}}
		}
		return nil // net/http returns its own error
	}
	return base
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
	return classify.KindOf(err) == classify.Dial
}
