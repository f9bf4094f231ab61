// HTTP/2 connections (RFC 9113).
// golang.org/x/net/http2 encodes and decodes the frames. Streams, windows and
// settings are handled here, because net/http's server itself decides when to
// send RST_STREAM and GOAWAY.

package testserver

import (
	"context"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"sync"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// An H2Code is an HTTP/2 error code, RFC 9113 section 7.
type H2Code = http2.ErrCode

// The error codes that tests use.
const (
	NoError          = http2.ErrCodeNo
	ProtocolError    = http2.ErrCodeProtocol
	InternalError    = http2.ErrCodeInternal
	FlowControlError = http2.ErrCodeFlowControl
	RefusedStream    = http2.ErrCodeRefusedStream
	Cancel           = http2.ErrCodeCancel
	EnhanceYourCalm  = http2.ErrCodeEnhanceYourCalm
	HTTP11Required   = http2.ErrCodeHTTP11Required
)

// Our SETTINGS frame has at most the number of streams, so these defaults of RFC 9113 apply
// to us.
const (
	initialWindow   = 65535    // the flow-control window of a stream and of the connection
	maxFrameSize    = 16 << 10 // also the least that every client accepts
	headerTableSize = 4096
)

// lingering limits how long the server waits for the client to close a
// connection after the server has sent FIN. If the server closed the connection
// at once, frames still on their way from the client would turn the FIN into a
// reset.
const lingering = time.Second

// An h2conn is an HTTP/2 connection. The reader is the goroutine that reads its
// frames. Each stream has another goroutine, which plays the step. A Framer is
// not safe for concurrent use, so the reader and each stream have their own. All
// Framers write to the connection through Write.
type h2conn struct {
	c      *conn
	ctx    context.Context // ends when the reader ends or the server closes
	framer *http2.Framer   // the reader's
	tasks  sync.WaitGroup  // counts the goroutines of streams

	// turn is the lock of Write. It is not a mutex, because testing/synctest does
	// not count a goroutine that waits for a mutex as blocked.
	turn chan struct{}

	mu      sync.Mutex    // guards the fields below and the fields of streams, never held while waiting
	changed chan struct{} // closed and replaced at each change
	streams map[uint32]*h2stream
	highest uint32 // the last stream that the client opened
	initial int64  // the send window of a new stream
	window  int64  // how many bytes the client lets us send on the connection
	leaving bool   // we sent GOAWAY, so later streams are ignored
	garbled bool   // we sent bytes that are no frames, so nothing useful can follow
}

// serveH2 serves a connection until it ends.
func serveH2(c *conn) End {
	ctx, cancel := context.WithCancel(c.s.ctx)
	defer cancel()
	h := &h2conn{
		c: c, ctx: ctx, turn: make(chan struct{}, 1),
		changed: make(chan struct{}), streams: map[uint32]*h2stream{},
		initial: initialWindow, window: initialWindow,
	}
	h.framer = http2.NewFramer(h, c.br)
	h.framer.SetMaxReadFrameSize(maxFrameSize)
	h.framer.ReadMetaHeaders = hpack.NewDecoder(headerTableSize, nil)
	h.read()
	cancel() // wakes the streams
	h.tasks.Wait()
	return Close
}

// read handles frames until the connection ends or the client breaks the rules.
func (h *h2conn) read() {
	preface := make([]byte, len(http2.ClientPreface))
	if _, err := io.ReadFull(h.c.br, preface); err != nil || string(preface) != http2.ClientPreface {
		return
	}
	var settings []http2.Setting
	if n := h.c.s.cfg.Streams; n > 0 {
		settings = []http2.Setting{{ID: http2.SettingMaxConcurrentStreams, Val: uint32(n)}}
	}
	err := h.framer.WriteSettings(settings...)
	for err == nil {
		var f http2.Frame
		if f, err = h.framer.ReadFrame(); err == nil {
			err = h.take(f)
		}
	}
}

// Write writes p without bytes of other goroutines in between. So p is a frame, or
// several frames that must follow each other.
func (h *h2conn) Write(p []byte) (int, error) {
	select {
	case h.turn <- struct{}{}:
	case <-h.ctx.Done():
		return 0, errLeft
	}
	defer func() { <-h.turn }()
	n, err := h.c.c.Write(p)
	if err != nil {
		return n, errLeft
	}
	return n, nil
}

// update changes fields that h.mu guards and wakes the goroutines that wait for
// a change.
func (h *h2conn) update(change func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	change()
	close(h.changed)
	h.changed = make(chan struct{})
}

// play plays the step of a stream. Then it ends the connection if the step or an
// earlier GOAWAY asks for that.
func (h *h2conn) play(st *h2stream, x *exchange) {
	defer st.cancel()
	end, left := x.handle(st, st)
	h.mu.Lock()
	delete(h.streams, st.id)
	last := h.garbled || h.leaving && len(h.streams) == 0
	h.mu.Unlock()
	switch {
	case left && !last: // the client gave up this stream only
	case end == Reset:
		h.c.reset()
	case end != Keep || last:
		h.close()
	}
}

// close sends FIN. The reader goes on for a while, see lingering.
func (h *h2conn) close() {
	if w, ok := h.c.c.(interface{ CloseWrite() error }); ok {
		_ = w.CloseWrite()
	}
	_ = h.c.c.SetReadDeadline(time.Now().Add(lingering))
}

// take handles a frame from the client.
func (h *h2conn) take(f http2.Frame) error {
	switch f := f.(type) {
	case *http2.MetaHeadersFrame:
		h.takeHeaders(f)
	case *http2.DataFrame:
		return h.takeData(f)
	case *http2.SettingsFrame:
		return h.takeSettings(f)
	case *http2.WindowUpdateFrame:
		h.takeWindow(f)
	case *http2.RSTStreamFrame:
		h.mu.Lock()
		defer h.mu.Unlock()
		if st := h.streams[f.StreamID]; st != nil {
			st.cancel()
		}
	case *http2.PingFrame:
		if !f.IsAck() {
			return h.framer.WritePing(true, f.Data)
		}
	}
	return nil // other frames mean nothing to a test server
}

// takeHeaders opens a stream. If the stream is open already, these are the
// trailers of its request.
func (h *h2conn) takeHeaders(f *http2.MetaHeadersFrame) {
	var opened *h2stream
	h.update(func() {
		st := h.streams[f.StreamID]
		switch {
		case st != nil:
			st.ended = st.ended || f.StreamEnded()
		case !h.leaving && f.StreamID > h.highest:
			opened = h.newStream(f)
			h.streams[f.StreamID] = opened
			h.highest = f.StreamID
		}
	})
	if opened == nil {
		return
	}
	req := h2received(f)
	req.Conn = h.c.id
	x := h.c.s.begin(req)
	h.tasks.Go(func() { h.play(opened, x) })
}

// h2received describes an HTTP/2 request.
func h2received(f *http2.MetaHeadersFrame) *Received {
	r := &Received{
		Proto: "HTTP/2.0", Method: f.PseudoValue("method"), Target: f.PseudoValue("path"),
		Host: f.PseudoValue("authority"), Header: http.Header{}, ContentLength: -1, Stream: f.StreamID,
	}
	for _, field := range f.RegularFields() {
		r.Header.Add(field.Name, field.Value)
	}
	if r.Target == "" {
		r.Target = r.Host // CONNECT has no path
	}
	r.Path = r.Target
	if u, err := url.ParseRequestURI(r.Target); err == nil {
		r.Path = u.Path
	}
	if n, err := strconv.ParseInt(r.Header.Get("Content-Length"), 10, 64); err == nil {
		r.ContentLength = n
	}
	if f.StreamEnded() {
		r.ContentLength = 0
	}
	return r
}

// takeData buffers a piece of a request body. It opens the connection's window
// again at once. The stream's window opens when the step reads the piece, see
// h2stream.Read. So if a step does not read its body, other streams can go on.
func (h *h2conn) takeData(f *http2.DataFrame) error {
	h.update(func() {
		if st := h.streams[f.StreamID]; st != nil {
			st.buf = append(st.buf, f.Data()...)
			st.ended = st.ended || f.StreamEnded()
		}
	})
	if f.Length == 0 {
		return nil
	}
	return h.framer.WriteWindowUpdate(0, f.Length)
}

// takeSettings applies the client's window for streams, including those that are
// open already, and acknowledges.
func (h *h2conn) takeSettings(f *http2.SettingsFrame) error {
	if f.IsAck() {
		return nil
	}
	if v, ok := f.Value(http2.SettingInitialWindowSize); ok {
		h.update(func() {
			for _, st := range h.streams {
				st.window += int64(v) - h.initial
			}
			h.initial = int64(v)
		})
	}
	return h.framer.WriteSettingsAck()
}

// takeWindow lets the connection or a stream send more.
func (h *h2conn) takeWindow(f *http2.WindowUpdateFrame) {
	h.update(func() {
		if f.StreamID == 0 {
			h.window += int64(f.Increment)
		} else if st := h.streams[f.StreamID]; st != nil {
			st.window += int64(f.Increment)
		}
	})
}
