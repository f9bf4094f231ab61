// An accepted connection, from its first byte to its end.

package testserver

import (
	"bufio"
	"crypto/tls"
	"io"
	"net"
	"net/http"

	"golang.org/x/net/http2"
)

// A conn is a connection that the server accepted. The goroutine that runs serve
// owns it. Other goroutines call only reset and raw.Close.
type conn struct {
	s   *Server
	id  int
	raw net.Conn // the transport connection
	c   net.Conn // raw itself, or TLS over raw
	br  *bufio.Reader
}

// serve serves the connection and closes it.
func (c *conn) serve() {
	defer c.s.dismiss(c)
	defer c.raw.Close()
	if !c.handshake() {
		return
	}
	c.br = bufio.NewReader(c.c)
	// Four bytes are enough to recognize HTTP/2, because PRI is no method.
	if first, _ := c.br.Peek(4); string(first) == http2.ClientPreface[:4] {
		c.finish(serveH2(c))
		return
	}
	c.finish(serveH1(c))
}

// handshake plays the handshake that Config.TLS chooses. It returns false if the
// connection cannot serve requests.
func (c *conn) handshake() bool {
	c.c = c.raw
	switch c.s.cfg.TLS {
	case NoTLS:
		return true
	case HangingHandshake:
		_, _ = io.Copy(io.Discard, c.raw)
		return false
	case PlainAnswer:
		// Close with unread bytes would send a reset and lose the answer. So read
		// before the answer, and until the client closes.
		_, _ = c.raw.Read(make([]byte, 4096))
		_, _ = io.WriteString(c.raw, "HTTP/1.0 400 Bad Request\r\n\r\nplain HTTP only\n")
		c.c, c.br = c.raw, bufio.NewReader(c.raw)
		c.finish(HalfClose)
		return false
	}
	cfg := c.s.certs.server.Clone()
	cfg.NextProtos = []string{"http/1.1"}
	if c.s.cfg.HTTP2 {
		cfg.NextProtos = []string{"h2", "http/1.1"}
	}
	t := tls.Server(c.raw, cfg)
	c.c = t
	return t.HandshakeContext(c.s.ctx) == nil
}

// finish ends the connection as end says.
func (c *conn) finish(end End) {
	switch end {
	case Reset:
		c.reset()
	case HalfClose:
		if w, ok := c.c.(interface{ CloseWrite() error }); ok {
			_ = w.CloseWrite()
		}
		_, _ = io.Copy(io.Discard, c.br)
		_ = c.c.Close()
	default:
		_ = c.c.Close()
	}
}

// reset closes the connection with an RST.
func (c *conn) reset() {
	if l, ok := c.raw.(interface{ SetLinger(int) error }); ok {
		_ = l.SetLinger(0)
	}
	_ = c.raw.Close()
}

// received describes an HTTP/1.1 request.
func (c *conn) received(r *http.Request) *Received {
	return &Received{
		Conn: c.id, Proto: r.Proto, Method: r.Method, Target: r.RequestURI,
		Path: r.URL.Path, Host: r.Host, Header: r.Header, ContentLength: r.ContentLength,
	}
}
