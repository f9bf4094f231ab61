// How is a step played, whatever the protocol?

package testserver

import (
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// pieceSize is how much of a body is written at a time.
const pieceSize = 16 << 10

// A wire writes one answer in the words of a protocol. Each method writes
// through to the connection before it returns; an error means that the client
// has left, or that the server is closing.
type wire interface {
	// bind tells the wire which body it may not read behind.
	bind(b *body)
	// inform writes an informational response.
	inform(code int, h http.Header) error
	// head writes the final status and headers; bare says that no body follows,
	// whatever the headers promise.
	head(code int, h http.Header, f framing, bare bool) error
	// halfHead writes the first part of what head would write.
	halfHead(code int, h http.Header) error
	// data writes a piece of the body, finish its end.
	data(p []byte) error
	finish() error
	// literal writes bytes to the connection.
	literal(p []byte) error
	// rest reads what the client sends after the headers, for a tunnel, and
	// reply answers it.
	rest() io.Reader
	reply(p []byte) error
	// pause waits; for ever if d is negative.
	pause(d time.Duration) error
	// idle waits for ever without reading what the client sends.
	idle() error
	// h2 is nil for HTTP/1.1.
	h2() *h2stream
}

// A stop ends an exchange in a way that concerns the connection.
type stop End

func (stop) Error() string { return "testserver: the step ends the connection" }

// errLeft says that the client has gone, or that the server is closing.
var errLeft = errors.New("testserver: client left")

// An exchange is a request and its answer in the making. One goroutine plays it.
type exchange struct {
	rec    *record
	e      *entry
	req    *Received
	st     Step
	choose func(*Received) Step // if not nil, st is its choice

	w    wire
	body *body
	cont bool // the client waits for 100 Continue
}

// begin logs a request and takes its step, both at once: the n-th arrival gets
// the n-th step. Requests of one connection begin in their order.
func (s *Server) begin(req *Received) *exchange {
	s.mu.Lock()
	defer s.mu.Unlock()
	x := &exchange{rec: s.rec, req: req}
	x.e = s.rec.arrive(req)
	x.st, x.choose = s.next(req)
	return x
}

// handle plays the step over w, with r as the request body, and says what
// becomes of the connection; left says that it was the client's, or Close's,
// doing.
func (x *exchange) handle(w wire, r io.Reader) (end End, left bool) {
	x.w, x.body = w, newBody(r, x.rec, x.e)
	w.bind(x.body)
	if x.req.ContentLength == 0 {
		x.body.end(true)
	}
	x.cont = x.req.Proto != "HTTP/1.0" && strings.EqualFold(x.req.Header.Get("Expect"), "100-continue")
	if x.choose != nil {
		x.st = x.choose(x.req)
	}
	err := x.play()
	x.body.end(false) // unless it has ended
	var s stop
	switch {
	case err == nil:
		end = Keep
	case errors.As(err, &s):
		end = End(s)
	default:
		end, left = Close, true
	}
	x.rec.done(x.e, left)
	return end, left
}

// play goes through the phases of a step.
func (x *exchange) play() error {
	if x.st.kind == ranged {
		x.st = x.st.forRange(x.req)
	}
	if text := x.mismatch(); text != "" {
		x.st = Status(http.StatusInternalServerError).Body(text)
	}
	if err := x.upload(); err != nil {
		return err
	}
	for _, i := range x.st.infos {
		if err := x.w.inform(i.code, i.header); err != nil {
			return err
		}
	}
	if x.st.delay > 0 {
		if err := x.w.pause(x.st.delay); err != nil {
			return err
		}
	}
	if err := x.respond(); err != nil {
		return err
	}
	return x.afterwards()
}

// mismatch names a step that the protocol cannot express.
func (x *exchange) mismatch() string {
	st := &x.st
	http2only := st.kind == resetStream || st.kind == goAwayBelow || st.kind == goAwayEqual ||
		st.h2cut || st.announceGo || st.rstAfter
	http1only := st.kind == badChunk || st.kind == switching
	switch {
	case http2only && x.w.h2() == nil:
		return "testserver: this step needs HTTP/2"
	case http1only && x.w.h2() != nil:
		return "testserver: this step needs HTTP/1.1"
	}
	return ""
}

// upload reads as much of the request body as the step wants before it answers.
func (x *exchange) upload() error {
	var from io.Reader = x.body
	switch {
	case x.st.early == 1, x.body.ended, x.st.kind == tunnel, x.st.kind == switching:
		return nil
	case x.st.early > 1:
		from = io.LimitReader(x.body, x.st.early-1)
	}
	if x.cont {
		if err := x.w.inform(http.StatusContinue, nil); err != nil {
			return err
		}
	}
	if _, err := io.Copy(io.Discard, from); err != nil {
		return errLeft
	}
	return nil
}

// respond plays what is particular to the kind of step.
func (x *exchange) respond() error {
	st, w := &x.st, x.w
	if st.announceGo {
		if err := w.h2().goAway(w.h2().id, NoError); err != nil {
			return err
		}
	}
	switch st.kind {
	case hang:
		return w.pause(-1)
	case cutBeforeHeaders:
		return x.breakOff(st.cutEnd)
	case cutInHeaders:
		if err := w.halfHead(x.status(), x.headers()); err != nil {
			return err
		}
		return x.breakOff(st.cutEnd)
	case rawBytes:
		if err := w.literal([]byte(st.raw)); err != nil {
			return err
		}
		return x.breakOff(st.then)
	case badChunk:
		return x.badChunk()
	case switching, tunnel:
		return x.echo()
	case resetStream:
		return w.h2().reset(st.h2code)
	case goAwayBelow:
		return w.h2().refuseAndGo(st.h2code)
	case goAwayEqual:
		if err := w.h2().goAway(w.h2().id, st.h2code); err != nil {
			return err
		}
		return stop(Close)
	}
	return x.answer()
}

// breakOff ends an answer that is not complete.
func (x *exchange) breakOff(end End) error {
	switch end {
	case Keep:
		return stop(Close)
	case Stall:
		return x.w.pause(-1)
	}
	return stop(end)
}

// badChunk writes one chunk that is good and one that is not.
func (x *exchange) badChunk() error {
	if err := x.w.head(x.status(), x.headers(), byChunks, false); err != nil {
		return err
	}
	if err := x.w.literal([]byte("5\r\nhello\r\nzzz\r\n")); err != nil {
		return err
	}
	return stop(Close)
}

// echo sends back what comes, until the client has said everything.
func (x *exchange) echo() error {
	h := x.headers()
	if x.st.kind == switching {
		h.Set("Connection", "Upgrade")
		h.Set("Upgrade", x.st.raw)
	}
	if err := x.w.head(x.status(), h, byClose, x.w.h2() == nil); err != nil {
		return err
	}
	from, p := x.w.rest(), make([]byte, 4096)
	for {
		n, err := from.Read(p)
		if n > 0 {
			if err := x.w.reply(p[:n]); err != nil {
				return err
			}
		}
		if err == io.EOF && x.w.h2() != nil {
			return x.w.finish()
		}
		if err != nil {
			return stop(Close)
		}
	}
}

// answer writes an ordinary answer, up to its cut if it has one.
func (x *exchange) answer() error {
	x.compress()
	f, h := x.frame()
	bare := !x.mayHaveBody()
	if err := x.w.head(x.status(), h, f, bare); err != nil {
		return err
	}
	if bare {
		return nil
	}
	if err := x.pieces(); err != nil {
		return err
	}
	if err := x.w.finish(); err != nil {
		return err
	}
	short := x.st.length-1 > x.size()
	if x.w.h2() == nil && (short || f == byClose) {
		return stop(Close)
	}
	return nil
}

// pieces writes the body.
func (x *exchange) pieces() error {
	size, room := x.size(), pieceSize
	if x.st.dripEvery > 0 || x.st.dripBytes > 0 {
		room = x.st.dripBytes
	}
	p := make([]byte, min(room, pieceSize))
	for off := int64(0); ; {
		left := int64(len(p))
		if size >= 0 {
			left = min(left, size-off)
		}
		if x.st.cut > 0 {
			left = min(left, x.st.cut-1-off)
		}
		switch {
		case left > 0:
		case x.st.cut > 0 && off >= x.st.cut-1:
			return x.cutOff()
		default:
			return nil
		}
		if x.st.dripEvery > 0 {
			if err := x.w.pause(x.st.dripEvery); err != nil {
				return err
			}
		}
		if err := x.w.data(x.fill(p[:left], off)); err != nil {
			return err
		}
		off += left
	}
}

// cutOff ends the body before its end.
func (x *exchange) cutOff() error {
	if x.st.h2cut {
		return x.w.h2().reset(x.st.h2code)
	}
	return x.breakOff(x.st.cutEnd)
}

// fill is the piece of the body at off, in p if it has to be made.
func (x *exchange) fill(p []byte, off int64) []byte {
	if x.st.body != nil {
		return x.st.body[off : off+int64(len(p))]
	}
	fillPattern(p, off)
	return p
}

// afterwards is what follows a complete answer.
func (x *exchange) afterwards() error {
	if x.st.rstAfter {
		return x.w.h2().reset(x.st.h2code)
	}
	switch x.st.then {
	case Stall:
		if x.body.ended {
			return x.w.pause(-1)
		}
		return x.w.idle()
	case Keep:
		if x.body.ended {
			return nil
		}
		if _, err := io.Copy(io.Discard, x.body); err != nil {
			return errLeft
		}
		return nil
	}
	return stop(x.st.then)
}

func (x *exchange) status() int {
	if x.st.code == 0 {
		return http.StatusOK
	}
	return x.st.code
}

func (x *exchange) size() int64 {
	if x.st.body != nil {
		return int64(len(x.st.body))
	}
	return x.st.size
}

// mayHaveBody is RFC 9110 section 6.4.1.
func (x *exchange) mayHaveBody() bool {
	code := x.status()
	return x.req.Method != http.MethodHead &&
		code >= 200 && code != http.StatusNoContent && code != http.StatusNotModified
}

// compress applies Gzip.
func (x *exchange) compress() {
	if !x.st.gzip || x.st.body == nil {
		return
	}
	var b bytes.Buffer
	z := gzip.NewWriter(&b) // writes to a buffer do not fail
	_, _ = z.Write(x.st.body)
	_ = z.Close()
	x.st.body = b.Bytes()
	x.st = x.st.Header("Content-Encoding", "gzip")
}

// headers are the step's own, a copy, and the date.
func (x *exchange) headers() http.Header {
	h := x.st.header.Clone()
	if h == nil {
		h = http.Header{}
	}
	switch date, set := h["Date"]; {
	case !set:
		h.Set("Date", time.Now().UTC().Format(http.TimeFormat))
	case date[0] == "":
		h.Del("Date")
	}
	return h
}

// frame decides how the end of the body is told, and says so in the headers.
func (x *exchange) frame() (framing, http.Header) {
	h := x.headers()
	f, n := x.st.framing, x.size()
	if x.st.length > 0 {
		f, n = byLength, x.st.length-1
	}
	if f == byLength && n < 0 {
		f = byChunks
	}
	if f == byChunks && x.req.Proto == "HTTP/1.0" {
		f = byClose
	}
	code := x.status()
	lengthless := code < 200 || code == http.StatusNoContent || code == http.StatusNotModified
	if f == byLength && !lengthless && h.Get("Content-Length") == "" {
		h.Set("Content-Length", strconv.FormatInt(n, 10))
	}
	return f, h
}
