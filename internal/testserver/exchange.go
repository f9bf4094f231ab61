// Playing a step over either protocol.

package testserver

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"errors"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// pieceSize is the largest piece of a body that is written at once.
const pieceSize = 16 << 10

// A wire writes an answer over HTTP/1.1 or HTTP/2. Its methods buffer nothing. An
// error means that the client has left or that the server is closing.
type wire interface {
	// inform writes an informational response.
	inform(code int, h http.Header) error
	// head writes the final status and headers. If bare is true, no body follows
	// even if the headers promise one.
	head(code int, h http.Header, f framing, bare bool) error
	// halfHead writes the first part of the header section.
	halfHead(code int, h http.Header) error
	// data writes a piece of the body, and finish writes its end.
	data(p []byte) error
	finish() error
	// literal writes bytes to the connection as they are.
	literal(p []byte) error
	// rest reads the bytes that the client sends through a tunnel, and reply
	// writes to it.
	rest() io.Reader
	reply(p []byte) error
	// presence returns a context that ends when the server closes, or when the client
	// leaves. Over HTTP/1.1 it notices that only if the whole request was read.
	// Otherwise the client's FIN comes after the unread bytes. Nothing else may be
	// called until stop has been called.
	presence(read bool) (ctx context.Context, stop func())
	// h2 returns the stream over HTTP/2, and nil over HTTP/1.1.
	h2() *h2stream
}

// A stop is the error of an exchange that its step ended. The End says how the
// connection goes on.
type stop End

func (stop) Error() string { return "testserver: the step ends the connection" }

// errLeft means that the client has left or that the server is closing.
var errLeft = errors.New("testserver: client left")

// An exchange is a request and the step that answers it. It belongs to a single
// goroutine.
type exchange struct {
	rec    *record
	e      *Arrival
	req    *Received
	st     Step
	choose func(*Received) Step // if not nil, it chooses st

	w    wire
	body *body
	cont bool // the client expects 100 Continue
}

// begin logs a request and takes its step. Both happen under the server's lock, so
// that the n-th request in the log gets the n-th step.
func (s *Server) begin(req *Received) *exchange {
	s.mu.Lock()
	defer s.mu.Unlock()
	x := &exchange{rec: s.rec, req: req}
	x.e = s.rec.arrive(req)
	x.st, x.choose = s.next(req)
	return x
}

