package route

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/net/http2"

	"github.com/aplomb-go/aplomb/internal/host/pool"
)

// basesFor makes the bases that people make. A base gets the certificates of the servers.
func basesFor(roots *x509.CertPool) map[string]*http.Transport {
	config := func() *tls.Config { return &tls.Config{RootCAs: roots} }
	speaking := func(p *http.Protocols) *http.Transport {
		return &http.Transport{TLSClientConfig: config(), Protocols: p}
	}
	registering := func(t *http.Transport, scheme string) *http.Transport {
		t.RegisterProtocol(scheme, answering{})
		return t
	}
	ofNet := &http.Transport{TLSClientConfig: config()}
	//lint:ignore SA1019 old programs still call it
	if err := http2.ConfigureTransport(ofNet); err != nil {
		panic(err)
	}
	return map[string]*http.Transport{
		"the zero value":                        trusting(new(http.Transport), roots),
		"some fields":                           trusting(&http.Transport{MaxIdleConnsPerHost: 100}, roots),
		"a proxy by the environment":            trusting(&http.Transport{Proxy: http.ProxyFromEnvironment}, roots),
		"the default of net/http":               trusting(http.DefaultTransport.(*http.Transport).Clone(), roots),
		"the default base":                      trusting(NewBase(), roots),
		"TLSClientConfig":                       {TLSClientConfig: config()},
		"TLSClientConfig and ForceAttemptHTTP2": {TLSClientConfig: config(), ForceAttemptHTTP2: true},
		"TLSClientConfig with h2": { // net/http alone fails with HTTP/2
			TLSClientConfig: &tls.Config{RootCAs: roots, NextProtos: []string{"h2", "http/1.1"}},
		},
		"DialContext":                       trusting(&http.Transport{DialContext: dialTCP}, roots),
		"DialContext and ForceAttemptHTTP2": trusting(&http.Transport{DialContext: dialTCP, ForceAttemptHTTP2: true}, roots),
		//lint:ignore SA1019 old transports still set Dial
		"Dial":                                 trusting(&http.Transport{Dial: net.Dial}, roots),
		"DialTLSContext":                       {DialTLSContext: dialTLS(roots, "http/1.1")},
		"DialTLSContext and ForceAttemptHTTP2": {DialTLSContext: dialTLS(roots, "h2", "http/1.1"), ForceAttemptHTTP2: true},
		"Protocols with HTTP/2":                speaking(protocols(true, true, false)),
		"Protocols with HTTP/2 only":           speaking(protocols(false, true, false)),
		"Protocols with HTTP/1 only":           speaking(protocols(true, false, false)),
		"Protocols with h2c":                   speaking(protocols(false, true, true)),
		"Protocols and an empty TLSNextProto": {
			TLSClientConfig: config(), TLSNextProto: nextProtos{}, Protocols: protocols(true, true, false),
		},
		"an empty TLSNextProto":      {TLSClientConfig: config(), TLSNextProto: nextProtos{}},
		"HTTP/2 of golang.org/x/net": ofNet,
		"a protocol of its own":      registering(trusting(new(http.Transport), roots), "http+unix"),
		"https of its own":           registering(new(http.Transport), "https"),
		"http of its own":            registering(trusting(new(http.Transport), roots), "http"),
	}
}

type nextProtos = map[string]func(string, *tls.Conn) http.RoundTripper

// trusting adds certificates to a transport after net/http has decided about HTTP/2, so that
// they are no TLSClientConfig of the user's.
func trusting(t *http.Transport, roots *x509.CertPool) *http.Transport {
	t.Clone()
	if t.TLSClientConfig == nil {
		t.TLSClientConfig = new(tls.Config)
	}
	t.TLSClientConfig.RootCAs = roots
	return t
}

func dialTCP(ctx context.Context, network, addr string) (net.Conn, error) {
	return new(net.Dialer).DialContext(ctx, network, addr)
}

func dialTLS(roots *x509.CertPool, next ...string) func(ctx context.Context, network, addr string) (net.Conn, error) {
	return (&tls.Dialer{Config: &tls.Config{RootCAs: roots, NextProtos: next}}).DialContext
}

