// Servers for the clients, and the clients' http.Client.

package e2e

import (
	"cmp"
	"context"
	"crypto/x509"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/aplomb-go/aplomb/policy"
	"github.com/aplomb-go/aplomb/policy/backoff"
	"github.com/aplomb-go/aplomb/transport"
)

// A server counts the requests for a handler. It speaks HTTP/1.1 and HTTP/2.
type server struct {
	url   string
	roots *x509.CertPool // trust it; nil: it speaks without TLS

	mu       sync.Mutex
	requests int
	early    func(n int, w http.ResponseWriter, req *http.Request) bool
}

// newServer starts a server without TLS. serve gets its URL and returns its handler.
func newServer(t testing.TB, serve func(url string) http.Handler) *server {
	t.Helper()
	return startServer(t, false, serve)
}

func startServer(t testing.TB, withTLS bool, serve func(url string) http.Handler) *server {
	t.Helper()
	s := &server{}
	var handler http.Handler
	ts := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		s.mu.Lock()
		s.requests++
		n, early := s.requests, s.early
		s.mu.Unlock()
		if early == nil || !early(n, w, req) {
			handler.ServeHTTP(w, req)
		}
	}))
	ts.Config.ErrorLog = log.New(io.Discard, "", 0)
	ts.Config.Protocols = new(http.Protocols)
	ts.Config.Protocols.SetHTTP1(true)
	ts.Config.Protocols.SetHTTP2(true)
	ts.Config.Protocols.SetUnencryptedHTTP2(true)
	ts.EnableHTTP2 = withTLS
	s.url = "http://" + ts.Listener.Addr().String()
	if withTLS {
		s.url = "https://" + ts.Listener.Addr().String()
	}
	handler = serve(s.url)
	if withTLS {
		ts.StartTLS()
		s.roots = x509.NewCertPool()
		s.roots.AddCert(ts.Certificate())
	} else {
		ts.Start()
	}
	t.Cleanup(func() {
		ts.CloseClientConnections()
		ts.Close()
	})
	return s
}

// answer makes the server ask early about each request. If early returns true, it
// has answered. Requests count from 1 again.
func (s *server) answer(early func(n int, w http.ResponseWriter, req *http.Request) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.early, s.requests = early, 0
}

// seen returns how many requests arrived since the last call of answer.
func (s *server) seen() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.requests
}

// unavailable answers 503 and does not read the request's body.
func unavailable(_ int, w http.ResponseWriter, _ *http.Request) bool {
	http.Error(w, "unavailable", http.StatusServiceUnavailable)
	return true
}

// busyUntil answers the first n-1 requests with a 503 that names a wait of 0 s.
func busyUntil(n int) func(int, http.ResponseWriter, *http.Request) bool {
	return func(i int, w http.ResponseWriter, req *http.Request) bool {
		if i >= n {
			return false
		}
		w.Header().Set("Retry-After", "0")
		return unavailable(i, w, req)
	}
}

// base returns a transport of net/http that goes through the network. It speaks
// HTTP/2 if h2c is set, and HTTP/1.1 otherwise.
func base(t testing.TB, n *network, h2c bool) *http.Transport {
	b := &http.Transport{DialContext: n.dial, Protocols: new(http.Protocols), ExpectContinueTimeout: time.Second}
	b.Protocols.SetHTTP1(!h2c)
	b.Protocols.SetUnencryptedHTTP2(h2c)
	t.Cleanup(b.CloseIdleConnections)
	return b
}

// A recorder keeps what a Transport tells, apart from good ends: the ends of attempts, the attempts to
// continue a body, with the reason retry, and the bad ends of bodies.
type recorder struct {
	mu     sync.Mutex
	events []transport.AttemptEnd
	on     func(n int, e transport.AttemptEnd) // called for the n-th of them
}

func (r *recorder) begin(ctx context.Context, a transport.AttemptStart) context.Context {
	if a.Kind == transport.AttemptResume {
		r.keep(transport.AttemptEnd{Request: a.Request, Host: a.Host, Attempt: transport.Attempt{Offset: a.Offset, Reason: transport.ReasonRetry}})
	}
	return ctx
}

func (r *recorder) body(ctx context.Context, e transport.BodyEnd) {
	if e.Err != nil {
		reason := cmp.Or(transport.ReasonOf(nil, e.Err), transport.ReasonNotResumable)
		r.keep(transport.AttemptEnd{Request: e.Request, Host: e.Host, Attempt: transport.Attempt{Err: e.Err, Reason: reason}})
	}
}

func (r *recorder) attempt(_ context.Context, e transport.AttemptEnd) {
	if e.Reason != transport.ReasonFinal && e.Kind != transport.AttemptResume {
		r.keep(e)
	}
}

func (r *recorder) keep(e transport.AttemptEnd) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.events = append(r.events, e)
	if r.on != nil {
		r.on(len(r.events), e)
	}
}

// told returns what was told so far.
func (r *recorder) told() []transport.AttemptEnd {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]transport.AttemptEnd(nil), r.events...)
}

// under returns a client with a Transport over b. The waits of the back-off are left
// out.
func under(t testing.TB, b http.RoundTripper, rule policy.Rule, on func(int, transport.AttemptEnd)) (*http.Client, *recorder) {
	t.Helper()
	r := &recorder{on: on}
	tr := transport.MustNew(transport.Config{
		Base:   b,
		Rule:   rule.Or(policy.Rule{Backoff: backoff.Constant(0)}),
		Traces: []*transport.Trace{&transport.Trace{AttemptEnd: r.attempt, AttemptStart: r.begin, BodyEnd: r.body}},
	})
	t.Cleanup(func() {
		// A client may end its requests a little after its Close.
		assert.Eventually(t, func() bool {
			return !slices.ContainsFunc(tr.Snapshot().Hosts, func(s transport.HostState) bool { return s.InFlight > 0 })
		}, 20*time.Second, time.Millisecond, "requests are still under way")
	})
	return &http.Client{Transport: tr}, r
}