// handle plays the step over w. It reads the request body from r. It returns how
// the connection goes on. If left is true, the client or Close has ended the
// exchange.
func (x *exchange) handle(w wire, r io.Reader) (end End, left bool) {
	x.w, x.body = w, newBody(r, x.rec, x.e)
	if x.req.ContentLength == 0 {
		x.body.end(true)
	}
	x.cont = x.req.Proto != "HTTP/1.0" && strings.EqualFold(x.req.Header.Get("Expect"), "100-continue")
	if x.choose != nil {
		x.st = x.choose(x.req)
	}
	err := x.play()
	x.body.end(false) // does nothing if the body has ended
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

// play runs the phases of the step.
func (x *exchange) play() error {
	x.settle()
	if err := x.upload(); err != nil {
		return err
	}
	if after := x.st.after; after != nil {
		ctx, stop := x.w.presence(x.body.ended)
		x.st = after(ctx)
		left := ctx.Err() != nil
		if stop(); left {
			return errLeft
		}
		x.settle()
	}
	for _, i := range x.st.infos {
		if err := x.w.inform(i.code, i.header); err != nil {
			return err
		}
	}
	if x.st.delay > 0 {
		if err := x.pause(x.st.delay); err != nil {
			return err
		}
	}
	if err := x.respond(); err != nil {
		return err
	}
	return x.afterwards()
}

// pause waits for d, or for ever if d is negative. It returns early with an error
// if the client leaves or the server closes.
func (x *exchange) pause(d time.Duration) error {
	ctx, stop := x.w.presence(x.body.ended)
	defer stop()
	var over <-chan time.Time
	if d >= 0 {
		over = time.After(d)
	}
	select {
	case <-over:
		return nil
	case <-ctx.Done():
		return errLeft
	}
}

// settle looks at the request's range, and whether the protocol can express the step.
func (x *exchange) settle() {
	if x.st.kind == ranged {
		x.st = x.st.forRange(x.req)
	}
	if text := x.mismatch(); text != "" {
		x.st = Status(http.StatusInternalServerError).Body(text)
	}
}

// mismatch returns an error text if the protocol cannot express the step.
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

// upload reads the request body, or the part of it that comes before an early
// answer.
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

// respond plays the step's answer or fault.
func (x *exchange) respond() error {
	st, w := &x.st, x.w
	if st.announceGo {
		if err := w.h2().goAway(w.h2().id, NoError); err != nil {
			return err
		}
	}
	switch st.kind {
	case hang:
		return x.pause(-1)
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

// breakOff ends an incomplete answer.
func (x *exchange) breakOff(end End) error {
	switch end {
	case Keep:
		return stop(Close)
	case Stall:
		return x.pause(-1)
	}
	return stop(end)
}

// badChunk writes a good chunk and a malformed chunk.
func (x *exchange) badChunk() error {
	if err := x.w.head(x.status(), x.headers(), byChunks, false); err != nil {
		return err
	}
	if err := x.w.literal([]byte("5\r\nhello\r\nzzz\r\n")); err != nil {
		return err
	}
	return stop(Close)
}

// echo sends back the bytes that come, until the client closes its side.
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

// answer writes an ordinary answer, or its part before the cut.
func (x *exchange) answer() error {
	x.compress()
	f, h := x.frame()
	bare := x.bodiless() || x.req.Method == http.MethodHead
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

// pieces writes the body, or its part before the cut.
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
			if err := x.pause(x.st.dripEvery); err != nil {
				return err
			}
		}
		if err := x.w.data(x.fill(p[:left], off)); err != nil {
			return err
		}
		off += left
	}
}

// cutOff ends the answer in the middle of its body.
func (x *exchange) cutOff() error {
	if x.st.h2cut {
		return x.w.h2().reset(x.st.h2code)
	}
	return x.breakOff(x.st.cutEnd)
}

// fill returns len(p) bytes of the body from offset off. It uses p for bytes of
// the pattern.
func (x *exchange) fill(p []byte, off int64) []byte {
	if x.st.body != nil {
		return x.st.body[off : off+int64(len(p))]
	}
	fillPattern(p, off)
	return p
}

// afterwards does as the step wants after a complete answer.
func (x *exchange) afterwards() error {
	if x.st.rstAfter {
		return x.w.h2().reset(x.st.h2code)
	}
	switch x.st.then {
	case Stall:
		return x.pause(-1)
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

func (x *exchange) status() int { return cmp.Or(x.st.code, http.StatusOK) }

func (x *exchange) size() int64 {
	if x.st.body != nil {
		return int64(len(x.st.body))
	}
	return x.st.size
}

// bodiless reports whether the status allows no body, RFC 9110 section 6.4.1.
func (x *exchange) bodiless() bool {
	code := x.status()
	return code < 200 || code == http.StatusNoContent || code == http.StatusNotModified
}

// compress implements Step.Gzip.
func (x *exchange) compress() {
	if !x.st.gzip || x.st.body == nil {
		return
	}
	var b bytes.Buffer
	z := gzip.NewWriter(&b) // cannot fail, since a buffer does not
	_, _ = z.Write(x.st.body)
	_ = z.Close()
	x.st.body = b.Bytes()
	x.st = x.st.Header("Content-Encoding", "gzip")
}

// headers returns a copy of the step's headers, with a Date unless the step sets
// its own.
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

// frame chooses how the client learns the end of the body, and returns the
// headers for that.
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
	if f == byLength && !x.bodiless() && h.Get("Content-Length") == "" {
		h.Set("Content-Length", strconv.FormatInt(n, 10))
	}
	return f, h
}
