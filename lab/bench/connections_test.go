// The experiments about connections and addresses behind the table of features in
// README.md.

package main

import (
	"crypto/tls"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"
	_ "unsafe" // for go:linkname

	"github.com/go-resty/resty/v2"
	"github.com/hashicorp/go-retryablehttp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/aplomb-go/aplomb/internal/testserver"
	"github.com/aplomb-go/aplomb/policy"
	"github.com/aplomb-go/aplomb/transport"
)

const remote = "shop.example.com"

// leaves has an HTTP/2 connection that dies without a word. New connections work.
func leaves(t *testing.T, l *library) string {
	return bubble(t, func(t *testing.T) string {
		n := testserver.NewNet()
		server := testserver.Start(t, testserver.Config{Net: n, Host: remote, HTTP2: true}, testserver.OK("well"))
		client := l.newClient(terms{base: server.Transport(), delay: shortDelay})
		succeeds := func() bool {
			o := exchange{}.ask(t.Context(), client, server.URL)
			return o.err == nil && o.resp.StatusCode == 200
		}
		assert.True(t, succeeds() && n.Silence(remote) != 0, "no connection")
		return asked(succeeds())
	})
}

// detours has a name with two addresses. The server at the first answers 503, or ends each
// connection. The base dials with a net.Dialer.
func detours(t *testing.T, l *library) string {
	for _, bad := range []http.HandlerFunc{
		func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusServiceUnavailable) },
		func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
	} {
		good := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
		defer good.Close()
		_, port, _ := net.SplitHostPort(good.Listener.Addr().String())
		first, err := net.Listen("tcp", "127.0.0.2:"+port)
		require.NoError(t, err)
		sick := httptest.NewUnstartedServer(bad)
		_ = sick.Listener.Close()
		sick.Listener = first
		sick.Start()
		defer sick.Close()

		dialer := &net.Dialer{Resolver: &net.Resolver{PreferGo: true, Dial: testserver.NameServer(nil, "127.0.0.2", "127.0.0.1")}}
		base := &http.Transport{DialContext: dialer.DialContext}
		defer base.CloseIdleConnections()
		o := exchange{}.ask(t.Context(), l.newClient(terms{base: base, delay: shortDelay}), "http://"+remote+":"+port)
		if o.err != nil || o.resp.StatusCode != 200 {
			return no
		}
	}
	return yes
}

// checksHealth is about the base transport that the library makes if it is given none. Its
// HTTP/2 connection dies without a word while a request is under way.
func checksHealth(t *testing.T, l *library) string {
	base := defaultBases[l.name]().Clone()
	return bubble(t, func(t *testing.T) string {
		n := testserver.NewNet()
		server := testserver.Start(t, testserver.Config{Net: n, Host: remote, HTTP2: true, TLS: testserver.Trusted}, testserver.OK("well"))
		base.DialContext, base.Proxy = n.DialContext, nil
		if base.TLSClientConfig == nil {
			base.TLSClientConfig = new(tls.Config)
		}
		base.TLSClientConfig.RootCAs = server.Transport().TLSClientConfig.RootCAs
		client := &http.Client{Transport: base}
		o := exchange{}.ask(t.Context(), client, server.URL)
		assert.True(t, o.err == nil && o.resp.ProtoMajor == 2 && n.Silence(remote) > 0, "no connection: %v", o.err)
		start := time.Now()
		exchange{deadline: time.Hour}.ask(t.Context(), client, server.URL)
		base.CloseIdleConnections()
		return asked(time.Since(start) < time.Hour)
	})
}

func goDefault() *http.Transport { return http.DefaultTransport.(*http.Transport) }

// defaultBases return the transports that the libraries make.
var defaultBases = map[string]func() *http.Transport{
	"aplomb":        transport.NewBase,
	"retryablehttp": func() *http.Transport { return retryablehttp.NewClient().HTTPClient.Transport.(*http.Transport) },
	"rehttp":        goDefault,
	"failsafehttp":  goDefault,
	"heimdall":      goDefault,
	"resty":         func() *http.Transport { return resty.New().GetClient().Transport.(*http.Transport) },
	"azcore":        func() *http.Transport { return azureDefault.Transport.(*http.Transport) },
}

// azureDefault is the client of a pipeline that is given none.
//
//go:linkname azureDefault github.com/Azure/azure-sdk-for-go/sdk/internal/transport.DefaultHTTPClient
var azureDefault *http.Client

// connects has a host that drops the packets of the first connection, and then needs 3 s
// for a response.
func connects(t *testing.T, l *library) string {
	return bubble(t, func(t *testing.T) string {
		n := testserver.NewNet()
		server := testserver.Start(t, testserver.Config{Net: n, Host: remote}, testserver.OK("well").Delay(3*time.Second))
		n.Fail(remote, testserver.ErrBlackhole)
		defer time.AfterFunc(attemptTimeout/2, func() { n.Fail(remote, nil) }).Stop()
		e := exchange{method: http.MethodPost, body: "order", deadline: 20 * time.Second}
		o := e.ask(t.Context(), l.newClient(terms{base: server.Transport(), delay: shortDelay}), server.URL)
		return asked(o.err == nil && o.resp.StatusCode == 200 && server.Arrivals() == 1)
	})
}

// connectSetups: the other libraries have a timeout for the whole attempt only.
var connectSetups = func() map[string]func(terms) doer {
	setups := maps.Clone(boundSetups)
	setups["aplomb"] = aplombWith(policy.Rule{ConnectTimeout: attemptTimeout})
	return setups
}()
