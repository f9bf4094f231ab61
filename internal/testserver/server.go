// The server: its configuration, listening, routes and Close.

package testserver

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"
)

// A Config says how a Server listens and answers. The zero Config is HTTP/1.1 over
// TCP on a free port of 127.0.0.1.
type Config struct {
	// Net is the network in memory on which the server listens. If Net is nil, the
	// server listens on TCP on 127.0.0.1.
	Net *Net
	// Host is the server's name in Net, and "fault.test" if empty. It may include a
	// port. The default port is 80, or 443 with TLS. Without Net, Host is ignored.
	Host string

	// HTTP2 makes Transport and Client speak HTTP/2. With TLS, the server offers
	// HTTP/2 by ALPN. Without TLS, the clients use prior knowledge (h2c), and the
	// server understands both protocols even if HTTP2 is false.
	HTTP2 bool
	// Streams is the number of streams that a connection of HTTP/2 may have at once, as
	// the server tells its clients. Zero tells them nothing.
	Streams int
	// TLS chooses how the server uses TLS. Zero means no TLS.
	TLS TLS

	// Routes are scripts for some requests, each with its own counter. A key is
	// "host/path", "/path" or "host", without port and query. The server looks the
	// keys up in this order. Requests without a route get the steps given to New.
	Routes map[string]Script
	// Handler chooses the step of a request that has no route. If Handler is set,
	// New takes no steps. Handler is called when the headers have arrived, and
	// concurrently for concurrent requests.
	Handler func(*Received) Step

	// Refusing makes the server refuse connections until Listen is called. Over
	// TCP another process could take the port meanwhile.
	Refusing bool
	// ListenAfter makes the server refuse connections for this time. Zero means
	// that the server listens at once. If it cannot listen then, it goes on refusing.
	ListenAfter time.Duration
}

// A Received describes a request to a Handler, and in the log.
type Received struct {
	N      int    // counts from 1 over all routes and connections
	Conn   int    // counts connections from 1 in the order of Accept
	Proto  string // "HTTP/1.1" or "HTTP/2.0"
	Method string
	Target string // path and query as sent, or host:port for CONNECT
	Path   string
	Host   string
	Header http.Header

	ContentLength int64 // -1 if unknown

	Stream uint32 // the HTTP/2 stream, or 0 over HTTP/1.1
}

// A Server plays scripts. Its methods are safe for concurrent use.
type Server struct {
	// URL is the server's address without a trailing slash.
	URL string
	// Addr is the address to dial, "host:port".
	Addr string

	cfg    Config
	certs  *certs
	rec    *record
	ctx    context.Context // ends at Close, which wakes all goroutines that wait
	cancel context.CancelFunc
	tasks  sync.WaitGroup // counts the goroutines of the server
	client func() *http.Client
	later  *time.Timer // listens after Config.ListenAfter

	mu         sync.Mutex // guards the fields below
	closed     bool
	listener   net.Listener // nil while refusing
	bound      net.Listener // has the port until Listen takes it
	conns      map[*conn]struct{}
	counters   map[string]int // number of steps taken per route, with "" for no route
	transports []*http.Transport
	script     Script
}

// New starts a server that plays the steps in the order of arrival, and the last
// step for all later requests. The caller must close the server. New fails if the
// Config is invalid or if there is no free port.
func New(cfg Config, steps ...Step) (*Server, error) {
	if cfg.Handler != nil && len(steps) > 0 {
		return nil, errors.New("testserver: both a Handler and steps")
	}
	s := &Server{
		cfg: cfg, script: steps, rec: newRecord(),
		conns: map[*conn]struct{}{}, counters: map[string]int{},
	}
	s.client = sync.OnceValue(func() *http.Client { return &http.Client{Transport: s.Transport()} })
	if err := s.prepare(); err != nil {
		s.Close()
		return nil, err
	}
	switch {
	case cfg.Refusing:
	case cfg.ListenAfter > 0:
		s.later = time.AfterFunc(cfg.ListenAfter, func() { _ = s.Listen() })
	default:
		if err := s.Listen(); err != nil {
			s.Close()
			return nil, err
		}
	}
	return s, nil
}

// A TB is the part of *testing.T that Start uses.
type TB interface {
	Helper()
	Fatal(args ...any)
	Cleanup(func())
}

