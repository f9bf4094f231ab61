// How are requests read and steps written over HTTP/2 (RFC 9113)? By hand,
// because net/http's server chooses its own RST_STREAM and GOAWAY.

package testserver

import (
	"encoding/binary"
	"errors"
	"io"
	"net/http"
	"net/textproto"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"
)

// An H2Code is an HTTP/2 error code, RFC 9113 section 7.
type H2Code uint32

// The error codes of RFC 9113 that tests have a use for.
const (
	NoError          H2Code = 0x0
	ProtocolError    H2Code = 0x1
	InternalError    H2Code = 0x2
	FlowControlError H2Code = 0x3
	RefusedStream    H2Code = 0x7
	Cancel           H2Code = 0x8
	EnhanceYourCalm  H2Code = 0xb
	HTTP11Required   H2Code = 0xd
)

// initialWindow is the flow-control window that both sides begin with. Ours
// stays so, which bounds what a stream buffers.
const initialWindow = 65535

// lingering bounds how long a connection that we close waits for the client to
// close it as well. Closing at once could turn the FIN into a reset, if frames
// of the client crossed it.
const lingering = time.Second

// An h2conn is one HTTP/2 connection. One goroutine reads frames, one per stream
// plays its step.
type h2conn struct {
	c     *conn
	write chan struct{} // holds one token: who has it may write. A mutex would
	// not do: waiting for it does not count as blocked in a synctest bubble.
	dead  chan struct{} // closed when the reader has ended
	hpack *hpackDecoder // the reader's
	tasks sync.WaitGroup

	mu        sync.Mutex    // guards what follows and all streams; never held while waiting
	changed   chan struct{} // closed and replaced at each change
	streams   map[uint32]*h2stream
	highest   uint32 // the last stream opened
	initial   int64  // the client's initial window for streams
	window    int64  // how much we may send on the connection
	frameSize int64  // how much we may send in a frame
	leaving   bool   // a GOAWAY was sent: later streams are not served
	garbled   bool   // the client can make no sense of what follows
}

// An h2stream is one request and the wire of its answer.
type h2stream struct {
	h  *h2conn
	id uint32

	// The following are guarded by h.mu.
	gone   chan struct{} // closed when the client resets the stream
	buf    []byte        // DATA that arrived and was not yet read
	ended  bool          // END_STREAM arrived
	window int64         // how much we may send
}

// serveH2 serves a connection until it ends.
func serveH2(c *conn) End {
	h := &h2conn{
		c: c, write: make(chan struct{}, 1), dead: make(chan struct{}), hpack: newHPACKDecoder(),
		changed: make(chan struct{}), streams: map[uint32]*h2stream{},
		initial: initialWindow, window: initialWindow, frameSize: 16384,
	}
	h.read()
	close(h.dead)
	h.tasks.Wait()
	return Close
}

