// Handler, which serves requests without a connection.

package faults

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"sync"
)

// Handler returns a base for [New] that serves requests from h without a
// connection. The handler runs in a goroutine of its own, as in an http.Server. So
// the response begins when the handler writes its header, and its body is read
// while the handler writes. The handler's context ends with the request's context,
// and when the caller closes the body of the response.
//
// If the handler panics, the request fails like a connection that the server
// closed, and the error has the text of the panic. With http.ErrAbortHandler the
// error is that of a closed connection alone. Handler is not a whole server. In
// particular the handler cannot hijack the connection, send trailers or
// informational responses.
func Handler(h http.Handler) http.RoundTripper { return handler{h} }

type handler struct{ http.Handler }

func (h handler) RoundTrip(req *http.Request) (*http.Response, error) {
	ctx, cancel := context.WithCancel(req.Context())
	if ctx.Err() != nil {
		cancel()
		closeBody(req)
		return nil, context.Cause(req.Context())
	}
	r, w := io.Pipe()
	rw := &responseWriter{header: http.Header{}, pipe: w, bodiless: req.Method == http.MethodHead, begun: make(chan struct{})}
	closed := sync.OnceFunc(func() { closeBody(req) })
	context.AfterFunc(ctx, closed) // a Read by the handler ends when the caller leaves
	go func() {
		defer cancel()
		err := h.serve(rw, received(ctx, req))
		closed()
		rw.finish(err)
	}()
	select {
	case <-rw.begun:
	case <-req.Context().Done():
		err := context.Cause(req.Context())
		_ = r.CloseWithError(err)
		return nil, err
	}
	if rw.err != nil {
		return nil, rw.err
	}
	resp := Step{code: rw.code, header: rw.sent}.response(req)
	length, err := strconv.ParseInt(rw.sent.Get("Content-Length"), 10, 64)
	if err != nil || length < 0 {
		length = -1
		resp.Header.Del("Content-Length")
	}
	resp.ContentLength = length
	if !rw.bodiless {
		stop := context.AfterFunc(req.Context(), func() { _ = w.CloseWithError(context.Cause(req.Context())) })
		resp.Body = &served{pipe: r, left: length, cancel: cancel, stop: stop}
	}
	return resp, nil
}

// serve runs the handler. It returns an error if the handler panics.
func (h handler) serve(w http.ResponseWriter, req *http.Request) (err error) {
	defer func() {
		switch p := recover(); p {
		case nil:
		case http.ErrAbortHandler:
			err = io.ErrUnexpectedEOF
		default:
			err = fmt.Errorf("faults: the handler panicked: %v: %w", p, io.ErrUnexpectedEOF)
		}
	}()
	h.ServeHTTP(w, req)
	return nil
}

// received returns a request as a server would see it.
func received(ctx context.Context, req *http.Request) *http.Request {
	r := req.Clone(ctx)
	r.Proto, r.ProtoMajor, r.ProtoMinor = "HTTP/1.1", 1, 1
	r.RequestURI = r.URL.RequestURI()
	r.RemoteAddr = "192.0.2.1:1234" // RFC 5737
	r.GetBody = nil
	r.Method, r.Host = cmp.Or(r.Method, http.MethodGet), cmp.Or(r.Host, r.URL.Host)
	r.Body = cmp.Or[io.ReadCloser](r.Body, http.NoBody)
	return r
}

// A responseWriter hands what a handler writes to the reader of the response. Only
// the handler's goroutine writes its fields.
type responseWriter struct {
	header http.Header
	pipe   *io.PipeWriter

	// RoundTrip reads these fields once begun is closed.
	begun    chan struct{}
	once     sync.Once
	code     int
	sent     http.Header
	bodiless bool  // the response to HEAD, a 204 and a 304 have no body
	err      error // there is no response
}

func (w *responseWriter) Header() http.Header { return w.header }

func (w *responseWriter) WriteHeader(code int) {
	if code < 200 {
		return // informational
	}
	w.once.Do(func() {
		w.code, w.sent = code, w.header.Clone()
		w.bodiless = w.bodiless || code == http.StatusNoContent || code == http.StatusNotModified
		close(w.begun)
	})
}

func (w *responseWriter) Write(p []byte) (int, error) {
	w.WriteHeader(http.StatusOK)
	if w.bodiless || len(p) == 0 {
		return len(p), nil
	}
	return w.pipe.Write(p)
}

// Flush sends the header. Nothing else is kept back.
func (w *responseWriter) Flush() { w.WriteHeader(http.StatusOK) }

// finish ends the response after the handler has returned or panicked.
func (w *responseWriter) finish(err error) {
	if err == nil {
		w.WriteHeader(http.StatusOK)
	}
	w.once.Do(func() {
		w.err = err
		close(w.begun)
	})
	_ = w.pipe.CloseWithError(err) // nil means io.EOF
}

// A served is the body of a handler's response. It ends with the request's context.
type served struct {
	pipe   *io.PipeReader
	left   int64 // of the promised length; negative: unknown
	cancel context.CancelFunc
	stop   func() bool // the look at the request's context
}

func (s *served) Read(p []byte) (int, error) {
	n, err := s.pipe.Read(p)
	if s.left >= 0 {
		s.left = max(s.left-int64(n), 0)
	}
	if err == io.EOF && s.left > 0 {
		err = io.ErrUnexpectedEOF
	}
	return n, err
}

func (s *served) Close() error {
	s.stop()
	s.cancel()
	return s.pipe.CloseWithError(http.ErrBodyReadAfterClose)
}
