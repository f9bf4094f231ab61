// A client that is slow, and the trailer of its request.

package proxy

import (
	"errors"
	"io"
	"maps"
	"net/http"
	"os"
	"sync"
	"time"
)

// A downstream bounds how long the client of a request may take. It has the timeout
// for each piece of the request's body, and twice as long to read each piece of the
// response. A client that sends or reads nothing would otherwise keep the upstream
// busy for ever. There is no bound for the whole, because an upload may be large and
// an event stream may last for days.
type downstream struct {
	http.ResponseWriter
	conn    *http.ResponseController
	timeout time.Duration // 0: none
	request *http.Request
	body    io.ReadCloser

	trailer http.Header // filled at the end of the body

	mu    sync.Mutex // guards the fields below, and the deadline for reading
	ended bool       // the body is closed or the handler has returned
	whole bool       // the body has been read
	late  bool       // the client took too long for a piece of the body
}

// newDownstream returns the client's side of a request, and the request with a body that keeps to the
// deadlines.
func newDownstream(w http.ResponseWriter, r *http.Request, timeout time.Duration) (*downstream, *http.Request) {
	c := &downstream{ResponseWriter: w, conn: http.NewResponseController(w), timeout: timeout, request: r, body: r.Body, trailer: r.Trailer.Clone()}
	c.whole = r.Body == nil || r.Body == http.NoBody
	// The fields are announced, and without values yet.
	maps.DeleteFunc(c.trailer, func(name string, _ []string) bool { return !isTrailer(name) })
	if len(c.trailer) == 0 {
		c.trailer = nil
	}
	out := r.WithContext(r.Context())
	if !c.whole {
		out.Body = c
	}
	out.Trailer = c.trailer
	return c, out
}

// Unwrap lets an http.ResponseController find the connection.
func (c *downstream) Unwrap() http.ResponseWriter { return c.ResponseWriter }

// Write writes a piece of the response.
func (c *downstream) Write(p []byte) (int, error) {
	c.hurry()
	return c.ResponseWriter.Write(p)
}

// WriteHeader writes the header of the response, or an informational response.
func (c *downstream) WriteHeader(status int) {
	c.hurry()
	c.ResponseWriter.WriteHeader(status)
}

// hurry sets the deadline for the client to take what is written next. It stays until the
// next piece, because the flush comes later. Before the header the server may wait for a
// piece of the body, so the deadline is later than that for the piece.
func (c *downstream) hurry() {
	if c.timeout > 0 {
		_ = c.conn.SetWriteDeadline(time.Now().Add(2 * c.timeout))
	}
}

// Read reads a piece of the request's body.
func (c *downstream) Read(p []byte) (int, error) {
	if !c.await(c.timeout) {
		return 0, http.ErrBodyReadAfterClose
	}
	n, err := c.body.Read(p)
	if err == io.EOF {
		// The server has read the announced fields of the trailer with the end of the body,
		// and the transport sends them after it.
		for name := range c.trailer {
			c.trailer[name] = c.request.Trailer[name]
		}
	}
	c.mu.Lock()
	c.whole = c.whole || err == io.EOF
	c.late = c.late || errors.Is(err, os.ErrDeadlineExceeded)
	c.mu.Unlock()
	// After the body the server reads on, to see whether the client goes away. That may take
	// any time, and this may be a Read after the end.
	c.await(0)
	return n, err
}

// Close closes the request's body. The server then reads on, to use the connection for
// another request.
func (c *downstream) Close() error {
	c.end()
	return c.body.Close()
}

// await sets the deadline for the next piece of the body, or removes it. It returns false
// if the body is closed or the handler has returned. The transport may read the body of a
// request that has its response already, and the connection may be at the next request
// then.
func (c *downstream) await(timeout time.Duration) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended {
		return false
	}
	deadline := time.Time{}
	if timeout > 0 {
		deadline = time.Now().Add(timeout)
	}
	_ = c.conn.SetReadDeadline(deadline)
	return true
}

// end ends the reading of the body. The server then reads some of the rest, if there is a
// rest, and a last deadline bounds that.
func (c *downstream) end() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended {
		return
	}
	c.ended = true
	if !c.whole && c.timeout > 0 {
		_ = c.conn.SetReadDeadline(time.Now().Add(c.timeout))
	}
}

// isLate reports whether the client took too long for a piece of the body.
func (c *downstream) isLate() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.late
}