// play runs the step of one stream, then does to the connection what the step
// wants.
func (h *h2conn) play(st *h2stream, x *exchange) {
	end, left := x.handle(st, st)
	h.mu.Lock()
	delete(h.streams, st.id)
	last := h.garbled || h.leaving && len(h.streams) == 0
	h.mu.Unlock()
	switch {
	case left && !last: // this stream's client has left, others may go on
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

// update changes what h.mu guards and wakes who waits for it.
func (h *h2conn) update(change func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	change()
	close(h.changed)
	h.changed = make(chan struct{})
}

// --- the client's frames

// The types and flags of frames, RFC 9113 section 6.
const (
	frameData         = 0x0
	frameHeaders      = 0x1
	frameRSTStream    = 0x3
	frameSettings     = 0x4
	framePing         = 0x6
	frameGoAway       = 0x7
	frameWindowUpdate = 0x8
	frameContinuation = 0x9

	flagAck        = 0x1
	flagEndStream  = 0x1
	flagEndHeaders = 0x4
	flagPadded     = 0x8
	flagPriority   = 0x20
)

// A frame is one frame of the client's.
type frame struct {
	kind, flags uint8
	stream      uint32
	payload     []byte
}

func (f frame) has(flag uint8) bool { return f.flags&flag != 0 }

var errFrame = errors.New("testserver: malformed HTTP/2 frame")

// read handles frames until the connection ends or the client breaks the rules.
func (h *h2conn) read() {
	preface := make([]byte, len(h2preface))
	if _, err := io.ReadFull(h.c.br, preface); err != nil || string(preface) != h2preface {
		return
	}
	if h.frame(frameSettings, 0, 0, nil) != nil {
		return
	}
	for {
		f, err := readFrame(h.c.br)
		if err != nil || h.take(f) != nil {
			return
		}
	}
}

// readFrame reads one frame of at most 16 KiB, the limit that our SETTINGS leave.
func readFrame(r io.Reader) (frame, error) {
	var head [9]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return frame{}, err
	}
	f := frame{kind: head[3], flags: head[4], stream: binary.BigEndian.Uint32(head[5:]) &^ (1 << 31)}
	n := int(head[0])<<16 | int(head[1])<<8 | int(head[2])
	if n > 16384 {
		return frame{}, errFrame
	}
	f.payload = make([]byte, n)
	_, err := io.ReadFull(r, f.payload)
	return f, err
}

// take handles one frame.
func (h *h2conn) take(f frame) error {
	switch f.kind {
	case frameHeaders:
		return h.takeHeaders(f)
	case frameData:
		return h.takeData(f)
	case frameRSTStream:
		h.takeReset(f.stream)
	case frameSettings:
		return h.takeSettings(f)
	case frameWindowUpdate:
		return h.takeWindow(f)
	case framePing:
		if !f.has(flagAck) {
			return h.frame(framePing, flagAck, 0, f.payload)
		}
	}
	return nil // PRIORITY, the client's GOAWAY, and what we do not know
}

// takeHeaders opens a stream, or takes its trailers.
func (h *h2conn) takeHeaders(f frame) error {
	block, err := unpad(f)
	if err != nil {
		return err
	}
	for done := f.has(flagEndHeaders); !done; {
		more, err := readFrame(h.c.br)
		if err != nil || more.kind != frameContinuation || len(block) > 1<<20 {
			return errFrame
		}
		block = append(block, more.payload...)
		done = more.has(flagEndHeaders)
	}
	fields, err := h.hpack.decode(block) // always: the table is the connection's
	if err != nil {
		return err
	}
	h.mu.Lock()
	_, known := h.streams[f.stream]
	ignore := h.leaving || f.stream <= h.highest
	h.mu.Unlock()
	switch {
	case known && f.has(flagEndStream):
		h.endOf(f.stream)
		return nil
	case known || ignore:
		return nil
	}
	h.open(f, fields)
	return nil
}

// open begins to play a new stream.
func (h *h2conn) open(f frame, fields []field) {
	st := &h2stream{h: h, id: f.stream, gone: make(chan struct{}), ended: f.has(flagEndStream)}
	h.update(func() {
		st.window = h.initial
		h.streams[st.id] = st
		h.highest = st.id
	})
	req := h2received(fields, f.has(flagEndStream))
	req.Conn, req.stream = h.c.id, f.stream
	x := h.c.s.begin(req)
	h.tasks.Go(func() { h.play(st, x) })
}

// h2received describes an HTTP/2 request.
func h2received(fields []field, ended bool) *Received {
	r := &Received{Proto: "HTTP/2.0", Header: http.Header{}, ContentLength: -1}
	for _, f := range fields {
		switch f.name {
		case ":method":
			r.Method = f.value
		case ":path":
			r.Target = f.value
		case ":authority":
			r.Host = f.value
		case ":scheme", ":protocol":
		default:
			r.Header.Add(textproto.CanonicalMIMEHeaderKey(f.name), f.value)
		}
	}
	if r.Target == "" {
		r.Target = r.Host // CONNECT
	}
	r.Path = r.Target
	if u, err := url.ParseRequestURI(r.Target); err == nil {
		r.Path = u.Path
	}
	if n, err := strconv.ParseInt(r.Header.Get("Content-Length"), 10, 64); err == nil {
		r.ContentLength = n
	}
	if ended {
		r.ContentLength = 0
	}
	return r
}

// takeData buffers a piece of a request body. The connection's window is opened
// again at once, the stream's when the piece is read (see h2stream.Read), so
// that a body nobody reads stops its own stream only.
func (h *h2conn) takeData(f frame) error {
	data, err := unpad(f)
	if err != nil {
		return err
	}
	over := false
	h.update(func() {
		st := h.streams[f.stream]
		if st == nil {
			return
		}
		st.buf = append(st.buf, data...)
		st.ended = st.ended || f.has(flagEndStream)
		over = len(st.buf) > initialWindow
	})
	switch {
	case over:
		return errFrame
	case len(f.payload) == 0:
		return nil
	}
	return h.frame(frameWindowUpdate, 0, 0, uint32s(uint32(len(f.payload))))
}

func (h *h2conn) endOf(id uint32) {
	h.update(func() {
		if st := h.streams[id]; st != nil {
			st.ended = true
		}
	})
}

func (h *h2conn) takeReset(id uint32) {
	h.update(func() {
		st := h.streams[id]
		if st == nil {
			return
		}
		select {
		case <-st.gone:
		default:
			close(st.gone)
		}
	})
}

// takeSettings heeds what limits our sending, and acknowledges.
func (h *h2conn) takeSettings(f frame) error {
	if f.has(flagAck) {
		return nil
	}
	for p := f.payload; len(p) >= 6; p = p[6:] {
		value := int64(binary.BigEndian.Uint32(p[2:]))
		switch binary.BigEndian.Uint16(p) {
		case 4: // INITIAL_WINDOW_SIZE: also for the streams that are open
			h.update(func() {
				for _, st := range h.streams {
					st.window += value - h.initial
				}
				h.initial = value
			})
		case 5: // MAX_FRAME_SIZE
			h.update(func() { h.frameSize = value })
		}
	}
	return h.frame(frameSettings, flagAck, 0, nil)
}

func (h *h2conn) takeWindow(f frame) error {
	if len(f.payload) != 4 {
		return errFrame
	}
	more := int64(binary.BigEndian.Uint32(f.payload) &^ (1 << 31))
	h.update(func() {
		if f.stream == 0 {
			h.window += more
		} else if st := h.streams[f.stream]; st != nil {
			st.window += more
		}
	})
	return nil
}

// unpad takes padding and priority off HEADERS and DATA.
func unpad(f frame) ([]byte, error) {
	p, pad := f.payload, 0
	if f.has(flagPadded) {
		if len(p) == 0 {
			return nil, errFrame
		}
		pad, p = int(p[0]), p[1:]
	}
	if f.kind == frameHeaders && f.has(flagPriority) {
		pad += 5 // in front, but it counts the same
		if len(p) < pad {
			return nil, errFrame
		}
		p, pad = p[5:], pad-5
	}
	if len(p) < pad {
		return nil, errFrame
	}
	return p[:len(p)-pad], nil
}

// --- our frames

// frame writes one frame.
func (h *h2conn) frame(kind, flags uint8, stream uint32, payload []byte) error {
	return h.bytes(appendFrame(nil, kind, flags, stream, payload))
}

func appendFrame(p []byte, kind, flags uint8, stream uint32, payload []byte) []byte {
	n := len(payload)
	p = append(p, byte(n>>16), byte(n>>8), byte(n), kind, flags)
	p = binary.BigEndian.AppendUint32(p, stream)
	return append(p, payload...)
}

func uint32s(values ...uint32) []byte {
	var p []byte
	for _, v := range values {
		p = binary.BigEndian.AppendUint32(p, v)
	}
	return p
}

// bytes writes to the connection when it is this goroutine's turn.
func (h *h2conn) bytes(p []byte) error {
	select {
	case h.write <- struct{}{}:
	case <-h.dead:
		return errLeft
	}
	defer func() { <-h.write }()
	if _, err := h.c.c.Write(p); err != nil {
		return errLeft
	}
	return nil
}

// block encodes a header section.
func headerBlock(code int, h http.Header) []byte {
	p := appendField(nil, ":status", strconv.Itoa(code))
	for name, values := range h {
		switch strings.ToLower(name) {
		case "connection", "transfer-encoding", "keep-alive", "upgrade":
			continue // RFC 9113 section 8.2.2
		}
		for _, v := range values {
			p = appendField(p, name, v)
		}
	}
	return p
}

// headers writes a header section, in as many frames as it needs.
func (st *h2stream) headers(block []byte, flags uint8) error {
	const room = 16384 // every client takes frames of this size
	kind, p := uint8(frameHeaders), []byte(nil)
	for len(block) > room {
		p = appendFrame(p, kind, flags, st.id, block[:room])
		kind, flags, block = frameContinuation, 0, block[room:]
	}
	p = appendFrame(p, kind, flags|flagEndHeaders, st.id, block)
	return st.h.bytes(p) // at once: nothing may come in between
}

func (st *h2stream) bind(*body)    {}
func (st *h2stream) h2() *h2stream { return st }

func (st *h2stream) inform(code int, h http.Header) error {
	return st.headers(headerBlock(code, h), 0)
}

func (st *h2stream) head(code int, h http.Header, _ framing, bare bool) error {
	var flags uint8
	if bare {
		flags = flagEndStream
	}
	return st.headers(headerBlock(code, h), flags)
}

// halfHead promises a frame and writes half of it.
func (st *h2stream) halfHead(code int, h http.Header) error {
	p := appendFrame(nil, frameHeaders, flagEndHeaders, st.id, headerBlock(code, h))
	return st.literal(p[:9+(len(p)-9)/2])
}

func (st *h2stream) data(p []byte) error {
	for len(p) > 0 {
		n, err := st.reserve(len(p))
		if err != nil {
			return err
		}
		if err := st.h.frame(frameData, 0, st.id, p[:n]); err != nil {
			return err
		}
		p = p[n:]
	}
	return nil
}

// reserve waits until the client's windows have room, and takes up to n of it.
func (st *h2stream) reserve(n int) (int, error) {
	for {
		st.h.mu.Lock()
		room := min(int64(n), st.window, st.h.window, st.h.frameSize)
		if room > 0 {
			st.window -= room
			st.h.window -= room
		}
		changed := st.h.changed
		st.h.mu.Unlock()
		if room > 0 {
			return int(room), st.alive()
		}
		if err := st.wait(changed); err != nil {
			return 0, err
		}
	}
}

// alive fails if the client has left the stream.
func (st *h2stream) alive() error {
	select {
	case <-st.gone:
		return errLeft
	default:
		return nil
	}
}

// wait waits for a change, as long as there is somebody to wait for.
func (st *h2stream) wait(changed <-chan struct{}) error {
	select {
	case <-changed:
		return nil
	case <-st.gone:
	case <-st.h.dead:
	case <-st.h.c.s.ctx.Done():
	}
	return errLeft
}

func (st *h2stream) finish() error { return st.h.frame(frameData, flagEndStream, st.id, nil) }

func (st *h2stream) literal(p []byte) error {
	st.h.update(func() { st.h.garbled = true })
	return st.h.bytes(p)
}

func (st *h2stream) reply(p []byte) error { return st.data(p) }
func (st *h2stream) rest() io.Reader      { return st }

// Read reads the request body and opens the stream's window for more.
func (st *h2stream) Read(p []byte) (int, error) {
	for {
		st.h.mu.Lock()
		n := copy(p, st.buf)
		st.buf = st.buf[n:]
		ended, changed := st.ended, st.h.changed
		st.h.mu.Unlock()
		switch {
		case n > 0 && ended:
			return n, nil // nothing more will come: no window to open
		case n > 0:
			return n, st.h.frame(frameWindowUpdate, 0, st.id, uint32s(uint32(n)))
		case ended:
			return 0, io.EOF
		}
		if err := st.wait(changed); err != nil {
			return 0, io.ErrUnexpectedEOF
		}
	}
}

func (st *h2stream) pause(d time.Duration) error {
	var timer <-chan time.Time
	if d >= 0 {
		t := time.NewTimer(d)
		defer t.Stop()
		timer = t.C
	}
	select {
	case <-timer:
		return nil
	case <-st.gone:
	case <-st.h.dead:
	case <-st.h.c.s.ctx.Done():
	}
	return errLeft
}

func (st *h2stream) idle() error { return st.pause(-1) }

// reset sends RST_STREAM, which ends the exchange and leaves the connection.
func (st *h2stream) reset(code H2Code) error {
	if err := st.h.frame(frameRSTStream, 0, st.id, uint32s(uint32(code))); err != nil {
		return err
	}
	return stop(Keep)
}

// goAway sends GOAWAY. The connection ends with its last stream.
func (st *h2stream) goAway(last uint32, code H2Code) error {
	st.h.update(func() { st.h.leaving = true })
	return st.h.frame(frameGoAway, 0, 0, uint32s(last, uint32(code)))
}

// refuseAndGo sends a GOAWAY that excludes this stream.
func (st *h2stream) refuseAndGo(code H2Code) error {
	below := uint32(0)
	if st.id > 2 {
		below = st.id - 2
	}
	if err := st.goAway(below, code); err != nil {
		return err
	}
	return stop(Keep)
}
