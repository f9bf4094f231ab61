// HTTP/2 streams. A stream carries a request and its answer.

package testserver

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// An h2stream reads the body of a request and is the wire of the answer.
type h2stream struct {
	h      *h2conn
	id     uint32
	ctx    context.Context // ends when the client resets the stream, or with the connection
	cancel context.CancelFunc
	framer *http2.Framer // only for writing

	// The following fields are guarded by h.mu.
	buf    []byte // body bytes that arrived and were not read yet
	ended  bool   // END_STREAM arrived
	window int64  // how many bytes the client lets us send
}

// newStream makes a stream; the lock is held.
func (h *h2conn) newStream(f *http2.MetaHeadersFrame) *h2stream {
	ctx, cancel := context.WithCancel(h.ctx)
	return &h2stream{
		h: h, id: f.StreamID, ctx: ctx, cancel: cancel, framer: http2.NewFramer(h, nil),
		ended: f.StreamEnded(), window: h.initial,
	}
}

// Read reads the request body and opens the stream's window for more of it.
func (st *h2stream) Read(p []byte) (int, error) {
	for {
		st.h.mu.Lock()
		n := copy(p, st.buf)
		st.buf = st.buf[n:]
		ended, changed := st.ended, st.h.changed
		st.h.mu.Unlock()
		switch {
		case n > 0 && ended:
			return n, nil // no more will come, so the window can stay closed
		case n > 0:
			return n, st.framer.WriteWindowUpdate(st.id, uint32(n))
		case ended:
			return 0, io.EOF
		}
		if st.wait(changed) != nil {
			return 0, io.ErrUnexpectedEOF
		}
	}
}

// wait returns nil after a change, or errLeft when the stream has ended.
func (st *h2stream) wait(changed <-chan struct{}) error {
	select {
	case <-changed:
		return nil
	case <-st.ctx.Done():
		return errLeft
	}
}

func (st *h2stream) h2() *h2stream        { return st }
func (st *h2stream) rest() io.Reader      { return st }
func (st *h2stream) reply(p []byte) error { return st.data(p) }

func (st *h2stream) inform(code int, h http.Header) error {
	_, err := st.h.Write(st.headers(code, h, false))
	return err
}

func (st *h2stream) head(code int, h http.Header, _ framing, bare bool) error {
	_, err := st.h.Write(st.headers(code, h, bare))
	return err
}

func (st *h2stream) halfHead(code int, h http.Header) error {
	p := st.headers(code, h, false)
	return st.literal(p[:len(p)/2])
}

// headers encodes a header section. A long section takes several frames, which
// must follow each other on the connection.
func (st *h2stream) headers(code int, h http.Header, end bool) []byte {
	var frames bytes.Buffer // never fails, so the framer does not fail either
	framer := http2.NewFramer(&frames, nil)
	parts := slices.Collect(slices.Chunk(headerBlock(code, h), maxFrameSize))
	last := len(parts) - 1
	_ = framer.WriteHeaders(http2.HeadersFrameParam{
		StreamID: st.id, BlockFragment: parts[0], EndStream: end, EndHeaders: last == 0,
	})
	for i := 1; i <= last; i++ {
		_ = framer.WriteContinuation(st.id, i == last, parts[i])
	}
	return frames.Bytes()
}

// headerBlock encodes a header section. It uses no dynamic table, so that the
// streams of a connection need not agree on the order of their blocks.
func headerBlock(code int, h http.Header) []byte {
	var b bytes.Buffer
	enc := hpack.NewEncoder(&b)
	enc.SetMaxDynamicTableSize(0)
	_ = enc.WriteField(hpack.HeaderField{Name: ":status", Value: strconv.Itoa(code)})
	for name, values := range h {
		name = strings.ToLower(name)
		switch name {
		case "connection", "transfer-encoding", "keep-alive", "upgrade":
			continue // RFC 9113 section 8.2.2 forbids them
		}
		for _, v := range values {
			_ = enc.WriteField(hpack.HeaderField{Name: name, Value: v})
		}
	}
	return b.Bytes()
}

func (st *h2stream) literal(p []byte) error {
	st.h.update(func() { st.h.garbled = true })
	_, err := st.h.Write(p)
	return err
}

func (st *h2stream) data(p []byte) error {
	for len(p) > 0 {
		n, err := st.reserve(min(len(p), maxFrameSize))
		if err != nil {
			return err
		}
		if err := st.framer.WriteData(st.id, false, p[:n]); err != nil {
			return err
		}
		p = p[n:]
	}
	return nil
}

// reserve waits until the client's windows have room, and takes up to n bytes of
// it.
func (st *h2stream) reserve(n int) (int, error) {
	for st.ctx.Err() == nil {
		st.h.mu.Lock()
		room := min(int64(n), st.window, st.h.window)
		if room > 0 {
			st.window -= room
			st.h.window -= room
		}
		changed := st.h.changed
		st.h.mu.Unlock()
		if room > 0 {
			return int(room), nil
		}
		if err := st.wait(changed); err != nil {
			return 0, err
		}
	}
	return 0, errLeft
}

func (st *h2stream) finish() error {
	return st.framer.WriteData(st.id, true, nil)
}

func (st *h2stream) presence(bool) (context.Context, func()) { return st.ctx, func() {} }

// reset sends RST_STREAM. That ends the exchange but not the connection.
func (st *h2stream) reset(code H2Code) error {
	if err := st.framer.WriteRSTStream(st.id, code); err != nil {
		return err
	}
	return stop(Keep)
}

// goAway sends GOAWAY. The connection ends when its last stream ends.
func (st *h2stream) goAway(last uint32, code H2Code) error {
	st.h.update(func() { st.h.leaving = true })
	return st.framer.WriteGoAway(last, code, nil)
}

// refuseAndGo sends a GOAWAY that excludes this stream.
func (st *h2stream) refuseAndGo(code H2Code) error {
	below := max(st.id, 2) - 2 // clients use odd numbers
	if err := st.goAway(below, code); err != nil {
		return err
	}
	return stop(Keep)
}
