// Where does the server listen, and who may connect to it?

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

// A Config says where a Server runs and what it answers. The zero Config is
// HTTP/1.1 over TCP on a free port of 127.0.0.1.
type Config struct {
	// Net puts the server into a network in memory; nil means TCP on 127.0.0.1.
	Net *Net
	// Host is the server's name in Net; empty means "fault.test". A port may be
	// given; otherwise it is 80, or 443 with TLS. Ignored without Net.
	Host string

	// HTTP2 makes Transport and Client speak HTTP/2: offered by ALPN with TLS,
	// with prior knowledge (h2c) without. A server without TLS understands both
	// whatever this says.
	HTTP2 bool
	// TLS says how the server uses TLS; zero means not at all.
	TLS TLS

	// Routes are scripts for some requests, each with its own counter. A key is
	// "host/path", "/path" or "host", without port and query; the first of these
	// that exists counts. What has no route meets the steps given to New.
	Routes map[string]Script
	// Handler chooses the step when no route does; with it, New takes no steps.
	// It is called when the headers have arrived, by several goroutines at a
	// time if requests are.
	Handler func(*Received) Step

	// Refusing makes connections be refused until Listen is called. The address
	// is known and reserved from the start.
	Refusing bool
	// ListenAfter does the same and calls Listen after that time; zero means to
	// listen at once.
	ListenAfter time.Duration
}

// A Received is what a Handler sees of a request: its headers.
type Received struct {
	N      int    // from 1, over all routes and connections
	Conn   int    // which connection, from 1
	Proto  string // "HTTP/1.1" or "HTTP/2.0"
	Method string
	Target string // path and query as sent, or host:port for CONNECT
	Path   string
	Host   string
	Header http.Header

	ContentLength int64 // -1 if unknown

	stream uint32
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
	ctx    context.Context // ends at Close; everything that waits waits for it, too
	cancel context.CancelFunc
	tasks  sync.WaitGroup // one for each goroutine of the server

	mu         sync.Mutex // guards what follows
	closed     bool
	listener   net.Listener // nil while refusing
	reserved   reservation
	conns      map[*conn]struct{}
	counters   map[string]int // steps taken, by route; "" for the rest
	transports []*http.Transport
	client     *http.Client
	script     Script
}

// New starts a server that plays the steps in the order of arrival, the last
// one for ever. It must be closed. The error is about the Config or about the
// machine having no port to give.
func New(cfg Config, steps ...Step) (*Server, error) {
	if cfg.Handler != nil && len(steps) > 0 {
		return nil, errors.New("testserver: both a Handler and steps")
	}
	s := &Server{
		cfg: cfg, script: steps, rec: newRecord(),
		conns: map[*conn]struct{}{}, counters: map[string]int{},
	}
	if err := s.prepare(); err != nil {
		return nil, err
	}
	if cfg.Refusing {
		return s, nil
	}
	if cfg.ListenAfter > 0 {
		s.tasks.Go(s.listenLater)
		return s, nil
	}
	if err := s.Listen(); err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

// A TB is what Start needs of a *testing.T.
type TB interface {
	Helper()
	Fatal(args ...any)
	Cleanup(func())
}

// Start is New for tests: it fails the test on an error and closes the server
// at its end. In a synctest bubble t must be the bubble's own.
func Start(t TB, cfg Config, steps ...Step) *Server {
	t.Helper()
	s, err := New(cfg, steps...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

// prepare fixes the address and makes the certificates.
func (s *Server) prepare() error {
	s.ctx, s.cancel = context.WithCancel(context.Background())
	scheme, port := "http", "80"
	if s.cfg.TLS != NoTLS {
		scheme, port = "https", "443"
	}
	if s.cfg.Net == nil {
		r, err := reserve()
		if err != nil {
			return fmt.Errorf("testserver: no port: %w", err)
		}
		s.reserved, s.Addr = r, r.addr()
		s.URL = scheme + "://" + s.Addr
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

// listenLater is ListenAfter. That the port is gone by then shows as connections
// being refused for ever.
func (s *Server) listenLater() {
	t := time.NewTimer(s.cfg.ListenAfter)
	defer t.Stop()
	select {
	case <-t.C:
		_ = s.Listen()
	case <-s.ctx.Done():
	}
}

// Listen begins to accept connections, after Config.Refusing or Refuse. It does
// nothing where the server listens already.
func (s *Server) Listen() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return fmt.Errorf("testserver: Listen after Close: %w", net.ErrClosed)
	}
	if s.listener != nil {
		return nil
	}
	var err error
	if s.cfg.Net != nil {
		s.listener, err = s.cfg.Net.Listen(s.Addr)
	} else {
		s.listener, err = s.reserved.listen()
	}
	if err != nil {
		s.listener = nil
		return fmt.Errorf("testserver: %w", err)
	}
	l := s.listener
	s.tasks.Go(func() { s.accept(l) })
	return nil
}

// Refuse makes new connections be refused until Listen; open ones go on. See
// ResetAll for those.
func (s *Server) Refuse() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.listener == nil {
		return nil
	}
	_ = s.listener.Close()
	s.listener = nil
	if s.cfg.Net != nil {
		return nil
	}
	var err error
	s.reserved, err = reserveAgain(s.Addr)
	return err
}

// ResetAll resets every open connection, as a crash and restart would.
func (s *Server) ResetAll() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.conns {
		c.reset()
	}
}

// Close ends everything: the listener, the connections, every step that waits.
// When it returns no goroutine of the server is left. It also closes the idle
// connections of the transports it gave away. A second Close does nothing.
func (s *Server) Close() {
	s.mu.Lock()
	s.closed = true
	if s.listener != nil {
		_ = s.listener.Close()
		s.listener = nil
	}
	if s.reserved != nil {
		s.reserved.release()
		s.reserved = nil
	}
	for c := range s.conns {
		_ = c.raw.Close()
	}
	transports := s.transports
	s.mu.Unlock()

	s.cancel()
	for _, t := range transports {
		t.CloseIdleConnections()
	}
	s.tasks.Wait()
}

// accept serves what connects until the listener is closed.
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

// admit registers a connection, so that Close finds it; nil after Close.
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

// dismiss is called when a connection is closed.
func (s *Server) dismiss(c *conn) {
	s.mu.Lock()
	delete(s.conns, c)
	s.mu.Unlock()
	s.rec.update(func() { s.rec.open-- })
}

// next finds the step for a request, or the Handler that chooses it. The caller
// holds s.mu.
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

// Transport makes a new transport that reaches the server: it dials Config.Net,
// trusts the certificate if Config.TLS means it to, speaks HTTP/2 if
// Config.HTTP2 is set, and uses no proxy. Its fields may be changed before its
// first use.
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

// Client is a client over one such transport, the same at each call. It has no
// timeout.
func (s *Server) Client() *http.Client {
	s.mu.Lock()
	c := s.client
	s.mu.Unlock()
	if c != nil {
		return c
	}
	c = &http.Client{Transport: s.Transport()}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.client == nil { // another goroutine may have been faster
		s.client = c
	}
	return s.client
}