// Start calls New for a test. It fails the test if New fails, and closes the server
// when the test ends. In a synctest bubble, pass the bubble's own t.
func Start(t TB, cfg Config, steps ...Step) *Server {
	t.Helper()
	s, err := New(cfg, steps...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

// prepare chooses the address and makes the certificates.
func (s *Server) prepare() error {
	s.ctx, s.cancel = context.WithCancel(context.Background())
	scheme, port := "http", "80"
	if s.cfg.TLS != NoTLS {
		scheme, port = "https", "443"
	}
	if s.cfg.Net == nil {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return fmt.Errorf("testserver: no port: %w", err)
		}
		s.bound, s.Addr = l, l.Addr().String()
		s.URL = scheme + "://" + s.Addr
		if s.cfg.Refusing || s.cfg.ListenAfter > 0 {
			s.unbind()
		}
	} else {
		host := s.cfg.Host
		if host == "" {
			host = "fault.test"
		}
		s.Addr, s.URL = host, scheme+"://"+host
		if !strings.Contains(host, ":") {
			s.Addr = net.JoinHostPort(host, port)
		}
		s.cfg.Net.know(s.Addr)
	}
	var err error
	s.certs, err = newCerts(s.cfg.TLS, s.Addr)
	return err
}

// Listen makes the server accept connections, after Config.Refusing or Refuse. If
// the server listens already, Listen does nothing.
func (s *Server) Listen() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return fmt.Errorf("testserver: Listen after Close: %w", net.ErrClosed)
	}
	if s.listener != nil {
		return nil
	}
	l, err := s.bound, error(nil)
	switch {
	case s.cfg.Net != nil:
		l, err = s.cfg.Net.Listen(s.Addr)
	case l == nil:
		l, err = net.Listen("tcp", s.Addr)
	}
	if err != nil {
		return fmt.Errorf("testserver: %w", err)
	}
	s.listener, s.bound = l, nil
	s.tasks.Go(func() { s.accept(l) })
	return nil
}

// unbind gives up the port that nobody listens at yet.
func (s *Server) unbind() {
	if s.bound != nil {
		_ = s.bound.Close()
		s.bound = nil
	}
}

// Refuse makes the server refuse new connections until Listen is called. Open
// connections go on. To end them too, call ResetAll.
func (s *Server) Refuse() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.listener != nil {
		_ = s.listener.Close()
		s.listener = nil
	}
}

// ResetAll resets every open connection, like a crash and restart.
func (s *Server) ResetAll() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.conns {
		c.reset()
	}
}

// Close ends the listener, the connections and the steps that wait. It also closes
// the idle connections of the transports from Transport. When Close returns, all
// goroutines of the server have ended. A second Close does nothing.
func (s *Server) Close() {
	s.mu.Lock()
	s.closed = true
	if s.listener != nil {
		_ = s.listener.Close()
		s.listener = nil
	}
	s.unbind()
	for c := range s.conns {
		_ = c.raw.Close()
	}
	transports := s.transports
	s.mu.Unlock()

	s.cancel()
	if s.later != nil {
		s.later.Stop()
	}
	for _, t := range transports {
		t.CloseIdleConnections()
	}
	if s.cfg.Net != nil {
		s.cfg.Net.endSilent()
	}
	s.tasks.Wait()
}

// accept serves connections until the listener is closed.
func (s *Server) accept(l net.Listener) {
	for {
		raw, err := l.Accept()
		if err != nil {
			return
		}
		c := s.admit(raw)
		if c == nil {
			_ = raw.Close()
			return
		}
		s.tasks.Go(c.serve)
	}
}

// admit registers a connection, so that Close finds it. After Close it returns nil.
func (s *Server) admit(raw net.Conn) *conn {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil
	}
	c := &conn{s: s, raw: raw}
	s.conns[c] = struct{}{}
	s.rec.update(func() {
		s.rec.accepted++
		s.rec.open++
		c.id = s.rec.accepted
	})
	return c
}

// dismiss forgets a connection that was closed.
func (s *Server) dismiss(c *conn) {
	s.mu.Lock()
	delete(s.conns, c)
	s.mu.Unlock()
	s.rec.update(func() { s.rec.open-- })
}

// next returns the step for a request, or the Handler that chooses the step; the
// lock is held.
func (s *Server) next(r *Received) (Step, func(*Received) Step) {
	route, script := "", s.script
	host := r.Host
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	for _, key := range []string{host + r.Path, r.Path, host} {
		if found, ok := s.cfg.Routes[key]; ok {
			route, script = key, found
			break
		}
	}
	if route == "" && s.cfg.Handler != nil {
		return Step{}, s.cfg.Handler
	}
	i := s.counters[route]
	s.counters[route]++
	if len(script) == 0 {
		return Step{}, nil
	}
	return script[min(i, len(script)-1)], nil
}

// Transport returns a new transport that reaches the server. It dials Config.Net if
// that is set. It trusts the server's certificate if Config.TLS says so. It
// speaks HTTP/2 if Config.HTTP2 is set. It uses no proxy. The caller may change
// its fields before the first use.
func (s *Server) Transport() *http.Transport {
	t := &http.Transport{Protocols: new(http.Protocols)}
	if s.cfg.Net != nil {
		t.DialContext = s.cfg.Net.DialContext
	}
	if s.cfg.TLS != NoTLS {
		t.TLSClientConfig = &tls.Config{RootCAs: s.certs.roots}
	}
	t.Protocols.SetHTTP1(!s.cfg.HTTP2 || s.cfg.TLS != NoTLS)
	t.Protocols.SetHTTP2(s.cfg.HTTP2 && s.cfg.TLS != NoTLS)
	t.Protocols.SetUnencryptedHTTP2(s.cfg.HTTP2 && s.cfg.TLS == NoTLS)

	s.mu.Lock()
	defer s.mu.Unlock()
	s.transports = append(s.transports, t)
	return t
}

// Client returns a client that uses such a transport. All calls return the same
// client. It has no timeout.
func (s *Server) Client() *http.Client { return s.client() }
