// An accepted connection, and HTTP/1.1. The answers are written by hand, because net/http's server cannot
// reset a connection, write malformed responses or respond before an upload ends.

package testserver

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"time"

	"golang.org/x/net/http2"
)

// An h1 is the wire of an HTTP/1.1 answer.
type h1 struct {
	c       *conn
	chunked bool
}

// serveH1 serves the requests of a connection in order.
func serveH1(c *conn) End {
	for {
		req, err := http.ReadRequest(c.br)
		if err != nil {
			return Close
		}
		end, _ := c.s.begin(c.received(req)).handle(&h1{c: c}, req.Body)
		if end == Keep && (req.Close || !req.ProtoAtLeast(1, 1)) {
			end = Close
		}
		if end != Keep {
			return end
		}
	}
}

func (w *h1) inform(code int, h http.Header) error { return w.write(headSection(code, h)) }

func (w *h1) head(code int, h http.Header, f framing, bare bool) error {
	w.chunked = f == byChunks && !bare
	switch {
	case f == byChunks:
		h.Set("Transfer-Encoding", "chunked")
	case f == byClose && !bare:
		h.Set("Connection", "close")
	}
	return w.write(headSection(code, h))
}

func (w *h1) halfHead(code int, h http.Header) error {
	h.Set("X-Cut", "here")
	p := headSection(code, h)
	return w.write(p[:len(p)-len("re\r\n\r\n")])
}

func (w *h1) data(p []byte) error {
	if w.chunked {
		p = fmt.Appendf(nil, "%x\r\n%s\r\n", len(p), p)
	}
	return w.write(p)
}

func (w *h1) finish() error {
	if w.chunked {
		return w.write([]byte("0\r\n\r\n"))
	}
	return nil
}

func (w *h1) literal(p []byte) error { return w.write(p) }
func (w *h1) reply(p []byte) error   { return w.write(p) }
func (w *h1) rest() io.Reader        { return w.c.br }
func (w *h1) h2() *h2stream          { return nil }

func (w *h1) write(p []byte) error {
	if _, err := w.c.c.Write(p); err != nil {
		return errLeft
	}
	return nil
}

// headSection returns a status line, headers and the empty line.
func headSection(code int, h http.Header) []byte {
	var b bytes.Buffer
	text := http.StatusText(code)
	if text == "" {
		text = "Status " + fmt.Sprint(code)
	}
	fmt.Fprintf(&b, "HTTP/1.1 %03d %s\r\n", code, text)
	_ = h.Write(&b) // a buffer does not fail
	b.WriteString("\r\n")
	return b.Bytes()
}

// presence watches the connection with a Peek, which the start of a next request
// also ends. Its bytes stay in the buffer.
func (w *h1) presence(read bool) (context.Context, func()) {
	ctx, cancel := context.WithCancel(w.c.s.ctx)
	if !read {
		return ctx, cancel
	}
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		if _, err := w.c.br.Peek(1); err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
			cancel()
		}
	}()
	return ctx, func() {
		_ = w.c.c.SetReadDeadline(time.Unix(1, 0))
		<-stopped
		_ = w.c.c.SetReadDeadline(time.Time{})
		cancel()
	}
}

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