func protocols(http1, http2, h2c bool) *http.Protocols {
	p := new(http.Protocols)
	p.SetHTTP1(http1)
	p.SetHTTP2(http2)
	p.SetUnencryptedHTTP2(h2c)
	return p
}

// An answering transport knows the answer.
type answering struct{}

func (answering) RoundTrip(req *http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: http.StatusOK, Proto: "own", Body: http.NoBody, Request: req}, nil
}

// The servers by what they speak.
var servers = map[string]func(*httptest.Server){
	"HTTP/1.1":          func(s *httptest.Server) { s.Start() },
	"HTTP/1.1 and h2c":  func(s *httptest.Server) { s.Config.Protocols = protocols(true, false, true); s.Start() },
	"h2c":               func(s *httptest.Server) { s.Config.Protocols = protocols(false, false, true); s.Start() },
	"HTTP/1.1 over TLS": func(s *httptest.Server) { s.StartTLS() },
	"HTTP/2": func(s *httptest.Server) {
		s.EnableHTTP2 = true
		s.TLS = &tls.Config{NextProtos: []string{"h2"}}
		s.StartTLS()
	},
	"HTTP/1.1 and HTTP/2": func(s *httptest.Server) { s.EnableHTTP2 = true; s.StartTLS() },
}

// A pool speaks what the base speaks with each server, or there is no pool. If the server wants
// HTTP/1.1, it speaks that.
func TestPoolsSpeakAsTheirBase(t *testing.T) {
	for spoken, start := range servers {
		s := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
		s.Config.ErrorLog = log.New(io.Discard, "", 0)
		start(s)
		t.Cleanup(s.Close)
		roots := x509.NewCertPool()
		if cert := s.Certificate(); cert != nil {
			roots.AddCert(cert)
		}
		for _, used := range []bool{true, false} {
			for name, base := range basesFor(roots) {
				t.Run(fmt.Sprint(name, " to ", spoken, " ", used), func(t *testing.T) {
					m := NewMaker(base, nil, func(func(*pool.Pools)) {})
					req, err := http.NewRequest(http.MethodGet, s.URL, nil)
					require.NoError(t, err)
					if used {
						_ = speaks(base, req)
					}
					if m.can(req) {
						speaksLike(t, m.open(req, netip.Addr{}, false), speaks(base, req), req)
						if m.canHTTP1(req) && speaks(base, req) != "an error" && strings.HasPrefix(spoken, "HTTP/1.1") {
							speaksLike(t, m.open(req, netip.Addr{}, true), "HTTP/1.1", req)
						}
					} else {
						assert.Contains(t, "HTTP/2 of golang.org/x/net, https of its own, http of its own, Protocols and an empty TLSNextProto", name)
					}
					base.CloseIdleConnections()
				})
			}
		}
	}
}

func speaksLike(t *testing.T, base http.RoundTripper, want string, req *http.Request) {
	assert.Equal(t, want, speaks(base, req))
	base.(*http.Transport).CloseIdleConnections()
}

// speaks returns the protocol of a response, or "an error".
func speaks(base http.RoundTripper, req *http.Request) string {
	resp, err := base.RoundTrip(req)
	if err != nil {
		return "an error"
	}
	_, _ = io.Copy(io.Discard, resp.Body)
	_ = resp.Body.Close()
	return resp.Proto
}

// A scheme of its own is registered with the base only, and a copy could pass MaxConnsPerHost, so there
// are no further pools.
func TestBasesWithOnePool(t *testing.T) {
	for url, base := range map[string]http.RoundTripper{
		"http+unix://socket/": new(http.Transport),
		"http://h.test/":      &http.Transport{MaxConnsPerHost: 1},
		"https://h.test/":     answering{},
	} {
		m := NewMaker(base, nil, func(func(*pool.Pools)) {})
		req, err := http.NewRequest(http.MethodGet, url, nil)
		require.NoError(t, err)
		assert.False(t, m.can(req), url)
	}
}
